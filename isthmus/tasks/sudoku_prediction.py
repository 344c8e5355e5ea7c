"""Predictions for Sudoku puzzles: the board that a run fills in, whether it is right, and the boards on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.core.errors import UserError
from isthmus.core.files import read_text
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.sources.puzzles.boards import CELLS, cells_of, conflict, draw, parse
from isthmus.sources.puzzles.solver import solve

_LARGEST_FILE = 2**26


@dataclass(frozen=True)
class Answer:
    """One puzzle, its only solution, and the boards after each iteration; the last is the prediction."""

    file: str
    puzzle: np.ndarray
    solution: np.ndarray
    boards: list[np.ndarray]

    @property
    def board(self) -> np.ndarray:
        return self.boards[-1]

    @property
    def empty(self) -> int:
        return int((self.puzzle == 0).sum())

    def right(self, board: np.ndarray) -> int:
        """The number of empty cells that a board has right."""
        return int(((self.puzzle == 0) & (board == self.solution)).sum())

    @property
    def verdict(self) -> str:
        if np.array_equal(self.board, self.solution):
            return "valid: this solves the puzzle"
        broken = conflict(self.board)
        return f"not valid: {broken}; {self.right(self.board)} of {self.empty} empty cells are right"

    def as_dict(self) -> dict[str, Any]:
        def text(board: np.ndarray) -> str:
            return "".join(map(str, board.tolist()))

        return {
            "puzzle": text(self.puzzle),
            "board": text(self.board),
            "solution": text(self.solution),
            "valid": bool(np.array_equal(self.board, self.solution)),
            "right": self.right(self.board),
            "empty": self.empty,
            "iterations": [text(board) for board in self.boards],
        }

    def lines(self, trace: bool) -> Iterator[str]:
        """The board as text, with ``trace`` that of each iteration, and the verdict."""
        given = self.puzzle > 0
        if trace:
            yield f"{self.file}, the puzzle\n{draw(self.puzzle)}"
            before = self.puzzle
            for number, board in enumerate(self.boards):
                changed = int((board != before).sum())
                yield (
                    f"iteration {number}: {changed} cells changed, {self.right(board)} of {self.empty} empty cells "
                    f"right\n{draw(board, given)}"
                )
                before = board
        else:
            yield draw(self.board, given)
        yield f"{self.file}: {self.verdict}"


class SudokuPredictor(Predictor):
    """Solves puzzles of text files. An exported graph shows only its last board, a model that of each iteration."""

    options = frozenset({"iterations", "trace"})

    def __init__(self, trained: Trained, iterations: int | None = None, trace: bool = False) -> None:
        self.model, self.task, self.iterations, self.trace = trained.model, trained.task, iterations, trace
        self.iterates = hasattr(trained.model, "states")
        if not self.iterates and (trace or iterations is not None):
            raise UserError(f"{trained.name} shows only its last board; leave out --trace and --iterations")

    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        for answer in self.solve(files):
            yield Prediction(answer.file, tuple(answer.lines(self.trace)), {"file": answer.file, **answer.as_dict()})

    @torch.no_grad()
    def solve(self, files: Iterable[Path]) -> Iterator[Answer]:
        """The board of every puzzle; all puzzles are checked before the first is solved."""
        puzzles = [(str(file), puzzle) for file in files for puzzle in read_puzzles(file)]
        solutions = [only_solution(puzzle, origin) for origin, puzzle in puzzles]
        for (origin, puzzle), solution in zip(puzzles, solutions, strict=True):
            tokens = self.task.encode(puzzle[None])
            states = self.model.states(tokens, self.iterations) if self.iterates else ()
            outputs = [self.model.readout(state) for state in states] or [self.model(tokens)]
            boards = [np.where(puzzle > 0, puzzle, self.task.decode(output)[0]) for output in outputs]
            yield Answer(origin, puzzle, solution, boards)


def read_puzzles(file: Path) -> list[np.ndarray]:
    """The boards of a text file: one, or one per line."""
    text = read_text(file, _LARGEST_FILE)
    lines = {number: line for number, line in enumerate(text.splitlines(), start=1) if cells_of(line)}
    if "puzzle,solution" in (line.strip().lower() for line in lines.values()):
        raise UserError(
            f"{file} is a csv file of puzzles with solutions, which source sudoku_csv reads to train on; "
            f"to predict, give the puzzles alone: `tail -n +2 {file} | cut -d, -f1 > puzzles.txt`"
        )
    # Lines this long hold whole boards, unless the file is one wrapped board of 81 cells.
    if any(len(line) > CELLS // 2 for line in lines.values()) and len(cells_of(text)) != CELLS:
        return [parse(line, f"{file}, line {number}") for number, line in lines.items()]
    return [parse(text, str(file))]


def only_solution(puzzle: np.ndarray, origin: str) -> np.ndarray:
    if broken := conflict(puzzle):
        raise UserError(f"{origin}: the puzzle is invalid, it has {broken}")
    solved = solve(puzzle[None])
    if solved.counts[0] == 0:
        raise UserError(f"{origin}: the puzzle is contradictory, no digits solve it")
    if solved.counts[0] > 1:
        raise UserError(f"{origin}: the puzzle has more than one solution; a puzzle to predict has exactly one")
    return np.asarray(solved.solutions[0])
