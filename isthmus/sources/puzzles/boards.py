"""Boards as rows of 81 digits (0: empty): text, rules, and the symmetries that turn one puzzle into another."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from isthmus.core.errors import UserError

CELLS = 81
DIGITS = 9
EMPTY = "0._*?xX"
_ROW, _COLUMN = np.divmod(np.arange(CELLS), 9)
_BOX = _ROW // 3 * 3 + _COLUMN // 3
UNITS = np.stack([np.flatnonzero(place == n) for place in (_ROW, _COLUMN, _BOX) for n in range(9)])
"""The 27 rows, columns and boxes, each the positions of its nine cells."""
_UNIT_NAMES = [f"{kind} {n}" for kind in ("row", "column", "box") for n in range(1, 10)]


def cells_of(text: str) -> str:
    """The characters of a text without spaces, separators and the lines of a frame."""
    lines = [line for line in text.splitlines() if not re.fullmatch(r"[\s\-+=|─│┼═╋]*", line)]
    return re.sub(r"[\s|│,;]", "", "".join(lines))


def parse(text: str, origin: str) -> np.ndarray:
    """One board from text: 81 digits with 0 or . for an empty cell, in one line or nine, with or without a frame."""
    cells = cells_of(text)
    if wrong := sorted({cell for cell in cells if cell not in EMPTY and cell not in "123456789"}):
        raise UserError(f"{origin}: a puzzle is written with the digits 1 to 9 and 0 or . for empty, not {wrong[0]!r}")
    if len(cells) != CELLS:
        raise UserError(f"{origin}: a puzzle has 81 cells, and here are {len(cells)}")
    return np.array([0 if cell in EMPTY else int(cell) for cell in cells], np.uint8)


def draw(board: np.ndarray, given: np.ndarray | None = None) -> str:
    """The board in nine lines with a frame between the boxes; cells that were not given stand in parentheses."""
    shown = np.ones(CELLS, bool) if given is None else given
    texts = [str(digit or ".") for digit in board.tolist()]
    cells = [f" {text} " if known else f"({text})" for text, known in zip(texts, shown, strict=True)]
    thirds = ["".join(cells[start : start + 3]) for start in range(0, CELLS, 3)]
    rows = ["|".join(thirds[start : start + 3]).rstrip() for start in range(0, CELLS // 3, 3)]
    frame = "+".join(["-" * 9] * 3)
    return "\n".join([*rows[:3], frame, *rows[3:6], frame, *rows[6:]])


def conflict(board: np.ndarray) -> str | None:
    """The first rule that the digits on a board break, in words, or None."""
    for cells, name in zip(UNITS, _UNIT_NAMES, strict=True):
        counts = np.bincount(board[cells], minlength=10)[1:]
        if (counts > 1).any():
            return f"two {1 + int(np.argmax(counts > 1))}s in {name}"
    return None


def is_complete(boards: np.ndarray) -> np.ndarray:
    """Of rows of 81 digits: which are filled according to the rules."""
    wanted = np.arange(1, 10)
    return np.asarray((np.sort(boards[:, UNITS], axis=2) == wanted).all(axis=(1, 2)))


def grid_keys(solutions: np.ndarray) -> np.ndarray:
    """One bytes object per full grid, equal for grids that differ in the names of their digits only.

    It is the grid with the digits renamed so that the first row is 1 to 9.
    """
    names = np.zeros((len(solutions), 10), np.uint8)
    np.put_along_axis(names, solutions[:, :9].astype(np.intp), np.arange(1, 10, dtype=np.uint8)[None], axis=1)
    renamed = np.take_along_axis(names, solutions.astype(np.intp), axis=1)
    return np.ascontiguousarray(renamed).view(f"S{CELLS}").ravel()


class Symmetries(NamedTuple):
    """For each board: where its cells come from, and what its digits are called."""

    cells: np.ndarray
    """(boards, 81): new cell i is old cell ``cells[i]``."""
    names: np.ndarray
    """(boards, 10): digit d is renamed ``names[d]``; 0 stays."""

    def apply(self, boards: np.ndarray) -> np.ndarray:
        moved = np.take_along_axis(boards, self.cells, axis=1)
        return np.take_along_axis(self.names, moved.astype(np.intp), axis=1).astype(boards.dtype)


def random_symmetries(boards: int, generator: np.random.Generator) -> Symmetries:
    """Bands, stacks, rows in a band, columns in a stack, transposition and names, all drawn evenly."""

    def lines() -> np.ndarray:
        bands = np.argsort(generator.random((boards, 3)), axis=1)
        within = np.argsort(generator.random((boards, 3, 3)), axis=2)
        return (3 * bands[:, :, None] + within).reshape(boards, 9)

    cells = 9 * lines()[:, :, None] + lines()[:, None, :]
    turned = generator.random(boards) < 0.5
    cells[turned] = cells[turned].transpose(0, 2, 1)
    names = np.zeros((boards, 10), np.int64)
    names[:, 1:] = 1 + np.argsort(generator.random((boards, 9)), axis=1)
    return Symmetries(cells.reshape(boards, CELLS), names)
