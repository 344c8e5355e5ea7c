"""Exports of trained runs: written in another format, and compared with the original before they replace anything."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import hold_lock, make_folder, remove_abandoned, resolve_links, sha256, write_json, write_text
from isthmus.core.protocols import Data, SplitName, Task
from isthmus.core.record import CONFIG, TASK, RunRecord, find_run, read_record
from isthmus.core.registry import component
from isthmus.export.cards import model_card
from isthmus.export.graphs import make_example
from isthmus.export.int8_format import COSTS, Choice, CostName, choose_layers
from isthmus.export.narrow_form import choose_form
from isthmus.export.raw_form import RawModel, raw_form
from isthmus.training.checkpoint import write_tensors, write_whole_model
from isthmus.training.exported import EXPORT, FILES, FORMATS, Exported, FormatName, is_exported, write_exported
from isthmus.training.loading import load_model, load_task
from isthmus.training.loop import Rows
from isthmus.training.prepare import load_data

TOLERANCE = 1e-4
"""Largest error of an output, relative to the largest output."""
_ROWS = (1, 3)
CARD = "README.md"
_KEPT = ("arrays", "table", "tokens")
"""Sources whose settings are needed to read files for predictions."""


@dataclass(frozen=True)
class Written:
    """A finished export; ``error`` is the largest of its outputs, relative to the largest output."""

    folder: Path
    format: FormatName
    bytes: int
    error: float
    note: str = ""
    int8: Choice | None = None


@dataclass(frozen=True)
class Int8:
    """What int8 layers are chosen by: what they should save, and the loss of quality that is allowed."""

    cost: CostName = "bytes"
    tolerance: float | None = None
    data_dir: Path | None = None
    tell: Callable[[str], None] = lambda _: None


def export_run(run: str | Path, to: str, out: Path, *, bare: bool = False, int8: Int8 | None = None) -> Written:
    """Write a finished run into the folder ``out`` as one of ``FORMATS``.

    A graph (``onnx`` or ``torch``) for rows of features takes raw columns and gives values in the units of the targets,
    or probabilities; with ``bare``, it is the model alone. With ``int8``, the layers of an ONNX graph that lose little
    quality are stored as int8; the metrics of the export are then those of this network.
    """
    if to not in FORMATS:
        raise UserError(f"--to {to!r}: {nearest(to, FORMATS)}")
    record = read_record(find_run(run))
    if record.status != "finished":
        raise UserError(f"run {record.id} failed ({record.reason}); only a trained model can be exported")
    if out.exists() and not is_exported(out) and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an export; choose another --out")
    if bare and to not in ("onnx", "torch"):
        raise UserError(f"--bare applies to onnx and torch; {to} always holds the model alone, leave it out")
    if int8 is not None:
        _check_int8(int8, to)
    network: Any = load_model(run)
    original = network
    task, note = load_task(run), ""
    if to in ("onnx", "torch") and not bare:
        original = raw_form(original, task, record.data.get("table", {})) or original
    model = original
    if to == "narrow":
        model, gain = choose_form(original)
        note = str(gain)
    with _write_aside(out) as folder:
        file = folder / FILES[to]
        write_format(file, model, to)
        error, choice = compare_outputs(original, read_format(file, to), out / file.name), None
        if int8 is not None:
            choice = _choose_layers(record, network, task, int8)
            choice.write(file, network)
            error = compare_outputs(original, read_format(file, to), out / file.name, tolerance=math.inf)
        write_tensors(folder / TASK, task.memory())
        source = record.config["source"]
        content = Exported(
            format=to,
            run=record.id,
            model=model.config.model_dump(mode="json"),
            task=record.config["task"],
            source=source if source["name"] in _KEPT else {},
            classes=record.data.get("classes", []),
            columns=record.data.get("columns", []),
            table=record.data.get("table", {}),
            raw=isinstance(model, RawModel),
            metrics=record.metrics["test"] if choice is None else choice.chosen.test or {},
            int8={} if choice is None else asdict(choice),
        )
        write_json(folder / CONFIG, content.model)
        write_text(folder / CARD, model_card(content, record, math.prod(original.input_shape)))
        names = (file.name, TASK, CONFIG, CARD)
        write_exported(folder, replace(content, files={name: sha256(folder / name) for name in names}))
        size = file.stat().st_size
    return Written(out, to, size, error, note, choice)


def _check_int8(int8: Int8, to: str) -> None:
    if to != "onnx":
        raise UserError(f"--int8 applies to onnx, not to {to}; type --to onnx")
    if int8.cost not in COSTS:
        raise UserError(f"--cost {int8.cost!r}: {nearest(int8.cost, COSTS)}")
    if int8.tolerance is not None and not 0 <= int8.tolerance < math.inf:
        raise UserError(f"--tolerance {int8.tolerance} must be 0 or more, in units of the task's objective")


def _choose_layers(record: RunRecord, model: nn.Module, task: Task, int8: Int8) -> Choice:
    source = record.config["source"]
    data = load_data(component("sources", source), int8.data_dir)
    if data.fingerprint != record.fingerprint:
        task.refuse_other_data(data, source)
        raise UserError(f"run {record.id} was trained on other data than {source['name']} gives here")
    try:
        return choose_int8(model, task, data, int8)
    except UserError as error:
        raise UserError(f"{error}; leave out --int8") from None


def choose_int8(model: nn.Module, task: Task, data: Data, int8: Int8, quality: str | None = None) -> Choice:
    """Measured on the model alone, because the task scales the rows of the data itself."""
    splits: tuple[SplitName, ...] = ("validation", "test")
    rows = {split: Rows.of(data.split(split), torch.device("cpu")) for split in splits}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILES["onnx"]
        write_format(file, model, "onnx")
        return choose_layers(file, model, task, rows, int8.cost, int8.tolerance, int8.tell, quality)


@contextmanager
def _write_aside(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that replaces it on success; on failure, ``out`` stays unchanged."""
    target = resolve_links(out)
    make_folder(target.parent)
    remove_abandoned(target)
    try:
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise UserError(f"cannot create the folder {out}: {error.strerror}") from None
    try:
        with hold_lock(aside):
            yield aside
            _replace_export(aside, target)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _replace_export(aside: Path, target: Path) -> None:
    """Move the files; others in the target stay. It is a valid export at any moment, so a killed call can rerun."""
    if not target.exists():
        aside.chmod(0o755)  # mkdtemp allows only the owner to read
        aside.rename(target)
        return
    names = {path.name for path in aside.iterdir()}
    for name in sorted(names, key=lambda name: name == EXPORT):
        (aside / name).replace(target / name)
    for name in set(FILES.values()) - names:  # left by another format
        (target / name).unlink(missing_ok=True)


def write_format(file: Path, model: nn.Module, to: FormatName) -> None:
    if to in ("safetensors", "narrow"):
        config: Any = model.config
        write_whole_model(file, model, config.model_dump(mode="json"))
        return
    from isthmus.export.onnx_format import write_onnx
    from isthmus.export.torch_format import trace_program, write_program

    (write_onnx if to == "onnx" else write_program)(file, trace_program(model))


def read_format(file: Path, to: FormatName) -> nn.Module:
    if to in ("safetensors", "narrow"):
        return load_model(file)
    from isthmus.export.onnx_format import read_onnx
    from isthmus.export.torch_format import read_program

    return read_onnx(file) if to == "onnx" else read_program(file)


@torch.no_grad()
def compare_outputs(model: nn.Module, other: nn.Module, file: Path, tolerance: float = TOLERANCE) -> float:
    """The largest difference of outputs for batches of several sizes, relative to the largest output."""
    errors = []
    for rows in _ROWS:
        x = make_example(model, rows, seed=rows)
        expected, found = model.eval()(x), other(x)
        if found.shape != expected.shape:
            raise UserError(f"{file} gives {tuple(found.shape)} where the model gives {tuple(expected.shape)}")
        scale = expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
        errors.append(float((found - expected).abs().max() / scale))
    worst = max(errors, key=lambda error: (math.isnan(error), error))  # max alone passes over NaN
    if not worst <= tolerance:
        raise UserError(f"{file} differs from the model by {worst:.2g} of its largest output; nothing was exported")
    return worst
