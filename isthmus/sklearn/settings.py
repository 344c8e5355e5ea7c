"""Checks of what the user gives: parameters, the device, and scikit-learn's errors about rows in one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator


def to_python(value: Any) -> Any:
    """A number of numpy's, such as a grid search passes, as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def find_device(name: Any) -> torch.device:
    try:
        if not isinstance(name, str | torch.device):
            raise RuntimeError
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r} is not a torch device; try 'cpu' or 'cuda'") from None
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError):  # the latter where torch was built without it
        raise ValueError(f"device={str(name)!r} is not on this machine; try 'cpu'") from None
    return device


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0


_ACCEPTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pathway": (lambda value: isinstance(value, str | dict), "a name such as 'ladder', or a dict with a name"),
    "learning_rate": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "alpha": (lambda value: value == "auto" or (is_number(value) and value >= 0), "'auto' or a number from 0"),
    "batch_size": (lambda value: value == "auto" or is_count(value), "'auto' or a whole number above 0"),
    "max_iter": (is_count, "a whole number above 0"),
    "early_stopping": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "validation_fraction": (lambda value: is_number(value) and 0 < value < 1, "a number between 0 and 1"),
    "n_iter_no_change": (is_count, "a whole number above 0"),
    "warm_start": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "class_weight": (
        lambda value: (
            value is None
            or (isinstance(value, str) and value == "balanced")
            or (isinstance(value, dict) and all(is_number(weight) and weight >= 0 for weight in value.values()))
        ),
        "None, 'balanced' or a dict from class to a number from 0, such as {0: 1, 1: 5}",
    ),
    "noise": (lambda value: is_number(value) and value > 0, "a number above 0"),
}


def check_settings(estimator: BaseEstimator) -> None:
    """Check the parameters that the network itself does not check."""
    for name, (accepts, words) in _ACCEPTED.items():
        value = to_python(getattr(estimator, name, None))
        if hasattr(estimator, name) and not accepts(value):
            raise ValueError(f"{name}={value!r} must be {words}")
    find_device(estimator.device)


@contextmanager
def one_line() -> Iterator[None]:
    """Shorten scikit-learn's errors about rows, which are several lines long, to one."""
    try:
        yield
    except ValueError as error:
        first, *rest = str(error).splitlines()
        sentence = f"{first.removesuffix('.')}."
        if "contains NaN" in first:
            first, rest = sentence, ["Remove or fill such rows, for example with sklearn.impute.SimpleImputer"]
        elif "convert string to float" in first:
            advice = "Encode words, for example with sklearn.preprocessing.OneHotEncoder; isthmus.find takes them as is"
            first, rest = sentence, [advice]
        raise ValueError(" ".join([first, *rest[-1:]])) from None
