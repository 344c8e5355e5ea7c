"""Complete configs by name: a recipe is a function that returns a RunConfig or a StudyConfig."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def recipe(description: str, make: Callable[..., T], *arguments: Any, **fields: Any) -> Callable[[], T]:
    """A recipe in one statement: ``make`` with these arguments, and the description that `isthmus recipes` prints."""
    found = partial(make, *arguments, **fields)
    found.__doc__ = description
    return found
