"""MNIST's four idx files, whole, packed, missing and damaged."""

import gzip
import os
import shutil
import struct
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import UserError
from isthmus.core.protocols import Data
from tests.unit.source_data import load_source

SHARED = Path(os.environ.get("ISTHMUS_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_mnist = pytest.mark.skipif(not (SHARED / "mnist").is_dir(), reason="MNIST's files are not on this machine")
NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


load = partial(load_source, "mnist")


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def tiny_files():
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 256, (rows, 5, 4), np.uint8) for rows in (12, 6)]
    labels = [np.arange(rows, dtype=np.uint8) % 3 for rows in (12, 6)]
    return dict(zip(NAMES, [idx(arrays[0]), idx(labels[0]), idx(arrays[1]), idx(labels[1])], strict=True))


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@needs_mnist
def test_mnist_and_its_seeded_partition():
    data, other = load(SHARED), load(SHARED, split_seed=1)
    assert data.train.inputs.shape == (50_000, 1, 28, 28)
    assert data.validation.inputs.shape == data.test.inputs.shape == (10_000, 1, 28, 28)
    assert data.test.targets[:5].tolist() == [7, 2, 1, 0, 4]
    counts = np.bincount(np.concatenate([data.train.targets, data.validation.targets]))
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.fingerprint != other.fingerprint
    assert (data.test.inputs == other.test.inputs).all()
    assert data.train.inputs.flags.writeable
    assert data.test.inputs.flags.writeable


@needs_mnist
def test_unpacked_or_packed_again_it_is_the_same_mnist(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(SHARED / "mnist" / f"{name}.gz", raw)
    label = raw / f"{NAMES[3]}.gz"
    content = gzip.decompress(label.read_bytes())
    label.write_bytes(gzip.compress(content, compresslevel=1, mtime=0))
    (raw / NAMES[1]).write_bytes(gzip.decompress((raw / f"{NAMES[1]}.gz").read_bytes()))
    (raw / f"{NAMES[1]}.gz").unlink()
    assert load(tmp_path).fingerprint == load(SHARED).fingerprint
    changed = bytearray(content)
    changed[-1] ^= 1
    label.write_bytes(gzip.compress(bytes(changed), mtime=0))
    with pytest.raises(UserError, match=r"t10k-labels.*is not MNIST's"):
        load(tmp_path)


def test_another_data_set_in_the_same_files(tmp_path):
    write(tmp_path / "tiny", tiny_files())
    data = load(tmp_path, idx="tiny", validation=2)
    assert [len(data.train), len(data.validation), len(data.test)] == [10, 2, 6]
    assert data.train.inputs.shape[1:] == (1, 5, 4)
    assert data.classes == ("0", "1", "2")
    write(tmp_path / "mnist", tiny_files())
    with pytest.raises(UserError, match=r"is not MNIST's.* or set source\.idx to"):
        load(tmp_path)


def test_a_missing_file_is_named_with_every_place_and_the_address(tmp_path):
    with pytest.raises(UserError) as error:
        load(tmp_path)
    for part in (NAMES[0], f"{NAMES[0]}.gz", "mnist", "MNIST/raw", str(tmp_path), "https://"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (NAMES[0], b"", "not an idx file"),
        (NAMES[0], b"\x00\x00\x0d\x03" + bytes(40), "not an idx file.*'00 00 0d 03'"),
        (NAMES[0], idx(np.zeros((12, 5, 4), np.uint8))[:-3], "damaged.*256 bytes, it has 253"),
        (NAMES[0], idx(np.zeros((0, 5, 4), np.uint8)), "holds no data"),
        (NAMES[1], idx(np.zeros(11, np.uint8)), "12 train images but 11 labels"),
        (NAMES[3], idx(np.full(6, 9, np.uint8)), "row 0 has the label 9, but there are 3 classes"),
        (NAMES[0] + ".gz", gzip.compress(idx(np.zeros((12, 5, 4), np.uint8)), mtime=0)[:-20], "as a gzip file"),
        (NAMES[0] + ".gz", b"not gzip", "as a gzip file"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    contents = tiny_files()
    contents.pop(name.removesuffix(".gz"))
    write(tmp_path / "tiny", {**contents, name: content})
    with pytest.raises(UserError, match=message) as error:
        load(tmp_path, idx="tiny", validation=2)
    assert "tiny" in str(error.value)


@settings(max_examples=150)
@given(
    name=st.sampled_from(NAMES),
    at=st.integers(0, 300),
    value=st.integers(0, 255),
    cut=st.booleans(),
    pack=st.booleans(),
)
def test_damaged_bytes_give_data_or_one_line(name, at, value, cut, pack):
    contents = tiny_files()
    content = gzip.compress(contents.pop(name), mtime=0) if pack else contents.pop(name)
    at %= len(content)
    content = content[:at] if cut else content[:at] + bytes([value]) + content[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "tiny", {**contents, name + ".gz" * pack: content})
        try:
            outcome = load(Path(folder), idx="tiny", validation=2)
        except UserError as error:
            outcome = error
    assert isinstance(outcome, Data) or "\n" not in str(outcome)
