"""Puzzles with exactly one solution: random grids with cells removed, or symmetric images of known puzzles."""

from __future__ import annotations

import numpy as np

from isthmus.sources.puzzles.boards import CELLS, random_symmetries
from isthmus.sources.puzzles.solver import solve

FEWEST_GIVENS = 24
"""Removing cells from random grids seldom reaches fewer; known puzzles with fewer took years of search."""
_AT_ONCE = 4096
_FEWEST_AT_ONCE = 16
"""The solver is as fast for this many as for one, so few boards are each tried several times."""


def random_grids(boards: int, generator: np.random.Generator) -> np.ndarray:
    """Full grids: the boxes on the diagonal are drawn, the others are guessed at random."""
    start = np.zeros((boards, CELLS), np.uint8)
    for corner in (0, 30, 60):  # these three boxes share no row and no column
        box = corner + np.array([0, 1, 2, 9, 10, 11, 18, 19, 20])
        start[:, box] = 1 + np.argsort(generator.random((boards, 9)), axis=1)
    return solve(start, most=1, generator=generator).solutions


def dig(solutions: np.ndarray, givens: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Puzzles of these grids with ``givens`` digits each and one solution; a row of zeros where that failed.

    All cells are first removed at once; where that leaves two solutions, one at a time in the same order.
    """
    boards = len(solutions)
    order = np.argsort(generator.random((boards, CELLS)), axis=1)
    place = np.argsort(order, axis=1)
    puzzles = np.where(place < (CELLS - givens)[:, None], np.uint8(0), solutions)
    ambiguous = np.flatnonzero(solve(puzzles).counts > 1)
    puzzles[ambiguous] = _dig_one_by_one(solutions[ambiguous], givens[ambiguous], order[ambiguous])
    return puzzles


def _dig_one_by_one(solutions: np.ndarray, givens: np.ndarray, order: np.ndarray) -> np.ndarray:
    puzzles = solutions.copy()
    left = np.full(len(puzzles), CELLS)
    for step in range(CELLS):
        trying = np.flatnonzero(left > givens)
        if not len(trying):
            break
        cell = order[trying, step]
        puzzles[trying, cell] = 0
        other = CELLS * (solutions[trying, cell].astype(np.intp) - 1) + cell  # a solution with another digit there?
        unique = solve(puzzles[trying], most=1, excluded=other).counts == 0
        back = trying[~unique]
        puzzles[back, cell[~unique]] = solutions[back, cell[~unique]]
        left[trying[unique]] -= 1
    puzzles[left > givens] = 0
    return puzzles


def generate(givens: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Puzzles with these numbers of givens and their solutions, each from a grid of its own."""
    puzzles, solutions = np.zeros((2, len(givens), CELLS), np.uint8)
    wanted = np.arange(len(givens))
    while len(wanted):
        tried = np.resize(wanted, max(len(wanted), _FEWEST_AT_ONCE))[:_AT_ONCE]
        grids = random_grids(len(tried), generator)
        made = dig(grids, givens[tried], generator)
        succeeded = np.flatnonzero(made.any(axis=1))
        boards, first = np.unique(tried[succeeded], return_index=True)
        puzzles[boards], solutions[boards] = made[succeeded[first]], grids[succeeded[first]]
        wanted = np.setdiff1d(wanted, boards)
    return puzzles, solutions


def reveal(
    puzzles: np.ndarray, solutions: np.ndarray, givens: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Puzzles with random cells of their solutions revealed until they have ``givens`` digits."""
    rank = generator.random(puzzles.shape)
    rank[puzzles > 0] -= 1  # what is given stays
    place = np.argsort(np.argsort(rank, axis=1), axis=1)
    return np.where(place < givens[:, None], solutions, puzzles)


def derive(
    known: np.ndarray, solutions: np.ndarray, givens: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric images of known puzzles, with cells revealed until they have ``givens`` digits."""
    counts = (known > 0).sum(axis=1)
    chosen = np.array([generator.choice(np.flatnonzero(counts <= wanted)) for wanted in givens], np.intp)
    symmetries = random_symmetries(len(givens), generator)
    full = symmetries.apply(solutions[chosen])
    return reveal(symmetries.apply(known[chosen]), full, givens, generator), full
