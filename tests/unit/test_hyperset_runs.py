"""A tiny Sudoku run from training to its printed boards and analyses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import isthmus
from isthmus.analysis import iterations, token_dynamics
from isthmus.cli.main import app
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed
from isthmus.core.record import find_run, read_record
from isthmus.export.prediction import load
from isthmus.sources.puzzles.boards import draw, parse
from isthmus.tasks.sudoku_prediction import only_solution, read_puzzles
from isthmus.training.run import run
from tests.unit.boards import NO_SOLUTION, SEVENTEEN, SOLUTION
from tests.unit.token_runs import SETTINGS


@pytest.fixture
def trained():
    record = run(run_config(SETTINGS))
    assert set(record.metrics["test"]) == {"loss", "board_accuracy", "board_accuracy_70", "cell_accuracy"}
    return record.id


def test_a_run_prints_boards_says_whether_they_are_valid_and_traces_iterations(trained, tmp_path):
    file = tmp_path / "puzzle.txt"
    file.write_text(draw(parse(SEVENTEEN, "")))
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


def test_a_run_is_analysed_over_twice_its_iterations_and_answers_from_its_record(trained):
    said = CliRunner().invoke(app, ["analyze", trained, "--json"])
    assert said.exit_code == 0, said.exception
    answer = json.loads(said.stdout)
    assert set(answer["found"]) == {
        "cka", "contributions", "depth_mixing", "expansion", "iterations", "token_dynamics",
    }  # fmt: skip
    assert len(answer["figures"]) == 8
    assert all(Path(file).stat().st_size > 1000 for file in answer["figures"])
    curve = answer["found"]["iterations"]["curve"]
    assert len(curve) == 7
    assert curve[3] == pytest.approx(
        {name: value for name, value in read_record(find_run(trained)).metrics["test"].items() if name != "loss"}
    ), "at the trained number it is the run's own test"
    curves = answer["found"]["token_dynamics"]["curves"]
    assert np.array(curves["attention_energy"]).shape == np.array(curves["angle"]).shape == (7, 2)
    assert list(answer["found"]["token_dynamics"]["sphere"]) == ["0", "1", "3", "6"]
    assert iterations.of_run(trained) == read_sealed(find_run(trained) / "analysis" / "iterations.json")


@torch.no_grad()
def test_energies_are_those_of_the_model(trained):
    model: Any = isthmus.load(trained).model
    x = torch.zeros(2, 81, dtype=torch.int64)
    found = token_dynamics.measure(model, x)
    assert set(found) == {"trained_iterations", "layers", "curves", "sphere"}
    for number, tokens in enumerate(model.states(x, 6)):
        attention, feed_forward = (float(energy.mean()) for energy in model.layers[0].energies(tokens))
        assert token_dynamics.line(found, "attention_energy")[number] == pytest.approx(attention, rel=1e-5)
        assert found["curves"]["feed_forward_energy"][number] == pytest.approx(feed_forward, rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["hyper_set", "recurrent_transformer", "crate", "crate_t"])
def test_rivals_have_ranks_and_angles_and_several_layers_their_own_subspaces(name):
    settings = {"input_shape": (1, 8, 8), "output_shape": (3,), "patch": 4, "d": 8, "num_heads": 2}
    model: Any = isthmus.create_model(name, **settings, layers=2, iterations=2).eval()
    assert token_dynamics.applies(model, "classification") is None
    assert iterations.applies(model, "classification") == "its iterations are those of several layers"
    x = torch.randn(3, 1, 8, 8)
    found = token_dynamics.measure(model, x)
    assert ("attention_energy" in found["curves"]) == (name == "hyper_set")
    assert np.array(found["curves"]["effective_rank"]).shape == (5, 2)
    states = list(model.states(x))
    expected = token_dynamics.angles(model.layers[1].project(states[3]).double())["angle"]
    assert found["curves"]["angle"][3] == pytest.approx(expected)
    assert list(found["sphere"]) == ["0", "2", "4"]
    between = token_dynamics.angles(model.layers[1].project(states[2]).double())["angle"]
    assert found["starts"]["angle"][1] == pytest.approx(between)
    first = torch.nn.functional.normalize(model.layers[1].project(states[2])[0, 0].double(), dim=-1)
    last = torch.nn.functional.normalize(model.layers[1].project(states[4])[0, 0].double(), dim=-1)
    directions = torch.linalg.svd(first, full_matrices=False).Vh[:3]
    turned = torch.nn.functional.normalize(last @ directions.mT, dim=-1).tolist()
    assert np.allclose(found["sphere"]["4"], turned, atol=1e-3), "a layer's sphere has that layer's directions"


def test_an_energy_that_is_another_layer_s_does_not_count_as_fallen():
    curves = {"attention_energy": [[5.0], [4.0], [6.0], [1.0], [2.0]], "angle": [[9.0]] * 5}
    starts = {"attention_energy": [[5.0], [0.5]], "angle": [[9.0], [8.0]]}
    found = {"trained_iterations": 2, "layers": 2, "curves": curves, "starts": starts}
    assert token_dynamics.spans(found, "attention_energy") == [
        (range(3), [[5.0], [4.0], [6.0]]),
        (range(2, 5), [[0.5], [1.0], [2.0]]),
    ]
    shown = token_dynamics.summary(found)
    assert shown == {"E_ATTN, sum of heads": "1 of 4 iterations lower it", "average angle (degrees)": "9 → 9"}


@pytest.mark.parametrize("width", [1, 2])
def test_narrow_heads_are_drawn_on_a_sphere_too(width, tmp_path):
    settings = {"input_shape": (1, 8, 8), "output_shape": (3,), "patch": 4, "d": 8, "num_heads": 8 // width}
    model: Any = isthmus.create_model("hyper_set", **settings, layers=2, iterations=2).eval()
    found = {"rows": 3, **token_dynamics.measure(model, torch.randn(3, 1, 8, 8))}
    points = np.array(found["sphere"]["4"])
    assert points.shape == (5, 3)
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-3)
    assert not points[:, width:].any()
    assert len(token_dynamics.draw(found, tmp_path)) == 3


def test_a_summary_counts_the_iterations_that_lower_an_energy():
    curves = {
        "attention_energy": [[1.0, 2.0], [1.0, 1.0], [1.5, 1.0], [9.0, 9.0]],
        "angle": [[70.0], [80.0], [90.0], [1.0]],
    }
    shown = token_dynamics.summary({"trained_iterations": 2, "layers": 1, "curves": curves})
    assert shown == {
        "E_ATTN, sum of heads": "3 → 2.5, 1 of 2 iterations lower it", "average angle (degrees)": "70 → 90",
    }  # fmt: skip


def predicted(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words)])


def refusal(*words):
    result = predicted(*words)
    assert isinstance(result.exception, UserError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_options_that_a_run_cannot_follow_are_one_line(trained, tmp_path):
    file = tmp_path / "puzzle.txt"
    file.write_text(SEVENTEEN)
    assert refusal(trained, file, "--iterations", 0).startswith("--iterations 0: at least 1 is needed")
    assert refusal(trained, file, "--masked", 0.5).startswith("--masked does not apply to task sudoku")
    for part in ("0", "-0.5", "1.5", "nan"):
        said = refusal(trained, file, "--masked", part)
        assert said.startswith(f"--masked {part}: the fraction to hide is above 0 and at most 1")
    settings = {
        "source": {"name": "digits"},
        "task": {"name": "classification"},
        "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 4, "depth": 1},
        "train": {"epochs": 1, "batch_size": 400},
        "threads": 1,
    }
    image = tmp_path / "rows.npy"
    np.save(image, np.zeros((2, 64), np.uint8))
    other = run(run_config(settings)).id
    assert "--iterations applies only to recurrent models" in refusal(other, image, "--iterations", 3)
    assert refusal(other, image, "--trace").startswith("--trace does not apply to task classification")


def test_images_are_classified_with_another_number_of_iterations(tmp_path):
    settings = {
        "source": {"name": "digits"},
        "task": {"name": "classification"},
        "model": {"name": "hyper_set", "patch": 4, "d": 16, "num_heads": 2, "iterations": 2},
        "train": {"epochs": 1, "batch_size": 400},
        "threads": 1,
    }
    identity = run(run_config(settings)).id
    rows = np.random.default_rng(0).integers(0, 256, (50, 1, 8, 8), np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    model: Any = isthmus.load(identity).model
    with torch.no_grad():
        expected = model(load(identity).task.encode(rows), iterations=30).argmax(dim=1)
        assert not torch.equal(expected, model(load(identity).task.encode(rows)).argmax(dim=1))
    result = predicted(identity, tmp_path / "rows.npy", "--out", tmp_path / "out", "--iterations", 30)
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "out" / "rows.predicted.npy").tolist() == expected.tolist()


def test_a_filled_board_is_valid(trained, tmp_path):
    file = tmp_path / "two.txt"
    file.write_text(f"{SOLUTION}\n{SOLUTION}\n")
    answers = list(load(trained).open().predict([file], tmp_path))
    assert [answer.lines[-1] for answer in answers] == [f"{file}: valid: this solves the puzzle"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("123", "81 cells, and here are 3"),
        ("5" * 2 + "0" * 79, "the puzzle is invalid, it has two 5s in row 1"),
        (NO_SOLUTION, "the puzzle is contradictory, no digits solve it"),
        ("0" * 81, "more than one solution"),
        (f"{SEVENTEEN}\n\n{SEVENTEEN[:-1]}\n", r"wrong\.txt, line 3: a puzzle has 81 cells, and here are 80"),
        (f"{SEVENTEEN}\n{SEVENTEEN}0\n", r"wrong\.txt, line 2: a puzzle has 81 cells, and here are 82"),
        (
            f"puzzle,solution\n{SEVENTEEN},{SOLUTION}\n",
            r"to predict, give the puzzles alone: `tail -n \+2 .*wrong\.txt \| cut -d, -f1 > puzzles\.txt`",
        ),
    ],
)
def test_a_puzzle_that_is_none_is_one_line(tmp_path, text, said):
    file = tmp_path / "wrong.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        [only_solution(puzzle, str(file)) for puzzle in read_puzzles(file)]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", [SEVENTEEN, f"{SEVENTEEN[:40]}\n{SEVENTEEN[40:]}", "\n".join(SEVENTEEN[i : i + 27] for i in (0, 27, 54))]
)
def test_one_board_may_be_wrapped_anywhere(tmp_path, text):
    (tmp_path / "wrapped.txt").write_text(text)
    (board,) = read_puzzles(tmp_path / "wrapped.txt")
    assert np.array_equal(board, parse(SEVENTEEN, ""))


def test_a_file_that_is_no_text_or_absent_is_one_line(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_puzzles(tmp_path / "picture.png")
    with pytest.raises(UserError, match=r"cannot read .*absent\.txt: there is no such file"):
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
