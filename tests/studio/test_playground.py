"""Panels: what a network makes of a form, a drawing or a board."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from html import unescape
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import isthmus
from isthmus.core.files import home
from isthmus.studio import panel
from isthmus.studio.server import create_app
from isthmus.studio.token_panels import find_conflicts
from tests.command_line import train
from tests.unit.token_runs import TOKENIZER, masked

HERE = "http://127.0.0.1:8642"


@pytest.fixture
def client() -> TestClient:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


def _get(client: TestClient, run: str, **fields: object) -> str:
    answer = client.get(f"/runs/{run}/try?{urlencode(fields)}")
    assert answer.status_code == 200, answer.text
    return answer.text


def _train_on_table(folder: Path, target: str, kind: str) -> str:
    rows = [
        f"{x},{'red' if x % 3 else '<b>blue</b>'},{2 * x + 5 * (x % 3)},{'yes' if x % 2 else 'no'}" for x in range(60)
    ]
    table = folder / "table.csv"
    table.write_text("\n".join(["a,colour,price,sold", *rows]))
    source = {"name": "table", "path": str(table), "targets": [target], "kind": kind}
    run: str = train(folder, source=source, task={"name": kind})["id"]
    return run


def test_a_form_with_the_columns_predicts(client: TestClient, tmp_path: Path) -> None:
    run = _train_on_table(tmp_path, "price", "regression")
    text = _get(client, run, c0="12", c1="red", c2="no", vary="c0")
    expected = isthmus.load(run).predict([{"a": 12, "colour": "red", "sold": "no"}])[0]
    assert f"<b>{expected:.6g}</b>" in text
    assert "<b>blue" not in text  # a category stays text
    figure = json.loads(re.findall(r'data-for="dependence">(.*?)</script>', text)[0])
    assert [trace["name"] for trace in figure["data"]] == ["this row", "partial dependence"]
    assert len(figure["data"][0]["x"]) == 30
    by_category = json.loads(re.findall(r'data-for="dependence">(.*?)</script>', _get(client, run, vary="c1"))[0])
    assert set(by_category["data"][0]["x"]) == {"red", "<b>blue</b>"}
    assert "role='alert'" in _get(client, run, c0="many")
    for row in ("3", "99", "x"):
        assert "Prediction" in _get(client, run, row=row)
    parts = client.get(f"/parts/runs/{run}/try?c0=50").json()
    assert set(parts) == {"form", "answer", "dependence", "same"}


def test_the_embedded_table_gives_its_rows(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path, source={"name": "bikes"}, task={"name": "regression"})["id"]
    text = _get(client, run, row=3)
    assert "Take a row of the data" in text
    assert "partial dependence" in text
    assert re.search(r"date <input name='c0' value='202\d-\d\d-\d\d'", text)


def test_classes_have_probabilities(client: TestClient, tmp_path: Path) -> None:
    run = _train_on_table(tmp_path, "sold", "classification")
    text = _get(client, run, c0="12", c1="red", c2="24")
    shares = [float(value) for value in re.findall("<progress max='1' value='([0-9.]+)'", text)]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    expected = isthmus.load(run).predict_proba([{"a": 12, "colour": "red", "price": 24}])[0]
    assert shares == pytest.approx(sorted(expected, reverse=True), abs=1e-3)


def test_images_are_restored(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path)["id"]
    text = _get(client, run, sample=2, noise="0.5")
    assert len(re.findall("class='sample'", text)) == 10
    assert text.count("data:image/png") == 13  # samples; the image, before and after
    errors = [float(value) for value in re.findall(r"(?:With noise|Restored): PSNR ([0-9.]+) dB", text)]
    assert len(errors) == 2
    assert _get(client, run, sample=2, noise="0.1") != text
    drawn = base64.b64encode(np.full(64, 200, np.uint8).tobytes()).decode()
    assert "Before and after" in _get(client, run, pixels=drawn)
    for wrong in ("!!!", drawn[:-8], base64.b64encode(bytes(65)).decode()):
        assert "role='alert'" in _get(client, run, pixels=wrong)


def test_small_images_are_enlarged(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path, task={"name": "super_resolution"})["id"]
    text = _get(client, run, sample=2)
    assert "name='noise'" not in text
    assert text.count("data:image/png") == 13  # samples; the image, before and after
    sizes = [Image.open(io.BytesIO(base64.b64decode(each))).size for each in re.findall("base64,([^']+)", text)]
    assert sizes[-3:] == [(8, 8), (4, 4), (8, 8)]
    after = re.findall(r"Restored: PSNR ([0-9.]+) dB", text)
    assert len(after) == 1
    image = panel.read_samples(home() / "runs" / run).inputs[2]
    drawn = base64.b64encode(image.transpose(1, 2, 0).tobytes()).decode()
    assert re.findall(r"Restored: PSNR ([0-9.]+) dB", _get(client, run, pixels=drawn)) == after


def test_images_are_classified(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path, task={"name": "classification"})["id"]
    text = _get(client, run, sample=1)
    assert len(re.findall("<progress", text)) == 10


def test_images_are_matched_with_prototypes(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path, task={"name": "generative_classification"})["id"]
    text = _get(client, run, sample=1)
    assert "What the network draws" in text
    errors = [float(value) for value in re.findall(r"<figcaption>\d: PSNR ([0-9.]+) dB", text)]
    assert len(errors) == 5
    assert errors == sorted(errors, reverse=True)


def test_the_tokens_of_an_image_are_shown(client: TestClient, tmp_path: Path) -> None:
    text = _get(client, train(tmp_path, **TOKENIZER)["id"])
    assert re.search(r"From its tokens: PSNR [0-9.]+ dB", text)
    tokens = re.findall(r"<td>(\d+)</td>", text)
    assert len(tokens) == 16
    assert max(map(int, tokens)) < 16


def test_a_number_is_predicted_from_an_image(client: TestClient, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=images.mean(axis=(1, 2, 3)))
    source = {"name": "arrays", "path": str(tmp_path / "images.npz"), "kind": "regression"}
    source |= {"inputs": "x", "targets": "y"}
    run = train(tmp_path, source=source, task={"name": "regression", "ones": False})["id"]
    drawn = images[3].tobytes()
    found = re.search("<b>(.*?)</b>", _get(client, run, pixels=base64.b64encode(drawn).decode()))
    assert found
    assert float(found[1]) == pytest.approx(isthmus.load(run).predict(images[3:4]).item(), rel=1e-4)


def test_a_sudoku_is_filled_by_iterations(client: TestClient, tmp_path: Path) -> None:
    source = {"name": "sudoku", "train": 30, "validation": 10, "test": 10}
    model = {"name": "hyper_set", "d": 16, "num_heads": 2, "iterations": 3}
    run = train(tmp_path, source=source, task={"name": "sudoku"}, model=model)["id"]
    text = _get(client, run, puzzle=1)
    board = [int(digit or 0) for digit in re.findall(r"name='c\d+' value='(\d?)'", text)]
    assert len(board) == 81
    assert 0 < sum(digit > 0 for digit in board) < 81
    filled = re.findall(r"<td class='[a-z ]*'>(\d?)", text)
    assert all(filled)
    assert [int(new) for new, old in zip(filled, board, strict=True) if old] == [old for old in board if old]
    assert "After iteration 3 of 3" in text
    energies = json.loads(re.findall(r'data-for="energy">(.*?)</script>', text)[0])["data"][0]["y"]
    assert len(energies) == 4
    assert f"{sum(after < before for before, after in pairwise(energies))} of 3 iterations lower it" in text
    fields = {f"c{place}": digit or "" for place, digit in enumerate(board)}
    text = _get(client, run, **fields, iterations=7, shown=2)
    assert "After iteration 2 of 7" in text
    assert "After iteration 7 of 7" in _get(client, run, **fields, iterations=7, shown=99)
    assert client.get(f"/runs/{run}/try?c0=x&c80=10&iterations=99999999999&shown=-1").status_code == 200


def test_hidden_parts_of_an_image_are_filled_in(client: TestClient, tmp_path: Path) -> None:
    tokenizer = train(tmp_path, **TOKENIZER)["id"]
    run = train(tmp_path, **masked(tokenizer))["id"]
    text = _get(client, run)
    assert text.count("type='checkbox'") == 16
    assert text.count(" checked") == 1 + 8  # a sample, and the right half
    assert "After step 4 of 4" in text
    assert re.search(r"\d of 8 hidden tokens", text)
    text = _get(client, run, painted=1, m3="on", m4="on", shown=1, sample=2)
    assert "After step 1 of" in text
    assert re.search(r"\d of 2 hidden tokens", text)
    assert "0 of 0 hidden tokens" in _get(client, run, painted=1)


def test_conflicts_are_found() -> None:
    board = np.zeros(81, np.int64)
    board[0] = board[8] = 5  # the same row
    board[40] = 3
    assert np.flatnonzero(find_conflicts(board)).tolist() == [0, 8]
    board[10] = 5  # and the same box as the first
    assert np.flatnonzero(find_conflicts(board)).tolist() == [0, 8, 10]


def test_a_task_of_another_package_brings_its_panel(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path)["id"]
    package = tmp_path / "package"
    (package / "my_panel-1.dist-info").mkdir(parents=True)
    (package / "my_panel-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-panel\nVersion: 1\n")
    (package / "my_panel-1.dist-info" / "entry_points.txt").write_text("[isthmus.panels]\ndenoise = my_panel:Mine\n")
    (package / "my_panel.py").write_text(
        "from isthmus.studio.panel import Panel\n"
        "class Mine(Panel):\n"
        "    def form(self, given): return '<input name=word>'\n"
        "    def answer(self, given): return {'answer': f'{self.trained.task.config.name} of my own'}\n"
    )
    monkeypatch.syspath_prepend(str(package))
    assert "denoise of my own" in _get(client, run)
    (package / "my_panel.py").unlink()
    monkeypatch.delitem(sys.modules, "my_panel")
    answer = client.get(f"/runs/{run}/try")
    assert answer.status_code == 400
    assert "cannot be loaded from my_panel:Mine" in answer.text


def test_what_cannot_be_tried_is_said(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path)["id"]
    assert client.get("/runs/none/try").status_code == 404
    (home() / "runs" / run / "model.safetensors").write_bytes(b"other")
    answer = client.get(f"/runs/{run}/try")
    assert answer.status_code == 400
    assert "damaged" in unescape(answer.text)
