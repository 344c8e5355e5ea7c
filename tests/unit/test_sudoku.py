"""The game itself: text, rules, symmetries, the exact solver against a plain one, and generated puzzles."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import UserError
from isthmus.sources.puzzles.boards import (
    UNITS,
    conflict,
    draw,
    grid_keys,
    is_complete,
    parse,
    random_symmetries,
)
from isthmus.sources.puzzles.generation import derive, dig, generate, random_grids, reveal
from isthmus.sources.puzzles.solver import solve
from tests.unit.boards import NO_SOLUTION, SEVENTEEN, SOLUTION


def board(text):
    return parse(text, "here")


def generator(seed=0):
    return np.random.default_rng(seed)


def plain_solutions(puzzle, most):
    """Backtracking as anybody would write it: the first empty cell with the fewest digits left, in order."""
    found: list[np.ndarray] = []

    def search(cells):
        if len(found) >= most:
            return
        choices = []
        for cell in np.flatnonzero(cells == 0):
            seen = set(cells[UNITS[(cell == UNITS).any(axis=1)]].ravel().tolist())
            choices.append((sorted(set(range(1, 10)) - seen), int(cell)))
        if not choices:
            found.append(cells.copy())
            return
        digits, chosen = min(choices, key=lambda choice: len(choice[0]))
        for digit in digits:
            cells[chosen] = digit
            search(cells)
            cells[chosen] = 0

    search(puzzle.copy())
    return found


def test_text_of_all_kinds_is_the_same_board():
    plain = board(SEVENTEEN)
    rows = [SEVENTEEN[i : i + 9].replace("0", ".") for i in range(0, 81, 9)]
    bars = [" ".join(f"{row[:3]}|{row[3:6]}|{row[6:]}") for row in rows]
    rule = "\n------+-------+------\n"
    framed = rule.join("\n".join(bars[n : n + 3]) for n in (0, 3, 6))
    for text in ("\n".join(rows), framed, draw(plain), draw(plain) + "\n"):
        assert np.array_equal(board(text), plain)


@pytest.mark.parametrize(
    ("text", "said"), [("123", "81 cells, and here are 3"), ("", "here are 0"), ("a" * 81, "not 'a'"), ("0" * 82, "82")]
)
def test_text_that_is_no_board_is_one_line(text, said):
    with pytest.raises(UserError, match=said) as error:
        parse(text, "my.txt")
    assert str(error.value).startswith("my.txt: ")


def test_a_drawn_answer_shows_which_cells_were_found():
    text = draw(board(SOLUTION), board(SEVENTEEN) > 0)
    assert text.count("(") == 64
    assert "(6)(9)(3)" in text


def test_the_first_broken_rule_is_named():
    assert conflict(board(SEVENTEEN)) is None
    for cells, name in (((0, 8), "row 1"), ((0, 72), "column 1"), ((30, 50), "box 5")):
        wrong = np.zeros(81, np.uint8)
        wrong[list(cells)] = 7
        assert conflict(wrong) == f"two 7s in {name}"


def test_complete_means_every_digit_in_every_unit():
    boards = np.stack([board(SOLUTION), board(SEVENTEEN), np.roll(board(SOLUTION), 1)])
    assert is_complete(boards).tolist() == [True, False, False]


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_a_symmetry_keeps_puzzles_puzzles(seed):
    drawn_ = random_symmetries(4, generator(seed))
    solutions = drawn_.apply(np.repeat(board(SOLUTION)[None], 4, axis=0))
    puzzles = drawn_.apply(np.repeat(board(SEVENTEEN)[None], 4, axis=0))
    assert is_complete(solutions).all()
    assert ((puzzles > 0).sum(axis=1) == 17).all()
    solved = solve(puzzles)
    assert (solved.counts == 1).all()
    assert np.array_equal(solved.solutions, solutions)


def test_names_of_digits_do_not_matter_to_a_grids_key():
    grids = random_grids(3, generator())
    names = np.array([0, 3, 1, 2, 9, 8, 7, 4, 5, 6], np.uint8)
    assert np.array_equal(grid_keys(names[grids]), grid_keys(grids))
    assert len(set(grid_keys(grids).tolist())) == 3
    renamed = grid_keys(grids).view(np.uint8).reshape(3, 81)
    assert (renamed[:, :9] == np.arange(1, 10)).all()
    assert is_complete(renamed).all()


def test_the_solver_agrees_with_plain_backtracking_on_puzzles_of_every_kind():
    full = random_grids(12, generator(1))
    some = [np.where(generator(n).random(81) < share, grid, 0) for n, grid in enumerate(full) for share in (0.4, 0.5)]
    wrong = full[0].copy()
    wrong[:40] = 0
    wrong[80] = full[0][79]  # two of a digit in a row
    wrong[79] = 0
    puzzles = np.array([*some, wrong], np.uint8)
    solved = solve(puzzles)
    for puzzle, count, solution in zip(puzzles, solved.counts, solved.solutions, strict=True):
        expected = plain_solutions(puzzle, 2) if conflict(puzzle) is None else []
        assert count == len(expected)
        assert count == 0 or any(np.array_equal(solution, each) for each in expected) or count == 2
        assert count == 0 or (is_complete(solution[None]).all() and (solution[puzzle > 0] == puzzle[puzzle > 0]).all())


def test_hard_and_empty_and_impossible_boards_end():
    solved = solve(np.stack([board(SEVENTEEN), board("0" * 81), board(NO_SOLUTION), board(SOLUTION)]))
    assert solved.counts.tolist() == [1, 2, 0, 1]
    assert np.array_equal(solved.solutions[[0, 3]], np.stack([board(SOLUTION)] * 2))
    assert is_complete(solved.solutions[[1]]).all()
    assert not solved.solutions[2].any()


def test_contradictions_that_only_two_placements_show():
    twice_in_row = np.zeros(81, np.uint8)
    twice_in_row[[0, 8]] = 5
    assert solve(twice_in_row[None]).counts[0] == 0
    assert solve(np.zeros((0, 81), np.uint8)).counts.shape == (0,)


def test_many_solutions_are_counted_up_to_the_limit_and_a_candidate_can_be_excluded():
    empty_pair = board(SOLUTION)
    empty_pair[empty_pair >= 8] = 0  # eights and nines can at least be swapped
    assert solve(empty_pair[None], most=2).counts[0] == 2
    excluded = np.array([81 * (int(board(SOLUTION)[0]) - 1)])  # its own digit in the first cell
    assert solve(board(SEVENTEEN)[None], excluded=excluded).counts[0] == 0
    assert solve(board(SEVENTEEN)[None], excluded=(excluded + 81) % 729).counts[0] == 1


@pytest.mark.parametrize("givens", [24, 30, 50, 80])
def test_generated_puzzles_have_one_solution_and_exactly_so_many_givens(givens):
    puzzles, solutions = generate(np.full(3, givens), generator(givens))
    assert ((puzzles > 0).sum(axis=1) == givens).all()
    solved = solve(puzzles)
    assert (solved.counts == 1).all()
    assert np.array_equal(solved.solutions, solutions)


def test_a_seed_decides_what_is_generated():
    one, same, other = (generate(np.array([50, 60]), generator(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_dig_that_ends_early_is_said_by_an_empty_row():
    puzzles = dig(random_grids(2, generator(2)), np.array([17, 40]), generator(3))
    assert not puzzles[0].any()
    assert (puzzles[1] > 0).sum() == 40


def test_known_puzzles_give_others_with_as_few_givens_or_more():
    known, solutions = board(SEVENTEEN)[None], board(SOLUTION)[None]
    givens = np.array([17, 17, 20, 34])
    puzzles, full = derive(known, solutions, givens, generator())
    assert (puzzles > 0).sum(axis=1).tolist() == givens.tolist()
    solved = solve(puzzles)
    assert (solved.counts == 1).all()
    assert np.array_equal(solved.solutions, full)
    assert len(set(grid_keys(full).tolist())) == 4


def test_revealing_keeps_what_is_given():
    puzzles, solutions = np.stack([board(SEVENTEEN)] * 3), np.stack([board(SOLUTION)] * 3)
    shown = reveal(puzzles, solutions, np.array([10, 17, 60]), generator())
    assert (shown > 0).sum(axis=1).tolist() == [17, 17, 60]
    assert (shown[puzzles > 0] == puzzles[puzzles > 0]).all()
    assert (shown[shown > 0] == solutions[shown > 0]).all()


def test_royles_puzzles_are_proved_to_have_the_solutions_in_the_file(shared_data):
    path = shared_data / "sudoku" / "sudoku17_royle.csv.gz"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    lines = gzip.decompress(path.read_bytes()).split()[1:501]
    table = np.array([list(line.replace(b",", b"")) for line in lines], np.uint8) - 48
    solved = solve(table[:, :81])
    assert (solved.counts == 1).all()
    assert np.array_equal(solved.solutions, table[:, 81:])
