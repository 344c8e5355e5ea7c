"""Trained models as ``torch.export`` programs: one file that runs without the model's code.

torch's reader trusts the file: it unpickles objects, imports modules by name, evaluates Python expressions and loads
machine code. So a file is read only after everything in it is recognised: tensors as raw bytes, torch's operators, and
shapes as sums and products. Files that are written here contain no local paths.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_structure, treespec_dumps

from isthmus.core.errors import UserError, quiet
from isthmus.core.files import need_regular, write_with
from isthmus.export.graphs import GraphModel, first_line, fold, make_example
from isthmus.export.operators import OPERATORS

_MEMBER = re.compile(
    r"[\w-]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|models/model\.json|"
    r"data/(sample_inputs/model\.pt|weights/(weight_\d+|model_weights_config\.json)|"
    r"constants/(tensor_\d+|model_constants_config\.json)))",
    re.ASCII,
)
_SHAPE = re.compile(
    r"(Symbol\('[su]\d+'(, (positive|nonnegative|integer)=True)*\)|Integer\(-?\d+\)|(Add|Mul)\(|\)|, )+"
)
_WORD = re.compile(r"[\w.+-]*", re.ASCII)
_ARGUMENT = re.compile(r"([a-z,]|\.\.\.)*(->([a-z]|\.\.\.)*)?")  # of an operator, such as einsum's "bn,...n->bk"
_CALLS: tuple[Any, ...] = (((0,), {}), 0)  # one tensor in, one tensor out
_SPECS = {treespec_dumps(tree_structure(call)) for call in _CALLS}
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}
"""Bytes of each dtype, by torch.export's number: bytes, integers, halves, floats, doubles, booleans, bfloat16."""
_TRACES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom")


def trace_program(model: nn.Module) -> ExportedProgram:
    """The folded model in evaluation mode, for any batch size."""
    plain = fold(model)
    x = make_example(model, 2)  # a batch of 1 would be treated as constant
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch
        try:
            exported = torch.export.export(plain, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        except Exception as error:  # tracing raises many types
            name = getattr(getattr(model, "config", None), "name", type(model).__name__)
            raise UserError(f"{name} cannot be exported as a graph: {first_line(error)}") from None
    for node in exported.graph.nodes:
        for trace in _TRACES:
            node.meta.pop(trace, None)
    return exported


def write_program(path: Path, exported: ExportedProgram) -> None:
    buffer = io.BytesIO()  # a temporary file's name would become part of the archive
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(exported, buffer)

    def write(temporary: Path) -> None:
        temporary.write_bytes(buffer.getvalue())

    write_with(path, write)


def read_program(path: Path) -> nn.Module:
    """The program in a file that holds only tensors and torch's operators; torch never reads any other file."""
    size = need_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = _members(archive, size)
        if problem := _problem(found):
            raise UserError(f"{path} is not loaded: {problem}; reading a program from elsewhere may run code")
        with quiet("torch.export"), warnings.catch_warnings():  # it logs a traceback before it raises
            warnings.simplefilter("ignore")
            exported = torch.export.load(_rewrite(found))
            (name,) = exported.graph_signature.user_inputs
            (taken,) = (node.meta["val"] for node in exported.graph.nodes if node.name == name)
            return GraphModel(path, tuple(taken.shape[1:]), exported.module())
    except UserError:
        raise
    except Exception as error:  # torch's reader raises many types for damaged files
        raise UserError(f"{path} is damaged or not a torch.export program: {first_line(error)}") from None


def _members(archive: zipfile.ZipFile, size: int) -> list[tuple[str, bytes]]:
    """All members of an archive of this size. torch compresses none, and a compressed one could expand to any size."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("its parts are compressed")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("its parts are larger than the file")
    return [(entry.filename, archive.read(entry)) for entry in entries]


def _plain(name: str) -> str:
    """The name of a member without the common folder."""
    return name.partition("/")[2]


def _rewrite(found: list[tuple[str, bytes]]) -> io.BytesIO:
    """A new archive of the members that were checked.

    Two readers of one archive may find different members in it (there may be two central directories), and torch has a
    reader of its own: it gets no byte that was not checked.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in found:
            archive.writestr(f"archive/{_plain(name)}", content)
    buffer.seek(0)
    return buffer


def _problem(found: list[tuple[str, bytes]]) -> str:
    """The first thing in a file that is not recognised; empty if there is none."""
    if foreign := [name for name, _ in found if not _MEMBER.fullmatch(name)]:
        return f"it holds {foreign[0]!r}"
    members = {_plain(name): content for name, content in found}
    if len(members) < len(found):
        return "it holds two files of one name"
    sample = members["data/sample_inputs/model.pt"]
    with zipfile.ZipFile(io.BytesIO(sample)) as archive:
        _members(archive, len(sample))
    torch.load(io.BytesIO(sample), weights_only=True)
    stored: dict[str, Any] = {}
    for kind in ("weights", "constants"):
        for name, payload in json.loads(members[f"data/{kind}/model_{kind}_config.json"])["config"].items():
            if payload["use_pickle"] or not re.fullmatch(r"(weight|tensor)_[0-9]+", payload["path_name"]):
                return f"{name!r} is a pickle"
            stored[name] = payload["tensor_meta"]
            there = len(members[f"data/{kind}/{payload['path_name']}"])
            if there != _bytes_of(stored[name]):
                raise ValueError(f"{name!r} holds {there:,} bytes, not the {_bytes_of(stored[name]):,} of its shape")
    content = json.loads(members["models/model.json"])
    _need_shapes(content["graph_module"], stored)
    return next(_foreign(content), "")


def _bytes_of(meta: dict[str, Any]) -> int:
    """Bytes of a tensor, up to the last element that its strides reach."""
    sizes, strides = ([int(item["as_int"]) for item in meta[key]] for key in ("sizes", "strides"))
    if min([0, *sizes, *strides]) < 0 or meta["storage_offset"]["as_int"]:
        raise ValueError(f"a tensor has sizes {sizes} and strides {strides}")
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return (last + 1) * _BYTES[meta["dtype"]] if all(sizes) else 0


def _need_shapes(module: dict[str, Any], stored: dict[str, Any]) -> None:
    """Compare the tensors that a program expects with those in its file."""
    values = module["graph"]["tensor_values"]
    for spec in module["signature"]["input_specs"]:
        for kind, content in spec.items():
            if kind in ("parameter", "buffer", "tensor_constant"):
                name, taken = content[f"{kind}_name"], values[content["arg"]["name"]]
                if any(stored[name][key] != taken[key] for key in ("sizes", "dtype", "strides")):
                    raise ValueError(f"the program takes {name!r} in another shape than the file holds")


def _foreign(value: Any, key: str = "") -> Iterator[str]:
    """Everything in a program that is not a tensor, a shape or an allowed operator."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not _WORD.fullmatch(name) or name in ("as_custom_obj", "as_operator", "as_graph", "as_opaque"):
                yield f"it holds {name!r}"
            if name in ("guards_code", "metadata") and inner:
                yield f"it holds {name}"
            yield from _foreign(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _foreign(inner, key)
    elif isinstance(value, str):
        if key == "target" and value not in OPERATORS:
            yield f"it calls {value[:60]!r}"
        rule = {"expr_str": _SHAPE, "as_string": _ARGUMENT}.get(key, _WORD)
        if key not in ("in_spec", "out_spec") and not rule.fullmatch(value):
            yield f"it holds {value[:60]!r}"
        if key in ("in_spec", "out_spec") and value not in _SPECS:
            yield f"it takes or gives more than one tensor: {value[:60]!r}"
