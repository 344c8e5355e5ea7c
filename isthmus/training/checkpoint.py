"""Weights and training state on disk: safetensors and JSON, whole or absent, checked when read; no pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from isthmus.errors import UserError
from isthmus.files import read_sealed, sha256, write_sealed, write_with

_TOLERANCE = 1e-5  # of a rebuilt projection's fingerprint; another seed differs by about 1

_PRECISIONS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> None:
    """Atomic; ``metadata`` is kept as JSON in the file's header."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"isthmus": json.dumps(metadata or {}, sort_keys=True)}

    def write(temporary: Path) -> None:
        try:
            save_file(contiguous, temporary, header)
        except SafetensorError as error:  # a full disk, in its own kind of error
            raise OSError(str(error)) from None

    write_with(path, write)


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt", device=device) as file:
            # Copied: in the file's own memory they begin anywhere, and products of such tensors may have other bits.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
            metadata = dict(json.loads((file.metadata() or {}).get("isthmus", "{}")))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (SafetensorError, ValueError, TypeError, RecursionError, OSError) as error:
        raise UserError(f"{path} is damaged or is not a safetensors file: {error}") from None
    return tensors, metadata


def fingerprints(model: nn.Module) -> dict[str, list[float]]:
    """What a checkpoint keeps of projections that are rebuilt instead of stored."""
    return {name: module.fingerprint() for name, module in model.named_modules() if hasattr(module, "fingerprint")}


def write_model(path: Path, model: nn.Module, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    write_tensors(path, weights, {"model": dict(config), "fixed": fingerprints(model)})


def write_whole_model(path: Path, model: nn.Module, config: Mapping[str, Any]) -> None:
    """As above with everything that is frozen, so that nothing has to be drawn again: for export."""
    write_tensors(path, {**model.state_dict(), **_frozen(model)}, {"model": dict(config), "whole": True})


def _frozen(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that checkpoints leave out, because a seed rebuilds them."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in kept}


def assign_whole(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Give a model that was built on the meta device the tensors of :func:`write_whole_model`."""
    frozen = _frozen(model)
    planned = {**model.state_dict(), **frozen}
    expected = {name: tuple(tensor.shape) for name, tensor in planned.items()}
    _need_shapes(expected, weights, path)
    _need_dtypes(planned, weights, path)
    model.load_state_dict({name: weights[name] for name in expected if name not in frozen}, assign=True)
    for name in frozen:
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, weights[name])
    for module in model.modules():
        check = getattr(module, "check_indices", None)
        if callable(check):  # a kernel would read wherever they lead
            try:
                check()
            except (RuntimeError, IndexError, ValueError):
                raise UserError(f"{path} is damaged: its connections lead out of their layer") from None


def _need_shapes(expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Tensor], path: Path) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    different = sorted(set(expected.items()) ^ set(found.items()))
    if different:
        raise UserError(f"{path} is a checkpoint of another model: {different[0][0]} has another shape or is missing")


def _need_dtypes(planned: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Integers where the model has integers, and one precision for all other numbers."""
    for name, tensor in planned.items():
        found = weights[name].dtype
        if found.is_floating_point != tensor.is_floating_point():
            raise UserError(f"{path} is damaged: {name} holds {found} where the model has {tensor.dtype}")
    real = {weights[name].dtype for name, tensor in planned.items() if tensor.is_floating_point()}
    if len(real) > 1 or not real <= _PRECISIONS:
        raise UserError(
            f"{path} is damaged: it holds {' and '.join(sorted(map(str, real)))}; all weights are float16, bfloat16, "
            "float32 or float64"
        )


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> None:
    """Put weights into a model that was built from the same config, and compare its rebuilt projections."""
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        _need_shapes({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, weights, path)
        raise
    if redrawn := _redrawn(model, metadata):
        raise UserError(f"{path}: the frozen {redrawn[0]} was rebuilt differently from the one it was trained with")


def _redrawn(model: nn.Module, metadata: Mapping[str, Any]) -> list[str]:
    """The frozen projections of a model that are not the ones a checkpoint was trained with."""
    stored = metadata.get("fixed", {})
    return [
        name
        for name, values in fingerprints(model).items()
        if max(abs(a - b) for a, b in zip(values, stored.get(name, values), strict=True)) > _TOLERANCE
    ]


def start_from(model: nn.Module, weights: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> list[str]:
    """Fine-tuning: take every weight that fits by name and shape; the names of what starts otherwise are returned."""
    own = model.state_dict()
    fitting = {name: tensor for name, tensor in weights.items() if name in own and own[name].shape == tensor.shape}
    if not fitting:
        raise UserError(f"{path} is a checkpoint of another model: none of its weights fits this one")
    model.load_state_dict(fitting, strict=False)
    return sorted([*(own.keys() - fitting.keys()), *_redrawn(model, metadata)])


class State:
    """Where an unfinished run goes on: ``state.json`` names a tensor file and its checksum, and is replaced last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "state.json"

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], code: str) -> None:
        path = self.folder / f"state-{values['step']}.safetensors"
        write_tensors(path, tensors)
        write_sealed(self.index, {"file": path.name, "sha256": sha256(path), "code": code, "values": dict(values)})
        self._sweep(keep=path.name)

    def load(self, code: str, other_code: bool) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if not self.index.exists():
            return None
        index = read_sealed(self.index)
        again = f"`isthmus runs clean {self.folder.name}` starts it again"
        path = self.folder / index["file"]
        if not path.is_file() or sha256(path) != index["sha256"]:
            raise UserError(f"{path} is damaged or missing; {again}")
        if index["code"] != code and not other_code:
            raise UserError(
                f"the run in {self.folder} was begun by other code; --other-code goes on all the same, {again}"
            )
        return read_tensors(path)[0], index["values"]

    def clear(self) -> None:
        self.index.unlink(missing_ok=True)
        self._sweep(keep="")

    def _sweep(self, keep: str) -> None:
        for path in self.folder.glob("*state-*.safetensors"):  # temporary ones of a killed process too
            if path.name != keep:
                path.unlink(missing_ok=True)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory, flat: ``optimizer.INDEX.NAME``."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{name}": value
        for index, entry in state.items()
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
