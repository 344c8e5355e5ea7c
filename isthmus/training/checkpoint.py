"""Weights and training state on disk: safetensors and JSON, written atomically and checked when read; no pickles."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, sha256, write_sealed, write_with
from isthmus.core.machine import memory_bytes
from isthmus.core.record import CONFIG

_TOLERANCE = 1e-5  # of the fingerprint of a rebuilt projection; another seed differs by about 1

_KINDS = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "C64": torch.complex64,
}  # fmt: skip
_PRECISIONS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> None:
    """Write tensors atomically, with ``metadata`` as JSON in the file's header."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"isthmus": json.dumps(metadata or {}, sort_keys=True)}

    def write(temporary: Path) -> None:
        try:
            save_file(contiguous, temporary, header)
        except SafetensorError as error:  # how it reports a full disk
            raise OSError(str(error)) from None

    write_with(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a file, compared with their checksum if they have one."""
    with _open(path) as (file, metadata):
        # Copied, because tensors in the mapped file are not aligned, and their products may have other bits.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    if "checksum" in metadata and metadata["checksum"] != _checksum(tensors, metadata):
        raise UserError(f"{path} is damaged or was altered: its checksum does not match its content")
    return tensors, metadata


def read_plan(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``read_tensors`` would return, from the header alone: tensors on the meta device, which take no memory."""
    with _open(path) as (file, metadata):
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        kinds = {name: _KINDS.get(part.get_dtype()) for name, part in parts.items()}
        if foreign := [name for name, kind in kinds.items() if kind is None]:
            raise ValueError(f"{foreign[0]} is of the kind {parts[foreign[0]].get_dtype()}")
        plan = {name: torch.empty(part.get_shape(), dtype=kinds[name], device="meta") for name, part in parts.items()}
    return plan, metadata


@contextmanager
def _open(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file, dict(json.loads((file.metadata() or {}).get("isthmus", "{}")))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (SafetensorError, ValueError, TypeError, RuntimeError, OSError) as error:
        raise UserError(f"{path} is damaged or is not a safetensors file: {error}") from None


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    """A checksum of every name, dtype, shape and value, for a file that is copied without its record."""
    content = hashlib.sha256()
    said = {name: value for name, value in metadata.items() if name != "checksum"}
    shapes = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    content.update(json.dumps([said, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        content.update(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()


def fingerprints(model: nn.Module) -> dict[str, list[float]]:
    """Fingerprints of the projections that are rebuilt from a seed instead of stored."""
    return {name: module.fingerprint() for name, module in model.named_modules() if hasattr(module, "fingerprint")}


def write_model(path: Path, model: nn.Module, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    _write_checked(path, weights, {"model": dict(config), "fixed": fingerprints(model)})


def write_whole_model(path: Path, model: nn.Module, config: Mapping[str, Any]) -> None:
    """For export: also writes the frozen tensors, so that nothing must be rebuilt."""
    _write_checked(path, {**model.state_dict(), **_frozen_tensors(model)}, {"model": dict(config), "whole": True})


def _write_checked(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, Any]) -> None:
    write_tensors(path, tensors, metadata | {"checksum": _checksum(tensors, metadata)})


def _frozen_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that a checkpoint leaves out, because a seed rebuilds them."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in kept}


def need_fit(model: nn.Module, plan: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> None:
    """Compare the header of a file with a model on the meta device, before anything is allocated."""
    frozen, whole = _frozen_tensors(model), bool(metadata.get("whole"))
    planned: dict[str, Tensor] = {**model.state_dict(), **(frozen if whole else {})}
    expected = {(name, tuple(tensor.shape)) for name, tensor in planned.items()}
    found = {(name, tuple(tensor.shape)) for name, tensor in plan.items()}
    if different := sorted(name for name, _ in expected ^ found):
        raise UserError(f"{path} is a checkpoint of another model: {different[0]} has another shape or is missing")
    _need_dtypes(planned, plan, path, whole)
    if whole:
        return
    names = {name for name, module in model.named_modules() if hasattr(module, "fingerprint")}
    if unmatched := sorted(names ^ _read_fingerprints(metadata, path).keys()):
        raise UserError(f"{path} is damaged: the fingerprint of the frozen {unmatched[0]} is missing or unexpected")
    # Projections are drawn in float64, and an orthogonal one is factorised.
    needed, there = 16 * sum(tensor.numel() for tensor in frozen.values()), memory_bytes()
    if needed > there:
        sizes = f"needs {needed / 2**30:.0f} GiB; this machine has {there / 2**30:.0f} GiB"
        raise UserError(f"{path}: rebuilding its frozen projections {sizes}")


def assign_whole(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Give a model that was built on the meta device the tensors of :func:`write_whole_model`."""
    frozen = _frozen_tensors(model)
    model.load_state_dict({name: weights[name] for name in weights if name not in frozen}, assign=True)
    for name in frozen:
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, weights[name])
    try:
        for module in model.modules():
            check: Any = getattr(module, "check_indices", None)
            if check is not None:  # a kernel reads at any index without checking it
                check()
    except (RuntimeError, IndexError, ValueError):
        raise UserError(f"{path} is damaged: its connections lead out of their layer") from None


def _need_dtypes(planned: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path, whole: bool) -> None:
    """Check dtypes: the model's own, or of an export any one precision for all weights."""
    for name, tensor in planned.items():
        are_real = tensor.is_floating_point() and weights[name].is_floating_point()
        if not (_same_kind(tensor, weights[name]) or (whole and are_real)):
            raise UserError(f"{path} is damaged: {name} holds {weights[name].dtype} where the model has {tensor.dtype}")
    real = {weights[name].dtype for name, tensor in planned.items() if tensor.is_floating_point()}
    if len(real) > 1 or not real <= _PRECISIONS:
        kinds = " and ".join(sorted(map(str, real)))
        raise UserError(f"{path} is damaged: it holds {kinds}; all weights have one floating-point type")


def _same_kind(own: Tensor, given: Tensor) -> bool:
    """Equal dtypes, or float32, which training writes whatever the default dtype of this process."""
    default = own.dtype == torch.get_default_dtype() and given.dtype == torch.float32
    return default or given.dtype == own.dtype


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> None:
    """Load weights that fit (:func:`need_fit`), and check the model's rebuilt projections."""
    model.load_state_dict(weights)
    if redrawn := _find_redrawn(model, metadata, path):
        raise UserError(f"{path}: the frozen {redrawn[0]} was rebuilt differently from the one it was trained with")


def _read_fingerprints(metadata: Mapping[str, Any], path: Path) -> dict[str, list[float]]:
    """The fingerprints in a checkpoint, which must be lists of finite numbers."""
    stored = metadata.get("fixed", {})
    lists = list(stored.values()) if isinstance(stored, dict) else [stored]
    if not all(isinstance(values, list) and values and all(map(_is_real, values)) for values in lists):
        raise UserError(f"{path} is damaged: 'fixed' in its header must hold fingerprints of frozen projections")
    return dict(stored)


def _is_real(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _find_redrawn(model: nn.Module, metadata: Mapping[str, Any], path: Path) -> list[str]:
    """The frozen projections of a model that differ from those of a checkpoint."""
    stored = _read_fingerprints(metadata, path)
    return [name for name, values in fingerprints(model).items() if not _equal(values, stored.get(name, values))]


def _equal(ours: list[float], theirs: list[float]) -> bool:
    return len(ours) == len(theirs) and all(abs(a - b) <= _TOLERANCE for a, b in zip(ours, theirs, strict=True))


def start_from(model: nn.Module, weights: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> list[str]:
    """Fine-tuning: load every weight that fits by name and shape, and return the names of the others."""
    own = model.state_dict()
    shared = {name: tensor for name, tensor in weights.items() if name in own and own[name].shape == tensor.shape}
    fitting = {name: tensor for name, tensor in shared.items() if _same_kind(own[name], tensor)}
    if not fitting:
        raise UserError(f"{path} is a checkpoint of another model: none of its weights fits this one")
    model.load_state_dict(fitting, strict=False)
    return sorted([*(own.keys() - fitting.keys()), *_find_redrawn(model, metadata, path)])


class State:
    """The state from which a run resumes: ``state.json`` names a tensor file and its checksum, and is replaced last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "state.json"

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], code: str) -> None:
        path = self.folder / f"state-{values['step']}.safetensors"
        write_tensors(path, tensors)
        write_sealed(self.index, {"file": path.name, "sha256": sha256(path), "code": code, "values": dict(values)})
        self._sweep(keep=path.name)

    @property
    def code(self) -> str | None:
        """The code that saved it; None without a state."""
        return read_sealed(self.index).get("code") if self.index.exists() else None

    def load(self, code: str, other_code: bool) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if not self.index.exists():
            return None
        index = read_sealed(self.index)
        restart = f"`isthmus runs clean {self.folder.name}` starts it again"
        if not {"file", "sha256", "code", "values"} <= index.keys() or not isinstance(index["file"], str):
            raise UserError(f"{self.index} is damaged: it names no state; {restart}")
        path = self.folder / index["file"]
        if not path.is_file() or sha256(path) != index["sha256"]:
            raise UserError(f"{path} is damaged or missing; {restart}")
        if index["code"] != code and not other_code:
            resume = f"`isthmus train {self.folder / CONFIG} --other-code` resumes it anyway"
            raise UserError(f"the run in {self.folder} was begun by other code; {resume}, {restart}")
        return read_tensors(path)[0], index["values"]

    def clear(self) -> None:
        self.index.unlink(missing_ok=True)
        self._sweep(keep="")

    def _sweep(self, keep: str) -> None:
        for path in self.folder.glob("*state-*.safetensors"):  # also temporary ones of a killed process
            if path.name != keep:
                path.unlink(missing_ok=True)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names: ``optimizer.INDEX.NAME``."""
    return {
        f"optimizer.{index}.{name}": value
        for index, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, entry = name.split(".", 2)
            state.setdefault(int(index), {})[entry] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
