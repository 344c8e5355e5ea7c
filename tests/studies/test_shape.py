"""`isthmus study shape`: data, a task and a budget are enough."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.studies.shape import candidates, plan_shapes
from isthmus.training.counting import cost
from isthmus.training.run import Options


def table(path: Path, rows: int = 120) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 5)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)
    if path.suffix == ".npz":
        np.savez(path, x=x, y=y)
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "e", "price"], *np.column_stack([x, y]).tolist()])
    return path


@pytest.mark.parametrize(("d_in", "d_out", "budget"), [(5, 1, 2_000), (64, 64, 20_000), (3072, 3072, 200_000)])
def test_candidates_spend_the_budget_in_both_shapes(d_in: int, d_out: int, budget: int) -> None:
    found = candidates(Signature((d_in,), (d_out,)), budget)
    params = [cost(model | {"d_in": d_in, "d_out": d_out}).params for model in found]
    assert max(params) <= budget
    for name in ("hourglass_mlp", "conventional_mlp"):
        mine = [count for count, model in zip(params, found, strict=True) if model["name"] == name]
        assert max(mine) > 0.85 * budget
        assert min(mine) < 0.4 * budget


def test_a_budget_below_the_smallest_network_is_refused() -> None:
    with pytest.raises(UserError, match="too small"):
        candidates(Signature((3072,), (3072,)), 100)


@pytest.mark.parametrize("name", ["my.npz", "my.csv"])
def test_the_target_is_found_by_its_name_or_place(name: str, tmp_path: Path) -> None:
    config = plan_shapes(str(table(tmp_path / name)), "regression", 2_000, Options()).config
    assert config.base.source.model_dump()["targets"] == ("y" if name == "my.npz" else "price",)
    assert config.budget.params == 2_000
    assert {model.name for model in config.candidates} == {"hourglass_mlp", "conventional_mlp"}


@pytest.mark.parametrize(
    ("overrides", "rungs"),
    [
        (["base.train.epochs=12"], (2, 6)),
        (["base.train.epochs=3"], (1, 2)),
        (["base.train.epochs=2"], (1,)),
        (["base.train.epochs=1"], None),
        (["base.train.epochs=6", "base.train.evaluate_every=2"], (2, 4)),
        (["base.train.epochs=12", "pruning.rungs=[4]"], (4,)),
        (["base.train.epochs=12", "pruning.keep=0.5"], (2, 6)),
        (["base.train.epochs=12", "pruning=null"], None),
    ],
)
def test_rungs_follow_the_epochs_unless_they_are_given(overrides: list[str], rungs: tuple[int, ...] | None) -> None:
    config = plan_shapes("digits", "denoise", 20_000, Options(), overrides=overrides).config
    assert (config.pruning and config.pruning.rungs) == rungs
    assert config.pruning is None or config.pruning.keep == (0.5 if "pruning.keep=0.5" in overrides else 0.25)


def test_a_rung_that_was_given_is_never_moved() -> None:
    with pytest.raises(UserError, match="rung 4 must be"):
        plan_shapes("digits", "denoise", 20_000, Options(), overrides=["base.train.epochs=3", "pruning.rungs=[4]"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere.npz", "--task", "regression", "--budget", "2k"], "no such file"),
        (["--data", "digits", "--task", "regresion", "--budget", "2k"], "regression"),
        (["--data", "digits", "--task", "denoise", "--budget", "much"], "not a number of parameters"),
        (["--data", "digits", "--task", "denoise", "--budget", "10"], "too small"),
        (["--data", "digits", "--task", "denoise"], "needs --data, --task and --budget"),
        (["--data", "digits", "--task", "denoise", "--budget", "9k", "--time-budget", "soon"], "not a time"),
        (["--data", "digits", "--task", "denoise", "--budget", "9k", "--time-budget", "1s"], "fewer epochs"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["study", "shape", *arguments])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.slow
def test_it_ends_with_a_network_that_can_be_used(tmp_path: Path) -> None:
    data = table(tmp_path / "my.csv")
    small = ["base.train.epochs=6", "seeds=[0,1]", "pruning.rungs=[1,3]", "sampling.candidates=4"]
    command = ["study", "shape", "--data", str(data), "--task", "regression", "--budget", "500", "--workers", "1"]
    result = CliRunner().invoke(app, [*command, *small], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    (use,) = [line for line in lines if line.startswith("use it: ")]
    (checkpoint,) = [line for line in lines if line.startswith("checkpoint: ")]
    assert Path(checkpoint.removeprefix("checkpoint: ")).is_file()
    run = use.split()[4]
    predicted = CliRunner().invoke(app, ["predict", run, str(data), "--out", str(tmp_path / "out"), "--json"])
    assert predicted.exit_code == 0, predicted.output
    assert Path(next(iter(json.loads(predicted.output).values()))).is_file()
    again = CliRunner().invoke(app, [*command, *small, "--json"], catch_exceptions=False)
    assert {trial["state"] for trial in json.loads(again.stdout)["trials"]} <= {"finished", "pruned"}


@pytest.mark.slow
def test_a_folder_of_images_needs_no_recipe_either(tmp_path: Path) -> None:
    from PIL import Image

    draw, folder = np.random.default_rng(0), tmp_path / "images"
    folder.mkdir()
    for number in range(40):
        Image.fromarray(draw.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    small = ["base.train.epochs=6", "seeds=[0]", "pruning.rungs=[1,3]", "sampling.candidates=4"]
    command = ["study", "shape", "--data", str(folder), "--task", "denoise", "--budget", "300k", "--workers", "1"]
    result = CliRunner().invoke(app, [*command, *small], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "recommended: " in result.output
