"""What `isthmus find` understands of folders of images, and the settings that error lines advise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import isthmus
from isthmus.cli.main import app
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS
from isthmus.search.question import Question, ask
from isthmus.training.prepare import Options


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def understand(data: Any, *settings: str, target: Any = None, task: str | None = None) -> Question:
    return ask(data, target, task, None, settings, Options(data_dir=Path("data").absolute()))


def draw(folder: Path, number: int, shape: tuple[int, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for place in range(number):
        pixels = np.random.default_rng(place).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    return folder


def test_few_photographs_are_cut_into_patches_and_it_says_so(here: Path) -> None:
    draw(here / "photos", 6, (50, 60, 3))
    (here / "photos" / "torn.jpg").write_bytes(b"\xff\xd8\xff")
    question = understand("photos")
    assert question.task.name == "denoise"
    said = " ".join([*question.words, *question.findings])
    assert "cut into patches of 8×8" in said
    assert "--patch" in said
    assert "`torn.jpg`" in said
    assert [len(question.data.split(name)) for name in SPLITS] == [4 * 42, 42, 42]
    assert understand("photos", "source.patch=16").learned.signature.input_shape == (3, 16, 16)
    assert understand("photos", "source.size=16").learned.signature.input_shape == (3, 16, 16)
    with pytest.raises(UserError, match=r"torn\.jpg .*source\.unreadable=skip"):
        understand("photos", "source.unreadable=fatal")
    understand("photos", "source.unreadable=skip")


def test_small_grey_images_of_classes_keep_their_size(here: Path) -> None:
    for name in ("<b>", "x y"):
        draw(here / "classes" / name, 6, (9, 12))
    question = understand("classes")
    assert question.task.name == "classification"
    assert question.learned.row_shape == (1, 9, 9)
    assert question.data.classes == ("<b>", "x y")
    assert understand("classes", "source.patch=4").task.name == "denoise"
    assert understand("classes", task="denoise").learned.row_shape == (1, 9, 9)
    with pytest.raises(UserError, match="leave it out for classification"):
        understand("classes", "source.patch=4", task="classification")
    draw(here / "classes", 1, (9, 12))
    with pytest.raises(UserError, match=r"loose images such as 0\.png; .*source\.patch=8"):
        understand("classes", task="denoise")
    understand("classes", "source.patch=8", task="denoise")


def test_a_single_class_says_where_classes_may_be(here: Path) -> None:
    for name in ("cats", "dogs"):
        draw(here / "all" / "animals" / name, 3, (9, 9, 3))
    assert "give animals itself if its subfolders are classes" in understand("all").words[0]
    with pytest.raises(UserError, match="has 2 readable images"):
        understand(draw(here / "two", 2, (50, 50, 3)))


def test_settings_that_array_errors_advise_are_followed(here: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(here / "images.npz", x=draw.integers(0, 255, (30, 3, 5, 3), np.uint8), y=np.arange(30) % 2)
    with pytest.raises(UserError, match=r"set source\.layout=channels_first or source\.layout=channels_last"):
        understand("images.npz", target="y")
    assert understand("images.npz", "source.layout=channels_last", target="y").learned.row_shape == (3, 3, 5)
    np.savez(here / "three.npz", a=draw.normal(size=(30, 2)), b=draw.normal(size=(30, 3)), y=np.arange(30) % 2)
    with pytest.raises(UserError, match=r"set source\.inputs and, if there are targets, source\.targets"):
        understand("three.npz")
    question = understand("three.npz", "source.inputs=b", "source.targets=a")
    assert question.task.name == "regression"
    assert not question.words[0].startswith("predicting the array `y`")


def test_settings_that_table_errors_advise_are_followed(here: Path) -> None:
    rows = "".join(f"{place},{place % 7}.5,{place / 7:.3f}\n" for place in range(40))
    (here / "years.csv").write_text(f"2019,2020,2021\n{rows}")
    assert "`2020`" in understand("years.csv", "source.header=true", target="2020").words[0]
    assert "`0`" in understand("years.csv", "source.header=false", "source.targets=0").words[0]
    (here / "halves.csv").write_text(f"a,b,c\n{rows}")
    with pytest.raises(UserError, match=r"source\.kind=regression"):
        understand("halves.csv", target="c", task="classification")
    assert understand("halves.csv", "source.kind=regression", target="c").task.name == "regression"


def test_settings_that_published_data_sets_advise_are_followed(here: Path) -> None:
    def write(folder: str, part: str, rows: int) -> None:
        place = here / "data" / folder
        place.mkdir(parents=True, exist_ok=True)
        sizes = rows.to_bytes(4, "big") + (4).to_bytes(4, "big") * 2
        (place / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes + bytes(range(16)) * rows)
        labels = bytes(row % 2 for row in range(rows))
        (place / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + rows.to_bytes(4, "big") + labels)

    for folder in ("mnist", "other"):
        write(folder, "train", 20)
        write(folder, "t10k", 4)
    with pytest.raises(UserError, match=r"not MNIST's: .*set source\.idx to the folder of another data set"):
        understand("mnist")
    question = understand("mnist", "source.idx=other", "source.validation=4")
    assert question.task.name == "classification"
    assert question.learned.row_shape == (1, 4, 4)
    with pytest.raises(UserError, match=r"set source\.hub=ethz/food101"):
        understand("food101")
    with pytest.raises(UserError, match=r"(?!.*set source\.hub).*nowhere|datasets"):
        understand("food101", "source.hub=./nowhere")


@pytest.mark.slow
def test_a_folder_of_photographs_gives_a_network_that_restores_them(here: Path) -> None:
    draw(here / "photos", 5, (30, 21, 3))
    words = ["find", "photos", "--patch", "4", "--budget", "400", "--within", "1m", "--workers", "1", "train.epochs=2"]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = isthmus.find("photos", budget="400", within="1m", workers=1, progress=False,
                         settings={"source.patch": 4, "train.epochs": 2})  # fmt: skip
    assert found.best.task.row_shape == (3, 4, 4)
    assert found.predict("photos").shape == (5, 3, 30, 21)
    answer = CliRunner().invoke(app, ["predict", found.run, "photos", "photos/0.png"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    with Image.open(here / "predicted" / "3.png") as image:
        assert image.size == (21, 30)
