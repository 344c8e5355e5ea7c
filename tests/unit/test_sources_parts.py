"""What the sources share: splitting, checking, fingerprints and the cache."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core import files
from isthmus.core.errors import UserError
from isthmus.core.protocols import Split
from isthmus.sources.cache import cache_array
from isthmus.sources.splits import array_digest, check_splits, partition


@given(
    labels=st.lists(st.integers(0, 4), min_size=3, max_size=200),
    shares=st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    seed=st.integers(0, 5),
    by_class=st.booleans(),
)
def test_a_partition_is_exact_and_fair_to_every_class(labels, shares, seed, by_class):
    labels = np.array(labels)
    held_out = [int(len(labels) * share) for share in shares]
    parts = partition(len(labels), held_out, seed, labels if by_class else None)
    assert [len(part) for part in parts] == [len(labels) - sum(held_out), *held_out]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    if by_class:
        for part in parts:
            fair = np.bincount(labels, minlength=5) * len(part) / len(labels)
            assert (np.abs(np.bincount(labels[part], minlength=5) - fair) <= 2).all()
    again = partition(len(labels), held_out, seed, labels if by_class else None)
    assert all((one == two).all() for one, two in zip(parts, again, strict=True))


def images(rows=3, dtype=np.uint8):
    return np.zeros((rows, 1, 2, 2), dtype)


def features(rows=3, value=0.0):
    return np.full((rows, 2), value, np.float32)


GOOD = Split(images(), np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (Split(images(0), np.zeros(0, np.int64)), "made, test: no data"),
        (Split(images(), np.zeros(2, np.int64)), "3 inputs but 2 targets"),
        (Split(images(), np.full(3, 2)), "row 0 has the label 2, but there are 2 classes"),
        (Split(images(), np.full(3, -1)), "row 0 has the label -1"),
        (Split(images(), np.zeros((3, 1), np.int64)), "targets must be int64 labels"),
        (Split(images(), np.full((3, 1), np.nan, np.float32)), "targets contain NaN or infinity, first in row 0"),
        (Split(images(dtype=np.float32)), "not float32 of shape"),
        (Split(features(value=np.inf)), "inputs contain NaN or infinity, first in row 0, feature 0"),
        (Split(features(), np.zeros(3, np.int64)), "differ in the shape of a row"),
        (Split(images()), "differ in their kind of targets"),
    ],
)
def test_wrong_arrays_are_refused_in_one_place(test, message):
    with pytest.raises(UserError, match=message):
        check_splits("made", [GOOD, GOOD, test], ["a", "b"])


def test_the_fingerprint_depends_on_every_array():
    changed = Split(images() + np.uint8(1), GOOD.targets)
    relabelled = Split(images(), np.ones(3, np.int64))
    variants = [[GOOD, GOOD, GOOD], [changed, GOOD, GOOD], [GOOD, changed, GOOD], [GOOD, GOOD, relabelled]]
    prints = [check_splits("made", splits, ["a", "b"]).fingerprint for splits in variants]
    assert len(set(prints)) == len(variants)
    known = [array_digest(GOOD.inputs)] * 3
    assert check_splits("made", [GOOD] * 3, ["a", "b"], known).fingerprint == prints[0]
    assert array_digest(np.zeros((2, 3), np.uint8)) != array_digest(np.zeros((3, 2), np.uint8))


class Cache:
    """Opens small caches full of sevens, and notes when one is filled."""

    def __init__(self, folder):
        self.folder = folder
        self.calls = []

    def __call__(self, key="a", fill=lambda array: array.fill(7)):
        def noted(array):
            self.calls.append(key)
            fill(array)

        return cache_array("made", {"key": key}, (4, 3), noted)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    return Cache(tmp_path / "cache" / "made")


def test_a_cache_is_filled_once_per_key(cache):
    first, again = cache(), cache()
    assert cache.calls == ["a"]
    assert (again.array == 7).all()
    assert again.digest == first.digest == array_digest(np.full((4, 3), 7, np.uint8))
    again.array[:] = 0
    assert (cache().array == 7).all(), "what a reader writes stays with the reader"
    cache("b")
    assert cache.calls == ["a", "b"]


def test_a_damaged_or_interrupted_cache_is_filled_anew(cache):
    cache()
    (path,) = cache.folder.glob("*.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    for damage in (bytes(content), bytes(content[:-3]), b""):
        path.write_bytes(damage)
        assert (cache().array == 7).all()
    path.with_suffix(".json").write_text("{")
    assert (cache().array == 7).all()
    assert cache.calls == ["a"] * 5
    path.with_suffix(".json").unlink()
    leftover = path.with_name(f".{path.name}.killed.npy")
    leftover.write_bytes(b"half")
    assert (cache().array == 7).all()
    assert not leftover.exists()


def test_a_failed_fill_leaves_nothing(cache):
    def fail(array):
        raise UserError("no such image")

    with pytest.raises(UserError, match="no such image"):
        cache(fill=fail)
    assert not list(cache.folder.rglob("*.npy"))
    assert (cache().array == 7).all()


def test_a_cache_beyond_the_disk_is_refused_before_it_is_written(cache):
    with pytest.raises(UserError, match="set ISTHMUS_HOME"):
        cache_array("made", {}, (1 << 40, 1 << 20), lambda array: None)


def test_a_large_cache_is_read_only_and_trusted_by_size(cache, monkeypatch):
    monkeypatch.setattr("isthmus.sources.cache.SMALL", 0)
    assert not cache().array.flags.writeable
    assert (cache().array == 7).all()
    assert cache.calls == ["a"]
    assert files.home() in cache.folder.parents
