"""Sudoku: predict the digits of the empty cells, by cross-entropy on these cells only.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, section 5.1. A board is solved if all its empty cells are
right. The loss of a board is the mean over its empty cells, so that a batch's loss is a mean over boards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor
from torchmetrics import MetricCollection

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Component, Data, Signature, SplitName, Task
from isthmus.sources.puzzles.boards import CELLS, DIGITS, random_symmetries
from isthmus.sources.puzzles.generation import reveal
from isthmus.tasks.sudoku_prediction import SudokuPredictor
from isthmus.tasks.token_scores import IGNORED, ShareOfRight, mean_cross_entropy

NAMES = {"sudoku": "Sudoku"}

Givens = Annotated[int, Field(ge=17, le=80)]


class Sudoku(Task):
    class Config(Component):
        symmetries: bool = False
        """Apply random symmetries to training boards: digits, rows and columns are permuted, and boards transposed."""
        reveal: tuple[Givens, Givens] | None = None
        """Least and most givens of a training board: more of its solution is revealed each time."""
        reveal_steps: Annotated[int, Field(ge=0)] = 0
        """Optimiser steps over which the least number of givens falls from the upper end of ``reveal`` to the lower."""
        by_givens: tuple[Givens, ...] = ()
        """Numbers of givens for which test boards also have a metric of their own (``board_accuracy_50``)."""

        @model_validator(mode="after")
        def _reveals_a_range(self) -> Self:
            if self.reveal is not None and self.reveal[0] > self.reveal[1]:
                raise ValueError(f"reveal={list(self.reveal)}: give the smaller number first")
            if self.reveal_steps and self.reveal is None:
                raise ValueError(f"reveal_steps={self.reveal_steps} needs reveal, the range of givens")
            return self

    objective = "board_accuracy"
    maximise = True
    predictor = SudokuPredictor

    def __init__(self, config: Any) -> None:
        self.config = config

    def learn(self, data: Data) -> None:
        for split in (data.train, data.validation, data.test):
            for side in (split.inputs, split.targets):
                if side is None or side.dtype != np.int16 or side.shape[1:] != (CELLS,) or side.max() > DIGITS:
                    raise UserError("task sudoku needs a source of puzzles and solutions: sudoku or sudoku_csv")
        counts = set(np.unique((data.test.inputs > 0).sum(axis=1)).tolist())
        if absent := [number for number in self.config.by_givens if number not in counts]:
            raise UserError(f"task.by_givens={absent[0]}: the test boards have {', '.join(map(str, sorted(counts)))}")

    def memory(self) -> dict[str, Tensor]:
        return {"cells": torch.tensor(CELLS)}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        pass  # nothing is learned from the data

    @property
    def signature(self) -> Signature:
        return Signature((CELLS,), (CELLS, DIGITS), DIGITS + 1)

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        assert targets is not None  # learn() refused sources without solutions
        if not self.config.symmetries and self.config.reveal is None:
            return self.evaluation_batch(rows, targets, "train", step)
        puzzles, solutions = rows.cpu().numpy(), targets.cpu().numpy()
        generator = numpy_generator(seed, "sudoku", step)
        if self.config.symmetries:
            drawn = random_symmetries(len(puzzles), generator)
            puzzles, solutions = drawn.apply(puzzles), drawn.apply(solutions)
        if self.config.reveal is not None:
            low, high = self.config.reveal
            left = max(0.0, 1 - step / self.config.reveal_steps) if self.config.reveal_steps else 0.0
            low += round(left * (high - low))
            puzzles = reveal(puzzles, solutions, generator.integers(low, high + 1, len(puzzles)), generator)
        rows, targets = (torch.from_numpy(side).to(rows.device) for side in (puzzles, solutions))
        return self.evaluation_batch(rows, targets, "train", step)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None
        inputs = rows.long()
        return Batch(inputs, torch.where(inputs > 0, IGNORED, targets.long() - 1))

    def loss(self, output: Tensor, target: Int[Tensor, "boards cells"]) -> Tensor:
        return mean_cross_entropy(output, target, DIGITS)

    def metrics(self, split: SplitName) -> MetricCollection:
        kinds = ["board_accuracy", "cell_accuracy"]
        if split == "test":
            kinds += [f"board_accuracy_{number}" for number in self.config.by_givens]
        return MetricCollection({kind: ShareOfRight() for kind in kinds}, compute_groups=False)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Int[Tensor, "boards cells"]) -> None:
        right, empty = output.reshape(*target.shape, DIGITS).argmax(dim=-1) == target, target != IGNORED
        solved = (right | ~empty).all(dim=1).float()
        givens = (~empty).sum(dim=1)
        metrics["board_accuracy"].update(solved)
        metrics["cell_accuracy"].update(right[empty].float())
        for number in self.config.by_givens:
            name = f"board_accuracy_{number}"
            if name in metrics and (givens == number).any():
                metrics[name].update(solved[givens == number])

    def encode(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(rows, dtype=np.int64))

    def decode(self, output: Tensor) -> np.ndarray:
        """The most likely digit of every cell, givens included; of a target its digits, with 0 for given cells."""
        if not output.is_floating_point():
            return (output + 1).clamp(min=0).to(torch.uint8).cpu().numpy()
        digits = output.reshape(len(output), CELLS, DIGITS).argmax(dim=-1) + 1
        return digits.to(torch.uint8).cpu().numpy()
