"""CIFAR in both layouts, and pickles that try to do more than hold data."""

import hashlib
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import UserError
from isthmus.sources import cifar
from tests.unit.source_data import load_source as load

SHARED = Path(os.environ.get("ISTHMUS_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_cifar = pytest.mark.skipif(not (SHARED / "cifar10").is_dir(), reason="CIFAR-10's files are not on this machine")
ROWS = 12


def short(text):
    return b"U" + bytes([len(text)]) + text


def python_batch(images, label_lists):
    """A pickle as Python 2 wrote CIFAR's."""
    out = b"\x80\x02}q\x01("
    for key, labels in label_lists.items():
        out += short(key.encode()) + b"]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    out += (
        b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t(K\x01M"
    )
    out += struct.pack("<H", len(images)) + b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNN"
    out += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", images.size) + images.tobytes()
    return out + b"tbu."


def tiny(seed, classes=10):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (ROWS, 3, 32, 32), np.uint8), np.arange(ROWS) % classes


def write_shard(path, images, columns):
    import pyarrow
    import pyarrow.parquet
    from PIL import Image

    def png(image):
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"img": [png(image) for image in images], **columns})
    pyarrow.parquet.write_table(table, path)


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    """Both layouts of a small CIFAR-100 with the same content, the parquet rows in reverse."""
    batches = tmp_path / "batches" / "cifar-100-python"
    batches.mkdir(parents=True)
    for seed, part in enumerate(("train", "test")):
        images, labels = tiny(seed, 100)
        coarse = labels // 5
        content = python_batch(images, {"fine_labels": labels, "coarse_labels": coarse})
        (batches / part).write_bytes(content)
        monkeypatch.setitem(cifar.CIFAR100.batches, part, {part: hashlib.md5(content).hexdigest()})
        turn = slice(None, None, -1) if part == "train" else slice(None)
        columns = {"fine_label": labels[turn], "coarse_label": coarse[turn]}
        shard = tmp_path / "parquet" / "cifar100" / f"{part}-00000-of-00001.parquet"
        write_shard(shard, images[turn], columns)
    return tmp_path


@needs_cifar
@pytest.mark.slow
def test_both_layouts_of_cifar10_are_the_same_data(tmp_path):
    command = [sys.executable, str(SHARED / "cifar10" / "rebuild_python_batches.py"), str(tmp_path / "cifar10")]
    subprocess.run(command, check=True, capture_output=True)
    data = load("cifar10", tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [45_000, 5_000, 10_000]
    assert data.test.targets[:5].tolist() == [3, 8, 8, 0, 6]
    assert data.classes[3] == "cat"
    pixels = np.concatenate([data.train.inputs, data.validation.inputs]) / np.float32(255)
    np.testing.assert_allclose(pixels.mean((0, 2, 3)), [0.49140, 0.48216, 0.44653], atol=1e-4)
    assert load("cifar10", SHARED).fingerprint == data.fingerprint
    assert load("cifar10", SHARED).fingerprint == data.fingerprint, "from the cache"
    (tmp_path / "cifar10" / "cifar-10-batches-py" / "test_batch").write_bytes(b"no")
    with pytest.raises(UserError, match="test_batch is damaged or altered"):
        load("cifar10", tmp_path)


def test_both_layouts_of_cifar100_are_the_same_data(cifar100):
    assert len(cifar.FINE.split()) == 100
    assert len(cifar.COARSE.split()) == 20
    for labels, classes in (("fine", 100), ("coarse", 20)):
        fields = {"validation": 4, "labels": labels}
        batches = load("cifar100", cifar100 / "batches", **fields)
        shards = load("cifar100", cifar100 / "parquet", **fields)
        assert batches.fingerprint == shards.fingerprint
        assert len(batches.classes) == classes
        assert (batches.test.inputs == tiny(1)[0]).all()
        assert batches.test.targets.tolist() == [row // (5 if labels == "coarse" else 1) for row in range(ROWS)]


def test_rows_are_the_first_of_the_training_rows_and_change_no_other_split(cifar100):
    whole, few = (load("cifar100", cifar100 / "batches", validation=4, **fields) for fields in ({}, {"rows": 3}))
    assert len(few.train) == 3
    np.testing.assert_array_equal(few.train.inputs, whole.train.inputs[:3])
    np.testing.assert_array_equal(few.train.targets, whole.train.targets[:3])
    np.testing.assert_array_equal(few.validation.inputs, whole.validation.inputs)
    with pytest.raises(UserError, match=r"source.rows=9: validation leaves 8 training rows"):
        load("cifar100", cifar100 / "batches", validation=4, rows=9)


def test_other_content_under_the_known_names_is_refused(tmp_path):
    for seed, part in enumerate(("train", "test")):
        images, labels = tiny(seed)
        write_shard(tmp_path / "cifar10" / f"{part}-00000-of-00001.parquet", images, {"label": labels})
    with pytest.raises(UserError, match="are not cifar10's"):
        load("cifar10", tmp_path, validation=4)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(UserError) as error:
        load("cifar10", tmp_path)
    for part in (
        "data_batch_1",
        "train-*-of-*.parquet",
        str(tmp_path / "cifar10"),
        "cifar-10-python.tar.gz",
        "hf download",
    ):
        assert part in str(error.value)
    write_shard(tmp_path / "cifar10" / "train-00001-of-00003.parquet", tiny(0)[0], {"label": tiny(0)[1]})
    with pytest.raises(UserError, match=r"missing: train-00000-of-00003.parquet, train-00002-of-00003.parquet"):
        load("cifar10", tmp_path)


def test_damaged_parquet_and_images_are_named(cifar100):
    shard = cifar100 / "parquet" / "cifar100" / "train-00000-of-00001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cannot read .*train-00000-of-00001.parquet as a parquet file"):
        load("cifar100", cifar100 / "parquet", validation=4)
    images, labels = tiny(0)
    write_shard(shard, images[:, :, :16], {"fine_label": labels})
    with pytest.raises(UserError, match=r"row 0 has the shape \(3, 16, 32\)"):
        load("cifar100", cifar100 / "parquet", validation=4)
    write_shard(shard, images, {"fine_label": labels})
    with pytest.raises(UserError, match="a parquet file with the column 'coarse_label'"):
        load("cifar100", cifar100 / "parquet", validation=4, labels="coarse")


class Attack:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path, protocol, wrapped):
    trace = tmp_path / "trace"
    saved = tmp_path / "objects.npy"
    np.save(saved, np.array([Attack(os.system, f"touch {trace}")], dtype=object), allow_pickle=True)
    attacks = [
        Attack(os.system, f"touch {trace}"),
        Attack(eval, f"open({str(trace)!r}, 'w')"),
        Attack(np.load, str(saved), None, True),
        Attack(np.fromfile, str(saved)),
    ]
    for attack in attacks:
        payload = {"data": attack, "labels": [0]} if wrapped else attack
        with pytest.raises(UserError, match="cannot read batch as a CIFAR batch"):
            cifar.read_batch(pickle.dumps(payload, protocol), Path("batch"), "labels")
    assert not trace.exists()


def test_a_batch_with_one_foreign_name_is_refused(tmp_path):
    trace = tmp_path / "trace"
    good = python_batch(tiny(0)[0], {"labels": tiny(0)[1]})
    images, labels = cifar.read_batch(good, Path("batch"), "labels")
    assert (images == tiny(0)[0]).all()
    assert (labels == tiny(0)[1]).all()
    call = b"cposix\nsystem\n" + short(f"touch {trace}".encode()[-200:]) + b"\x85R"
    for attack in (
        good[:-2] + short(b"extra") + call + b"u.",
        good.replace(b"cnumpy\ndtype\n", b"cposix\nsystem\n"),
        good[:-2] + short(b"extra") + b"(" + short(b"true") + b"iposix\nsystem\nu.",
    ):
        with pytest.raises(UserError, match="CIFAR's batches have no"):
            cifar.read_batch(attack, Path("batch"), "labels")
    assert not trace.exists()


@settings(max_examples=200)
@given(at=st.integers(0, 400), value=st.integers(0, 255), cut=st.booleans(), from_end=st.booleans())
def test_a_damaged_batch_gives_arrays_or_one_line(at, value, cut, from_end):
    content = bytearray(python_batch(tiny(0)[0], {"labels": tiny(0)[1]}))
    at = len(content) - 1 - at if from_end else at
    content[at] = value
    try:
        images, labels = cifar.read_batch(bytes(content[:at] if cut else content), Path("batch"), "labels")
    except UserError:
        return
    assert len(images) == len(labels)


def test_the_hub_gives_the_rows_of_the_files(cifar100, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    (tmp_path / "hub").mkdir()
    for seed, part in enumerate(("train", "test")):
        images, labels = tiny(seed, 100)
        features = {"img": datasets.Image(), "fine_label": datasets.Value("int64")}
        pictures = list(images.transpose(0, 2, 3, 1))
        made = datasets.Dataset.from_dict({"img": pictures, "fine_label": labels}, datasets.Features(features))
        made.to_parquet(str(tmp_path / "hub" / f"{part}-00000-of-00001.parquet"))
    files = load("cifar100", cifar100 / "batches", validation=3)
    assert load("cifar100", tmp_path, hub="hub", validation=3).fingerprint == files.fingerprint
