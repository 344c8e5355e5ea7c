"""Sudoku puzzles with one solution each: from ``puzzle,solution`` csv files, or generated here.

Palm et al.'s (2018) hard Sudoku, which the Hyper-SET paper uses, has files without a header; both forms are read.

A row is a board of 81 tokens, 0 for an empty cell; its target is the solved board. No solution, up to the names of its
digits, is in two splits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Data, Source, Split, SplitName
from isthmus.sources.cache import cache_array
from isthmus.sources.files import read_bytes, resolve
from isthmus.sources.puzzles.boards import CELLS, conflict, grid_keys, is_complete
from isthmus.sources.puzzles.generation import FEWEST_GIVENS, derive, generate
from isthmus.sources.puzzles.solver import solve
from isthmus.sources.splits import DrawnSplits, Rows, array_digest, check_splits

NAMES = {"sudoku": "GeneratedSudoku", "sudoku_csv": "SudokuFiles"}
MEANINGS = {
    "sudoku": "Sudoku puzzles with one solution each, generated here: no download.",
    "sudoku_csv": "Sudoku puzzles from `puzzle,solution` csv files.",
}

Givens = Annotated[int, Field(ge=17, le=80)]
Boards = tuple[np.ndarray, np.ndarray]
"""Puzzles and their solutions."""
Make = Callable[[np.ndarray, np.random.Generator], Boards]
"""Makes puzzles with the given numbers of digits."""
FIELDS: dict[SplitName, str] = {"train": "path", "validation": "validation_path", "test": "test_path"}
_TRIES = 100
FORM = "lines of 81 digits, a comma and 81 digits (puzzle and solution, 0 for empty), with or without a header"
_HEADER = b"puzzle,solution"


class GeneratedSudoku(Source):
    """int16 (boards, 81) made from a seed: puzzles dug from random grids, or images of the puzzles of a file."""

    class Config(Component):
        givens: Annotated[tuple[Givens, ...], Field(min_length=1, max_length=64)] = (50,)
        """Numbers of given digits, each equally often; fewer than 24 need ``known``."""
        train: Rows = 1000
        """Boards to train on."""
        validation: Rows = 100
        """Boards for validation."""
        test: Rows = 200
        """Boards for the test."""
        known: str | None = None
        """A csv file of puzzles: boards are symmetric images of them, with more cells revealed to reach ``givens``."""
        split_seed: int = 0
        """Seed of the generated boards; the run's seed does not change them."""

        @model_validator(mode="after")
        def _can_be_made(self) -> Self:
            if self.known is None and min(self.givens) < FEWEST_GIVENS:
                raise ValueError(
                    f"givens={min(self.givens)} cannot be dug from random grids, {FEWEST_GIVENS} can; "
                    "name a csv file of puzzles with as few as source.known"
                )
            return self

    def load(self, data_dir: Path) -> Data:
        config = self.config
        path, known = Path(), None
        settings = config.model_dump(mode="json", exclude={"name", "known"})
        if config.known is not None:
            path = resolve(data_dir, config.known, f"give a csv file with {FORM} as source.known")
            known = read_puzzles(path)
            settings["known"] = [array_digest(part) for part in known]
            settings["proved"] = True  # earlier versions did not prove the known puzzles
        shape = (2, config.train + config.validation + config.test, CELLS)
        boards = cache_array("sudoku", settings, shape, lambda array: self._fill(array, path, known)).array
        parts = np.split(boards.astype(np.int16), np.cumsum([config.train, config.validation]), axis=1)
        return check_splits("sudoku", [Split(*part) for part in parts])

    def _fill(self, array: np.ndarray, path: Path, known: np.ndarray | None) -> None:
        """Write the boards of all splits into ``array``; no two splits share a grid or a known puzzle."""
        pools = None
        if known is not None:
            _refuse_ambiguous(path, known[0], np.arange(known.shape[1]))
            pools = self._pools(known)
        used: set[bytes] = set()
        start = 0
        for name in SPLITS:
            rows = getattr(self.config, name)
            givens = np.resize(np.array(self.config.givens), rows)
            generator = numpy_generator(self.config.split_seed, f"sudoku/{name}")
            make: Make = generate
            if pools is not None:
                fewest = (pools[name][0] > 0).sum(axis=1).min()
                if fewest > givens.min():
                    raise UserError(
                        f"source.known has no puzzle with {givens.min()} givens or fewer for the {name} split; "
                        f"the fewest there are {fewest}"
                    )
                make = partial(derive, *pools[name])
            array[:, start : start + rows] = _make_unused(make, givens, used, generator)
            start += rows

    def _pools(self, known: np.ndarray) -> dict[SplitName, np.ndarray]:
        shares = [self.config.validation, self.config.test]
        total = self.config.train + sum(shares)
        groups = number_grids(known[1])
        held_out = [max(1, (int(groups.max()) + 1) * share // total) for share in shares]
        return split_groups(known, groups, held_out, self.config.split_seed, "source.known")


def _make_unused(make: Make, givens: np.ndarray, used: set[bytes], generator: np.random.Generator) -> Boards:
    """Puzzles, generated again where another split already uses the grid."""
    puzzles, solutions = make(givens, generator)
    for _ in range(_TRIES):
        keys = grid_keys(solutions)
        again = np.array([number for number, key in enumerate(keys) if bytes(key) in used], np.intp)
        if not len(again):
            used.update(bytes(key) for key in keys)
            return puzzles, solutions
        puzzles[again], solutions[again] = make(givens[again], generator)
    # A grid with many symmetries of its own has few images: one split can use them all.
    raise UserError(
        "source.known: images of its puzzles have the same solution in two splits, however they are drawn; "
        "ask for fewer boards, or name a file of more puzzles"
    )


class SudokuFiles(Source):
    """int16 (boards, 81) of csv or csv.gz files; solutions are checked, and proved to be the only ones if asked."""

    class Config(DrawnSplits):
        path: str
        """The file to train on, absolute, under the data folder or under the current one."""
        validation_path: str | None = None
        """A file with the validation boards; without it they are drawn from ``path``."""
        test_path: str | None = None
        """A file with the test boards; without it they are drawn from ``path``."""
        givens: tuple[Givens, Givens] | None = None
        """Range of the number of given digits; other boards are left out."""
        most: Rows | None = None
        """Maximum number of training boards, drawn at random."""
        most_held_out: Rows | None = None
        """Maximum number of validation boards, and of test boards."""
        prove: bool = False
        """Whether to prove that every puzzle has one solution only (about 10,000 in a second)."""

    def load(self, data_dir: Path) -> Data:
        config = self.config
        given = {
            name: self._read(resolve(data_dir, path, f"give a csv file with {FORM} as source.{field}"))
            for name, field in FIELDS.items()
            if (path := getattr(config, field)) is not None
        }
        pool = given.pop("train")
        groups = number_grids(pool[1])
        held_out = config.held_out(int(groups.max()) + 1, list(given))
        splits = split_groups(pool, groups, held_out, config.split_seed, config.path) | given
        splits = {name: self._draw(name, boards).astype(np.int16) for name, boards in splits.items()}
        _refuse_shared(splits)
        return check_splits(config.path, [Split(*splits[name]) for name in SPLITS])

    def _read(self, path: Path) -> np.ndarray:
        boards = read_puzzles(path)
        rows = np.arange(boards.shape[1])
        if self.config.givens is not None:
            low, high = self.config.givens
            counts = (boards[0] > 0).sum(axis=1)
            rows = np.flatnonzero((counts >= low) & (counts <= high))
            if not len(rows):
                raise UserError(f"{path} has no puzzle with {low} to {high} givens, but {counts.min()}–{counts.max()}")
        if self.config.prove:
            _refuse_ambiguous(path, boards[0, rows], rows)
        return boards[:, rows]

    def _draw(self, name: SplitName, boards: np.ndarray) -> np.ndarray:
        """Draw as many boards of a split as the settings allow."""
        most = self.config.most if name == "train" else self.config.most_held_out
        if most is None or most >= boards.shape[1]:
            return boards
        return boards[:, numpy_generator(self.config.split_seed, f"sudoku/{name}").permutation(boards.shape[1])[:most]]


def read_puzzles(path: Path) -> np.ndarray:
    """uint8 (2, boards, 81): the puzzles of a csv file and their solutions, each checked against the rules."""
    lines = read_bytes(path).split()
    first = _first_line(lines)
    if first == 1 and not (lines and lines[0][:1].isdigit() and len(lines[0]) == 2 * CELLS + 1):
        shown = lines[0][:40].decode("utf-8", "replace") if lines else "nothing"
        raise UserError(f"{path} is not a file of puzzles: it begins with {shown!r}, not with {FORM}")
    rows = lines[first - 1 :]
    if not rows:
        raise UserError(f"{path} has no puzzles")
    wrong = [number for number, line in enumerate(rows) if len(line) != 2 * CELLS + 1]
    if not wrong:
        table = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 2 * CELLS + 1)
        boards = np.stack([table[:, :CELLS], table[:, CELLS + 1 :]]) - np.uint8(48)
        wrong = np.flatnonzero((table[:, CELLS] != ord(",")) | (boards > 9).any(axis=(0, 2))).tolist()
    if wrong:
        text = rows[wrong[0]].decode("utf-8", "replace")
        shown = text if len(text) <= 40 else text[:39] + "…"
        raise UserError(f"{path}, line {wrong[0] + first}: a line has 81 digits, a comma and 81 digits, not {shown!r}")
    puzzles, solutions = boards
    if wrong := np.flatnonzero(~is_complete(solutions)).tolist():
        broken = conflict(solutions[wrong[0]]) or "an empty cell"
        raise UserError(f"{path}, line {wrong[0] + first}: the solution is not valid: it has {broken}")
    if wrong := np.flatnonzero(((puzzles > 0) & (puzzles != solutions)).any(axis=1)).tolist():
        raise UserError(f"{path}, line {wrong[0] + first}: the solution differs from the puzzle in a given cell")
    return boards


def _first_line(lines: list[bytes]) -> int:
    """The number of the line with the first puzzle, from 1."""
    return 2 if lines and lines[0].lower() == _HEADER else 1


def _refuse_ambiguous(path: Path, puzzles: np.ndarray, rows: np.ndarray) -> None:
    """``rows`` are the puzzles' places in the file."""
    if many := rows[solve(puzzles).counts != 1].tolist():
        first = _first_line(read_bytes(path).split(maxsplit=1))
        raise UserError(
            f"{path}, line {many[0] + first}: the puzzle has more than one solution; "
            f"{len(many)} of {len(puzzles)} have, leave them out"
        )


def number_grids(solutions: np.ndarray) -> np.ndarray:
    """A number for each solution, equal where solutions differ in the names of their digits only."""
    return np.asarray(np.unique(grid_keys(solutions), return_inverse=True)[1])


def split_groups(
    boards: np.ndarray, groups: np.ndarray, held_out: list[int], seed: int, origin: str
) -> dict[SplitName, np.ndarray]:
    """The boards of the three splits, shuffled; whole groups are held out."""
    count = int(groups.max()) + 1
    if count - sum(held_out) < 1:
        raise UserError(f"{origin}: {count} different solutions are too few to hold {sum(held_out)} of them out")
    generator = numpy_generator(seed, "split")
    split_of_group = np.empty(count, np.intp)
    split_of_group[generator.permutation(count)] = np.repeat(range(3), [count - sum(held_out), *held_out])
    rows = generator.permutation(len(groups))
    return {name: boards[:, rows[split_of_group[groups[rows]] == number]] for number, name in enumerate(SPLITS)}


def _refuse_shared(splits: Mapping[SplitName, np.ndarray]) -> None:
    keys = {name: set(grid_keys(boards[1]).tolist()) for name, boards in splits.items()}
    for one, other in itertools.combinations(SPLITS, 2):
        if shared := len(keys[one] & keys[other]):
            raise UserError(
                f"{shared} solutions, up to the names of their digits, are in {one} and in {other}; "
                f"leave out source.{other}_path, or give another file"
            )
