"""What the estimators share: their parameters, the network, and a short loop that trains it.

``training/loop.py`` logs, validates and resumes bit for bit, which costs more than a step on a few hundred rows. Here
all rows are one batch while they are few, in the precision of the given array. So a row of weight 2 equals two rows and
one of weight 0 none, to the last digits, as scikit-learn's checks demand.

``fit`` starts with new weights, or with ``warm_start`` from the present ones; its optimiser and its scales are new.
``partial_fit`` makes one pass from the present weights, optimiser and scales.

Columns are standardised, and so are the targets of a regression. The networks have no biases, so every input gets a
column of ones. As in scikit-learn, half of ``alpha`` times the squared weights is added to the sum of the rows' losses.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.registry import create_model
from isthmus.sklearn.settings import check_settings, find_device, one_line, to_python

_ONE_BATCH = 4096
"""Up to so many rows are one batch, if ``batch_size`` is ``"auto"``."""
_BATCH = 512
_ROWS_AT_ONCE = 8192

PARAMETERS = """
:param d_z: width of the residual stream.
:param d_h: width inside the blocks; below ``d_z`` the blocks are hourglasses.
:param depth: number of blocks.
:param norm: the normalisation: ``"none"``, ``"layer"`` or ``"rms"``.
:param activation: the nonlinearity, such as ``"gelu"``.
:param w_in: the input projection: ``"trainable"``, or random and frozen, such as ``"gaussian"``.
:param init: initialisation of the blocks; with ``"zero_w2"`` each block is the identity at first.
:param pathway: how a block's update joins the stream: a name such as ``"ladder"`` or ``"attended"``, or a dict such as
    ``{"name": "streams", "count": 2}``; ``isthmus pathways`` lists them. Most need ``init="depth_scaled_w2"`` to learn.
:param learning_rate: Adam's peak learning rate, after a short warm-up and before a cosine decay to zero.
:param alpha: L2 penalty: half of it times the squared weights is added to the sum of the rows' losses; or ``"auto"``.
:param batch_size: rows per step; ``"auto"`` means all rows, or 512 if there are more than 4096.
:param max_iter: number of epochs.
:param early_stopping: whether to hold out rows and keep the weights that are best on them.
:param validation_fraction: the fraction of rows held out.
:param n_iter_no_change: epochs without a better held-out loss after which training stops.
:param warm_start: whether ``fit`` starts from the weights of the last fit instead of new ones.
:param random_state: a seed, for reproducible results.
:param device: ``"cpu"`` or ``"cuda"``.
:param verbose: whether to print the loss of every epoch.

:ivar loss_curve_: the training loss of every epoch; later calls that continue the training append to it.
:ivar n_iter_: the number of epochs of the last call.
:ivar validation_loss_curve_: the held-out loss of every epoch, or None without early stopping.
:ivar validation_scores_: the held-out score of every epoch (``score`` with the rows' weights), or None.
:ivar best_validation_score_: the highest of them, or None. The weights kept are those of the lowest held-out loss.
:ivar best_loss_: that lowest held-out loss; the lowest training loss without early stopping.
""".strip()


class Hourglass(BaseEstimator):
    """The base class of the estimators."""

    _alpha: float
    """The value of ``alpha="auto"``."""
    mean_: np.ndarray
    scale_: np.ndarray
    n_iter_: int
    _weight_seen: float
    """The sum of the weights behind ``mean_`` and ``scale_``."""

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
        pathway: Any = "plain",
        learning_rate: float = 0.01,
        alpha: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        warm_start: bool = False,
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
        self.pathway = pathway
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _validate(self, X: Any, y: Any, continues: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows and targets as arrays, or a ValueError in one line; ``continues``: whether the columns are known."""
        raise NotImplementedError

    def _accepted_rows(self, continues: bool) -> dict[str, Any]:
        """Options of scikit-learn's ``validate_data``. Later rows have the columns and the precision of the first."""
        return {"reset": not continues, "dtype": self.mean_.dtype if continues else [np.float64, np.float32]}

    def _width(self, X: np.ndarray, y: Any) -> int:
        """The number of the network's outputs."""
        raise NotImplementedError

    def _weigh(self, y: np.ndarray, weights: np.ndarray, one_pass: bool, continues: bool) -> np.ndarray:
        """The weights of the rows in the loss, from those of the user."""
        return weights

    def _prepare_targets(self, y: np.ndarray, weights: np.ndarray, earlier: float) -> tuple[np.ndarray, int]:
        """The targets as the loss takes them, and the number of the network's outputs."""
        raise NotImplementedError

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row."""
        raise NotImplementedError

    def _score(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """What ``score`` would return; ``targets`` are prepared ones."""
        raise NotImplementedError

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, one_pass: bool = False) -> Self:
        """Train a new network for ``fit``, or continue with the present one for ``partial_fit`` or ``warm_start``."""
        continues = hasattr(self, "model_") and bool(one_pass or self.warm_start)
        X, y = self._validate(X, y, continues)
        check_settings(self)
        if one_pass and self.early_stopping:
            raise ValueError("partial_fit holds out no rows; set early_stopping=False")
        if continues:
            self._check_same_network()
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("every sample_weight is zero; at least one must be above 0")
        weights = self._weigh(y, weights, one_pass, continues)
        counted = weights > 0
        X, y, weights = X[counted], y[counted], weights[counted]
        earlier = self._weight_seen if one_pass and continues else 0.0
        self.mean_, self.scale_ = moments(X, weights, "X", (self.mean_, self.scale_, earlier) if earlier else None)
        targets, d_out = self._prepare_targets(y, weights, earlier)
        self._weight_seen = earlier + float(weights.sum())
        self._fit_network(self._scale(X), targets, weights, d_out, one_pass, continues)
        return self

    def _scale(self, X: np.ndarray) -> np.ndarray:
        columns = standardise(X, self.mean_, self.scale_)
        return np.concatenate([columns, np.ones_like(columns[:, :1])], axis=1)

    def _fit_network(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray,
        d_out: int,
        one_pass: bool,
        continues: bool,
    ) -> None:
        if not continues:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        held_out = None
        if self.early_stopping:
            strata = targets if is_classifier(self) and np.unique(targets, return_counts=True)[1].min() >= 2 else None
            rest, out = train_test_split(
                np.arange(len(inputs)), test_size=self.validation_fraction, random_state=self._seed, stratify=strata
            )
            held_out = self._tensors(inputs[out], targets[out], weights[out] / weights[out].sum())
            inputs, targets, weights = inputs[rest], targets[rest], weights[rest]
        if not continues:
            self.model_ = self._network(inputs.shape[1], d_out, self._seed, inputs.dtype)
            self._fitted_fields = self._fields()
        rows = self._tensors(inputs, targets, weights / weights.sum())
        alpha = float(self._alpha if self.alpha == "auto" else self.alpha)
        # A stream is one sum of losses, so a small chunk does not get the whole penalty.
        seen = self._weight_seen if one_pass else float(weights.sum())
        self._train(rows, held_out, alpha / seen, one_pass, continues)

    def _network(self, d_in: int, d_out: int, seed: int, dtype: np.dtype) -> nn.Module:
        fields = self._fields()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                model = create_model(
                    "hourglass_mlp", d_in=d_in, d_out=d_out, w_in_seed=seed, allow_any_shape=True, **fields
                )
            except UserError as error:
                raise ValueError(str(error)) from None
        return model.to(find_device(self.device), _torch_dtype(dtype))

    def _fields(self) -> dict[str, Any]:
        names = ("d_z", "d_h", "depth", "norm", "activation", "w_in", "init", "pathway")
        return {name: to_python(getattr(self, name)) for name in names}

    def _check_same_network(self) -> None:
        for name, value in self._fields().items():
            if value != (fitted := self._fitted_fields[name]):
                raise ValueError(
                    f"{name}={value!r}, but the fitted network has {fitted!r}; set {name}={fitted!r} to continue, "
                    "or call fit with warm_start=False for a new one"
                )

    def _tensors(self, *arrays: np.ndarray) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(array, device=find_device(self.device)) for array in arrays)

    def _train(
        self,
        rows: tuple[Tensor, ...],
        held_out: tuple[Tensor, ...] | None,
        penalty: float,
        one_pass: bool,
        continues: bool,
    ) -> None:
        model, epochs = self.model_.train(), 1 if one_pass else self.max_iter
        if not continues:
            self._start_curves()
        generator = torch.Generator().manual_seed(self._seed)
        if continues:  # with draws of its own, which depend on nothing but the seed and the epochs before
            generator = torch_generator(self._seed, "epochs", len(self.loss_curve_))
        steps = epochs * math.ceil(len(rows[0]) / self._rows_at_once(len(rows[0])))
        # How many calls will follow partial_fit is unknown, so its learning rate is constant.
        rates = (self.learning_rate * (1.0 if one_pass else _schedule(step, steps)) for step in range(steps))
        if not (one_pass and continues):
            # Not AdamW: a penalty in the loss, as in ridge regression, leaves a smoother function than shrunk weights.
            self._optimizer = torch.optim.Adam(_groups(model), lr=self.learning_rate, fused=True)
        self._optimizer.param_groups[0]["weight_decay"] = penalty
        best, best_state, waited = math.inf, None, 0
        for epoch in range(1, epochs + 1):
            self.loss_curve_.append(self._run_epoch(rows, rates, generator))
            self.n_iter_ = epoch
            if not math.isfinite(self.loss_curve_[-1]):
                raise ValueError(
                    f"training diverged in iteration {epoch}; try learning_rate={self.learning_rate / 10:g}"
                )
            line = f"iteration {epoch}, loss {self.loss_curve_[-1]:.6g}"
            if held_out is not None:
                now, score = self._validate_epoch(held_out)
                line += f", held-out loss {now:.6g}, held-out score {score:.6g}"
                waited += 1
                if now < best:
                    best, best_state, waited = now, copy.deepcopy(model.state_dict()), 0
            if self.verbose:
                print(line, file=sys.stderr)
            if held_out is not None and waited >= self.n_iter_no_change:
                break
        if best_state is not None:
            model.load_state_dict(best_state)
        self.best_loss_ = min(self.loss_curve_) if held_out is None else best
        model.eval()

    def _start_curves(self) -> None:
        """As in scikit-learn's MLP, which also lengthens the curves if training continues."""
        self.loss_curve_: list[float] = []
        self.validation_loss_curve_: list[float] | None = None
        self.validation_scores_: list[float] | None = None
        self.best_validation_score_: float | None = None

    def _run_epoch(self, rows: tuple[Tensor, ...], rates: Iterator[float], generator: torch.Generator) -> float:
        """Take the steps of one epoch; return the mean loss of the rows."""
        inputs, optimizer = rows[0], self._optimizer
        total = inputs.new_zeros(())
        for index in _batches(len(inputs), self._rows_at_once(len(inputs)), generator):
            rate = next(rates)
            for group in optimizer.param_groups:
                group["lr"] = rate
            x, y, w = rows if index is None else tuple(part[index] for part in rows)
            x, y = self._augment(x, y, generator)
            value = (w * self._loss(self.model_(x), y)).sum() / (1 if index is None else w.sum())
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
            total += value.detach() * (1 if index is None else w.sum())
        return float(total)

    def _rows_at_once(self, rows: int) -> int:
        if self.batch_size == "auto":
            return rows if rows <= _ONE_BATCH else _BATCH
        return min(rows, int(self.batch_size))

    def _augment(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, y

    @torch.no_grad()
    def _validate_epoch(self, held_out: tuple[Tensor, ...]) -> tuple[float, float]:
        """Loss and score on the held-out rows, which lengthen the curves."""
        x, y, w = held_out
        x, y = self._augment(x, y, torch.Generator().manual_seed(0))
        outputs = self.model_(x)
        loss = float((w * self._loss(outputs, y)).sum())
        score = self._score(*(part.cpu().numpy() for part in (outputs, y, w)))
        self.validation_loss_curve_ = [*(self.validation_loss_curve_ or []), loss]
        self.validation_scores_ = [*(self.validation_scores_ or []), score]
        self.best_validation_score_ = max(self.validation_scores_)
        return loss, score

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
        parts = torch.tensor(inputs, device=find_device(self.device), dtype=dtype).split(_ROWS_AT_ONCE)
        outputs: np.ndarray = torch.cat([self.model_(part) for part in parts]).cpu().numpy()
        if not np.isfinite(outputs).all():
            raise ValueError(
                f"X holds numbers too far from those of the fit: in {str(dtype).removeprefix('torch.')} the network's "
                "outputs overflow; check the units of X"
            )
        return outputs


def moments(
    columns: np.ndarray,
    weights: np.ndarray,
    name: str,
    earlier: tuple[np.ndarray, np.ndarray, float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column, 0 for a constant one. Errors call the array ``name``.

    ``earlier`` are the mean, the deviation and the sum of weights of rows to include.
    """
    if earlier is not None:
        mean, deviation, weight = earlier  # two rows have the moments of all earlier ones
        columns = np.concatenate([np.stack([mean - deviation, mean + deviation]), columns])
        weights = np.concatenate([np.full(2, weight / 2, weights.dtype), weights])
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


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """The weights, which the penalty shrinks; then a pathway's gates, to which zero means something else."""
    gates = [parameter for parameter in model.parameters() if getattr(parameter, "undecayed", False)]
    known = set(map(id, gates))
    weights = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return [{"params": weights}] + ([{"params": gates, "weight_decay": 0.0}] if gates else [])


def _schedule(step: int, steps: int) -> float:
    """A short warm-up, then a cosine decay to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.float32 if dtype == np.float32 else torch.float64
