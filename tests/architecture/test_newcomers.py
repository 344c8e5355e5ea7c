"""Mistakes of somebody new to Isthmus: each is answered with one line that names what was given and what to type."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import yaml
from PIL import Image

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.units import parse_seconds
from isthmus.search.question import ask
from isthmus.sklearn import HourglassClassifier, HourglassRegressor, ShapeSearchCV
from isthmus.training.prepare import Options
from tests.command_line import Answer, call

LONGEST = 300
"""Characters of an error line."""
TRAIN: dict[str, Any] = {
    "source": {"name": "table", "path": "houses.csv", "targets": ["price"], "kind": "regression"},
    "task": {"name": "regression"},
    "model": {"name": "hourglass_mlp", "d_z": 20, "d_h": 2, "depth": 1},
    "train": {"epochs": 1},
    "threads": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on `houses.csv`; the files of the mistakes are two folders above."""
    home = tmp_path_factory.mktemp("newcomer")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("ISTHMUS_HOME", str(home / "home"))
        write_files()
        identity = call("train", "train.yaml", "--json").json()["id"]
    return home / "home/runs" / identity


@pytest.fixture(autouse=True)
def _at_home(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parents[2])
    monkeypatch.setenv("ISTHMUS_HOME", str(run.parents[1]))
    monkeypatch.delenv("ISTHMUS_DATA", raising=False)


def describe_houses() -> list[str]:
    """The lines of a table with numbers, words, dates and blanks."""
    draw = np.random.default_rng(0)
    lines = ["id,size,age,colour,sold,price"]
    for number in range(60):
        size, age, colour = draw.normal(), draw.normal(), draw.choice(["blue", "green", "red"])
        shown = "" if number % 9 == 0 else f"{age:.4f}"
        sold = f"2024-{1 + number % 12:02d}-{1 + number % 28:02d}"
        lines.append(f"{number + 1},{size:.4f},{shown},{colour},{sold},{2 * size - age + 3 * (colour == 'red'):.3f}")
    return lines


def write_files() -> None:
    lines = describe_houses()
    cells = [line.split(",") for line in lines]
    numbers = range(50)
    texts = {
        "houses.csv": "\n".join(lines),
        "train.yaml": yaml.safe_dump(TRAIN),
        "study.yaml": "{name: a, base: {}, spaces: []}",
        "one.csv": "\n".join(lines[:2]),
        "empty.csv": "",
        "header.csv": lines[0] + "\n",
        "blank.csv": "a,b,y\n" + "".join(f"{i},{i * i},\n" for i in numbers),
        "one_class.csv": "a,y\n" + "".join(f"{i},yes\n" for i in numbers),
        "constant.csv": "a,y\n" + "".join(f"{i},1.5\n" for i in numbers),
        "other.csv": "a,b\n1,2\n2,3\n",
        "houses.json": "[]",
        "houses.xlsx": "PK",
        "houses.pkl": "",
        "texts/readme.md": "no images",
        "tables/houses.csv": "a,b\n1,2\n",
        "fewer.csv": "\n".join(",".join([*row[:1], *row[2:]]) for row in cells),
        "Size.csv": "\n".join([lines[0].replace("size", "Size"), *lines[1:]]),
        "more.csv": "\n".join([f"{lines[0]},more", *(f"{line},1" for line in lines[1:])]),
        "words.csv": "\n".join([lines[0], *(",".join([row[0], "big", *row[2:]]) for row in cells[1:])]),
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    with zipfile.ZipFile("houses.zip", "w") as archive:
        archive.write("houses.csv")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("photo.png")
    Path("photo.csv").write_bytes(Path("photo.png").read_bytes())
    Path("rubbish.csv").write_bytes(np.random.default_rng(0).bytes(3_000))


def error_line(answer: Answer) -> str:
    """The only line of an error; what was found in the data may stand before it."""
    assert answer.code == 2, answer
    lines = answer.err.splitlines()
    assert all(lines), "an empty line"
    assert [line for line in lines if line.startswith("isthmus: ")] == lines[-1:]
    return lines[-1]


def check_words(line: str, words: list[str]) -> None:
    assert len(line) <= LONGEST
    assert line.isprintable()
    assert [word for word in words if word not in line] == [], line


FIND: list[tuple[str, ...]] = [
    ("", "missing argument 'data'", "`isthmus find DATA`"),
    ("house.csv", "'house.csv'", "did you mean 'houses.csv'?"),
    ("houses", "'houses'", "did you mean 'houses.csv'?"),
    ("somewhere/houses.csv", "no file or folder 'somewhere/houses.csv'", "no folder somewhere"),
    ("digit", "'digit'", "did you mean 'digits'?"),
    ("https://example.org/houses.csv", "is an address", "download the file"),
    ("houses.csv other.csv", "'other.csv' is a second file", "--test other.csv"),
    ("houses.csv price", "'price'", "key=value"),
    ("houses.csv --target prize", "'prize'", "did you mean 'price'?"),
    ("houses.csv --target PRICE", "'PRICE'", "did you mean 'price'?"),
    ("houses.csv --target price,size", "--target price --target size"),
    ("houses.csv --target price --target price", "'price' is given twice", "give it once"),
    ("houses.csv --target price --target colour", "'colour' is not numeric", "--target"),
    ("houses.csv --taget price", "--taget", "--target"),
    ("houses.csv --epochs 3", "--epochs", "train.epochs=20"),
    ("blank.csv --target y", "'y' is empty", "--target"),
    ("one.csv", "one.csv has only 1 row", "at least 10"),
    ("empty.csv", "empty.csv has no rows", "names of columns in its first line"),
    ("header.csv", "header.csv has no rows", "names of columns in its first line"),
    ("houses.csv --budget fifty", "'fifty'", "50k"),
    ("houses.csv --budget 0", "'0'", "50k"),
    ("houses.csv --budget 3", "3 parameters is too small", "at least 26"),
    ("houses.csv --within soon", "'soon' is not a time", "90s, 30m or 2h"),
    ("houses.csv --within 0", "'0' is not a time", "90s, 30m or 2h"),
    ("houses.csv --task regresion", "'regresion'", "did you mean 'regression'?"),
    ("houses.csv --target price --task classification", "not whole numbers", "--task regression"),
    ("houses.csv --target colour --task regression", "'colour' is not numeric", "--task classification"),
    ("one_class.csv --target y", "at least two classes", "name a target that varies"),
    ("constant.csv --target y", "every training target is 1.5", "name a target that varies"),
    ("houses.xlsx", "is a spreadsheet", "save it as a csv file"),
    ("houses.json", "is JSON", "to_csv"),
    ("houses.zip", "is an archive", "unpack it"),
    ("houses.pkl", "is a pickle, which is never loaded", "to_csv"),
    ("photo.png", "is a single image", "folder"),
    ("photo.csv", "photo.csv", "not text"),
    ("rubbish.csv", "rubbish.csv", "not text"),
    ("texts", "no images in", "texts", ".png or .jpg"),
    ("tables", "no images in", "tables/houses.csv"),
    ("houses.csv --test later.csv", "'later.csv'", "paths are relative to"),
    ("houses.csv --test other.csv", "other.csv, the test rows, has no column 'price'", "a, b"),
    ("houses.csv model.dz=3", "'dz'", "did you mean 'd_z'?"),
    ("houses.csv train.epoch=3", "'train.epoch'", "did you mean 'epochs'?"),
    ("houses.csv epochs=3", "'epochs'", "did you mean 'train.epochs'?"),
    ("houses.csv source.colour=1", "'colour'", "choose from"),
    ("houses.csv --task denoise", "denoise", "regression"),
    ("bikes --target rental", "'rental'", "did you mean 'rentals'?"),
    ("bikes --test houses.csv", "--test is for a table or arrays in a file", "leave it out for bikes"),
    ("digits --target label", "the source digits has its own targets", "leave --target out"),
    ("houses.csv --workers 0", "--workers", "greater than or equal to 1"),
]
OTHERS: list[tuple[str, ...]] = [
    ("houses.csv", "'houses.csv'", "`isthmus find houses.csv`"),
    ("fnd houses.csv", "no such command 'fnd'; did you mean 'find'? `isthmus -h` shows the usage"),
    ("find --targt price houses.csv", "no such option: --targt (Possible options: --target"),
    ("train houses.csv", "'houses.csv' is no recipe", "`isthmus find houses.csv`"),
    ("study houses.csv", "'houses.csv' is no recipe", "`isthmus find houses.csv`"),
    ("train study.yaml", "study.yaml is a study", "`isthmus study study.yaml`"),
    ("study train.yaml", "train.yaml is one run", "`isthmus train train.yaml`"),
    ("train digits-mixr", "'digits-mixr'", "did you mean 'digits-mixer'?"),
    ("train train.yaml model.dz=3", "'dz'", "did you mean 'd_z'?"),
    ("train train.yaml train.epoch=3", "'train.epoch'", "did you mean 'epochs'?"),
    ("train train.yaml epochs=3", "'epochs'", "did you mean 'train.epochs'?"),
    ("train train.yaml train.epochs=three", "train.epochs='three'", "integer"),
    ("train train.yaml --epochs 3", "--epochs", "train.epochs=20"),
    ("train train.yaml source.targets=prize", "'prize'", "did you mean 'price'?"),
    ("train train.yaml task.name=classification", "class labels", "source.kind=classification"),
    ("describe hourglass", "'hourglass'", "did you mean 'hourglass_mlp' or 'hourglass_vit'?"),
    ("predict", "missing argument 'run'", "`isthmus predict RUN FILES`"),
    ("predict RUN", "missing argument 'files'", "`isthmus predict RUN FILES`"),
    ("predict 0000 houses.csv", "no run '0000'", "`isthmus runs list`"),
    ("predict houses.csv RUN", "'houses.csv'", "by its id or its folder"),
    ("predict RUN house.csv", "no file house.csv", "did you mean 'houses.csv'?"),
    ("predict RUN fewer.csv", "no column 'size', which this run needs", "`age`"),
    ("predict RUN Size.csv", "no column 'size'", "did you mean 'Size'?"),
    ("predict RUN words.csv", "`size`, a number: it has 'big'", "as in training"),
    ("predict RUN empty.csv", "empty.csv has no rows", "names of columns"),
    ("predict RUN houses.xlsx", "houses.xlsx", ".csv"),
    ("predict RUN photo.png", "photo.png", ".csv"),
    ("predict RUN houses.csv --iterations 3", "--iterations", "leave it out"),
    ("export RUN", "'--to'", "`isthmus export RUN --to TO`"),
    ("export RUN --to onx", "'onx'", "did you mean 'onnx'?"),
    ("export 0000 --to onnx", "no run '0000'", "`isthmus runs list`"),
    ("runs diff RUN", "missing argument 'second'", "`isthmus runs diff FIRST SECOND`"),
]


@pytest.mark.parametrize(
    "mistake", [(f"find {words}", *said) for words, *said in FIND] + OTHERS, ids=lambda each: each[0]
)
def test_a_wrong_command_is_answered_with_a_right_one(mistake: tuple[str, ...], run: Path) -> None:
    text, *said = mistake
    words = text.replace("RUN", run.name).split()
    one = ["--workers", "1"] if words[:1] == ["find"] and len(words) > 1 and "--workers" not in words else []
    check_words(error_line(call(*words, *one)), said)


@pytest.mark.parametrize("words", ["predict RUN houses.csv", "export RUN --to onnx", "report"])
def test_before_the_first_run(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "new"))
    check_words(error_line(call(*words.split())), ["no run", "`isthmus find"])


@pytest.mark.parametrize("words", ["find houses.csv --workers 1", "train train.yaml"])
def test_a_home_that_cannot_be_written(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "file/home"))
    check_words(error_line(call(*words.split())), ["cannot create the folder", "set ISTHMUS_HOME to a writable folder"])


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *given: Any, **options: Any) -> Any:
        if path.name == "houses.csv":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given, **options)

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    check_words(
        error_line(call("find", "houses.csv", "--workers", 1)), ["houses.csv", "permission denied", "chmod u+r"]
    )


def test_further_columns_and_seconds_without_a_unit_are_no_mistakes(run: Path, tmp_path: Path) -> None:
    assert call("predict", run.name, "more.csv", "--out", tmp_path).code == 0
    assert parse_seconds("5") == 5


def read_frame() -> pandas.DataFrame:
    return pandas.read_csv("houses.csv")


def find(*given: Any, **options: Any) -> Any:
    return isthmus.find(*given, **{"workers": 1, "progress": False} | options)


X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0]
WRONG: Any = "lots"
CALLS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "nothing": (lambda: find(None), ["None is not a table", "give a DataFrame"]),
    "no rows": (lambda: find([]), ["[] is not a table", "give a DataFrame"]),
    "no columns": (lambda: find({}), ["only 0 row(s)", "at least 10"]),
    "a number": (lambda: find(42), ["int", "give a DataFrame"]),
    "a vector": (lambda: find(Y), ["(60,)", "two-dimensional array"]),
    "uneven columns": (lambda: find({"a": [1, 2, 3], "b": [1]}, "b"), ["differ in length", "[1, 3]"]),
    "a misspelt target": (lambda: find(read_frame(), "prize"), ["'prize'", "did you mean 'price'?"]),
    "too few targets": (lambda: find(X, Y[:50]), ["60 rows", "(50,)", "one target per row"]),
    "nested targets": (lambda: find(X, Y[:, None, None]), ["(60, 1, 1)", "one target per row"]),
    "targets of images": (lambda: find(np.zeros((9, 8, 8)), Y), ["9 rows", "(60,)", "one per row"]),
    "unknown targets": (lambda: find(X, Y * np.nan), ["'target' is empty", "name another"]),
    "targets of a file": (lambda: find("houses.csv", Y), ["name of its target column"]),
    "no budget": (lambda: find(X, Y, budget=None), ["None", "50k"]),
    "half a parameter": (lambda: find(X, Y, budget=0.5), ["0.5", "50k"]),
    "no time": (lambda: find(X, Y, within=None), ["'None' is not a time", "90s"]),
    "no workers": (lambda: find(X, Y, workers=0), ["workers=0", "give 1 or more"]),
    "a task": (lambda: find(X, Y, task="Regression"), ["'Regression'", "did you mean 'regression'?"]),
    "a run": (lambda: isthmus.load("0000"), ["no run '0000'", "`isthmus runs list`"]),
    "no run": (lambda: isthmus.load(None), ["None is not a model", "`isthmus runs list`"]),  # type: ignore[arg-type]
    "a table as a run": (lambda: isthmus.load("houses.csv"), ["'houses.csv'", "by its id or its folder"]),
    "a model": (lambda: isthmus.create_model("hourglas_mlp"), ["'hourglas_mlp'", "did you mean 'hourglass_mlp'?"]),
    "a field": (lambda: isthmus.create_model("hourglass_mlp", dz=3), ["'dz'", "did you mean 'd_z'?"]),
}  # fmt: skip
PREDICTIONS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "a column less": (lambda model: model.predict(read_frame().drop(columns="size")), ["'size'", "this run needs"]),
    "other types": (lambda model: model.predict(read_frame().assign(size="big")), ["`size`, a number", "'big'"]),
    "nothing": (lambda model: model.predict(None), ["None is not a table", "give a DataFrame"]),
    "no rows": (lambda model: model.predict([]), ["[] is not a table", "give a DataFrame"]),
    "a row": (lambda model: model.predict({"size": 1}), ["put a single row into a list: [row]"]),
    "too few columns": (lambda model: model.predict(X[:, :2]), ["2 columns without names", "`id`, `size`"]),
    "a missing file": (lambda model: model.predict("house.csv"), ["house.csv", "did you mean 'houses.csv'?"]),
    "probabilities of values": (lambda model: model.predict_proba(read_frame()), ["no classes", "use predict"]),
}
ESTIMATORS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "NaN": (lambda: HourglassRegressor().fit(X * np.nan, Y), ["contains NaN", "SimpleImputer"]),
    "words": (
        lambda: HourglassRegressor().fit(read_frame(), Y),
        ["string to float", "'. Encode words", "isthmus.find"],
    ),
    "too few targets": (lambda: HourglassRegressor().fit(X, Y[:5]), ["[60, 5]"]),
    "values as classes": (lambda: HourglassClassifier().fit(X, Y), ["continuous"]),
    "too early": (lambda: HourglassRegressor().predict(X), ["not fitted yet", "'fit'"]),
    "a width": (lambda: HourglassRegressor(d_z=-1).fit(X, Y), ["d_z=-1", "greater than or equal to 1"]),
    "a budget": (lambda: ShapeSearchCV(HourglassRegressor(), budget=WRONG).fit(X, Y), ["'lots'"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_answered_with_a_right_one(name: str) -> None:
    wrong, words = CALLS[name]
    with pytest.raises(UserError) as error:
        wrong()
    check_words(str(error.value), words)
    assert not re.search(r"[0-9a-f]{16}\.(parquet|npz)", str(error.value)), "it names a file of ours"


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_wrong_prediction_is_answered_with_a_right_one(name: str, run: Path) -> None:
    wrong, words = PREDICTIONS[name]
    with pytest.raises(UserError) as error:
        wrong(isthmus.load(run.name))
    check_words(str(error.value), words)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_wrong_fit_is_one_line(name: str) -> None:
    wrong, words = ESTIMATORS[name]
    with pytest.raises(ValueError, match=r"\A.+\Z") as error:  # without DOTALL: no second line
        wrong()
    check_words(str(error.value), words)


@pytest.mark.parametrize(
    ("data", "target", "names"),
    [
        (lambda: read_frame().to_dict("list"), "price", ["price"]),
        (lambda: read_frame().to_dict("records"), "price", ["price"]),
        (lambda: X.astype(str), Y, ["target"]),
        (lambda: X, Y[:, None], ["target"]),
        (lambda: X, X[:, :2], ["target 0", "target 1"]),
        (lambda: X, np.where(Y > 1, np.nan, Y), ["target"]),
        (lambda: read_frame(), 5.0 * Y, ["target"]),
    ],
)
def test_usual_forms_of_data_are_no_mistakes(data: Callable[[], Any], target: Any, names: list[str]) -> None:
    question = ask(data(), target, None, None, (), Options())
    assert list(question.source.targets) == names  # type: ignore[attr-defined]
    assert question.task.name == "regression"
