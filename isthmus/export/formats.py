"""Exports of trained runs: written in another format, and compared with the original before they replace anything."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import hold_lock, make_folder, remove_abandoned, resolve_links, sha256, write_json, write_text
from isthmus.core.record import CONFIG, TASK, find_run, read_record
from isthmus.export.cards import model_card
from isthmus.export.graphs import make_example
from isthmus.export.narrow_form import choose_form
from isthmus.export.raw_form import RawModel, raw_form
from isthmus.training.checkpoint import write_tensors, write_whole_model
from isthmus.training.exported import EXPORT, FILES, FORMATS, Exported, FormatName, is_exported, write_exported
from isthmus.training.loading import load_model, load_task

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


def export_run(run: str | Path, to: str, out: Path, *, bare: bool = False) -> Written:
    """Write a finished run into the folder ``out`` as one of ``FORMATS``.

    A graph (``onnx`` or ``torch``) for rows of features takes raw columns and gives values in the units of the targets,
    or probabilities; with ``bare``, it is the model alone.
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
    original: Any = load_model(run)
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
        error = compare_outputs(original, read_format(file, to), out / file.name)
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
            metrics=record.metrics["test"],
        )
        write_json(folder / CONFIG, content.model)
        write_text(folder / CARD, model_card(content, record, math.prod(original.input_shape)))
        names = (file.name, TASK, CONFIG, CARD)
        write_exported(folder, replace(content, files={name: sha256(folder / name) for name in names}))
        size = file.stat().st_size
    return Written(out, to, size, error, note)


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
def compare_outputs(model: nn.Module, other: nn.Module, file: Path) -> float:
    """The largest difference of outputs for batches of several sizes, relative to the largest output."""
    worst = 0.0
    for rows in _ROWS:
        x = make_example(model, rows, seed=rows)
        expected, found = model.eval()(x), other(x)
        if found.shape != expected.shape:
            raise UserError(f"{file} gives {tuple(found.shape)} where the model gives {tuple(expected.shape)}")
        scale = expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
        worst = max(worst, float((found - expected).abs().max() / scale))
    if not worst <= TOLERANCE:
        raise UserError(f"{file} differs from the model by {worst:.2g} of its largest output; nothing was exported")
    return worst
