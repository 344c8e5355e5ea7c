"""Bad input gets one clear line and exit code 2, and loses nothing."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import operator
import os
import pickle
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import isthmus
from isthmus.core.config import RunConfig, read_settings, run_config, study_config
from isthmus.core.errors import UserError
from isthmus.core.files import home, sha256
from isthmus.core.protocols import Settings
from isthmus.core.record import CONFIG, METRICS, MODEL, RECORD, SAMPLES, TASK, find_run
from isthmus.core.registry import Kind, catalogue, find
from isthmus.core.train_config import TrainConfig
from isthmus.training.loop import Diverged, Stopped
from isthmus.training.prepare import prepare
from isthmus.training.run import run
from tests.command_line import TINY, Answer, call, tiny, train
from tests.listeners import stop_after


def _files(folder: Path) -> dict[str, str]:
    return {str(path): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"}


def refused(folder: Path, *arguments: object) -> str:
    """What a refusal says in one line, or whole in its report, after a look at every file that was there before."""
    before = _files(folder)
    answer = call(*arguments)
    assert answer.code == 2, answer
    assert answer.err.splitlines()[-1].startswith("isthmus: "), answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert before.items() <= _files(folder).items(), "a file was lost or changed"
    line = answer.err.splitlines()[-1]
    _, is_long, report = line.partition("the full report is in ")
    return Path(report).read_text() if is_long else line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "mnist5k-denoize"], "unknown recipe 'mnist5k-denoize'; did you mean 'mnist5k-denoise'?"),
        (["train", "qqqq"], "unknown recipe 'qqqq'; the nearest are "),
        (["train", "qqqq"], "; `isthmus recipes` lists all "),
        (["train", "demo"], "is a study of many runs, for `isthmus study demo`; `isthmus recipes` lists all"),
        (["train", "nowhere.yaml"], "cannot read nowhere.yaml: there is no such file; paths are relative to"),
        (["train", "FILE", "model.name=hourglas_mlp"], "unknown model 'hourglas_mlp'; did you mean 'hourglass_mlp'?"),
        (["train", "FILE", "source.name=digit"], "did you mean 'digits'?"),
        (["train", "FILE", "task.name=denoize"], "did you mean 'denoise'?"),
        (["train", "FILE", "model.d_hh=4"], "unknown field 'd_hh'; did you mean 'd_h'?"),
        (["train", "FILE", "train.epoch=4"], "unknown field 'train.epoch'; did you mean 'epochs'?"),
        (["train", "FILE", "sead=4"], "unknown field 'sead'; did you mean 'seed'?"),
        (["train", "FILE", "model=hourglass_mlp"], "a model is given as {name: …, field: value}, not as"),
        (["train", "FILE", "model.d_h=wide"], "d_h='wide': input should be a valid integer"),
        (["train", "FILE", "model.d_h=2.5"], "d_h=2.5"),
        (["train", "FILE", "model.d_h=-3"], "greater than or equal to 1"),
        (["train", "FILE", "model.d_h=99999999999999999999"], "less than or equal to 16777216"),
        (["train", "FILE", "model.d_h=70"], "d_h=70 must be below d_z=70"),
        (["train", "FILE", "model.d_in=7"], "model.d_in=7, but the task needs 64"),
        (["train", "FILE", "model.d_z=16777216", "model.d_h=8388608"], "GiB; this machine has"),
        (["train", "FILE", "train.learning_rate=NaN"], "finite number"),
        (["train", "FILE", "train.learning_rate=-1"], "greater than 0"),
        (["train", "FILE", "train.warmup_epochs=5"], "must be less than epochs=1"),
        (["train", "FILE", "train=5", "--devices", "2"], "'train' has no fields of its own"),
        (["train", "FILE", "train.accumulate=9999"], "accumulate=9999"),
        (["train", "FILE", "train.betas=[0.9]"], "train.betas.1 is required"),
        (["train", "FILE", "seed=-1"], "seed=-1"),
        (["train", "FILE", "threads=0"], "threads=0"),
        (["train", "FILE", "init=../../etc"], "init='../../etc'"),
        (["train", "FILE", "schema_version=2"], "schema_version=2"),
        (["train", "FILE", "no-equals-sign"], "not of the form key=value"),
        (["train", "FILE", "seed.low=1"], "seed={'low': 1}"),
        (["train", "FILE", "source.validation=5000"], "none is left to train on"),
        (["train", "FILE", "task.name=super_resolution", "task.factor=3"], "cannot be reduced 3×"),
        (["train", "FILE", "task.name=regression"], "needs a source with numeric targets"),
        (["train", "FILE", "source.name=mnist"], "put the four idx files"),
        (["train", "FILE", "--init", "0123"], "there is no run '0123'"),
        (["train", "FILE", "--init", ""], "there is no run ''"),
        (["describe", "hourglas_mlp"], "did you mean 'hourglass_mlp'?"),
        (["describe", "hourglass_mlp", "d_z=8"], "d_h is required; depth is required"),
        (["describe", "hourglass_mlp", "d_z=8", "d_h=4", "depth=1"], "needs d_in and d_out"),
        (["describe", "hourglass_mlp", "d_z=8", "model.width=4"], "unknown field 'width'"),
        (["predict", "nothing", "x.npy"], "there is no run 'nothing'"),
        (["report", "nothing"], "there is no run 'nothing'"),
        (["runs", "diff", "a", "b"], "there is no run 'a'"),
        (["runs", "clean", "a", "--yes"], "there is no run 'a'"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_wrong_words_are_answered_with_right_ones(arguments: list[str], words: str, tmp_path: Path) -> None:
    file = tiny(tmp_path)
    assert words in refused(tmp_path, *(file if word == "FILE" else word for word in arguments))


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert "sees no CUDA device" in refused(tmp_path, "train", tiny(tmp_path), "train.device=cuda")
    assert "sees no CUDA" in refused(tmp_path, "train", tiny(tmp_path), "train.device=cuda", "train.devices=2")


@pytest.mark.parametrize(
    "change", [{"seeds": []}, {"seeds": [-1]}, {"learning_rates": [0]}, {"candidates": []}, {"x": 1}]
)
def test_a_study_that_cannot_be(change: dict[str, Any]) -> None:
    base = run_config(TINY)
    with pytest.raises(UserError, match=next(iter(change))):
        study_config({"name": "shapes", "base": base, "candidates": [TINY["model"]]} | change)


ALIASES = b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b"*a%d, " % (i - 1) * 10) for i in range(1, 10))
MERGES = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (i, i, b"*a%d, " % (i - 1) * 10) for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json", b'{"seed": 1, "model": {"na'),
        ("cut.yaml", b"model: {name: hourglass_mlp, d_z: "),
        ("list.json", b"[1, 2]"),
        ("empty.yaml", b""),
        ("binary.yaml", bytes(range(256))),
        ("binary.json", b"\x80\x81"),
        ("deep.json", b"[" * 100_000),
        ("deep.yaml", b"a: " + b"[" * 1_000),
        ("date.yaml", b"seed: 2024-13-45"),
        ("date-too.yaml", b"seed: 2024-01-02"),
        ("cycle.yaml", b"seed: &a [*a]"),
        ("bytes.yaml", b"seed: !!binary aGVsbG8="),
        ("code.yaml", b"seed: !!python/object/apply:os.system [exit]"),
        ("tag.yaml", b"seed: !!timestamp x"),
        ("digits.json", b'{"seed": ' + b"1" * 5_000 + b"}"),
        ("hexadecimal.yaml", b"seed: 0x" + b"f" * 5_000),
        ("aliases.yaml", ALIASES),
        ("merges.yaml", MERGES),
        ("sexagesimal.yaml", b"seed: 1" + b":1" * 300_000),
        ("chain.yaml", b"a0: &a0 [1]\n" + b"".join(b"a%d: &a%d [*a%d]\n" % (i, i, i - 1) for i in range(1, 500))),
        ("nested.json", b'{"seed": ' + b"[" * 40 + b"]" * 40 + b"}"),
        ("large.json", b'{"seed": [' + b"1, " * 400_000 + b"1]}"),
        ("large.yaml", b"# " + b"x" * 2_000_000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_config_file_that_is_none_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert str(tmp_path / name) in refused(tmp_path, "train", tmp_path / name)


def test_a_config_file_may_repeat_itself(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\n")
    assert read_settings(file) == {"a": {"x": 1, "y": [2, 3]}, "b": {"x": 1, "y": [2, 3]}, "c": {"x": 4, "y": [2, 3]}}


@pytest.mark.parametrize(
    "word", ["model." * 2_000 + "x=1", "seed=" + "[" * 500, "seed=" + "[" * 40 + "]" * 40, "seed=" + "9" * 120_000]
)
def test_an_override_of_any_length_and_depth_is_one_line(word: str, tmp_path: Path) -> None:
    assert "'" in refused(tmp_path, "train", tiny(tmp_path), word)


# What a user's data can be.


def _write_table(path: Path, **columns: Any) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _save(path: Path, write: Callable[[Path], object]) -> Path:
    write(path)
    return path


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(60, 4)), np.arange(60) % 3
BAD_DATA: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "one class": ("x.npz", lambda path: np.savez(path, x=X, y=0 * Y), "at least two classes"),
    "NaN": ("x.npz", lambda path: np.savez(path, x=np.where(X > 2, np.nan, X), y=Y), "NaN"),
    "no rows": ("x.npz", lambda path: np.savez(path, x=X[:0], y=Y[:0]), "no rows"),
    "other lengths": ("x.npz", lambda path: np.savez(path, x=X, y=Y[:50]), "60 inputs but 50 targets"),
    "cut npz": ("x.npz", lambda path: _cut(_save(path, lambda path: np.savez(path, x=X, y=Y))), "x.npz"),
    "pickle": ("x.npz", lambda path: path.write_bytes(pickle.dumps({"x": X})), "x.npz"),
    "cut parquet": ("x.parquet", lambda path: _cut(_save(path, lambda path: _write_table(path, y=Y))), "x.parquet"),
    "text in parquet": ("x.parquet", lambda path: _write_table(path, a=["b"] * 60, y=Y), "is not a number"),
    "ragged csv": ("x.csv", lambda path: path.write_text("a,y\n1,0\n2\n3,1\n"), "x.csv"),
    "a folder": ("folder", lambda path: path.mkdir(), "folder"),
    "absent": ("x.npy", lambda path: None, "cannot find"),
    "a folder named so": ("x.csv", lambda path: path.mkdir(), "is a folder; give a regular file"),
    "a socket": ("x.csv", lambda path: _bind(path), "is a socket; give a regular file"),
    "one long line": ("x.csv.gz", lambda path: _pack(path, b"1," * 10_000_000), "first line is longer"),
    "one long second line": ("x.csv.gz", lambda path: _pack(path, b"a,y\n" + b"1," * 1_000_000), "Expected 2 columns"),
    "many columns": ("x.csv", lambda path: path.write_bytes(b"a," * 70_000 + b"y\n"), "70,001 columns"),
    "a long text": ("x.csv", lambda path: path.write_text("a,y\n" + "1,u\n" * 50 + f"1,{'v' * 2_000}"), "2,000 charac"),
    "a repeated text": ("x.parquet", lambda path: _write_table(path, a=[1] * 60, y=["v" * 2_000] * 60), "2,000 charac"),
    "a large shape": ("x.npy", lambda path: path.write_bytes(_header((10**11, 3))), "it ends in row 0 of 100000000000"),
    "a long row": ("x.npy", lambda path: path.write_bytes(_header((1, 10**12)) + bytes(99)), "it ends in row 0 of 1;"),
    "negative sizes": ("x.npy", lambda path: path.write_bytes(_header((-5, -5)) + bytes(99)), "is not an array"),
    "numbers of no bytes": ("x.npy", lambda path: path.write_bytes(_header((10**12,), "|V0")), "is not an array"),
    "rows of no numbers": ("x.npy", lambda path: path.write_bytes(_header((10**18, 0))), "no rows"),
    "no row of many numbers": ("x.npy", lambda path: path.write_bytes(_header((0, 10**12))), "no rows"),
    "a large member": ("x.npz", lambda path: _archive(path, _header((10**10, 3))), "it ends in row 0 of 10000000000"),
}


def _header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Of an npy file."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _archive(path: Path, inputs: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", inputs)
        archive.writestr("y.npy", _header((9,)) + bytes(36))


def _pack(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content))


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):  # a path may have 107 characters
        server.bind(path.name)


@pytest.mark.parametrize("kind", BAD_DATA)
def test_data_that_cannot_be_learned_from(kind: str, tmp_path: Path) -> None:
    name, write, words = BAD_DATA[kind]
    write(tmp_path / name)
    source = {"name": "arrays", "path": str(tmp_path / name), "targets": "y"}
    file = tiny(tmp_path, source=source, task={"name": "classification"})
    assert words in refused(tmp_path, "train", file)
    assert not (home() / "runs").exists(), "a run that cannot begin leaves no folder"


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.npy", "x.npz", "x.parquet", "x.yaml", "x.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_opened(name: str, kind: str, tmp_path: Path, finished: Path) -> None:
    place = tmp_path / name
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    words = f"{place} is a {kind}; give a regular file"
    if place.suffix in (".yaml", ".json"):
        assert words in refused(tmp_path, "train", place)
        assert words in refused(tmp_path, "study", place)
        return
    source = {"name": "arrays", "path": str(place), "targets": "y"}
    assert words in refused(tmp_path, "train", tiny(tmp_path, source=source, task={"name": "classification"}))
    assert words in refused(tmp_path, "predict", finished, place)
    if name != "x.npy":
        assert words in refused(tmp_path, "find", place, "--workers", "1")


def test_an_image_that_is_a_pipe_or_too_long_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / f"{number}.png")
    source = {"name": "image_folder", "path": str(folder), "size": 256, "channels": 1}
    os.mkfifo(folder / "12.png")
    assert "12.png is a pipe" in refused(tmp_path, "train", tiny(tmp_path, source=source))
    (folder / "12.png").unlink()
    Image.fromarray(np.zeros((1, 50_000), np.uint8)).save(folder / "13.png")
    assert "13.png of 50000×1 pixels is too elongated" in refused(tmp_path, "train", tiny(tmp_path, source=source))


@pytest.mark.parametrize("name", ["x.csv.gz", "x.npz", "x.parquet"])
def test_what_unpacks_to_more_than_there_is_room_for_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.sources.files.memory_bytes", lambda: 2**21)
    zeros, place = np.zeros(300_000, np.float32), tmp_path / name
    writers: dict[str, Callable[[], object]] = {
        "x.csv.gz": lambda: _pack(place, b"a,y\n" + b"0,0\n" * len(zeros)),
        "x.npz": lambda: np.savez_compressed(place, x=zeros, y=zeros),
        "x.parquet": lambda: _write_table(place, a=zeros, y=zeros),
    }
    writers[name]()
    assert place.stat().st_size < 10_000
    source = {"name": "arrays", "path": str(place), "targets": "y"}
    line = refused(tmp_path, "train", tiny(tmp_path, source=source, task={"name": "regression"}))
    assert f"{place} unpacks to more than" in line


def test_a_damaged_idx_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / "mnist" / name).write_bytes(b"\0\0\x08\x03" + bytes(20))
    file = tiny(tmp_path, source={"name": "mnist"})
    assert "train-images-idx3-ubyte" in refused(tmp_path, "train", file, "--data-dir", tmp_path)


def test_a_damaged_image_of_a_folder_is_named(tmp_path: Path) -> None:
    for number in range(12):
        folder = tmp_path / "pictures" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / f"{number}.png")
    _cut(tmp_path / "pictures" / "b" / "7.png")
    source = {"name": "image_folder", "path": str(tmp_path / "pictures"), "size": 8, "channels": 1}
    assert "7.png" in refused(tmp_path, "train", tiny(tmp_path, source=source))


# What a Vision Transformer cannot be trained on.

VIT: dict[str, Any] = {"name": "vit", "patch": 4, "d_z": 12, "d_h": 6, "depth": 1, "num_heads": 3}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_heads": 5}, "num_heads=5 does not divide d_z=12"),
        ({"attention_width": 10}, "num_heads=3 does not divide attention_width=10"),
        ({"patch": 3}, "patch=3 does not divide an image of 8×8 pixels"),
    ],
)
def test_a_vit_that_does_not_fit(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tiny(tmp_path, task={"name": "classification"}, model=VIT | fields)
    assert words in refused(tmp_path, "train", file)


def test_a_label_outside_the_classes_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for split, labels in (("train", [1, 10, 11, 2]), ("test", [1, 2, 3, 4])):
        np.zeros((4, 3, 96, 96), np.uint8).tofile(folder / f"{split}_X.bin")
        np.array(labels, np.uint8).tofile(folder / f"{split}_y.bin")
    file = tiny(tmp_path, source={"name": "stl10"}, task={"name": "classification"}, model=VIT)
    words = "stl10, train: row 2 has the label 10, but there are 10 classes"
    assert words in refused(tmp_path, "train", file, "--data-dir", tmp_path)


def test_an_unreadable_image_is_fatal_or_skipped_and_named_either_way(tmp_path: Path) -> None:
    for number in range(24):
        folder = tmp_path / "pictures" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 9 * number, np.uint8)).save(folder / f"{number}.png")
    _cut(tmp_path / "pictures" / "b" / "7.png")
    source = {"name": "image_folder", "path": str(tmp_path / "pictures"), "size": 8, "channels": 1}
    file = tiny(tmp_path, source=source, task={"name": "classification"}, model=VIT)
    assert "7.png" in refused(tmp_path, "train", file)
    answer = call("train", file, "source.unreadable=skip", "--json")
    assert answer.json()["status"] == "finished"
    (line,) = [line for line in answer.err.splitlines() if line.startswith("skipped: ")]
    assert "7.png" in line


def test_a_hub_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"name": "hub", "repo": "nobody/nothing", "image": "image", "label": "label"}
    file = tiny(tmp_path, source=source, task={"name": "classification"}, model=VIT)
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "cannot read the split 'train' of 'nobody/nothing'" in refused(tmp_path, "train", file)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'isthmus[hub]'" in refused(tmp_path, "train", file)


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    """The hub's package warns at each of its five retries, 23 seconds in all; a person sees the last word alone."""
    pytest.importorskip("datasets")
    source = {"name": "cifar10", "hub": "nobody/nothing"}
    file = tiny(tmp_path, source=source, task={"name": "classification"}, model=VIT)
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-m", "isthmus", "train", str(file)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert "cannot read the split 'train' of 'nobody/nothing'" in line


# What a user gives to a trained run.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(folder / "isthmus-home"))
        return find_run(train(folder)["id"])


@pytest.fixture
def finished(trained: Path) -> Path:
    """A finished run of this test's own, trained once for all of them."""
    return Path(shutil.copytree(trained, home() / "runs" / trained.name))


def _bad_files(folder: Path) -> Iterator[tuple[Path, str]]:
    rows = np.zeros((3, 64), np.float32)
    yield folder / "absent.png", "there is no file"
    yield folder / "absent.npy", "there is no file"
    yield _save(folder / "words.doc", lambda path: path.write_text("words")), "this run takes"
    yield _save(folder / "words.png", lambda path: path.write_text("words")), "words.png"
    deep = Image.fromarray(np.full((8, 8), 300, np.float32))
    yield _save(folder / "deep.tif", lambda path: deep.save(path)), "8 or 16 bits"
    yield _save(folder / "wide.npy", lambda path: np.save(path, rows[:, :9])), "do not fit"
    yield _save(folder / "turned.npy", lambda path: np.save(path, rows.reshape(3, 4, 16))), "do not fit"
    yield _save(folder / "nan.npy", lambda path: np.save(path, rows * np.nan)), "NaN"
    yield _save(folder / "one.npy", lambda path: np.save(path, np.float32(3))), "no rows"
    yield _save(folder / "none.npy", lambda path: np.save(path, rows[:0])), "no rows"
    objects = np.array([{}], dtype=object)
    yield _save(folder / "objects.npy", lambda path: np.save(path, objects, allow_pickle=True)), "never loaded"
    yield _save(folder / "empty.npz", lambda path: np.savez(path)), "empty.npz"
    yield _save(folder / "cut.npz", lambda path: path.write_bytes(b"PK\x03\x04 and no more")), "cut.npz"
    yield _save(folder / "text.csv", lambda path: path.write_text("a,b\nc,d\n")), "text.csv"
    yield _save(folder / "header.csv", lambda path: path.write_text("a,b\n")), "no rows"
    yield _save(folder / "empty.csv", lambda path: path.write_text("")), "no rows"


def test_files_that_cannot_be_predicted_are_named(finished: Path, tmp_path: Path) -> None:
    for file, words in _bad_files(tmp_path):
        assert words in refused(tmp_path, "predict", finished.name, file, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shape", [(10**18, 0), (0, 10**12), (10**11, 64), (1, 10**12), (-5, -5)])
def test_an_array_is_as_large_as_its_file(shape: tuple[int, ...], finished: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(_header(shape))
    _archive(tmp_path / "x.npz", _header(shape))
    for name in ("x.npy", "x.npz"):
        assert name in refused(tmp_path, "predict", finished, tmp_path / name)


def test_a_prediction_replaces_no_input_and_no_other_result(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    inputs = (tmp_path / "a" / "x.png", tmp_path / "a" / "x.bmp")
    for path in inputs:
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    assert "would be replaced" in refused(tmp_path, "predict", finished.name, *inputs, "--out", tmp_path / "out")
    assert "would be replaced" in refused(tmp_path, "predict", finished.name, inputs[0], "--out", tmp_path / "a")


# Disks.


@pytest.mark.parametrize("place", ["file/below", "/proc/isthmus"])
def test_a_home_that_cannot_be_written(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / place))
    assert "set ISTHMUS_HOME to a writable" in refused(tmp_path, "train", tiny(tmp_path))
    assert call("runs", "list", "--json").json() == []
    if place.startswith("file"):
        findings = {line["subject"]: line for line in json.loads(call("doctor", "--json").out)}
        assert not findings["ISTHMUS_HOME"]["good"]
        assert "writable" in findings["ISTHMUS_HOME"]["advice"]


def _full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full_in_its_own_words(*arguments: object) -> None:
    raise SafetensorError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("where", "writer"),
    [("os.fsync", _full), ("isthmus.training.checkpoint.save_file", _full_in_its_own_words)],
)
def test_a_full_disk_is_named_and_the_run_can_be_repeated(
    where: str, writer: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(where, writer)
        assert "No space left on device" in refused(tmp_path, "train", tiny(tmp_path))
    assert {path.name for path in home().rglob(".*")} <= {".lock"}, "no temporary file is left"
    assert train(tmp_path)["status"] == "finished"


@pytest.mark.slow
def test_a_disk_that_fills_up_while_training(tmp_path: Path) -> None:
    """A real limit on the size of files lets the settings through but no weights."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, 16_000))"
    script = f"{limit}; from isthmus.cli.main import main; main()"
    command = [sys.executable, "-c", script, "train", str(tiny(tmp_path)), "--save-every", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert train(tmp_path)["status"] == "finished"


def test_out_of_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("isthmus.training.run.Training.run", fail)
    assert "out of memory" in refused(tmp_path, "train", tiny(tmp_path))


# Checkpoints and run folders.


LONGER = {"epochs": 2, "batch_size": 400}  # six steps


def _unfinished() -> Path:
    """The folder of a run that was asked to stop, and did so after its fourth step."""
    config = run_config(TINY | {"train": LONGER})
    with pytest.raises(Stopped):
        run(config, listener=stop_after(3))
    return prepare(config).folder


def test_a_checkpoint_of_another_model_is_refused(finished: Path, tmp_path: Path) -> None:
    other = ("model.name=conventional_mlp", "model.d_z=8", "model.d_h=9", "model.depth=1")
    line = refused(tmp_path, "train", tiny(tmp_path), *other, "--init", finished.name)
    assert "none of its weights fits" in line
    assert str(finished / MODEL) in line


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"isthmus": "{"},
        {"isthmus": "[]"},
        {"isthmus": "5"},
        {"isthmus": '{"model": 5}'},
        {"isthmus": '{"model": {"name": "unknown"}}'},
        {"isthmus": '{"model": {"name": "hourglass_mlp", "d_in": 64, "d_out": 64, "d_z": 71, "d_h": 8, "depth": 1}}'},
        {"isthmus": '{"model": {"name": "hourglass_mlp", "d_in": 64, "d_out": 64, "d_z": 70, "d_h": 8, "depth": 2}}'},
    ],
    ids=lambda metadata: str(metadata)[:50],
)
def test_a_foreign_checkpoint_is_refused(metadata: dict[str, str], finished: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.safetensors"
    save_file(load_file(finished / MODEL), foreign, metadata)
    with pytest.raises(UserError):
        isthmus.load(foreign)


def test_a_projection_that_is_rebuilt_differently_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find_run(train(tmp_path, "model.w_in=gaussian")["id"])
    monkeypatch.setattr("isthmus.layers.projections.torch_generator", lambda *address: torch.Generator().manual_seed(1))
    with pytest.raises(UserError, match="rebuilt differently"):
        isthmus.load(folder)


def test_a_run_in_use_by_another_process(tmp_path: Path) -> None:
    folder = _unfinished()
    hold = (
        "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert "in use by another process" in refused(tmp_path, "train", tiny(tmp_path, train=LONGER))
        answer = call("runs", "clean", "--yes")
        assert "in use by another process" in answer.err
        assert folder.is_dir()
        other.kill()
    assert train(tmp_path, train=LONGER)["status"] == "finished", "a killed process frees its run"


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _alter_a_number(path: Path) -> None:
    text = path.read_text()
    place = max(text.rfind(digit) for digit in "123456789")
    path.write_text(text[:place] + "9" * (text[place] != "9") + "8" * (text[place] == "9") + text[place + 1 :])


DAMAGES = {"cut": _cut, "one bit": _flip, "empty": _empty}
USES: dict[str, list[tuple[str, ...]]] = {  # which command reads the file of a finished run
    RECORD: [("train", "CONFIG"), ("predict", "RUN", "x.npy"), ("report", "RUN"), ("runs", "diff", "RUN", "RUN")],
    MODEL: [("predict", "RUN", "x.npy"), ("train", "CONFIG", "seed=1", "--init", "RUN")],
    TASK: [("predict", "RUN", "x.npy")],
    METRICS: [("report", "RUN")],
    SAMPLES: [("report", "RUN")],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", USES)
def test_a_damaged_file_of_a_finished_run_is_named(name: str, damage: str, finished: Path, tmp_path: Path) -> None:
    DAMAGES[damage](finished / name)
    known = {"RUN": finished, "CONFIG": tiny(tmp_path)}
    for use in USES[name]:
        out: list[object] = [] if use[0] in ("train", "runs") else ["--out", tmp_path / "out"]
        assert str(finished / name) in refused(tmp_path, *(known.get(word, word) for word in use), *out)
    if name == MODEL:
        with pytest.raises(UserError, match=MODEL):
            isthmus.load(finished)


@pytest.mark.parametrize("name", [CONFIG, RECORD])
@pytest.mark.parametrize("damage", [*DAMAGES.values(), _alter_a_number], ids=[*DAMAGES, "a number"])
def test_the_list_shows_a_damaged_run_and_the_others(
    name: str, damage: Callable[[Path], None], finished: Path, tmp_path: Path
) -> None:
    other = train(tmp_path, "seed=1")["id"]
    damage(finished / name)
    statuses = {line["run"]: line["status"] for line in call("runs", "list", "--json").json()}
    assert statuses == {finished.name: "damaged", other: "finished"}


@pytest.mark.parametrize(
    "content", ["null", "[]", "{}", '{"checksum": 5}', '{"seed": NaN, "checksum": "x"}', "[" * 9999]
)
def test_a_record_that_is_none(content: str, finished: Path, tmp_path: Path) -> None:
    (finished / RECORD).write_text(content)
    assert str(finished / RECORD) in refused(tmp_path, "train", tiny(tmp_path))


def test_the_record_of_another_run_is_not_taken_for_this_one(finished: Path, tmp_path: Path) -> None:
    other = find_run(train(tmp_path, "seed=1")["id"])
    (finished / RECORD).write_bytes((other / RECORD).read_bytes())
    assert "the record of another run" in refused(tmp_path, "train", tiny(tmp_path))


def test_a_missing_weight_file_says_how_to_get_it_back(finished: Path, tmp_path: Path) -> None:
    (finished / MODEL).unlink()
    line = refused(tmp_path, "predict", finished, "x.npy")
    assert f"`isthmus runs clean {finished.name}`" in line
    assert call("runs", "clean", finished.name, "--yes").code == 0
    train(tmp_path)
    assert (finished / MODEL).is_file()


STATES = ["state.json", "state-*.safetensors", METRICS]


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_named_and_the_run_can_begin_again(name: str, damage: str, tmp_path: Path) -> None:
    folder = _unfinished()
    (file,) = folder.glob(name)
    DAMAGES[damage](file)
    settings_file = tiny(tmp_path, train=LONGER)
    assert str(file) in refused(tmp_path, "train", settings_file)
    assert call("runs", "clean", "--yes").code == 0
    assert call("train", settings_file).code == 0


def test_an_altered_step_is_not_gone_on_from(tmp_path: Path) -> None:
    state = _unfinished() / "state.json"
    state.write_text(state.read_text().replace('"step": 4', '"step": 3'))
    assert f"{state} is damaged or was altered" in refused(tmp_path, "train", tiny(tmp_path, train=LONGER))


# Property: whatever is thrown at it, the answer is a success, a failed run or a refusal, and no other exception.

ODD_NUMBERS = (
    -(2**70),
    -1,
    0,
    1,
    7,
    2**24,
    2**63 - 1,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
)
ODD_WORDS = ("", "8", "1e3", "none", "\0", "é", "../..", "x" * 300)
SCALARS = st.none() | st.booleans() | st.sampled_from(ODD_NUMBERS) | st.sampled_from(ODD_WORDS) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ON_HUB = {"hub", "imagenet224", "stl10", "food101", "cars", "flowers102", "imagenet1k", "imagenet100"}
SLOW = ON_HUB | {"imagenet32", "photos", "mnist5k"}  # they ask the network, or take a second to load
NEEDED: dict[str, dict[str, Any]] = {  # without these a component is refused before it is looked at
    "arrays": {"path": "table.npz", "targets": "y"},
    "table": {"path": "table.csv", "targets": "y"},
    "image_folder": {"path": "pictures", "size": 8, "channels": 1},
    "hourglass_mlp": TINY["model"],
    "conventional_mlp": TINY["model"] | {"name": "conventional_mlp", "d_h": 80},
}


def _words(schema: Any) -> Iterator[str]:
    """Every word that this JSON schema accepts."""
    if isinstance(schema, dict):
        yield from map(str, schema.get("enum", []))
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []:
        yield from _words(inner)


def _changes(config: type[Settings]) -> st.SearchStrategy[dict[str, Any]]:
    """A few fields of a config with values of which two in three are plausible."""
    one = []
    for field, schema in config.model_json_schema()["properties"].items():
        if field == "name":
            continue
        plausible = st.sampled_from(
            [*_words(schema), 1, 2, 0.5] + ([True] * 4 if schema.get("type") == "boolean" else [])
        )
        one.append(st.tuples(st.just(field), plausible | plausible | VALUES))
    return st.lists(st.one_of(one) | st.tuples(st.text(max_size=5), VALUES), max_size=3).map(dict)


def _components(kind: Kind) -> st.SearchStrategy[Any]:
    names = sorted(catalogue(kind).keys() - SLOW)
    base = {name: {"name": name} | NEEDED.get(name, {}) for name in names}
    return st.one_of([st.builds(operator.or_, st.just(base[n]), _changes(find(kind, n).Config)) for n in names])


PARTS = [
    st.tuples(st.just("source"), _components("sources")),
    st.tuples(st.just("task"), _components("tasks")),
    st.tuples(st.just("model"), _components("models")),
    st.tuples(st.just("train"), _changes(TrainConfig)),
    st.tuples(st.sampled_from(sorted(RunConfig.model_fields)) | st.text(max_size=5), VALUES),
]
ANY = st.lists(st.one_of(PARTS), max_size=2).map(dict)
ODD_OVERRIDES = st.text(max_size=12) | st.sampled_from(
    ["a=" + "[" * 9_000, "seed=" + "9" * 5_000, "train.epochs=1e999"]
)
# A sample: `make fuzz` tries thousands of configs, overrides and files.
MANY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A little data; and everything but the training itself: models of more than a million weights do not fit here."""
    np.savez(tmp_path / "table.npz", x=X, y=Y)
    rows = [
        f"{number % 7},{'red' if number % 3 else ''},2020-01-{number % 28 + 1:02d},{number % 2}" for number in range(40)
    ]
    (tmp_path / "table.csv").write_text("\n".join(["size,colour,day,y", *rows]))
    for number in range(12):
        folder = tmp_path / "pictures" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / f"{number}.png")

    def diverge(*arguments: object) -> None:
        raise Diverged("not trained here")

    def refuse(*arguments: object) -> None:
        raise UserError("several devices")

    monkeypatch.setattr("isthmus.training.run.Training.run", diverge)
    monkeypatch.setattr("isthmus.training.run.on_every_device", refuse)
    monkeypatch.setattr("isthmus.training.prepare.memory_bytes", lambda: 20_000_000)
    return tmp_path


def _is_an_answer(answer: Answer) -> bool:
    """0, or 1 with the reason that ``data`` gives, or a refusal without a traceback."""
    if answer.code == 2:
        return answer.err.strip() != "" and "Traceback" not in answer.err
    return answer.code == 0 or (answer.code == 1 and "not trained here" in answer.out)


@MANY
@given(changes=ANY)
def test_any_config_trains_or_is_refused(changes: dict[str, Any], data: Path) -> None:
    (data / "any.json").write_text(json.dumps(TINY | changes))
    assert _is_an_answer(call("train", data / "any.json", "--data-dir", data))


@MANY
@given(changes=ANY, words=st.just([]) | st.lists(ODD_OVERRIDES, max_size=2))
def test_any_override_trains_or_is_refused(changes: dict[str, Any], words: list[str], data: Path) -> None:
    pairs = [
        f"{part}.{field}={json.dumps(value)}"
        for part, given in changes.items()
        for field, value in (given.items() if isinstance(given, dict) else [("name", given)])
    ]
    assert _is_an_answer(call("train", "--data-dir", data, "--", tiny(data), *pairs, *words))


@MANY
@given(model=_components("models"))
def test_any_model_is_described_or_refused(model: dict[str, Any]) -> None:
    words = [f"{field}={json.dumps(value)}" for field, value in ({"d_in": 4, "d_out": 4} | model).items()]
    assert _is_an_answer(call("describe", "--json", "--", str(model["name"]), *words))


@MANY
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | VALUES.map(json.dumps).map(str.encode))
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_any_file_trains_or_is_refused(suffix: str, content: bytes, data: Path) -> None:
    file = data / f"any.{suffix}"
    file.write_bytes(content)
    assert _is_an_answer(call("train", file))
