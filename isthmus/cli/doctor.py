"""``isthmus doctor``: checks this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import NamedTuple

import typer

from isthmus.cli.options import Json
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, home
from isthmus.core.machine import bfloat16_works, machine, memory_bytes, versions

_EXTRAS = {
    "datasets": ("hub", "data sets of the Hugging Face hub"),
    "lightning_fabric": ("devices", "training on several devices"),
    "tensorboard": ("tensorboard", "TensorBoard logs"),
    "mlflow": ("mlflow", "runs in MLflow"),
    "onnxruntime": ("export", "ONNX files"),
}


class Finding(NamedTuple):
    subject: str
    found: str
    good: bool
    advice: str = ""
    optional: bool = False


def _need(subject: str, found: str, good: bool, advice: str, optional: bool = False) -> Finding:
    """A finding that needs advice only if it is not good."""
    return Finding(subject, found, good, "" if good else advice, optional)


def _check_system() -> Iterator[Finding]:
    memory = memory_bytes() / 2**30
    yield _need("python", platform.python_version(), sys.version_info >= (3, 11), "install 3.11 or newer")
    yield Finding("cores", str(os.cpu_count()), True, "threads=N uses more than the default 2")
    yield _need("memory", f"{memory:.1f} GiB", memory > 2, "the demo needs about 2 GiB")
    yield Finding("torch", versions(("torch",))["torch"], True)
    short = bfloat16_works()
    yield _need("bfloat16", "works" if short else "fails", short, "keep train.precision=float32", True)
    gpus = machine().get("gpus", [])
    advice = "train.device=cuda uses it" if gpus else "not needed: the CPU is used"
    yield Finding("GPU", ", ".join(gpus) or "none", bool(gpus), advice, True)
    compiler = shutil.which("g++") or shutil.which("clang++")
    yield _need("C++ compiler", compiler or "none", bool(compiler), "train.compile needs one", True)


def _check_folders() -> Iterator[Finding]:
    try:
        place, data = home(), data_dir()
    except UserError as error:  # no home folder
        yield Finding("ISTHMUS_HOME", "none", False, str(error))
        return
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    free = shutil.disk_usage(existing).free / 2**30
    present = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    found = f"{data}: {', '.join(present[:6]) or 'nothing'}"
    yield _need("ISTHMUS_HOME", str(place), writable, "set it to a writable folder")
    yield _need("free disk", f"{free:.0f} GiB", free > 1, "the demo needs about 0.3 GiB")
    yield _need("ISTHMUS_DATA", found, bool(present), "only MNIST, CIFAR and other large data need it", True)


def _check_extras() -> Iterator[Finding]:
    for package, (extra, use) in _EXTRAS.items():
        is_here = importlib.util.find_spec(package) is not None
        advice = f"pip install 'isthmus[{extra}]' for {use}"
        yield _need(package, "installed" if is_here else "missing", is_here, advice, True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    yield _need("chromium", chromium or "missing", bool(chromium), "only one test needs it", True)


def doctor(as_json: Json = False) -> None:
    """Check this machine: versions, memory, disk, GPU and optional packages."""
    from rich.text import Text

    from isthmus.cli import terminal

    findings = [*_check_system(), *_check_folders(), *_check_extras()]
    if as_json:
        terminal.print_json([finding._asdict() for finding in findings])
    else:
        marks = {True: Text("✓", "green"), False: Text("–", "yellow")}
        rows = [[marks[finding.good], finding.subject, finding.found, finding.advice] for finding in findings]
        terminal.print_table("", ["", "item", "found", "advice"], rows)
    raise typer.Exit(0 if all(finding.good or finding.optional for finding in findings) else 1)
