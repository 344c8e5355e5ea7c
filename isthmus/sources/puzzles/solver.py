"""An exact solver that proves uniqueness: thousands of boards at once, one bit each.

A search state is 729 bits, one for each digit that a cell may still hold. Bit k of every word belongs to state k of
its block, so one operation on words of 64 bits works on 64 states. A round finds every digit that is alone in its cell
and every cell that is alone for a digit in a row, column or box, and strikes out what these placements forbid. When
nothing changes any more, a state is solved, contradictory, or split in two by a guess. All branches are followed until
a board has two solutions or none are left, so the count is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isthmus.sources.puzzles.boards import CELLS, UNITS

_WORD = 64
_STATES_AT_ONCE = 32 * _WORD
_GUESSES_AT_ONCE = 4 * _WORD
"""Branches examined at once, shared by all boards: with more, a board with many solutions would examine them all."""
_CANDIDATES = 9 * CELLS
_CONSTRAINTS = np.concatenate(
    [CELLS * np.arange(9) + np.arange(CELLS)[:, None], *(CELLS * digit + UNITS for digit in range(9))]
)
"""The 324 sets of nine candidates (81 · digit + cell) of which exactly one is true."""


class Solutions(NamedTuple):
    solutions: np.ndarray
    """uint8 (boards, 81): the first solution that was found, zeros where there is none."""
    counts: np.ndarray
    """uint8 (boards,): 0, 1, or ``most`` where there are at least so many."""


def solve(
    puzzles: np.ndarray,
    most: int = 2,
    generator: np.random.Generator | None = None,
    excluded: np.ndarray | None = None,
) -> Solutions:
    """Solutions of puzzles (boards, 81), counted up to ``most``; a generator makes the guesses random.

    ``excluded`` names a candidate of each board (81 · digit from 0 + cell) that its solutions must not hold.
    """
    found = Solutions(np.zeros((len(puzzles), CELLS), np.uint8), np.zeros(len(puzzles), np.uint8))
    begun = 0
    waiting, waiting_owners = np.zeros((0, _CANDIDATES // 8 + 1), np.uint8), np.zeros(0, np.intp)
    while begun < len(puzzles) or len(waiting):
        now = _next(waiting_owners)
        fresh = np.arange(begun, min(len(puzzles), begun + max(0, _STATES_AT_ONCE - len(waiting))))
        begun += len(fresh)
        started = _start(puzzles[fresh])
        if excluded is not None:
            started[np.arange(len(fresh)), excluded[fresh]] = 0
        resumed = np.unpackbits(waiting[now], axis=1, count=_CANDIDATES)
        states, dead, unfinished = _propagate(np.concatenate([started, resumed]))
        owners = np.concatenate([fresh, waiting_owners[now]])
        solved = ~dead & ~unfinished & (states.sum(axis=1, dtype=np.uint16) == CELLS)
        _note(found, states[solved], owners[solved], most)
        alive = ~dead & ~solved & (found.counts[owners] < most)
        halved, changing = alive & ~unfinished, alive & unfinished
        children = np.concatenate([states[changing], *_split(states[halved], generator)])
        waiting = np.concatenate([waiting[~now], np.packbits(children, axis=1)])
        waiting_owners = np.concatenate([waiting_owners[~now], owners[changing], owners[halved], owners[halved]])
        needed = found.counts[waiting_owners] < most
        waiting, waiting_owners = waiting[needed], waiting_owners[needed]
    return found


def _next(owners: np.ndarray) -> np.ndarray:
    """Which waiting states to look at: the newest of each board, because depth before breadth keeps few waiting.

    Many boards fill the lanes with a branch each; few get more, so that a long proof goes on in parallel.
    """
    newest_first = np.argsort(owners, kind="stable")[::-1]
    sorted_owners = owners[newest_first]
    begins = np.flatnonzero(np.diff(sorted_owners, prepend=-1))
    rank = np.arange(len(owners)) - np.repeat(begins, np.diff(begins, append=len(owners)))
    share = max(1, _GUESSES_AT_ONCE // max(1, len(begins)))
    now = np.zeros(len(owners), bool)
    now[newest_first[rank < share][:_STATES_AT_ONCE]] = True
    return now


def _start(puzzles: np.ndarray) -> np.ndarray:
    """The states (boards, 729) of fresh puzzles: a given leaves its cell one digit."""
    digits = np.arange(1, 10, dtype=np.uint8)[:, None]
    boards = puzzles[:, None]
    return ((boards == 0) | (boards == digits)).astype(np.uint8).reshape(-1, _CANDIDATES)


def _propagate(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states after every deduction that needs no guess, which are contradictory, and which would still change.

    The last few that still change are left for the next block, where more states share a round.
    """
    lanes = len(states)
    padded = np.zeros((-(-lanes // _WORD) * _WORD, _CANDIDATES), np.uint8)
    padded[:lanes] = states
    words = np.ascontiguousarray(np.packbits(padded, axis=0, bitorder="little").T).view(np.uint64)
    board = words.reshape(9, 9, 9, -1)
    dead = np.zeros(board.shape[-1], np.uint64)
    while True:
        changed = _round(board, dead) & ~dead
        if np.bitwise_count(changed).sum() <= lanes // 8:
            break
    rows = np.unpackbits(np.ascontiguousarray(words.view(np.uint8).T), axis=0, bitorder="little")
    flags = np.unpackbits(np.stack([dead, changed]).view(np.uint8), axis=1, bitorder="little").astype(bool)
    return rows[:lanes], flags[0, :lanes], flags[1, :lanes]


def _box(board: np.ndarray) -> np.ndarray:
    return board.reshape(9, 3, 3, 3, 3, -1)


def _count(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Bits that are set in at least one, and in at least two, of nine arrays."""
    ones, twos = parts[0] | parts[1], parts[0] & parts[1]
    for part in parts[2:]:
        twos |= ones & part
        ones |= part
    return ones, twos


def _views(board: np.ndarray) -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """For cells, rows, columns and boxes: the board with the nine places of a constraint in front, and these places."""
    boxes = _box(board).transpose(2, 4, 0, 1, 3, 5)
    lines = [board, board.transpose(2, 0, 1, 3), board.transpose(1, 0, 2, 3)]
    return [(line, list(line)) for line in lines] + [(boxes, [place for row in boxes for place in row])]


def _round(board: np.ndarray, dead: np.ndarray) -> np.ndarray:
    """One round, in place; the states that it changed, as bits. A place that nothing fits makes its state dead."""
    placed = np.zeros_like(board)
    placed_views = _views(placed)
    for (whole, parts), (target, _) in zip(_views(board), placed_views, strict=True):
        ones, twos = _count(parts)
        dead |= ~np.bitwise_and.reduce(ones.reshape(-1, ones.shape[-1]), axis=0)
        ones &= ~twos
        target |= whole & ones
    before = board.copy()
    for (whole, _), (source, parts) in zip(_views(board), placed_views, strict=True):
        ones, twos = _count(parts)
        # A digit placed once removes its other candidates; placed twice, it removes all, and the state is dead.
        whole &= ~ones | (source & ~twos)
    _lock(_box(board))
    _lock(_box(board).transpose(0, 3, 4, 1, 2, 5))
    before ^= board
    return np.asarray(np.bitwise_or.reduce(before.reshape(_CANDIDATES, -1), axis=0))


def _lock(boxes: np.ndarray) -> None:
    """A digit that a box holds in one line only leaves that line's other boxes, and likewise with line and box swapped.

    ``boxes``: digit, band, line in the band, stack, cell in the line, word.
    """
    segment = boxes[..., 0, :] | boxes[..., 1, :] | boxes[..., 2, :]
    parts = [segment[:, :, 0], segment[:, :, 1], segment[:, :, 2]]
    _, twos = _count(parts)
    only_line = segment & ~twos[:, :, None]  # of its box's three segments
    _, twos = _count([segment[:, :, :, 0], segment[:, :, :, 1], segment[:, :, :, 2]])
    only_box = segment & ~twos[:, :, :, None]  # of its line's three segments
    taken, _ = _count([only_line[:, :, :, 0], only_line[:, :, :, 1], only_line[:, :, :, 2]])
    keep = ~taken[:, :, :, None] | only_line
    taken, _ = _count([only_box[:, :, 0], only_box[:, :, 1], only_box[:, :, 2]])
    keep &= ~taken[:, :, None] | only_box
    boxes &= keep[..., None, :]


def _note(found: Solutions, states: np.ndarray, owners: np.ndarray, most: int) -> None:
    solutions = (1 + states.reshape(-1, 9, CELLS).argmax(axis=1)).astype(np.uint8)
    first, index = np.unique(owners, return_index=True)
    new = found.counts[first] == 0
    found.solutions[first[new]] = solutions[index[new]]
    counts = found.counts + np.bincount(owners, minlength=len(found.counts))
    found.counts[:] = np.minimum(counts, most)


def _split(states: np.ndarray, generator: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """Two states for each: without one candidate of the constraint that has the fewest left, and with it placed."""
    number = np.arange(len(states))
    counts = states[:, _CONSTRAINTS].sum(axis=2, dtype=np.uint8)
    counts[counts == 1] = 10
    order = counts if generator is None else counts + generator.random(counts.shape, np.float32) / 2
    members = _CONSTRAINTS[order.argmin(axis=1)]
    left = states[number[:, None], members]
    chosen = (left if generator is None else left * (1 + generator.random(left.shape, np.float32))).argmax(axis=1)
    candidate = members[number, chosen]
    without, placed = states.copy(), states.copy()
    without[number, candidate] = 0
    placed.reshape(-1, 9, CELLS)[number, :, candidate % CELLS] = 0
    placed[number, candidate] = 1
    return without, placed
