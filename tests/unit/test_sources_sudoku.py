"""Sudoku sources: files and generated boards, splits that share no grid, and one line for what is wrong."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from isthmus.core import registry
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS
from isthmus.sources.puzzles.boards import grid_keys, is_complete, random_symmetries
from isthmus.sources.puzzles.generation import generate
from isthmus.sources.puzzles.solver import solve
from tests.unit.boards import SEVENTEEN, SOLUTION

MADE = generate(np.resize([50, 60], 40), np.random.default_rng(0))


def source(name, **fields):
    return registry.find("sources", name)(registry.component("sources", {"name": name, **fields}))


def line(puzzle, solution):
    return "".join(map(str, puzzle)) + "," + "".join(map(str, solution))


def write(path, puzzles, solutions, header=("puzzle,solution",)):
    rows = [line(*row) for row in zip(puzzles.tolist(), solutions.tolist(), strict=True)]
    text = "\n".join([*header, *rows]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def keys(split):
    return set(grid_keys(split.targets.astype(np.uint8)).tolist())


def assert_apart(data):
    sets = [keys(data.split(name)) for name in SPLITS]
    assert sum(map(len, sets)) == len(set.union(*sets))


def test_generated_boards_keep_their_contract(tmp_path):
    data = source("sudoku", givens=(40, 60), train=6, validation=2, test=4).load(tmp_path)
    for name, rows in zip(SPLITS, (6, 2, 4), strict=True):
        split = data.split(name)
        assert split.targets is not None
        assert split.inputs.shape == split.targets.shape == (rows, 81)
        assert sorted(set((split.inputs > 0).sum(axis=1).tolist())) == [40, 60]
        assert is_complete(split.targets).all()
        solved = solve(split.inputs.astype(np.uint8))
        assert (solved.counts == 1).all()
        assert np.array_equal(solved.solutions, split.targets)
    assert_apart(data)
    assert (
        source("sudoku", givens=(40, 60), train=6, validation=2, test=4, split_seed=1).load(tmp_path).fingerprint
        != data.fingerprint
    )


def test_fewer_givens_come_from_known_puzzles(tmp_path):
    with pytest.raises(UserError, match=r"givens=20 cannot be dug.*24 can; name a csv file"):
        source("sudoku", givens=(20,))
    with pytest.raises(UserError, match=r"givens\.0=81: input should be less than or equal to 80$"):
        source("sudoku", givens=(81,))
    with pytest.raises(UserError, match=r"givens=\(\): tuple should have at least 1 item"):
        source("sudoku", givens=())
    drawn = random_symmetries(12, np.random.default_rng(1))
    puzzle, solution = (np.array([list(map(int, text))] * 12, np.uint8) for text in (SEVENTEEN, SOLUTION))
    known = write(tmp_path / "known.csv", drawn.apply(puzzle), drawn.apply(solution))
    data = source("sudoku", givens=(17, 20), known=known, train=10, validation=2, test=2).load(tmp_path)
    assert sorted((data.train.inputs > 0).sum(axis=1).tolist()) == [17] * 5 + [20] * 5
    assert (solve(data.train.inputs.astype(np.uint8)).counts == 1).all()
    assert_apart(data)
    many = write(tmp_path / "many.csv", *MADE)
    with pytest.raises(
        UserError, match="no puzzle with 17 givens or fewer for the train split; the fewest there are 50"
    ):
        source("sudoku", givens=(17,), known=many, train=10, validation=2, test=2).load(tmp_path)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_files_are_read_and_split_by_grid(tmp_path, ending):
    names = np.array([0, 2, 3, 4, 5, 6, 7, 8, 9, 1], np.uint8)
    twice = [np.concatenate([side, names[side]]) for side in MADE]  # every grid also under other names
    write(tmp_path / f"boards.{ending}", *twice)
    data = source("sudoku_csv", path=f"boards.{ending}", validation=0.2, test=0.1).load(tmp_path)
    assert [len(data.split(name)) for name in SPLITS] == [56, 16, 8]
    assert_apart(data)
    few = source("sudoku_csv", path=f"boards.{ending}", givens=(50, 55), most=5, most_held_out=2, prove=True).load(
        tmp_path
    )
    assert [len(few.split(name)) for name in SPLITS] == [5, 2, 2]
    assert ((few.train.inputs > 0).sum(axis=1) == 50).all()


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_file_without_a_header_is_the_same_file(tmp_path, ending):
    """Palm's hard Sudoku is distributed like this."""
    write(tmp_path / f"with.{ending}", *MADE)
    write(tmp_path / f"without.{ending}", *MADE, header=())
    one, other = (source("sudoku_csv", path=f"{name}.{ending}").load(tmp_path) for name in ("with", "without"))
    assert one.fingerprint == other.fingerprint
    assert sum(len(other.split(name)) for name in SPLITS) == 40
    open_ = np.where(MADE[1] >= 8, 0, MADE[1])
    write(tmp_path / f"open.{ending}", open_, MADE[1], header=())
    with pytest.raises(UserError, match="line 1: the puzzle has more than one solution"):
        source("sudoku_csv", path=f"open.{ending}", prove=True).load(tmp_path)


def test_files_of_their_own_for_validation_and_test(tmp_path):
    for number, name in enumerate(SPLITS):
        write(tmp_path / f"{name}.csv", *(side[10 * number : 10 * number + 10] for side in MADE))
    paths = {"path": "train.csv", "validation_path": "validation.csv", "test_path": "test.csv"}
    data = source("sudoku_csv", **paths).load(tmp_path)
    assert [len(data.split(name)) for name in SPLITS] == [10, 10, 10]
    with pytest.raises(UserError, match="10 solutions, up to the names of their digits, are in train and in test"):
        source("sudoku_csv", **paths | {"test_path": "train.csv"}).load(tmp_path)
    with pytest.raises(UserError, match="has no puzzle with 17 to 20 givens, but 50–60"):
        source("sudoku_csv", **paths, givens=(17, 20)).load(tmp_path)


def test_the_shared_files_are_read(shared_data):
    if not (shared_data / "sudoku").is_dir():
        pytest.skip(f"there is no {shared_data / 'sudoku'}")
    data = source(
        "sudoku_csv",
        path="sudoku/sudoku_hard_17to34_valid.csv.gz",
        test_path="sudoku/sudoku_hard_17to34_test.csv.gz",
        most=900,
        most_held_out=100,
    ).load(shared_data)
    assert [len(data.split(name)) for name in SPLITS] == [900, 100, 100]
    assert_apart(data)


GOOD = f"{SEVENTEEN},{SOLUTION}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with 'nothing'"),
        ("a,b\n1,2", "begins with 'a,b', not with lines of 81 digits, a comma and 81 digits"),
        ("puzzle,solution\n", "has no puzzles"),
        (f"puzzle,solution\n{GOOD}\n123,456\n", "line 3: a line has 81 digits, a comma and 81 digits, not '123,456'"),
        (f"puzzle,solution\n{GOOD[:-1]}x\n", "line 2: a line has 81 digits"),
        (f"puzzle,solution\n{GOOD.replace(',', '0')}\n", "line 2: a line has 81 digits"),
        (f"puzzle,solution\n{GOOD[:-1]}8\n", "line 2: the solution is not valid: it has two 8s in row 9"),
        (f"puzzle,solution\n{'7' + GOOD[1:]}\n", "line 2: the solution differs from the puzzle in a given cell"),
        (f"{GOOD}\n123,456\n", "line 2: a line has 81 digits, a comma and 81 digits, not '123,456'"),
        (f"{GOOD[:-1]}8\n", "line 1: the solution is not valid: it has two 8s in row 9"),
        (f"{GOOD}\npuzzle,solution\n", "line 2: a line has 81 digits"),
        (f"{GOOD}\n", "1 different solutions are too few to hold 2 of them out"),
        (f"puzzle,solution\n{GOOD}\n", "1 different solutions are too few to hold 2 of them out"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, said):
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(UserError, match=said) as error:
        source("sudoku_csv", path="wrong.csv").load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_puzzle_with_two_solutions_is_refused_where_proof_is_asked_for(tmp_path):
    open_ = np.where(MADE[1] >= 8, 0, MADE[1])  # eights and nines can be swapped
    write(tmp_path / "open.csv", open_, MADE[1])
    assert source("sudoku_csv", path="open.csv").load(tmp_path)
    with pytest.raises(UserError, match=r"open\.csv, line 2: the puzzle has more than one solution; 40 of 40 have"):
        source("sudoku_csv", path="open.csv", prove=True).load(tmp_path)
    wrong = next(number for number in range(5, 40) if (MADE[0][number] > 0).sum() == 60)
    write(tmp_path / "one.csv", np.where(np.arange(40)[:, None] == wrong, open_, MADE[0]), MADE[1])
    with pytest.raises(UserError, match=rf"line {wrong + 2}: the puzzle has more than one solution; 1 of "):
        source("sudoku_csv", path="one.csv", prove=True, givens=((open_[wrong] > 0).sum(), 80)).load(tmp_path)


@pytest.mark.parametrize("shown", ["all but eights and nines", "nothing"])
def test_known_puzzles_are_proved_before_any_board_is_made_of_them(tmp_path, shown):
    puzzles = MADE[0].copy()
    puzzles[7:9] = 0 if shown == "nothing" else np.where(MADE[1][7:9] >= 8, 0, MADE[1][7:9])
    write(tmp_path / "known.csv", puzzles, MADE[1])
    with pytest.raises(UserError, match=r"known\.csv, line 9: the puzzle has more than one solution; 2 of 40 have"):
        source("sudoku", givens=(70,), known="known.csv", train=4, validation=2, test=2).load(tmp_path)


def test_images_of_known_puzzles_are_drawn_anew_where_another_split_has_their_grid(tmp_path, monkeypatch):
    """Symmetric forms of one puzzle are apart in the file; here they all become the same grid for a while."""
    drawn = random_symmetries(3, np.random.default_rng(1))
    puzzle, solution = (np.array([list(map(int, text))] * 3, np.uint8) for text in (SEVENTEEN, SOLUTION))
    known = write(tmp_path / "known.csv", drawn.apply(puzzle), drawn.apply(solution))
    calls = []

    def often_alike(boards, generator):
        calls.append(boards)
        return random_symmetries(boards, np.random.default_rng(0) if len(calls) < 5 else generator)

    monkeypatch.setattr("isthmus.sources.puzzles.generation.random_symmetries", often_alike)
    alike = dict.fromkeys(SPLITS, (puzzle[:1], solution[:1]))
    monkeypatch.setattr("isthmus.sources.sudoku.GeneratedSudoku._pools", lambda *_: alike)
    asked = {"givens": (17,), "known": known, "train": 2, "validation": 1, "test": 1}
    assert_apart(source("sudoku", **asked).load(tmp_path))
    assert calls[:2] == [2, 1]
    assert len(calls) > 4
    monkeypatch.setattr(
        "isthmus.sources.puzzles.generation.random_symmetries",
        lambda n, _: random_symmetries(n, np.random.default_rng(0)),
    )
    with pytest.raises(UserError, match="images of its puzzles have the same solution in two splits"):
        source("sudoku", **asked, split_seed=1).load(tmp_path)
