"""A file that somebody else made can be refused or run as a network; it can never run code."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, sha256, write_sealed
from isthmus.core.record import TASK
from isthmus.export.formats import read_format, write_format
from isthmus.export.prediction import load
from isthmus.export.torch_format import read_program, trace_program, write_program
from isthmus.training.checkpoint import fingerprints, read_tensors, write_model, write_tensors, write_whole_model
from isthmus.training.exported import EXPORT, FILES, Exported, FormatName, write_exported
from tests.conformance.small_models import SMALL, build

Files = dict[str, bytes]


class Trap:
    """Unpickled, it makes a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("sprung",)


TRAP = "__import__('os').mkdir('sprung')"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Files:
    file = tmp_path_factory.mktemp("program") / "model.pt2"
    write_program(file, trace_program(build("hourglass_mlp", SMALL["hourglass_mlp"][0])))
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Files, packed: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def written(path: Path, files: Files) -> Path:
    path.write_bytes(zipped(files))
    return path


def named(files: Files, ending: str) -> str:
    (name,) = (name for name in files if name.endswith(ending))
    return name


def edited(files: Files, ending: str, change: Callable[[Any], None]) -> Files:
    content = json.loads(files[named(files, ending)])
    change(content)
    return files | {named(files, ending): json.dumps(content).encode()}


def weight_as_pickle(files: Files) -> Files:
    def change(content: Any) -> None:
        next(iter(content["config"].values()))["use_pickle"] = True

    return edited(files, "weights_config.json", change) | {named(files, "weight_0"): pickle.dumps(Trap())}


def opaque_constant(files: Files) -> Files:
    def change(content: Any) -> None:
        content["config"]["x"] = {
            "path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None
        }  # fmt: skip

    return edited(files, "constants_config.json", change)


def pickled_sample(files: Files) -> Files:
    buffer = io.BytesIO()
    torch.save(Trap(), buffer)
    return files | {named(files, "sample_inputs/model.pt"): buffer.getvalue()}


def machine_code(files: Files) -> Files:
    return files | {"archive/data/aotinductor/model/model.so": b"\x7fELF"}


def guard(files: Files) -> Files:
    return edited(files, "model.json", lambda content: content["guards_code"].append(TRAP))


def other_function(files: Files) -> Files:
    def change(content: Any) -> None:
        content["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.load"

    return edited(files, "model.json", change)


def file_that_is_written(files: Files) -> Files:
    """An operator of torch's own, which makes the file that it is to read."""

    def change(content: Any) -> None:
        graph = content["graph_module"]["graph"]
        first = graph["nodes"][0]
        arguments = {"filename": {"as_string": "sprung"}, "shared": {"as_bool": True}, "size": {"as_int": 16}}
        kinds = [1, 2, 2]  # positional, and by name
        inputs = [{"name": n, "arg": a, "kind": k} for (n, a), k in zip(arguments.items(), kinds, strict=True)]
        target, outputs = "torch.ops.aten.from_file.default", [{"as_tensor": {"name": "planted"}}]
        graph["nodes"].insert(0, first | {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}})
        like = graph["tensor_values"][first["outputs"][0]["as_tensor"]["name"]]
        graph["tensor_values"]["planted"] = like | {"sizes": [{"as_int": 16}], "strides": [{"as_int": 1}]}

    return edited(files, "model.json", change)


def shape_that_is_code(files: Files) -> Files:
    name = named(files, "model.json")
    text, count = re.subn(r'"expr_str": "[^"]*"', f'"expr_str": "{TRAP}"', files[name].decode())
    assert count
    return files | {name: text.encode()}


def imported_type(files: Files) -> Files:
    def change(content: Any) -> None:
        content["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, {"type": "x"}])

    return edited(files, "model.json", change)


def two_directories(files: Files) -> bytes:
    """Harmless members for readers that look for the directory just before its end, others where the end says it is."""

    def parts(content: bytes) -> tuple[bytes, bytes, bytes]:
        end = content.rfind(b"PK\5\6")
        size, start = struct.unpack("<II", content[end + 12 : end + 20])
        return content[:start], content[start : start + size], content[end:]

    evil, evil_directory, end = parts(zipped(shape_that_is_code(files)))
    good, directory, _ = parts(zipped(files))
    evil += bytes(len(good))  # room, so that no offset is negative
    moved, position = bytearray(directory), 0
    while position < len(directory):  # Python adds the distance of the two directories to every offset
        (offset,) = struct.unpack("<I", directory[position + 42 : position + 46])
        moved[position + 42 : position + 46] = struct.pack("<I", offset + len(evil) - len(good))
        position += 46 + sum(struct.unpack("<HHH", directory[position + 28 : position + 34]))
    return evil + evil_directory + good + bytes(moved) + end[:16] + struct.pack("<I", len(evil)) + end[20:]


def two_folders(files: Files) -> Files:
    """One name twice, once the folder is left out."""
    return {f"a/{name.partition('/')[2]}": content for name, content in shape_that_is_code(files).items()} | files


ATTACKS = [
    weight_as_pickle, opaque_constant, pickled_sample, machine_code, guard, other_function, shape_that_is_code,
    imported_type, two_folders, file_that_is_written,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_with_more_than_a_network_in_it_is_refused(
    attack: Callable[[Files], Files], members: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"model\.pt2 (is not loaded: |is damaged)"):
        read_program(written(tmp_path / "model.pt2", attack(members)))(torch.zeros(4, 12))
    assert not Path("sprung").exists()


def test_an_archive_of_two_directories_is_read_by_one(
    members: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pt2").write_bytes(two_directories(members))
    assert read_program(Path("model.pt2"))(torch.zeros(4, 12)).shape == (4, 5)  # the members that were checked
    assert not Path("sprung").exists()


def test_the_same_program_unaltered_is_read(members: Files, tmp_path: Path) -> None:
    assert read_program(written(tmp_path / "model.pt2", members))(torch.zeros(4, 12)).shape == (4, 5)


def test_a_program_says_nothing_of_where_it_was_made(members: Files) -> None:
    text = b"".join(content for name, content in members.items() if name.endswith(".json"))
    assert b"File " not in text
    assert str(Path(isthmus.__file__).parent).encode() not in text


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", pickle.dumps(Trap())])
def test_damaged_files_are_one_line(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, form in (("model.pt2", "torch"), ("model.onnx", "onnx"), ("model.safetensors", "safetensors")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{re.escape(name)} is damaged or (is )?not") as caught:
            read_format(tmp_path / name, form)  # type: ignore[arg-type]
        assert len(str(caught.value).splitlines()) == 1
    assert not Path("sprung").exists()


@pytest.mark.parametrize("lost", ["weight_0", "archive_version", "models/model.json", "weights_config.json"])
def test_a_program_that_lacks_a_part_is_one_line(
    lost: str, members: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    del (files := dict(members))[named(members, lost)]
    with pytest.raises(UserError, match=r"model\.pt2 is damaged") as caught:
        read_program(written(tmp_path / "model.pt2", files))
    assert len(str(caught.value).splitlines()) == 1
    assert not caplog.records  # torch logs a traceback


def resized(name: str, sizes: list[int], dtype: int = 7) -> Callable[[Files], Files]:
    """Another shape for a weight, in the list of weights alone or in the program too."""

    def change(meta: Any) -> None:
        meta["sizes"] = [{"as_int": size} for size in sizes]
        meta["strides"] = [{"as_int": math.prod(sizes[i + 1 :])} for i in range(len(sizes))]
        meta["dtype"] = dtype

    def change_both(files: Files) -> Files:
        listed = edited(
            files, "weights_config.json", lambda content: change(content["config"]["W_in.weight"]["tensor_meta"])
        )
        if name == "listed":
            return listed
        values = "p_w_in_weight"
        return edited(
            listed, "model.json", lambda content: change(content["graph_module"]["graph"]["tensor_values"][values])
        )

    return change_both


def cut_to(bytes_left: int) -> Callable[[Files], Files]:
    return lambda files: files | {named(files, "weight_0"): files[named(files, "weight_0")][:bytes_left]}


def lengthened(files: Files) -> Files:
    return files | {named(files, "weight_0"): files[named(files, "weight_0")] + bytes(4)}


MISFITS: dict[str, Callable[[Files], Files]] = {
    "empty": cut_to(0),
    "short": cut_to(1_148),
    "long": lengthened,
    "of another shape": resized("listed", [12, 24]),
    "of a large shape": resized("both", [10**6, 10**6]),
    "of no numbers": resized("both", [0, 12]),
    "of another kind": resized("listed", [24, 12], 4),
    "of an unknown kind": resized("both", [24, 12], 99),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_weight_of_a_program_is_as_large_as_its_shape(misfit: str, members: Files, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.pt2 is damaged") as caught:
        read_program(written(tmp_path / "model.pt2", MISFITS[misfit](members)))
    assert len(str(caught.value).splitlines()) == 1


def test_a_program_is_not_unpacked(members: Files, tmp_path: Path) -> None:
    """A megabyte of it could unpack to a gigabyte, and so could the example within it."""
    sample = named(members, "sample_inputs/model.pt")
    with zipfile.ZipFile(io.BytesIO(members[sample])) as archive:
        inner = {name: archive.read(name) for name in archive.namelist()}
    for content in (zipped(members, packed=True), zipped(members | {sample: zipped(inner, packed=True)})):
        (tmp_path / "model.pt2").write_bytes(content)
        with pytest.raises(UserError, match="compressed"):
            read_program(tmp_path / "model.pt2")


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_rows_of_another_width_are_one_line(form: FormatName, tmp_path: Path) -> None:
    file = tmp_path / FILES[form]
    write_format(file, build("hourglass_mlp", SMALL["hourglass_mlp"][0]), form)
    with pytest.raises(UserError, match=r"takes rows of \(12,\), not of \(11,\); export the run again"):
        read_format(file, form)(torch.zeros(4, 11))
    with pytest.raises(UserError, match=r"cannot be run: ") as caught:
        read_format(file, form)(torch.zeros(4, 12, dtype=torch.int64))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("dtypes", [[torch.int64], [torch.float64, torch.float32], [torch.bool], [torch.complex64]])
def test_weights_of_another_kind_are_one_line(dtypes: list[torch.dtype], tmp_path: Path) -> None:
    file = tmp_path / FILES["safetensors"]
    write_format(file, build("hourglass_mlp", SMALL["hourglass_mlp"][0]), "safetensors")
    tensors, metadata = read_tensors(file)
    changed = {name: tensor.to(dtypes[i % len(dtypes)]) for i, (name, tensor) in enumerate(tensors.items())}
    write_tensors(file, changed, metadata)
    with pytest.raises(UserError, match=r"model\.safetensors is damaged: .* holds torch\."):
        isthmus.load(file)


def test_connections_cannot_lead_out_of_their_layer(tmp_path: Path) -> None:
    """A sparse product would read wherever its indices lead."""
    model = build("sw_mlp", SMALL["sw_mlp"][2])
    file = tmp_path / "model.safetensors"
    write_format(file, model, "safetensors")
    tensors, metadata = read_tensors(file)
    metadata.pop("checksum")
    for ending in ("index_columns", "index_transposed_columns", "index_order", "index_starts"):
        name = next(name for name in tensors if name.endswith(ending))
        wrong = tensors[name].clone()
        wrong[-1] += 10**6
        write_tensors(file, tensors | {name: wrong}, metadata)
        with pytest.raises(UserError, match="is damaged: its connections lead out of their layer"):
            isthmus.load(file)


# A bare checkpoint: one file, with no record and no export beside it.

FROZEN: dict[str, Any] = {
    "name": "hourglass_mlp", "d_in": 6, "d_out": 5, "d_z": 9, "d_h": 4, "depth": 1, "w_in": "gaussian", "w_in_seed": 1,
}  # fmt: skip


def checkpoint(path: Path) -> Path:
    """Of a model with a frozen projection."""
    model = isthmus.create_model(**FROZEN)
    write_model(path, model, model.state_dict(), FROZEN)
    return path


def changed(path: Path, **changes: Any) -> Path:
    """The same with other metadata and without a checksum, as an earlier version wrote it; ``...`` leaves one out."""
    tensors, metadata = read_tensors(checkpoint(path))
    metadata |= {"checksum": ..., **changes}
    write_tensors(path, tensors, {name: value for name, value in metadata.items() if value is not ...})
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        isthmus.load(path)
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)
    return str(caught.value)


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and what follows it."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(path: Path, header: dict[str, Any], content: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path


def test_a_checkpoint_of_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    x = torch.randn(3, 6)
    torch.manual_seed(0)
    new = isthmus.load(checkpoint(tmp_path / "new.safetensors"))
    torch.manual_seed(0)
    assert torch.equal(isthmus.load(changed(tmp_path / "old.safetensors"))(x), new(x))


RELABELLED = [("F32", "I32", False), ("F32", "U32", False), ("F32", "I32", True), ("I32", "F32", True)]
RELABELLED += [("I32", "U32", True)]


@pytest.mark.parametrize(("was", "now", "whole"), RELABELLED)
def test_numbers_that_are_called_others_are_refused(was: str, now: str, whole: bool, tmp_path: Path) -> None:
    model, file = build("sw_mlp", SMALL["sw_mlp"][2]), tmp_path / "model.safetensors"
    config = model.config.model_dump(mode="json")
    write_whole_model(file, model, config) if whole else write_model(file, model, model.state_dict(), config)
    header, content = header_of(file)
    ours = json.loads(header["__metadata__"]["isthmus"])
    ours.pop("checksum")
    header["__metadata__"]["isthmus"] = json.dumps(ours)
    isthmus.load(with_header(tmp_path / "same.safetensors", header, content))
    names = [name for name, entry in header.items() if entry.get("dtype") == was]
    assert names
    for name in names:
        header[name]["dtype"] = now
    assert " holds torch." in refusal(with_header(tmp_path / "other.safetensors", header, content))


def test_another_precision_is_refused_in_a_checkpoint(tmp_path: Path) -> None:
    tensors, metadata = read_tensors(changed(tmp_path / "x.safetensors"))
    write_tensors(tmp_path / "half.safetensors", {name: each.half() for name, each in tensors.items()}, metadata)
    assert "holds torch.float16 where the model has torch.float32" in refusal(tmp_path / "half.safetensors")


WRONG_PRINTS: list[Any] = [
    ..., None, 5, "W_in", [], {}, {"W_in": None}, {"W_in": 5}, {"W_in": []}, {"W_in": [0.0]}, {"W_in": ["a", "b", "c"]},
    {"W_in": [float("nan")] * 3}, {"W_in": [float("inf")] * 3}, {"W_in": [True] * 3}, {"W_in": {"a": 1}},
    {"W_jn": [0.0] * 3}, {"W_in": [10**400] * 3},
]  # fmt: skip


@pytest.mark.parametrize("fixed", WRONG_PRINTS, ids=lambda fixed: str(fixed)[:30])
def test_a_fingerprint_is_there_and_is_compared(fixed: Any, tmp_path: Path) -> None:
    """The seed is another one: where no fingerprint is compared, another network is loaded."""
    said = refusal(changed(tmp_path / "x.safetensors", fixed=fixed, model=FROZEN | {"w_in_seed": 2}))
    assert "frozen" in said


def test_another_seed_is_noticed_whatever_else_is_changed(tmp_path: Path) -> None:
    other = FROZEN | {"w_in_seed": 2}
    assert "W_in was rebuilt differently" in refusal(changed(tmp_path / "x.safetensors", model=other))
    tensors, metadata = read_tensors(checkpoint(tmp_path / "y.safetensors"))
    consistent = metadata | {"model": other, "fixed": fingerprints(isthmus.create_model(**other))}
    write_tensors(tmp_path / "y.safetensors", tensors, consistent)
    assert "its checksum does not match" in refusal(tmp_path / "y.safetensors")


def test_no_changed_byte_of_a_checkpoint_passes(tmp_path: Path) -> None:
    whole, x = checkpoint(tmp_path / "whole.safetensors").read_bytes(), torch.randn(3, 6)
    expected, damaged = isthmus.load(tmp_path / "whole.safetensors")(x), tmp_path / "damaged.safetensors"
    draw, noticed = random.Random(0), 0
    for place in draw.sample(range(len(whole)), 120):
        content = bytearray(whole)
        content[place] ^= 1 << draw.randrange(8)
        damaged.write_bytes(bytes(content))
        try:
            outputs = isthmus.load(damaged)(x)
        except UserError:
            noticed += 1
        else:
            assert torch.equal(outputs, expected), place  # a space for another, where JSON does not care
    assert noticed > 100


@pytest.mark.parametrize(
    "sizes",
    [{"d_z": 2**24, "d_h": 2**23}, {"d_z": 2**24, "d_in": 2**24}, {"d_z": 100_000, "d_h": 50_000, "depth": 1_000}],
    ids=str,
)
def test_sizes_are_compared_before_anything_is_allocated(sizes: dict[str, int], tmp_path: Path) -> None:
    metadata = {"isthmus": json.dumps({"model": FROZEN | sizes})}
    file = with_header(tmp_path / "x.safetensors", {"__metadata__": metadata})
    assert file.stat().st_size < 300
    assert "is missing" in refusal(file)


def test_a_projection_that_does_not_fit_into_memory_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tensor in the file has its size."""
    file = changed(tmp_path / "x.safetensors", model=FROZEN | {"d_in": 2**20})
    monkeypatch.setattr("isthmus.training.checkpoint.memory_bytes", lambda: 2**26)
    assert "frozen projections needs" in refusal(file)


def test_a_network_of_more_blocks_than_can_be_listed_is_refused() -> None:
    with pytest.raises(UserError, match="ffn_blocks"):
        isthmus.create_model("vit", **SMALL["vit"][0] | {"depth": 1_000, "ffn_blocks": 1_000})


# An export whose checksums were computed again.


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    model = isthmus.create_model("hourglass_mlp", d_in=3, d_out=4, d_z=9, d_h=4, depth=1)
    write_format(folder / FILES["safetensors"], model, "safetensors")
    memory = {"classes": torch.tensor(4), "input_shape": torch.tensor([3])}
    write_tensors(folder / TASK, memory | {"input.mean": torch.zeros(3), "input.std": torch.ones(3)})
    config: Any = model.config
    content = Exported("safetensors", "0" * 16, config.model_dump(mode="json"), {"name": "classification"})
    names = (FILES["safetensors"], TASK)
    write_exported(folder, replace(content, files={name: sha256(folder / name) for name in names}))
    return folder


def altered(exported: Path, folder: Path, **changes: Any) -> Path:
    """A copy that says something else, and whose checksums fit."""
    shutil.copytree(exported, folder)
    content = read_sealed(folder / EXPORT) | changes
    if isinstance(files := content.get("files"), dict):
        content["files"] = {name: sha256(folder / name) if name == TASK else old for name, old in files.items()}
    write_sealed(folder / EXPORT, {name: value for name, value in content.items() if value is not ...})
    return folder


def test_the_same_export_unaltered_predicts(exported: Path, tmp_path: Path) -> None:
    assert load(altered(exported, tmp_path / "same")).predict(np.zeros((2, 3), np.float32)).shape == (2,)


@pytest.mark.parametrize(
    "name", ["format", "run", "model", "task", "source", "classes", "columns", "table", "raw", "metrics", "files"]
)
@pytest.mark.parametrize("value", [..., None, 5, "x", [5], {"name": 5}, {"model.safetensors": 5}, True], ids=str)
def test_an_export_that_says_something_else_is_one_line(name: str, value: Any, exported: Path, tmp_path: Path) -> None:
    folder = altered(exported, tmp_path / "other", **{name: value})
    try:
        load(folder).predict(np.zeros((2, 3), np.float32))
    except UserError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 (some of these may be absent or anything)
        return
    assert name in ("source", "classes", "columns", "table", "raw", "metrics", "run")


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ...}, {"input_shape": ...}, {"input.mean": ...}, {"classes": torch.tensor(-4)},
        {"classes": torch.tensor(7)}, {"classes": torch.tensor([1, 2])}, {"classes": torch.tensor(4.0)},
        {"input_shape": torch.tensor([3.0])}, {"input_shape": torch.tensor([-3])}, {"input_shape": torch.tensor([])},
        {"input_shape": torch.tensor(3)}, {"input_shape": torch.tensor([2**40] * 2)},
        {"input_shape": torch.tensor([4])}, {"input.mean": torch.full((3,), float("nan"))},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_task_learned_is_of_its_kind(change: dict[str, Any], exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(exported, folder)
    tensors = read_tensors(folder / TASK)[0] | change
    write_tensors(folder / TASK, {name: each for name, each in tensors.items() if each is not ...})
    content = read_sealed(folder / EXPORT)
    write_sealed(folder / EXPORT, content | {"files": content["files"] | {TASK: sha256(folder / TASK)}})
    with pytest.raises(UserError, match=TASK) as caught:
        load(folder).predict(np.zeros((2, 3), np.float32))
    assert len(str(caught.value).splitlines()) == 1
