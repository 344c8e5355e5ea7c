"""``isthmus export`` as a person uses it, and ``isthmus predict`` with what it wrote."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin

import isthmus
from isthmus.export import HubModel, narrow, narrow_form
from isthmus.export.formats import write_format
from isthmus.models.hourglass import MLPConfig, ResidualMLP
from isthmus.models.narrow import NarrowMLP
from isthmus.training.exported import EXPORT, FILES, FORMATS, FormatName
from tests.command_line import call, train, write_table
from tests.export.small_runs import train_alone


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression with a frozen W_in whose narrow form pays."""
    folder = tmp_path_factory.mktemp("run")
    write_table(folder / "table.csv")
    return train_alone(
        folder,
        source={"name": "arrays", "path": str(folder / "table.csv"), "targets": "y"},
        task={"name": "regression"},
        model={"name": "hourglass_mlp", "d_z": 300, "d_h": 4, "depth": 2, "w_in": "gaussian"},
        train={"epochs": 2, "batch_size": 32},
    )


@pytest.mark.parametrize("form", FORMATS)
def test_predictions_of_an_export_are_those_of_the_run(
    form: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.export.narrow_form._speed", lambda *_: 2.0)
    written = call("export", run, "--to", form, "--out", tmp_path / "model", "--json").json()
    assert written["error"] < 1e-5
    moved = shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    x, _ = write_table(tmp_path / "rows.csv")
    np.save(tmp_path / "rows.npy", x)
    files = [tmp_path / "rows.csv", tmp_path / "rows.npy"]
    ours = call("predict", run, *files, "--out", tmp_path / "ours", "--json").json()
    theirs = call("predict", moved, *files, "--out", tmp_path / "theirs", "--json").json()
    np.testing.assert_allclose(np.load(theirs[str(files[1])]), np.load(ours[str(files[1])]), rtol=1e-4)
    read, expected = (np.loadtxt(found[str(files[0])], delimiter=",", skiprows=1) for found in (theirs, ours))
    np.testing.assert_allclose(read, expected, rtol=1e-4)
    rows = x.astype(np.float32)
    np.testing.assert_allclose(isthmus.load(moved).predict(rows), isthmus.load(run).predict(rows), rtol=1e-4)


def test_an_export_is_read_by_load_and_by_the_hubs_own_class(run: Path, tmp_path: Path) -> None:
    call("export", run, "--to", "safetensors", "--out", tmp_path / "model", "--json").json()
    model, x = isthmus.load(run), torch.randn(5, 3)
    assert torch.equal(isthmus.load(tmp_path / "model")(x), model(x))
    hub = HubModel.from_pretrained(tmp_path / "model")
    assert torch.equal(hub(x), model(x))
    hub.save_pretrained(tmp_path / "again")
    assert torch.equal(HubModel.from_pretrained(tmp_path / "again")(x), model(x))

    class Mine(ResidualMLP, PyTorchModelHubMixin):
        """What somebody writes who has never heard of ours."""

        def __init__(self, **fields: Any) -> None:
            super().__init__(MLPConfig(**fields))

    assert torch.equal(Mine.from_pretrained(str(tmp_path / "model")).eval()(x), model(x))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.library_name == "isthmus"
    assert {"hourglass_mlp", "regression"} <= set(card.data.tags)
    assert "| r2 |" in card.text


@pytest.mark.parametrize("form", FORMATS)
def test_the_code_on_the_model_card_runs(form: str, run: Path, tmp_path: Path) -> None:
    call("export", run, "--to", form, "--out", tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8").replace("FOLDER", str(tmp_path / "model"))
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    is_raw = form in ("onnx", "torch")
    x = torch.randn(5, 3, dtype=torch.float64 if is_raw else torch.float32)
    names: dict[str, Any] = {"x": x.numpy()}
    exec(code, names)
    found = names["y"] if "y" in names else names["model"](x).detach()
    expected = isthmus.load(run).predict(x)[:, None] if is_raw else isthmus.load(run)(x).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_bare_graph_is_the_model_alone(form: str, run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--to", form, "--bare", "--out", tmp_path / "model").code == 0
    loaded, x = isthmus.load(tmp_path / "model"), torch.randn(5, 3)
    np.testing.assert_allclose(loaded(x).detach(), isthmus.load(run)(x).detach(), rtol=1e-4, atol=1e-6)
    wanted = isthmus.load(run).predict(x)
    np.testing.assert_allclose(loaded.predict(x), wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    assert "Inputs are scaled" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    refused = call("export", run, "--to", "safetensors", "--bare", "--out", tmp_path / "other")
    assert (refused.code, "--bare applies to onnx and torch" in refused.err) == (2, True)


def test_whoever_waits_hears_how_many_rows_are_done(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.sources.streaming.PIECE", 400 * 3 * 4)
    file = tmp_path / "rows.npy"
    np.save(file, np.zeros((1000, 3), np.float32))
    heard: list[tuple[Path, int]] = []
    list(isthmus.load(run).open().predict([file], tmp_path / "out", lambda *news: heard.append(news)))
    assert heard == [(file, 0), (file, 400), (file, 800), (file, 1000)]


def test_a_files_name_is_shown_whatever_brackets_it_has(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "scan[raw].npy", np.zeros((2, 3), np.float32))
    said = call("predict", run, tmp_path / "scan[raw].npy", "--out", tmp_path / "out").out
    assert "scan[raw].npy → " in said
    assert said.strip().endswith("scan[raw].predicted.npy")


class _Hub(BaseHTTPRequestHandler):
    """What the Hugging Face Hub answers to one who asks for a file of someone/hourglass."""

    folder: Path

    def do_HEAD(self) -> None:
        name = self.path.removeprefix("/someone/hourglass/resolve/main/")
        content = (self.folder / name).read_bytes() if name in ("config.json", "model.safetensors") else b""
        self.send_response(200 if content else 404)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def test_a_model_is_read_from_a_hub(run: Path, tmp_path: Path) -> None:
    """By huggingface_hub's own client in a process of its own, which reads the hub's address when it is imported."""
    call("export", run, "--to", "safetensors", "--out", tmp_path / "model")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"folder": tmp_path / "model"}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    code = """
import torch
from isthmus.export import HubModel
hub = HubModel.from_pretrained("someone/hourglass")
print(hub(torch.ones(1, 3)).item())
"""
    places = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(tmp_path / "cache")}
    try:
        answer = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **places, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert answer.returncode == 0, answer.stderr
    assert float(answer.stdout) == pytest.approx(isthmus.load(run)(torch.ones(1, 3)).item(), rel=1e-6)


def test_where_the_narrow_form_does_not_pay_the_model_is_exported_as_it_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = 2.0
    monkeypatch.setattr("isthmus.export.narrow_form._speed", lambda *_: speed)
    answer = call("export", run, "--to", "narrow", "--out", tmp_path / "model")
    assert "narrow pays: 0." in answer.out
    assert isinstance(isthmus.load(tmp_path / "model").model, NarrowMLP)
    speed = 0.5
    answer = call("export", run, "--to", "narrow", "--out", tmp_path / "model")
    assert "narrow does not pay: " in answer.out
    assert isinstance(isthmus.load(tmp_path / "model").model, ResidualMLP)


def test_bad_exports_are_one_line(run: Path, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        answer = call(*arguments)
        assert answer.code == 2, answer
        return answer.err.splitlines()[-1]

    assert "--to 'onx': did you mean 'onnx'?" in refused("export", run, "--to", "onx")
    assert "there is no run 'nothing'" in refused("export", "nothing", "--to", "torch")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    assert "is not an export; choose another" in refused("export", run, "--to", "torch", "--out", tmp_path / "mine")
    model = tmp_path / "model"
    assert call("export", run, "--to", "safetensors", "--out", model).code == 0
    np.save(tmp_path / "x.npy", np.ones((2, 4)))
    assert "do not fit a model of inputs (3,)" in refused("predict", model, tmp_path / "x.npy", "--out", tmp_path / "o")
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    assert "is damaged or was altered" in refused("predict", model, tmp_path / "x.npy")
    (model / EXPORT).write_text((model / EXPORT).read_text().replace("safetensors", "torch"))
    assert "is damaged or was altered" in refused("predict", model, tmp_path / "x.npy")


def test_a_model_without_a_narrow_form_is_named(tmp_path: Path) -> None:
    record = train(tmp_path, model={"name": "kronecker_mlp"})
    answer = call("export", record["id"], "--to", "narrow", "--out", tmp_path / "model")
    assert answer.code == 2
    assert "kronecker_mlp has no narrow form; hourglass_mlp and conventional_mlp have one" in answer.err
    assert not (tmp_path / "model").exists()


def test_the_narrow_form_of_a_loaded_model_is_saved_like_any(run: Path, tmp_path: Path) -> None:
    model = narrow(isthmus.load(run).model, force=True)
    write_format(tmp_path / "model.safetensors", model, "narrow")
    loaded = isthmus.load(tmp_path / "model.safetensors").model
    assert isinstance(loaded, NarrowMLP)
    x = torch.randn(5, 3)
    assert torch.equal(loaded(x), model(x))
    torch.testing.assert_close(loaded(x), isthmus.load(run)(x))


def test_a_narrow_form_that_differs_from_the_run_is_refused_and_leaves_everything_as_it_was(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.export.narrow_form._speed", lambda *_: 2.0)
    right = narrow_form._weights

    def spoiled(*arguments: Any) -> dict[str, torch.Tensor]:
        return {name: 1.1 * weight for name, weight in right(*arguments).items()}

    new, old = tmp_path / "new", tmp_path / "old"
    assert call("export", run, "--to", "safetensors", "--out", old).code == 0
    (old / "notes.txt").write_text("precious")
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(narrow_form, "_weights", spoiled)
        for out in (new, old):
            answer = call("export", run, "--to", "narrow", "--out", out)
            assert answer.code == 2
            assert f"{out / 'model.safetensors'} differs from the model by" in answer.err.replace("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    for out in (new, old):
        assert call("export", run, "--to", "narrow", "--out", out).code == 0
        assert isinstance(isthmus.load(out).model, NarrowMLP)
    assert (old / "notes.txt").read_text() == "precious"


def test_the_gain_is_measured_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def speed(wide: Any, narrow: Any, rows: int) -> float:
        timed.append(rows)
        return 2.0 if timed.count(rows) == 1 else 0.5

    monkeypatch.setattr("isthmus.export.narrow_form._speed", speed)
    assert "narrow pays" in call("export", run, "--to", "narrow", "--out", tmp_path / "model").out
    assert isinstance(isthmus.load(tmp_path / "model").model, NarrowMLP)
    assert sorted(timed) == [1, 32, 256]


def test_another_format_takes_the_place_of_the_first(run: Path, tmp_path: Path) -> None:
    forms: tuple[FormatName, ...] = ("safetensors", "torch", "safetensors")
    for form in forms:
        assert call("export", run, "--to", form, "--out", tmp_path / "model").code == 0
        expected = {"task.safetensors", "config.json", "README.md", EXPORT, FILES[form]}
        assert {path.name for path in (tmp_path / "model").iterdir()} == expected
        assert (tmp_path / "model").stat().st_mode & 0o755 == 0o755


def test_an_export_is_not_taken_for_an_unfinished_run(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--to", "safetensors", "--out", tmp_path / "model").code == 0
    answer = call("export", tmp_path / "model", "--to", "onnx", "--out", tmp_path / "other")
    assert answer.code == 2
    said = f"made from, {run.name}"
    assert said in answer.err.splitlines()[-1]
    assert not (tmp_path / "other").exists()
