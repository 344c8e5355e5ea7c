"""``isthmus.load`` and ``isthmus predict`` with what a person has: tables as they are, arrays, images and folders."""

from __future__ import annotations

import csv
import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.record import MODEL
from isthmus.sources.images import center_crop, channels_first, resize_short_side
from isthmus.sources.tables import table_of
from isthmus.tasks.table_prediction import EncodedRows
from isthmus.training.exported import EXPORT
from tests.command_line import call, train

MODEL_SETTINGS = {"name": "hourglass_mlp", "d_z": 16, "d_h": 4, "depth": 1}
ROWS = 90


def houses() -> pandas.DataFrame:
    """A table with an identifier, numbers, words, dates, blanks and a constant."""
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "house id": np.arange(1000, 1000 + ROWS),
            "area": np.round(draw.uniform(30, 200, ROWS), 1),
            "town": draw.choice(["=Bern", "Genève", "Zürich"], ROWS),
            "sold": [
                datetime.date(2020, 1, 1) + datetime.timedelta(days=int(day)) for day in draw.integers(0, 900, ROWS)
            ],
            "land": "CH",
            "rooms": draw.integers(1, 7, ROWS).astype(float),
        }
    )
    frame.loc[::9, "rooms"] = np.nan
    frame["price"] = 1000.0 * frame["area"] + 20_000 * (frame["town"] == "Zürich") + draw.normal(0, 100, ROWS)
    frame["tax"] = frame["price"] / 50 + draw.normal(0, 10, ROWS)
    frame["size"] = np.where(frame["area"] > 100, "large", "-small")
    return frame


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def trained(home: Path) -> Callable[..., str]:
    """A function that trains on a source and gives the id of the run."""
    known: dict[str, str] = {}

    def make(task: str, model: dict[str, Any] | None = None, ones: bool = False, **source: Any) -> str:
        key = f"{task} {model} {ones} {source}"
        if key not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ISTHMUS_HOME", str(home))
                changes = {"task": {"name": task} | ({"ones": True} if ones else {}), "model": model or MODEL_SETTINGS}
                settings = {"epochs": 2, "batch_size": 32}
                known[key] = str(home / "runs" / train(home, source=source, train=settings, **changes)["id"])
        return known[key]

    return make


@pytest.fixture(scope="module")
def table(home: Path) -> dict[str, Any]:
    frame = houses()
    frame.to_csv(home / "houses.csv", index=False)
    return {"name": "table", "path": str(home / "houses.csv")}


@pytest.fixture(scope="module")
def regression(trained: Callable[..., str], table: dict[str, Any]) -> str:
    return trained("regression", **table, targets="price", inputs=["house id", "area", "town", "sold", "land", "rooms"])


@pytest.fixture(scope="module")
def classification(trained: Callable[..., str], table: dict[str, Any]) -> str:
    inputs = ["house id", "area", "town", "sold", "land", "rooms"]
    return trained("classification", **table, targets="size", inputs=inputs)


def test_what_is_loaded_shows_itself_and_equals_its_model(regression: str, classification: str) -> None:
    loaded = isthmus.load(regression)
    assert isinstance(loaded.model, torch.nn.Module)
    assert not loaded.model.training
    x = torch.randn(5, *loaded.task.signature.input_shape)
    assert torch.equal(loaded(x), loaded.model(x))
    assert loaded.columns == ["area", "town", "sold", "rooms"], "neither the identifier nor the constant"
    assert loaded.classes == []
    shown = repr(loaded)
    params = isthmus.cost(loaded.model).params
    assert shown == f"<{Path(regression).name}: hourglass_mlp d_z=16 d_h=4 depth=1, {params:,} parameters, regression>"
    assert isthmus.load(classification).classes == ["-small", "large"]


def forms(frame: pandas.DataFrame, folder: Path) -> dict[str, Any]:
    """The same rows in all forms."""
    bare = frame.drop(columns=["price", "tax", "size"])
    bare.to_csv(folder / "new.csv", index=False)
    bare.to_csv(folder / "new.tsv", index=False, sep="\t")
    bare.to_parquet(folder / "new.parquet")
    bare.to_csv(folder / "bare.csv", index=False, header=False)
    needed = frame[["area", "town", "sold", "rooms"]]
    return {
        "DataFrame": frame,
        "other order": frame[frame.columns[::-1]],
        "dicts": frame.to_dict("records"),
        "columns": {name: frame[name].tolist() for name in frame.columns},
        "Arrow": pyarrow.Table.from_pandas(frame),
        "array": bare.to_numpy(),
        "array of the needed columns": needed.to_numpy(),
        "unnamed DataFrame": pandas.DataFrame(bare.to_numpy()),
        **{ending: folder / f"new.{ending}" for ending in ("csv", "tsv", "parquet")},
        "text": str(folder / "new.csv"),
        "without a header": folder / "bare.csv",
    }


def test_raw_rows_of_every_form_give_the_same_values(regression: str, tmp_path: Path) -> None:
    loaded, frame = isthmus.load(regression), houses()
    found = {name: loaded.predict(rows) for name, rows in forms(frame, tmp_path).items()}
    expected = np.asarray(found["DataFrame"])
    assert expected.shape == (ROWS,)
    assert 20_000 < expected.mean() < 250_000, "in the units of the target"
    for name, values in found.items():
        np.testing.assert_allclose(values, expected, rtol=1e-5, err_msg=name)
        assert isinstance(values, pandas.Series if "Frame" in name or name == "other order" else np.ndarray), name


def test_a_data_frame_keeps_its_index_and_the_names_of_targets(
    regression: str, classification: str, trained: Callable[..., str], table: dict[str, Any]
) -> None:
    frame = houses().iloc[::-3].set_index("house id")
    one = isthmus.load(regression).predict(frame)
    assert one.name == "price"
    assert one.index.equals(frame.index)
    several = isthmus.load(trained("regression", **table, targets=["price", "tax"], inputs=["area", "town"]))
    both = several.predict(frame)
    assert list(both.columns) == ["price", "tax"]
    assert both.index.equals(frame.index)
    assert several.predict(frame.to_dict("records")).shape == (len(frame), 2)
    loaded = isthmus.load(classification)
    labels, chances = loaded.predict(frame), loaded.predict_proba(frame)
    assert labels.name == "size"
    assert list(chances.columns) == loaded.classes
    assert (chances.idxmax(axis=1) == labels).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    as_array = loaded.predict_proba(frame.to_dict("records"))
    assert isinstance(as_array, np.ndarray)
    np.testing.assert_allclose(as_array, chances, rtol=1e-5)


def test_unseen_categories_and_missing_values_are_predicted(regression: str, tmp_path: Path) -> None:
    row = {"area": None, "town": "Lugano", "sold": "", "rooms": "?"}
    with pytest.warns(UserWarning, match="no cell of `town` is a category of the training rows: 'Lugano'"):
        assert np.isfinite(isthmus.load(regression).predict([row, row | {"area": 80, "town": None}])).all()
    (tmp_path / "new.csv").write_text("area,town,sold,rooms\n80,Lugano,2021-03-01,3\n")
    answer = call("predict", regression, tmp_path / "new.csv", "--out", tmp_path / "out")
    assert answer.code == 0
    assert "no cell of `town` is a category of the training rows: 'Lugano' is none of " in answer.err


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"Area": 1, "town": "Bern", "sold": "2020-01-01", "rooms": 1}], "the input has no column 'area', .*'Area'"),
        (np.zeros((2, 3)), "has 3 columns without names; this run takes 6: `house id`, `area`"),
        (np.full((2, 4), "words"), "has no names of columns, and column 0 is not `area`, a number: it has 'words'"),
        (np.zeros(4), r"has the shape \(4,\); this run takes rows of 6 columns"),
        ({"area": 1.0, "town": "Bern"}, r"put a single row into a list: \[row\]"),
        ("nothing.csv", "there is no file nothing.csv"),
        ("photo.png", r"there is no file photo\.png; paths are relative to "),
        ([], "is not a table"),
        (houses().iloc[:0], "has no rows"),
        (5, "int is not a table"),
    ],
)
def test_rows_that_do_not_fit_are_one_line(regression: str, rows: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        isthmus.load(regression).predict(rows)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_of_weights_says_what_to_load_instead(regression: str) -> None:
    loaded = isthmus.load(Path(regression) / MODEL)
    x = torch.randn(3, *isthmus.load(regression).task.signature.input_shape)
    assert torch.equal(loaded(x), isthmus.load(regression)(x))
    assert loaded.task is None
    assert repr(loaded).endswith("parameters, no task>")
    for ask in (loaded.predict, loaded.predict_proba):
        with pytest.raises(UserError, match=r"holds weights without a task.*; load its run .* or the folder of an"):
            ask(houses())
    with pytest.raises(UserError, match="predicts no classes, so there are no probabilities; use predict"):
        isthmus.load(regression).predict_proba(houses())


@pytest.mark.parametrize("form", ["safetensors", "torch", "onnx"])
def test_an_export_takes_the_same_rows(form: str, classification: str, tmp_path: Path) -> None:
    assert call("export", classification, "--to", form, "--out", tmp_path / "model").code == 0
    moved = isthmus.load(shutil.move(tmp_path / "model", tmp_path / "elsewhere"))
    loaded, frame = isthmus.load(classification), houses()
    assert (moved.columns, moved.classes) == (loaded.columns, loaded.classes)
    np.testing.assert_allclose(moved.predict_proba(frame), loaded.predict_proba(frame), atol=1e-5)
    assert moved.predict(frame).equals(loaded.predict(frame))
    assert (tmp_path / "elsewhere" / EXPORT).is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no cell of `town` is a category of the training rows")
def test_a_graph_takes_raw_columns_and_answers_in_the_users_units(
    trained: Callable[..., str], table: dict[str, Any], tmp_path: Path
) -> None:
    """With words, dates, blanks, free text and a column of ones; in onnxruntime and torch alone."""
    frame = houses()
    frame["new"] = frame["area"] > 90
    frame["note"] = [f"house number {row} with {row % 3} windows" for row in range(ROWS)]
    frame["owner"] = [f"person {row % 40}" for row in range(ROWS)]
    frame.to_parquet(tmp_path / "more.parquet")
    source = table | {"path": str(tmp_path / "more.parquet")}
    unseen = frame.assign(town="Lugano", owner=None, rooms=np.nan, sold=None)
    for task, target in (("regression", ["price", "tax"]), ("classification", ["size"])):
        inputs = ["area", "town", "sold", "rooms", "new", "note", "owner"]
        run = trained(task, ones=True, **source, targets=target, inputs=inputs)
        loaded = isthmus.load(run)
        ask = loaded.predict if task == "regression" else loaded.predict_proba
        encoder = EncodedRows(loaded.table).encoder
        for rows in (frame, unseen, frame.iloc[:1]):
            codes, expected = encoder.codes(table_of(rows)), np.asarray(ask(rows))
            for form in ("onnx", "torch"):
                out = tmp_path / f"{task}-{form}"
                if not out.exists():
                    assert call("export", run, "--to", form, "--out", out).code == 0
                if form == "onnx":
                    session = onnxruntime.InferenceSession(out / "model.onnx")
                    (found,) = session.run(None, {"x": codes})
                else:
                    found = torch.export.load(out / "model.pt2").module()(torch.from_numpy(codes)).detach().numpy()
                assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
                opened = isthmus.load(out)
                again = np.asarray((opened.predict if task == "regression" else opened.predict_proba)(rows))
                assert np.abs(again - expected).max() <= 1e-5 * np.abs(expected).max()
                assert torch.equal(opened(torch.from_numpy(codes)), opened.model(torch.from_numpy(codes)))
    card = (tmp_path / "classification-onnx" / "README.md").read_text(encoding="utf-8")
    assert "the probabilities of `-small`, `large`" in card
    for line in ("| 0 | area | the number; NaN missing |", "| 2 | sold | days since 1970-01-01", "| 5 to 36 | note |"):
        assert line in card
    towns = next(column for column in encoder.columns if column.name == "town").values
    listed = ", ".join(f"{code} {name}" for code, name in enumerate(towns))
    assert f"| 1 | town | {listed}; -1 any other; NaN missing |" in card
    assert "| 4 | new | 0 false, 1 true; NaN missing |" in card


def test_a_graph_of_the_source_arrays_takes_its_columns(
    trained: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    frame = houses()[["area", "price", "tax"]]
    frame.to_csv(home / "raw.csv", index=False)
    run = trained("regression", ones=True, name="arrays", path=str(home / "raw.csv"), targets="tax")
    assert call("export", run, "--to", "onnx", "--out", tmp_path / "model").code == 0
    expected = isthmus.load(run).predict(frame)
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model.onnx")
    (found,) = session.run(None, {"x": frame[["area", "price"]].to_numpy()})
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(isthmus.load(tmp_path / "model").predict(frame), expected, rtol=1e-5)
    assert "| 1 | price | the number |" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_predict_writes_identifiers_predictions_and_probabilities(
    regression: str, classification: str, tmp_path: Path
) -> None:
    frame = houses()
    frame.to_csv(tmp_path / "new.csv", index=False, sep=";")
    for run, target in ((regression, "price"), (classification, "size")):
        (result,) = call("predict", run, tmp_path / "new.csv", "--out", tmp_path / target, "--json").json().values()
        rows, loaded = read(Path(result)), isthmus.load(run)
        assert [row["house id"] for row in rows] == frame["house id"].astype(str).tolist()
        predicted = [row[f"{target} predicted"] for row in rows]
        if run == regression:
            assert list(rows[0]) == ["house id", "price predicted"]
            np.testing.assert_allclose(np.array(predicted, float), loaded.predict(frame), rtol=1e-5)
        else:
            assert list(rows[0]) == ["house id", "size predicted", "p(-small)", "p(large)"]
            assert predicted == loaded.predict(frame).replace("-small", "'-small").tolist(), "no formulas"
            chances = np.array([[row["p(-small)"], row["p(large)"]] for row in rows], float)
            np.testing.assert_allclose(chances, loaded.predict_proba(frame), atol=1e-6)


def test_the_column_that_names_the_rows_or_their_number_comes_first(
    trained: Callable[..., str], regression: str, home: Path, tmp_path: Path
) -> None:
    frame = houses()[["area", "town", "price"]]
    frame.index = pandas.Index([f"=h{row}" for row in range(ROWS)])
    frame.to_csv(home / "named.csv")
    run = trained("regression", name="table", path=str(home / "named.csv"), targets="price")
    (result,) = call("predict", run, home / "named.csv", "--out", tmp_path / "a", "--json").json().values()
    assert next(iter(read(Path(result))[0].items())) == ("unnamed", "'=h0")
    houses()[["area", "town", "sold", "rooms"]].to_csv(tmp_path / "new.csv", index=False)
    (result,) = call("predict", regression, tmp_path / "new.csv", "--out", tmp_path / "b", "--json").json().values()
    assert [row["row"] for row in read(Path(result))] == [str(row) for row in range(ROWS)]


def test_a_header_of_years_without_the_target_is_still_a_header(
    trained: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    draw = np.random.default_rng(1)
    frame = pandas.DataFrame(draw.normal(size=(60, 2)), columns=["2019", "2020"])
    frame["y"] = frame.sum(axis=1)
    frame.to_csv(home / "years.csv", index=False)
    loaded = isthmus.load(trained("regression", name="table", path=str(home / "years.csv"), targets="y"))
    frame[["2020", "2019"]].to_csv(tmp_path / "new.csv", index=False)
    np.testing.assert_allclose(loaded.predict(tmp_path / "new.csv"), loaded.predict(frame), rtol=1e-5)


def test_numbers_of_the_source_arrays_are_found_by_name(
    trained: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    frame = houses()[["area", "price", "tax"]]
    frame.to_csv(home / "numbers.csv", index=False)
    run = trained("regression", name="arrays", path=str(home / "numbers.csv"), targets="tax")
    loaded = isthmus.load(run)
    assert loaded.columns == ["area", "price"]
    expected = loaded.predict(frame)
    assert expected.name == "tax"
    frame[["price", "area"]].to_csv(tmp_path / "new.tsv", sep="\t", index=False)
    inputs = frame[["area", "price"]].to_numpy()
    np.savez(tmp_path / "x.npz", inputs)
    arrays = (inputs, inputs.tolist(), inputs.astype(object), torch.from_numpy(inputs))
    for rows in (*arrays, frame.to_dict("records"), tmp_path / "new.tsv", tmp_path / "x.npz"):
        np.testing.assert_allclose(loaded.predict(rows), expected, rtol=1e-5)
    (result,) = call("predict", run, home / "numbers.csv", "--out", tmp_path / "out", "--json").json().values()
    rows = read(Path(result))
    assert list(rows[0]) == ["row", "tax predicted"]
    np.testing.assert_allclose([float(row["tax predicted"]) for row in rows], expected, rtol=1e-5)
    with pytest.raises(UserError, match="has no column 'price'"):
        loaded.predict(frame[["area"]])


@pytest.fixture(scope="module")
def pictures(home: Path) -> Path:
    """Class folders with photographs of many sizes."""
    draw = np.random.default_rng(2)
    for place, name in enumerate(("cats", "dogs")):
        (home / "pictures" / name).mkdir(parents=True)
        for number in range(12):
            pixels = draw.integers(0, 256, (9 + number, 20 - number, 3), dtype=np.uint8) // (1 + place)
            Image.fromarray(pixels).save(home / "pictures" / name / f"{number:02d}.png")
    return home / "pictures"


def open_picture(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def test_images_of_any_size_are_classified_as_the_source_read_them(
    trained: Callable[..., str], pictures: Path, tmp_path: Path
) -> None:
    run = trained("classification", name="image_folder", path=str(pictures), size=8)
    loaded = isthmus.load(run)
    paths = sorted(pictures.rglob("*.png"))
    opened = [open_picture(path) for path in paths]
    fitted = np.stack([channels_first(center_crop(resize_short_side(image, 8), 8)) for image in opened])
    expected = loaded.predict_proba(fitted)
    arrays = [np.asarray(each) for each in opened]
    for images in (pictures, str(pictures), paths, [str(path) for path in paths], opened, arrays):
        np.testing.assert_array_equal(loaded.predict_proba(images), expected)
    np.testing.assert_array_equal(loaded.predict_proba(fitted.transpose(0, 2, 3, 1)), expected)
    np.testing.assert_allclose(loaded.predict_proba(fitted / 255), expected, atol=1e-5)
    np.testing.assert_allclose(loaded.predict_proba(paths[3]), expected[3:4], rtol=1e-5)
    np.testing.assert_allclose(loaded.predict_proba(np.asarray(opened[3])), expected[3:4], rtol=1e-5)
    large = np.stack([np.asarray(opened[0].resize((20, 30)))] * 2)
    assert loaded.predict(large).tolist() == [loaded.predict(large[0])[0]] * 2
    assert set(loaded.predict(pictures)) <= {"cats", "dogs"}
    assert call("export", run, "--to", "torch", "--out", tmp_path / "model").code == 0
    np.testing.assert_allclose(isthmus.load(tmp_path / "model").predict_proba(pictures), expected, atol=1e-5)

    copied = Path(shutil.copytree(pictures, tmp_path / "new"))
    (copied / "dogs" / "broken.jpg").write_bytes(b"no image")
    answer = call("predict", run, copied, "--out", tmp_path / "out")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == f"{copied} → {tmp_path / 'out' / 'new.predicted.csv'}"
    assert lines[1:] == [f"skipped: cannot read {copied / 'dogs' / 'broken.jpg'} as an image: the format is unknown"]
    rows = read(tmp_path / "out" / "new.predicted.csv")
    assert list(rows[0]) == ["file", "predicted", "p(cats)", "p(dogs)"]
    assert [row["file"] for row in rows] == [str(path.relative_to(pictures)) for path in paths]
    np.testing.assert_allclose([float(row["p(dogs)"]) for row in rows], expected[:, 1], atol=1e-6)
    content = call("predict", run, copied, paths[0], "--out", tmp_path / "out", "--json").json()
    assert content[str(copied / "dogs" / "broken.jpg")] is None
    assert content[str(paths[0])] == rows[0]["predicted"]
    (listed,) = read(tmp_path / "out" / "images.predicted.csv")
    assert {**listed, "file": ""} == {**rows[0], "file": ""}
    answer = call("predict", run, paths[0], copied / "dogs" / "broken.jpg", "--out", tmp_path / "out")
    assert f"{paths[0]} → {rows[0]['predicted']} (p({rows[0]['predicted']}) = 0." in answer.out
    with pytest.warns(UserWarning, match=r"skipped: cannot read .*broken\.jpg"):
        found = loaded.predict_proba(copied)
    assert found.index.tolist() == [row["file"] for row in rows]
    assert found.columns.tolist() == ["cats", "dogs"]


def test_images_of_any_size_are_restored(trained: Callable[..., str], pictures: Path, tmp_path: Path) -> None:
    run = trained("denoise", name="image_folder", path=str(pictures), size=8)
    loaded, paths = isthmus.load(run), sorted(pictures.rglob("*.png"))
    restored = loaded.predict(pictures)
    opened = [open_picture(path) for path in paths]
    assert [image.shape for image in restored] == [(3, image.height, image.width) for image in opened]
    np.testing.assert_array_equal(loaded.predict(opened[0]), restored[0][None])
    tiles = np.stack([image[:, :8, :8] for image in map(channels_first, opened)])
    np.testing.assert_array_equal(loaded.predict(tiles), loaded.predict(list(tiles)))
    copied = Path(shutil.copytree(pictures, tmp_path / "new"))
    (copied / "dogs" / "broken.jpg").write_bytes(b"no image")
    content = call("predict", run, copied, "--out", tmp_path / "out", "--json").json()
    assert content.pop(str(copied / "dogs" / "broken.jpg")) is None
    assert len(content) == len(paths)
    assert (tmp_path / "out" / "cats" / "00.png").is_file()


def test_a_folder_without_a_readable_image_is_refused(
    trained: Callable[..., str], pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "new" / "below").mkdir(parents=True)
    for task in ("classification", "denoise"):
        run = trained(task, name="image_folder", path=str(pictures), size=8)
        (tmp_path / "new" / "below" / "broken.jpg").unlink(missing_ok=True)
        answer = call("predict", run, tmp_path / "new", "--out", tmp_path / "out")
        assert (answer.code, "there are no images in" in answer.err) == (2, True), answer
        (tmp_path / "new" / "below" / "broken.jpg").write_bytes(b"no image")
        answer = call("predict", run, tmp_path / "new", "--out", tmp_path / "out")
        assert (answer.code, "broken.jpg as an image" in answer.err) == (2, True), answer
        assert not (tmp_path / "out").exists()
        with pytest.raises(UserError, match=r"broken\.jpg as an image"):
            isthmus.load(run).predict(tmp_path / "new")


def test_a_task_that_takes_files_only_says_so(trained: Callable[..., str]) -> None:
    model = {"name": "recurrent_transformer", "d": 8, "num_heads": 2, "iterations": 2}
    loaded = isthmus.load(trained("sudoku", model, name="sudoku", train=20, validation=5, test=5))
    with pytest.raises(UserError, match="predicts from files: `isthmus predict RUN FILES`"):
        loaded.predict(np.zeros((1, 81), int))
