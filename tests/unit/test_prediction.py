"""A user's files before and after the model: which rows are read, what classes are called, where results go."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isthmus.core.errors import UserError
from isthmus.core.prediction import Trained
from isthmus.core.protocols import Signature
from isthmus.sources.streaming import write_columns, write_pieces
from isthmus.tasks.file_prediction import result_paths
from isthmus.tasks.image_prediction import ImageReader, join_tiles, pixels
from isthmus.tasks.row_prediction import RowPredictor, class_names
from tests.unit.tables import write_csv, write_parquet

ROWS = np.array([[1, 20, 300], [4, 50, 600]], np.float32)
NAMED = {"a": ROWS[:, 0], "b": ROWS[:, 1], "c": ROWS[:, 2]}


class Echo:
    """A task whose model gives back what it receives; with ``labels`` the place of the largest number."""

    def __init__(self, shape, labels):
        self.signature, self.row_shape = Signature(shape, shape), shape
        self.labels = labels

    def encode(self, rows):
        return torch.from_numpy(np.array(rows, np.float32))

    def decode(self, output):
        return output.argmax(1).numpy() if self.labels else output.numpy()

    def probabilities(self, output):
        return None


@pytest.fixture
def predictor():
    """A function that makes a predictor without a training."""

    def make(shape=(3,), labels=False, classes=(), columns=(), **source):
        names = class_names(classes).tolist()
        return RowPredictor(Trained("run", torch.nn.Identity(), Echo(shape, labels), source, names, columns))

    return make


def read(run, path):
    """The rows of a file, as a predictor reads them."""
    return np.concatenate([block.rows for block in run.blocks(path)])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("cat", "dog", "eel"), ["eel", "eel"]),
        (("3", "5", "7"), [7, 7]),
        (("-3", "0", "12"), [12, 12]),
        (("1", "2", "02"), ["02", "02"]),
        (("False", "True", "False"), [False, False]),
        (("FALSE", "TRUE", "FALSE"), ["FALSE", "FALSE"]),
        (("1", "2", "9" * 30), ["9" * 30] * 2),
        ((), [2, 2]),
    ],
)
def test_labels_are_given_by_the_users_names(predictor, tmp_path, names, found):
    rows = predictor(labels=True, classes=names).rows(ROWS)
    assert rows.tolist() == found
    write_columns(tmp_path / "x.csv", [{"x": rows[:1]}, {"x": rows[1:]}])
    assert (tmp_path / "x.csv").read_text() == "".join(f"{name}\n" for name in ["x", *found])
    write_pieces(tmp_path / "x.npy", [rows[:1], rows[1:]])
    assert np.load(tmp_path / "x.npy").tolist() == found


def test_a_class_name_with_a_comma_stays_one_cell(tmp_path):
    write_columns(tmp_path / "x.csv", [{"x": class_names(["a, b", "c"])}])
    assert (tmp_path / "x.csv").read_text() == 'x\n"a, b"\nc\n'


def test_values_of_a_run_with_classes_are_left_alone(predictor):
    assert (predictor(classes=("a", "b", "c")).rows(ROWS) == ROWS).all()


def test_images_are_uint8_or_floats_from_0_to_1(predictor):
    images = np.arange(128, dtype=np.uint8).reshape(2, 1, 8, 8) * 2
    run = predictor(shape=(1, 8, 8))
    assert (run.rows(images) == images).all()
    for scaled in (images / 255, (images[:, 0] / 255).astype(np.float32), (images / 255).reshape(2, 64)):
        np.testing.assert_allclose(run.rows(scaled).reshape(images.shape), images, rtol=1e-6)
    for other in (images.astype(np.float32), images / 255 - 0.5, images.astype(np.int64) // 200):
        with pytest.raises(UserError, match=rf"x: .* uint8, or as floats from 0 to 1, not as {other.dtype} from"):
            pixels(other, "x")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.array([[1, np.nan, 3]]), "the input: NaN, infinity or a number beyond float32, first in row 0"),
        (np.array([[1, 1e300, 3]]), "a number beyond float32, first in row 0"),
        (ROWS[:0], "the input has no rows; give at least one"),
        (ROWS.tolist(), r"the input is a list, not an array of rows; give np\.asarray\(rows\)"),
        (ROWS.astype(str), "the input: <U"),
        (ROWS[:, :2], r"rows of \(2,\) do not fit a model of inputs \(3,\)"),
    ],
)
def test_rows_that_cannot_be_predicted_are_one_line(predictor, rows, words):
    with pytest.raises(UserError, match=words) as caught:
        predictor().rows(rows)
    assert len(str(caught.value).splitlines()) == 1


def test_an_image_of_other_axes_is_one_line(predictor):
    run = predictor(shape=(1, 8, 8))
    assert run.image(np.zeros((1, 10, 3), np.uint8)).shape == (1, 10, 3)
    for shape in ((3, 8, 8), (8, 8), (8, 8, 1), (1, 0, 8)):
        with pytest.raises(UserError, match=r"the image has the shape .*, not \(1, height, width\); transpose it"):
            run.image(np.zeros(shape, np.uint8))
    with pytest.raises(UserError, match=r"takes rows of \(3,\); give them to rows"):
        predictor().image(np.zeros((1, 8, 8), np.uint8))


def blend_slowly(image, side, scale, restore):
    """Tile by tile and pixel by pixel: the mean of all tiles over a pixel, weighted by its distance to the edge."""
    channels, height, width = image.shape
    total, weights = np.zeros((channels, height * scale, width * scale)), np.zeros((height * scale, width * scale))
    tops, lefts = ([*range(0, length - side, side // 2), length - side] for length in (height, width))
    for top in tops:
        for left in lefts:
            tile = restore(image[None, :, top : top + side, left : left + side])[0]
            for y in range(side * scale):
                for x in range(side * scale):
                    weight = min(y + 1, side * scale - y) * min(x + 1, side * scale - x)
                    total[:, top * scale + y, left * scale + x] += weight * tile[:, y, x]
                    weights[top * scale + y, left * scale + x] += weight
    return total / weights


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 17), (3, 20, 8), (3, 13, 12)])
@pytest.mark.parametrize("scale", [1, 2])
def test_tiles_overlap_and_are_blended(shape, scale):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    noise = np.random.default_rng(1).normal(size=(8 * scale, 8 * scale))

    def restore(tiles):
        return np.clip(tiles.repeat(scale, 2).repeat(scale, 3) + 20 * noise, 0, 255)

    found = join_tiles(image, (8, 8), scale, restore)
    assert np.abs(found - blend_slowly(image, 8, scale, restore)).max() <= 0.51
    exact = join_tiles(image, (8, 8), scale, lambda tiles: tiles.repeat(scale, 2).repeat(scale, 3))
    assert (exact == image.repeat(scale, 1).repeat(scale, 2)).all()


def test_an_image_smaller_than_a_tile_is_continued_by_its_edges():
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    seen = []

    def keep(tiles):
        seen.append(tiles)
        return tiles

    assert (join_tiles(image, (4, 4), 1, keep) == image).all()
    assert seen[0][0, 0].tolist() == [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [3, 4, 5, 5]]


def test_arrays_of_other_channels_become_what_their_files_would(tmp_path):
    colour = np.random.default_rng(0).integers(0, 256, (9, 10, 4), np.uint8)
    for channels in (1, 3):
        reader = ImageReader((channels, 8, 8))
        for place, array in enumerate((colour, colour[..., :3], colour[..., 0])):
            picture = Image.fromarray(np.ascontiguousarray(array))
            picture.save(tmp_path / f"{place}.png")
            forms = (tmp_path / f"{place}.png", picture, [array], [array / 255])
            ((_, first), *others) = [next(reader.read(each)) for each in forms]
            assert first.shape == (channels, 9, 10)
            for _, image in others:
                np.testing.assert_allclose(pixels(image, "x"), first, atol=1)
    assert len(list(ImageReader((3, 8, 8)).read(np.zeros((5, 9, 10), np.uint8)))) == 5, "grey images"


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, ">f4", bool])
def test_numbers_of_an_image_run_keep_their_meaning_when_read(predictor, tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.ones((2, 4), dtype))
    found = read(predictor(shape=(1, 2, 2)), tmp_path / "x.npy")
    assert found.dtype == (dtype if dtype in (np.uint8, np.int64) else np.float32)


def test_columns_are_selected_by_name(predictor, tmp_path):
    run = predictor(columns=["a", "b", "c"])
    turned = {"y": ["?", "!"], "c": ROWS[:, 2], "b": ROWS[:, 1], "a": ROWS[:, 0]}
    write_csv(tmp_path / "x.csv", turned)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    write_parquet(tmp_path / "x.parquet", turned)
    write_csv(tmp_path / "bare.csv", NAMED, header=False)
    for name in ("x.csv", "x.csv.gz", "x.parquet", "bare.csv"):
        assert (read(run, tmp_path / name) == ROWS).all(), name
    write_csv(tmp_path / "x.csv", {"a": ROWS[:, 0], "B": ROWS[:, 1], "c": ROWS[:, 2]})
    with pytest.raises(UserError, match=r"x\.csv has no column 'b'; .*'?B'?"):
        read(run, tmp_path / "x.csv")
    write_csv(tmp_path / "x.csv", NAMED)
    assert (read(predictor(), tmp_path / "x.csv") == ROWS).all(), "without names in the record, positions count"


def test_a_header_of_numbers_is_read_as_in_training(predictor, tmp_path):
    (tmp_path / "x.csv").write_text("y,2020,2019\n0,1,2\n")
    assert read(predictor((2,), columns=["2019", "2020"], header=True), tmp_path / "x.csv").tolist() == [[2, 1]]


def test_rows_with_all_numbered_columns_of_training_are_taken_without_the_targets(predictor, tmp_path):
    np.save(tmp_path / "x.npy", np.insert(ROWS, 1, -1, axis=1))
    write_csv(tmp_path / "x.csv", {"a": ROWS[:, 0], "y": [-1, -1], "b": ROWS[:, 1], "c": ROWS[:, 2]}, header=False)
    for name in ("x.npy", "x.csv"):
        assert (read(predictor(targets=["1"]), tmp_path / name) == ROWS).all()
        assert (read(predictor((2,), inputs=["0", "3"], targets=["1"]), tmp_path / name) == ROWS[:, [0, 2]]).all()
        assert read(predictor(targets=["y"]), tmp_path / name).shape == (2, 4), "refused later: nobody knows which"


def test_the_inputs_of_an_archive_are_found(predictor, tmp_path):
    def stored(run=None, **arrays):
        np.savez(tmp_path / "x.npz", **arrays)
        return read(run or predictor(), tmp_path / "x.npz")

    one = ROWS[:, 0]
    assert (stored(anything=ROWS) == ROWS).all()
    assert (stored(a=one, b=ROWS) == ROWS).all(), "the only one that fits"
    assert (stored(predictor(inputs=["b"]), a=ROWS + 1, b=ROWS) == ROWS).all(), "named as in training"
    assert (stored(predictor((1,), targets=["a"]), a=one + 1, b=one) == one).all(), "not the targets"
    for arrays, number in (({"a": ROWS, "b": ROWS}, 2), ({"a": one, "b": one}, 0)):
        with pytest.raises(UserError, match=rf"x\.npz holds the arrays a, b, of which {number} fit a model of inputs"):
            stored(**arrays)


def test_results_of_one_name_keep_the_folders_in_which_they_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def results(*names):
        files = [Path(name) for name in names]
        return [target.as_posix() for target in result_paths(files, files, Path("out")).values()]

    assert results("a/1.png", "b/2.jpg") == ["out/1.png", "out/2.png"]
    assert results("a/1.png", "b/1.png") == ["out/a/1.png", "out/b/1.png"]
    assert results("a/c/1.png", str(tmp_path / "b" / "c" / "1.png"), "1.png") == [
        "out/a/c/1.png",
        "out/b/c/1.png",
        "out/1.png",
    ]
    assert results("x.csv.gz", "x.npz") == ["out/x.predicted.csv", "out/x.predicted.npy"]
    for names in (("a/1.png", "a/1.jpg"), ("out/1.png",), ("a/1.png", "b/1.png", "out/a/1.png")):
        with pytest.raises(UserError, match="would be replaced"):
            results(*names)
