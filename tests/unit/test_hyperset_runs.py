"""A tiny Sudoku run from training to its printed boards and analyses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from isthmus.analysis import iterations, token_dynamics
from isthmus.cli import app
from isthmus.config import run_config
from isthmus.errors import UserError
from isthmus.puzzles import answers, only_solution, read_puzzles
from isthmus.run import run
from isthmus.sudoku.boards import drawn, parse
from tests.unit.test_sudoku import NO_SOLUTION, SEVENTEEN, SOLUTION

SETTINGS = {
    "source": {"name": "sudoku", "givens": [70], "train": 16, "validation": 4, "test": 6},
    "task": {"name": "sudoku", "symmetries": True, "by_givens": [70]},
    "model": {
        "name": "hyper_set",
        "d": 16,
        "num_heads": 2,
        "iterations": 3,
        "positions": "learned",
        "step_sizes": "X_0",
    },
    "train": {"epochs": 1, "batch_size": 8},
    "threads": 1,
}


@pytest.fixture
def trained():
    record = run(run_config(SETTINGS))
    assert set(record.metrics["test"]) == {"loss", "board_accuracy", "board_accuracy_70", "cell_accuracy"}
    return record.id


def test_a_run_prints_boards_says_whether_they_are_valid_and_traces_iterations(trained, tmp_path):
    file = tmp_path / "puzzle.txt"
    file.write_text(drawn(parse(SEVENTEEN, "")))
    plain = CliRunner().invoke(app, ["predict", trained, str(file)])
    assert plain.exit_code == 0, plain.output
    assert "puzzle.txt: not valid: two " in plain.output
    assert "of 64 empty cells are right" in plain.output
    traced = CliRunner().invoke(app, ["predict", trained, str(file), "--trace", "--iterations", "5"])
    assert [f"iteration {n}:" in traced.output for n in range(7)] == [True] * 6 + [False]
    (answer,) = json.loads(CliRunner().invoke(app, ["predict", trained, str(file), "--json"]).output)
    assert (answer["valid"], answer["solution"], len(answer["iterations"])) == (False, SOLUTION, 4)
    given = [(a, b) for a, b in zip(answer["puzzle"], answer["board"], strict=True) if a != "0"]
    assert all(a == b for a, b in given)
    curve = iterations.of_run(trained)
    assert len(curve["curve"]) == 7
    assert iterations.of_run(trained) == curve
    assert iterations.draw(curve, tmp_path)[0].is_file()
    assert len(iterations.summary(curve)) == 3
    found = token_dynamics.of_run(trained)
    assert token_dynamics.of_run(trained) == found
    assert np.array(found["curves"]["angle"]).shape == (7, 2)
    assert len(token_dynamics.summary(found)) == 6
    assert all(path.is_file() for path in token_dynamics.draw(found, tmp_path))


def test_a_filled_board_is_valid(trained, tmp_path):
    file = tmp_path / "two.txt"
    file.write_text(f"{SOLUTION}\n{SOLUTION}\n")
    assert [answer.verdict for answer in answers(trained, [file])] == ["valid: this solves the puzzle"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("123", "81 cells, and here are 3"),
        ("5" * 2 + "0" * 79, "the puzzle is invalid, it has two 5s in row 1"),
        (NO_SOLUTION, "the puzzle is contradictory, no digits solve it"),
        ("0" * 81, "more than one solution"),
    ],
)
def test_a_puzzle_that_is_none_is_one_line(tmp_path, text, said):
    file = tmp_path / "wrong.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        [only_solution(puzzle, str(file)) for puzzle in read_puzzles(file)]
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_or_absent_is_one_line(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UserError, match="is no text file"):
        read_puzzles(tmp_path / "picture.png")
    with pytest.raises(UserError, match=r"cannot read .*absent\.txt: No such file"):
        read_puzzles(tmp_path / "absent.txt")


def test_ranks_and_angles_of_known_tokens():
    orthogonal = 3 * torch.eye(4, dtype=torch.float64)[None, None]
    assert token_dynamics.ranks(orthogonal) == {"effective_rank": [pytest.approx(4)], "full_rank": [4]}
    assert token_dynamics.angles(orthogonal)["angle"] == [pytest.approx(90)]
    equal = torch.ones(1, 1, 5, 3, dtype=torch.float64)
    assert token_dynamics.ranks(equal)["effective_rank"] == [pytest.approx(1, abs=1e-6)]
    assert token_dynamics.ranks(equal)["full_rank"] == [1]
    fan = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)[None, None]
    found = token_dynamics.angles(fan)
    assert found["mean_of_angles"] == [pytest.approx((90 + 90 + 180) / 3)]
    assert found["angle"] == [pytest.approx(np.degrees(np.arccos(-1 / 3)))]
