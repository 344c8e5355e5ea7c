"""Predictions for Sudoku puzzles: the board that a run fills in, whether it is right, and the boards on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from isthmus.core.errors import UserError
from isthmus.core.files import read_text
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.sources.puzzles.boards import CELLS, cells_of, conflict, draw, parse
from isthmus.sources.puzzles.solver import solve

_LARGEST_FILE = 2**26


class SudokuPredictor(Predictor):
    """Solves puzzles of text files. An exported graph shows only its last board, a model that of each iteration."""

    options = frozenset({"iterations", "trace"})

    def __init__(self, trained: Trained, iterations: int | None = None, trace: bool = False) -> None:
        self.model, self.task, self.iterations, self.trace = trained.model, trained.task, iterations, trace
        self.iterates = hasattr(trained.model, "states")
        if not self.iterates and (trace or iterations is not None):
            raise UserError(f"{trained.name} shows only its last board; leave out --trace and --iterations")

    @torch.no_grad()
    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        """The board of every puzzle; all puzzles are checked before the first is solved."""
        puzzles = [(str(file), puzzle) for file in files for puzzle in read_puzzles(file)]
        solutions = [only_solution(puzzle, origin) for origin, puzzle in puzzles]
        for (origin, puzzle), solution in zip(puzzles, solutions, strict=True):
            tokens = self.task.encode(puzzle[None])
            states = self.model.states(tokens, self.iterations) if self.iterates else ()
            outputs = [self.model.readout(state) for state in states] or [self.model(tokens)]
            boards = [np.where(puzzle > 0, puzzle, self.task.decode(output)[0]) for output in outputs]
            yield describe(origin, puzzle, solution, boards, self.trace)


def describe(file: str, puzzle: np.ndarray, solution: np.ndarray, boards: list[np.ndarray], trace: bool) -> Prediction:
    """The last of the boards, with ``trace`` also that of each iteration, and whether it is the only solution."""
    given, empty, board = puzzle > 0, int((puzzle == 0).sum()), boards[-1]
    right = [int((~given & (each == solution)).sum()) for each in boards]
    valid = np.array_equal(board, solution)
    lines = [draw(board, given)]
    if trace:
        changed = [int((after != before).sum()) for before, after in itertools.pairwise([puzzle, *boards])]
        lines = [f"{file}, the puzzle\n{draw(puzzle)}"] + [
            f"iteration {number}: {changed[number]} cells changed, {right[number]} of {empty} empty cells right\n"
            f"{draw(each, given)}"
            for number, each in enumerate(boards)
        ]
    verdict = f"not valid: {conflict(board)}; {right[-1]} of {empty} empty cells are right"
    lines.append(f"{file}: {'valid: this solves the puzzle' if valid else verdict}")
    written = ["".join(map(str, each.tolist())) for each in (puzzle, solution, *boards)]
    content = {"file": file, "puzzle": written[0], "board": written[-1], "solution": written[1], "valid": valid}
    content |= {"right": right[-1], "empty": empty, "iterations": written[2:]}
    return Prediction(file, tuple(lines), content)


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
