"""Exports of runs on tokens: a Sudoku is solved and gaps are filled as the run itself does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isthmus.core.config import run_config
from isthmus.core.record import find_run
from isthmus.training.run import run
from tests.command_line import call
from tests.unit.boards import SEVENTEEN, SOLUTION
from tests.unit.token_runs import SETTINGS, TOKENIZER, masked

FORMATS = (pytest.param("onnx", marks=pytest.mark.slow), "torch", "safetensors")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(home))


@pytest.fixture(scope="module")
def sudoku(home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(home))
        return find_run(run(run_config(SETTINGS)).id)


@pytest.fixture(scope="module")
def tokens(home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(home))
        return find_run(run(run_config(masked(run(run_config(TOKENIZER)).id))).id)


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_answers_puzzles_like_its_run(form: str, sudoku: Path, tmp_path: Path) -> None:
    call("export", sudoku, "--to", form, "--out", tmp_path / "model", "--json").json()
    puzzle = tmp_path / "puzzle.txt"
    puzzle.write_text(SEVENTEEN)
    (ours,) = call("predict", sudoku, puzzle, "--json").json()
    (theirs,) = call("predict", tmp_path / "model", puzzle, "--json").json()
    assert theirs["board"] == ours["board"] != SOLUTION
    if form == "safetensors":
        assert theirs == ours
        return
    assert theirs["iterations"] == ours["iterations"][-1:]
    for option in (["--trace"], ["--iterations", "4"]):
        said = call("predict", tmp_path / "model", puzzle, *option)
        assert said.code
        assert "leave out --trace and --iterations" in said.err


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_fills_gaps_like_its_run(form: str, tokens: Path, tmp_path: Path) -> None:
    call("export", tokens, "--to", form, "--out", tmp_path / "model", "--json").json()
    gaps, image = tmp_path / "gaps.npy", tmp_path / "photo.png"
    np.save(gaps, np.where(np.arange(16) % 3, 16, torch.randint(16, (3, 16)).numpy()))
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(image)
    ours = call("predict", tokens, gaps, image, "--out", tmp_path / "ours", "--json").json()
    theirs = call("predict", tmp_path / "model", gaps, image, "--out", tmp_path / "theirs", "--json").json()
    assert [{**one, "result": ""} for one in theirs] == [{**one, "result": ""} for one in ours]
    for name in ("gaps.predicted.npy", "photo.png"):
        assert (tmp_path / "theirs" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def test_images_need_the_tokenizer_and_tokens_do_not(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("export", tokens, "--to", "safetensors", "--out", tmp_path / "model", "--json").json()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "elsewhere"))
    np.save(tmp_path / "gaps.npy", np.full((1, 16), 16))
    (filled,) = call("predict", tmp_path / "model", tmp_path / "gaps.npy", "--out", tmp_path / "out", "--json").json()
    assert filled["hidden"] == 16
    Image.new("L", (8, 8)).save(tmp_path / "photo.png")
    said = call("predict", tmp_path / "model", tmp_path / "photo.png", "--out", tmp_path / "out")
    assert said.code
    assert "there is no run" in said.err
