"""Rows to three parts, and the checks and the fingerprint that every source ends with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Data, Split, SplitName

Fraction = Annotated[float, Field(gt=0, lt=1)]
Rows = Annotated[int, Field(ge=1)]


class DrawnSplits(Component):
    """Settings of a source whose validation and test rows are drawn from all rows unless the data bring their own."""

    validation: Fraction = 0.1
    """Fraction of the rows drawn for validation."""
    test: Fraction = 0.1
    """Fraction of the rows drawn for the test."""
    split_seed: int = 0
    """Seed of the draw; the run's seed does not change the splits."""

    @model_validator(mode="after")
    def _leaves_training_rows(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"source.validation={self.validation:g} and source.test={self.test:g} leave nothing to train on"
            )
        return self

    def held_out(self, rows: int, given: Sequence[SplitName] = ()) -> list[int]:
        """How many of ``rows`` to hold out for validation and for the test: none for a split that is already given."""
        shares: dict[SplitName, float] = {"validation": self.validation, "test": self.test}
        return [0 if name in given else max(1, round(rows * share)) for name, share in shares.items()]


def partition(rows: int, held_out: Sequence[int], seed: int, labels: np.ndarray | None = None) -> list[np.ndarray]:
    """Shuffled, disjoint indices: of the rows that stay, then of each held-out part; by class if there are labels.

    Each row gets its place within its class as a fraction. In the order of these fractions any stretch holds the
    classes in proportion, so that parts of exactly the wanted sizes are cut, each class within one row of its share.
    """
    if rows - sum(held_out) < 1:
        raise UserError(f"of {rows} rows, {sum(held_out)} are to be held out: none is left to train on")
    generator = numpy_generator(seed, "split")
    order = generator.permutation(rows)
    if labels is not None:
        _, classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
        by_class = np.argsort(classes, kind="stable")
        place = np.empty(rows)
        place[by_class] = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
        order = order[np.argsort(place, kind="stable")]
    bounds = np.cumsum([rows - sum(held_out), *held_out])[:-1]
    return [generator.permutation(part) for part in np.split(order, bounds)]


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
    """Training, validation and test rows as :class:`Data`, or one line that says what is wrong with them.

    ``input_digests`` spares the reading of inputs whose :func:`array_digest` is already known, such as a huge cache's.
    """
    splits = [split if split.inputs.flags.c_contiguous else _contiguous(split) for split in splits]
    hasher = hashlib.sha256()
    for name, split, known in zip(SPLITS, splits, input_digests, strict=True):
        _check_inputs(f"{origin}, {name}", split.inputs)
        _check_targets(f"{origin}, {name}", split, len(classes))
        hasher.update((known or array_digest(split.inputs)).encode())
        hasher.update((array_digest(split.targets) if split.targets is not None else "no targets").encode())
    if len(shapes := {split.inputs.shape[1:] for split in splits}) > 1:
        raise UserError(f"{origin}: the splits differ in the shape of a row: {sorted(shapes)}")
    if len({None if split.targets is None else split.targets.shape[1:] for split in splits}) > 1:
        raise UserError(f"{origin}: the splits differ in their kind of targets")
    train, validation, test = splits
    return Data(train, validation, test, hasher.hexdigest(), tuple(classes), tuple(columns))


def _contiguous(split: Split) -> Split:
    return Split(np.ascontiguousarray(split.inputs), split.targets)


def _check_inputs(where: str, inputs: np.ndarray) -> None:
    kind = (inputs.dtype.name, inputs.ndim)
    if kind not in {("uint8", 4), ("float32", 2), ("int16", 2)}:
        raise UserError(
            f"{where}: inputs are uint8 images (rows, channels, height, width), float32 features (rows, features) or "
            f"int16 tokens (rows, positions), not {inputs.dtype} of shape {inputs.shape}"
        )
    if inputs.size == 0:
        raise UserError(f"{where}: no data, the inputs have the shape {inputs.shape}")
    if inputs.dtype == np.int16 and inputs.min() < 0:
        raise UserError(f"{where}: tokens are numbers from 0, and the inputs hold {inputs.min()}")
    if inputs.dtype == np.float32 and not np.isfinite(inputs).all():
        row, column = np.argwhere(~np.isfinite(inputs))[0]
        raise UserError(f"{where}: the inputs hold NaN or infinity, first in row {row}, feature {column}")


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
                f"{where}: the targets hold NaN or infinity, first in row {np.argwhere(~np.isfinite(targets))[0][0]}"
            )
    elif targets.dtype == np.int16 and targets.ndim == 2:
        if targets.min() < 0:
            raise UserError(f"{where}: tokens are numbers from 0, and the targets hold {targets.min()}")
    else:
        raise UserError(
            f"{where}: targets are int64 labels (rows,), float32 values (rows, outputs) or int16 tokens "
            f"(rows, positions), not {targets.dtype} of shape {targets.shape}"
        )
