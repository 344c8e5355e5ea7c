"""What the estimators share: their parameters, the network, and a short loop that trains it.

``training/loop.py`` logs, validates and resumes bit for bit, which costs more than a step on a few hundred rows. Here
all rows are one batch while they are few, in the precision of the given array. So a row of weight 2 equals two rows and
one of weight 0 none, to the last digits, as scikit-learn's checks demand.

Columns are standardised, and so are the targets of a regression. The networks have no biases, so every input gets a
column of ones. As in scikit-learn, half of ``alpha`` times the squared weights is added to the sum of the rows' losses.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.registry import create_model

_ONE_BATCH = 4096
"""Up to so many rows are one batch, if ``batch_size`` is ``"auto"``."""
_BATCH = 512
_ROWS_AT_ONCE = 8192

Loss = Callable[[Tensor, Tensor], Tensor]  # of each row


PARAMETERS = """
:param d_z: width of the residual stream.
:param d_h: width inside the blocks; below ``d_z`` the blocks are hourglasses.
:param depth: number of blocks.
:param norm: the normalisation: ``"none"``, ``"layer"`` or ``"rms"``.
:param activation: the nonlinearity, such as ``"gelu"``.
:param w_in: the input projection: ``"trainable"``, or random and frozen, such as ``"gaussian"``.
:param init: initialisation of the blocks; with ``"zero_w2"`` each block is the identity at first.
:param learning_rate: Adam's peak learning rate, after a short warm-up and before a cosine decay to zero.
:param alpha: L2 penalty: half of it times the squared weights is added to the sum of the rows' losses; or ``"auto"``.
:param batch_size: rows per step; ``"auto"`` means all rows, or 512 if there are more than 4096.
:param max_iter: number of epochs.
:param early_stopping: whether to hold out rows and keep the weights that are best on them.
:param validation_fraction: the fraction of rows held out.
:param n_iter_no_change: epochs without a better held-out loss after which training stops.
:param random_state: a seed, for reproducible results.
:param device: ``"cpu"`` or ``"cuda"``.
:param verbose: whether to print the loss of every epoch.
""".strip()


class Hourglass(BaseEstimator):
    """The base class of the estimators."""

    _alpha: float
    """The value of ``alpha="auto"``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Describe the parameters once, and add those that a subclass passes on to its signature."""
        super().__init_subclass__(**options)
        cls.__doc__ = "\n\n".join([inspect.cleandoc(cls.__doc__ or ""), PARAMETERS])
        if init := vars(cls).get("__init__"):
            own, all_ = (inspect.signature(function).parameters for function in (init, Hourglass.__init__))
            added = [parameter for name, parameter in all_.items() if name not in own]
            kept = [parameter for parameter in own.values() if parameter.kind is not parameter.VAR_KEYWORD]
            init.__signature__ = inspect.Signature([*kept, *added])

    def __init__(
        self,
        d_z: int = 32,
        d_h: int = 8,
        depth: int = 1,
        *,
        norm: str = "none",
        activation: str = "gelu",
        w_in: str = "trainable",
        init: str = "zero_w2",
        learning_rate: float = 0.01,
        alpha: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.d_z = d_z
        self.d_h = d_h
        self.depth = depth
        self.norm = norm
        self.activation = activation
        self.w_in = w_in
        self.init = init
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, Any]:
        """Rows and targets as arrays, or a ValueError in one line."""
        raise NotImplementedError

    def _width(self, X: np.ndarray, y: Any) -> int:
        """The number of the network's outputs."""
        raise NotImplementedError

    def _learn_scales(self, X: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute the columns' means and scales; return which rows have a weight above 0, and those weights."""
        check_settings(self)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        counted = weights > 0
        if not counted.any():
            raise ValueError("every sample_weight is zero; at least one must be above 0")
        self.mean_, self.scale_ = moments(X[counted], weights[counted], "X")
        return counted, weights[counted]

    def _scale(self, X: np.ndarray) -> np.ndarray:
        columns = standardise(X, self.mean_, self.scale_)
        return np.concatenate([columns, np.ones_like(columns[:, :1])], axis=1)

    def _fit_network(
        self, inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray, d_out: int, loss: Loss, strata: Any = None
    ) -> None:
        draw = check_random_state(self.random_state)
        seed = int(draw.randint(np.iinfo(np.int32).max))
        held_out = None
        if self.early_stopping:
            rest, out = train_test_split(
                np.arange(len(inputs)), test_size=self.validation_fraction, random_state=seed, stratify=strata
            )
            held_out = self._tensors(inputs[out], targets[out], weights[out] / weights[out].sum())
            inputs, targets, weights = inputs[rest], targets[rest], weights[rest]
        self.model_ = self._network(inputs.shape[1], d_out, seed, inputs.dtype)
        rows = self._tensors(inputs, targets, weights / weights.sum())
        alpha = float(self._alpha if self.alpha == "auto" else self.alpha)
        self._train(rows, held_out, loss, alpha / float(weights.sum()), seed)

    def _network(self, d_in: int, d_out: int, seed: int, dtype: np.dtype) -> nn.Module:
        names = ("d_z", "d_h", "depth", "norm", "activation", "w_in", "init")
        fields = {name: _to_python(getattr(self, name)) for name in names}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                model = create_model(
                    "hourglass_mlp", d_in=d_in, d_out=d_out, w_in_seed=seed, allow_any_shape=True, **fields
                )
            except UserError as error:
                raise ValueError(str(error)) from None
        return model.to(_device(self.device), _torch_dtype(dtype))

    def _tensors(self, *arrays: np.ndarray) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(array, device=_device(self.device)) for array in arrays)

    def _train(
        self, rows: tuple[Tensor, ...], held_out: tuple[Tensor, ...] | None, loss: Loss, penalty: float, seed: int
    ) -> None:
        model, inputs = self.model_.train(), rows[0]
        generator = torch.Generator().manual_seed(seed)
        size = self._rows_at_once(len(inputs))
        steps = self.max_iter * math.ceil(len(inputs) / size)
        # Not AdamW: a penalty in the loss, as in ridge regression, leaves a smoother function than shrunk weights.
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=penalty, fused=True)
        best, best_state, waited, step = math.inf, None, 0, 0
        self.loss_curve_: list[float] = []
        self.n_iter_: int = 0
        for epoch in range(1, self.max_iter + 1):
            total = inputs.new_zeros(())
            for index in _batches(len(inputs), size, generator):
                optimizer.param_groups[0]["lr"] = self.learning_rate * _schedule(step, steps)
                x, y, w = rows if index is None else tuple(part[index] for part in rows)
                x, y = self._augment(x, y, generator)
                value = (w * loss(model(x), y)).sum() / (1 if index is None else w.sum())
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
                step += 1
                total += value.detach() * (1 if index is None else w.sum())
            self.loss_curve_.append(float(total))
            self.n_iter_ = epoch
            if not math.isfinite(self.loss_curve_[-1]):
                raise ValueError(
                    f"training diverged in iteration {epoch}; try learning_rate={self.learning_rate / 10:g}"
                )
            if self.verbose:
                print(f"iteration {epoch}, loss {self.loss_curve_[-1]:.6g}", file=sys.stderr)
            if held_out is not None:
                now = self._held_out_loss(held_out, loss)
                waited += 1
                if now < best:
                    best, best_state, waited = now, copy.deepcopy(model.state_dict()), 0
                if waited >= self.n_iter_no_change:
                    break
        if best_state is not None:
            model.load_state_dict(best_state)
            self.best_loss_ = best
        model.eval()

    def _rows_at_once(self, rows: int) -> int:
        if self.batch_size == "auto":
            return rows if rows <= _ONE_BATCH else _BATCH
        return min(rows, int(self.batch_size))

    def _augment(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, y

    @torch.no_grad()
    def _held_out_loss(self, held_out: tuple[Tensor, ...], loss: Loss) -> float:
        x, y, w = held_out
        x, y = self._augment(x, y, torch.Generator().manual_seed(0))
        return float((w * loss(self.model_(x), y)).sum())

    def _validate_rows(self, X: Any) -> np.ndarray:
        """The rows of ``X`` as an array, if the estimator is fitted."""
        check_is_fitted(self)
        with one_line():
            rows: np.ndarray = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return rows

    def _outputs(self, X: Any) -> np.ndarray:
        X = self._validate_rows(X)
        return self._compute(self._scale(X)).astype(X.dtype, copy=False)

    @torch.no_grad()
    def _compute(self, inputs: np.ndarray) -> np.ndarray:
        """The network's outputs, in the precision of the fit."""
        dtype = next(self.model_.parameters()).dtype
        parts = torch.tensor(inputs, device=_device(self.device), dtype=dtype).split(_ROWS_AT_ONCE)
        outputs: np.ndarray = torch.cat([self.model_(part) for part in parts]).cpu().numpy()
        if not np.isfinite(outputs).all():
            raise ValueError(
                f"X holds numbers too far from those of the fit: in {str(dtype).removeprefix('torch.')} the network's "
                "outputs overflow; check the units of X"
            )
        return outputs


def moments(columns: np.ndarray, weights: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column, 0 for a constant one. Errors call the array ``name``."""
    weights = weights / weights.sum()
    exponents = np.frexp(np.abs(columns).max(axis=0))[1]
    unit = np.ldexp(columns, -exponents)  # exact, and no square over- or underflows, whatever the units
    mean = weights @ unit
    deviation = np.sqrt(weights @ (unit - mean) ** 2)
    deviation[deviation <= 10 * np.finfo(columns.dtype).eps * np.abs(mean)] = 0
    mean, deviation = np.ldexp(mean, exponents), np.ldexp(deviation, exponents)
    with np.errstate(over="ignore"):
        distances = columns - mean
    if not np.isfinite(distances).all():
        raise ValueError(
            f"{name} holds numbers whose differences overflow {columns.dtype}, up to {np.abs(columns).max():g}; "
            f"divide {name} by a constant first"
        )
    return mean, deviation.astype(columns.dtype)


def standardise(columns: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and deviation 1; 0 for a column that was constant in the fit, which has no scale."""
    values: np.ndarray = (columns - mean) / np.where(scale == 0, np.inf, scale).astype(columns.dtype)
    return values


def _batches(rows: int, size: int, generator: torch.Generator) -> Iterator[Tensor | None]:
    """Indices of each batch, or None for all rows, so that nothing is drawn or copied."""
    if size >= rows:
        yield None
    else:
        yield from torch.randperm(rows, generator=generator).split(size)


def _schedule(step: int, steps: int) -> float:
    """A short warm-up, then a cosine decay to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _to_python(value: Any) -> Any:
    """A number of numpy's, such as a grid search passes, as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.float32 if dtype == np.float32 else torch.float64


def _device(name: Any) -> torch.device:
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
    "learning_rate": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "alpha": (lambda value: value == "auto" or (is_number(value) and value >= 0), "'auto' or a number from 0"),
    "batch_size": (lambda value: value == "auto" or is_count(value), "'auto' or a whole number above 0"),
    "max_iter": (is_count, "a whole number above 0"),
    "early_stopping": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "validation_fraction": (lambda value: is_number(value) and 0 < value < 1, "a number between 0 and 1"),
    "n_iter_no_change": (is_count, "a whole number above 0"),
    "noise": (lambda value: is_number(value) and value > 0, "a number above 0"),
}


def check_settings(estimator: Hourglass) -> None:
    """Check the parameters that the network itself does not check."""
    for name, (accepts, words) in _ACCEPTED.items():
        value = _to_python(getattr(estimator, name, None))
        if hasattr(estimator, name) and not accepts(value):
            raise ValueError(f"{name}={value!r} must be {words}")
    _device(estimator.device)


@contextmanager
def one_line() -> Iterator[None]:
    """Shorten scikit-learn's errors about rows, which are several lines long, to one."""
    try:
        yield
    except ValueError as error:
        first, *rest = str(error).splitlines()
        if "contains NaN" in first:
            rest = ["Remove or fill such rows, for example with sklearn.impute.SimpleImputer"]
        raise ValueError(" ".join([first, *rest[-1:]])) from None
