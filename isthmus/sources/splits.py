"""Splits rows into three parts; checks and fingerprints the result of every source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Data, Split, SplitName

Fraction = Annotated[float, Field(gt=0, lt=1)]
Rows = Annotated[int, Field(ge=1)]
HeldOutRows = Annotated[int, Field(ge=0)]
"""Rows for validation; 0 trains on them too, which needs ``train.select=last``."""


class DrawnSplits(Component):
    """Settings of a source that draws validation and test rows from all rows, unless the data have their own splits."""

    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Fraction of the rows drawn for validation; 0 trains on them too, which needs ``train.select=last``."""
    test: Fraction = 0.1
    """Fraction of the rows drawn for the test."""
    split_seed: int = 0
    """Seed of the draw; the run's seed does not change the splits."""

    @model_validator(mode="after")
    def _leaves_training_rows(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"source.validation={self.validation:g} and source.test={self.test:g} must add up to less than 1"
            )
        return self

    def held_out(self, rows: int, given: Sequence[SplitName] = ()) -> list[int]:
        """The numbers of rows to hold out for validation and test; 0 for a split that is given."""
        shares: dict[SplitName, float] = {"validation": self.validation, "test": self.test}
        return [max(1, round(rows * share)) if share and name not in given else 0 for name, share in shares.items()]

    def draw(self, rows: int, labels: np.ndarray | None = None, given: Sequence[SplitName] = ()) -> list[np.ndarray]:
        """Indices of the training, validation and test rows; none for a split that is given."""
        return partition(rows, self.held_out(rows, given), self.split_seed, labels)


class FoldedSplits(DrawnSplits):
    """Drawn splits that can also cross-validate. The test rows are the same in every fold."""

    folds: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Divide the rows that are not for the test into so many parts, of which one validates and the others train."""
    fold: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The part that validates. From ``folds`` on the parts are drawn again, for repeated cross-validation."""

    @model_validator(mode="after")
    def _has_folds(self) -> Self:
        if self.fold and self.folds is None:
            raise ValueError(f"source.fold={self.fold} needs source.folds, the number of parts")
        if self.folds is not None and self.validation == 0:
            raise ValueError("source.folds draws validation rows; leave source.validation out")
        return self

    def draw(self, rows: int, labels: np.ndarray | None = None, given: Sequence[SplitName] = ()) -> list[np.ndarray]:
        parts = super().draw(rows, labels, given)
        if self.folds is None or "validation" in given:
            return parts
        pool = np.sort(np.concatenate(parts[:2]))
        if len(pool) < self.folds:
            raise UserError(f"source.folds={self.folds}: there are only {len(pool)} rows that are not for the test")
        repeat, chosen = divmod(self.fold, self.folds)
        generator = numpy_generator(self.split_seed, "folds", repeat)
        order = _shuffle(generator, len(pool), None if labels is None else labels[pool])
        folds = [pool[part] for part in np.array_split(order, self.folds)]
        validation = folds.pop(chosen)
        return [generator.permutation(np.concatenate(folds)), validation, parts[2]]


def partition(rows: int, held_out: Sequence[int], seed: int, labels: np.ndarray | None = None) -> list[np.ndarray]:
    """Shuffled, disjoint indices of the training rows and of each held-out part; stratified if there are labels."""
    if rows - sum(held_out) < 1:
        advice = "hold out fewer, or give more rows"
        raise UserError(f"{sum(held_out)} of {rows} rows are held out, and none is left to train on; {advice}")
    generator = numpy_generator(seed, "split")
    order = _shuffle(generator, rows, labels)
    bounds = np.cumsum([rows - sum(held_out), *held_out])[:-1]
    return [generator.permutation(part) for part in np.split(order, bounds)]


def _shuffle(generator: np.random.Generator, rows: int, labels: np.ndarray | None) -> np.ndarray:
    """A random order of the rows; with labels, every slice of it has the classes in proportion, to within one row.

    Each row gets its rank within its class as a fraction, and the rows are sorted by these fractions.
    """
    order = generator.permutation(rows)
    if labels is not None:
        _, classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
        by_class = np.argsort(classes, kind="stable")
        place = np.empty(rows)
        place[by_class] = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
        order = order[np.argsort(place, kind="stable")]
    return order


def array_digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and bytes."""
    hasher = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def check_splits(
    origin: str,
    splits: Sequence[Split],
    classes: Sequence[str] = (),
    input_digests: Sequence[str | None] = (None, None, None),
    columns: Sequence[str] = (),
) -> Data:
    """Check training, validation and test rows and fingerprint them.

    ``input_digests`` are known :func:`array_digest` values, so that a large cache is not read again.
    """
    splits = [split if split.inputs.flags.c_contiguous else _contiguous(split) for split in splits]
    hasher = hashlib.sha256()
    for name, split, known in zip(SPLITS, splits, input_digests, strict=True):
        _check_inputs(f"{origin}, {name}", split.inputs, may_be_empty=name == "validation")
        _check_targets(f"{origin}, {name}", split, len(classes))
        hasher.update((known or array_digest(split.inputs)).encode())
        hasher.update((array_digest(split.targets) if split.targets is not None else "no targets").encode())
        if split.extents is not None:
            hasher.update(array_digest(split.extents).encode())
    if len(shapes := {split.inputs.shape[1:] for split in splits}) > 1:
        raise UserError(f"{origin}: the splits differ in the shape of a row: {sorted(shapes)}")
    if len({None if split.targets is None else split.targets.shape[1:] for split in splits}) > 1:
        raise UserError(f"{origin}: the splits differ in their kind of targets")
    train, validation, test = splits
    return Data(train, validation, test, hasher.hexdigest(), tuple(classes), tuple(columns))


def _contiguous(split: Split) -> Split:
    return replace(split, inputs=np.ascontiguousarray(split.inputs))


def _check_inputs(where: str, inputs: np.ndarray, may_be_empty: bool) -> None:
    kind = (inputs.dtype.name, inputs.ndim)
    if kind not in {("uint8", 4), ("float32", 2), ("int16", 2)}:
        raise UserError(
            f"{where}: inputs must be uint8 images (rows, channels, height, width), float32 features (rows, features) "
            f"or int16 tokens (rows, positions), not {inputs.dtype} of shape {inputs.shape}"
        )
    if len(inputs) == 0 and may_be_empty:
        return
    if inputs.size == 0:
        raise UserError(f"{where}: no data; the inputs have the shape {inputs.shape}")
    if inputs.dtype == np.int16 and inputs.min() < 0:
        raise UserError(f"{where}: tokens must be at least 0, but an input is {inputs.min()}")
    if inputs.dtype == np.float32 and not np.isfinite(inputs).all():
        row, column = np.argwhere(~np.isfinite(inputs))[0]
        raise UserError(f"{where}: the inputs contain NaN or infinity, first in row {row}, feature {column}")


def check_labels(where: str, labels: np.ndarray, classes: int) -> None:
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise UserError(f"{where}: row {row} has the label {labels[row]}, but there are {classes} classes")


def _check_targets(where: str, split: Split, classes: int) -> None:
    targets = split.targets
    if targets is None:
        return
    if len(targets) != len(split):
        raise UserError(f"{where}: {len(split)} inputs but {len(targets)} targets")
    if targets.dtype == np.int64 and targets.ndim == 1:
        check_labels(where, targets, classes)
    elif targets.dtype == np.float32 and targets.ndim == 2:
        if not np.isfinite(targets).all():
            raise UserError(
                f"{where}: the targets contain NaN or infinity, first in row {np.argwhere(~np.isfinite(targets))[0][0]}"
            )
    elif targets.dtype == np.int16 and targets.ndim == 2:
        if len(targets) and targets.min() < 0:
            raise UserError(f"{where}: tokens must be at least 0, but a target is {targets.min()}")
    else:
        raise UserError(
            f"{where}: targets must be int64 labels (rows,), float32 values (rows, outputs) or int16 tokens "
            f"(rows, positions), not {targets.dtype} of shape {targets.shape}"
        )
