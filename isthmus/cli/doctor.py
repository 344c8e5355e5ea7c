"""``isthmus doctor``: checks this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass

import typer

from isthmus.cli.options import Json
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, home
from isthmus.core.machine import bfloat16_works, memory_bytes, versions

_EXTRAS = {
    "datasets": ("hub", "data sets of the Hugging Face hub"),
    "lightning_fabric": ("devices", "training on several devices"),
    "tensorboard": ("tensorboard", "TensorBoard logs"),
    "onnxruntime": ("export", "ONNX files"),
}


@dataclass(frozen=True)
class Finding:
    subject: str
    found: str
    good: bool
    advice: str = ""
    optional: bool = False


def diagnose() -> list[Finding]:
    return [*_system(), *_torch(), *_folders(), *_extras()]


def _system() -> list[Finding]:
    python, recent = ".".join(map(str, sys.version_info[:3])), sys.version_info >= (3, 11)
    memory = memory_bytes() / 2**30
    return [
        Finding("python", python, recent, "" if recent else "install 3.11 or newer"),
        Finding("cores", str(os.cpu_count()), True, "threads=N uses more than the default 2"),
        Finding("memory", f"{memory:.1f} GiB", memory > 2, "" if memory > 2 else "the demo needs about 2 GiB"),
    ]


def _torch() -> list[Finding]:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(gpus)) or "none"
    compiler = shutil.which("g++") or shutil.which("clang++")
    short = bfloat16_works()
    return [
        Finding("torch", versions(("torch",))["torch"], True),
        Finding(
            "bfloat16", "works" if short else "fails", short, "" if short else "keep train.precision=float32", True
        ),
        Finding("GPU", names, gpus > 0, "train.device=cuda uses it" if gpus else "not needed: the CPU is used", True),
        Finding(
            "C++ compiler", compiler or "none", bool(compiler), "" if compiler else "train.compile needs one", True
        ),
    ]


def _folders() -> list[Finding]:
    try:
        place, data = home(), data_dir()
    except UserError as error:  # no home folder
        return [Finding("ISTHMUS_HOME", "none", False, str(error))]
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    free = shutil.disk_usage(existing).free / 2**30
    present = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    advice = "" if present else "only MNIST, CIFAR and other large data need it"
    return [
        Finding("ISTHMUS_HOME", str(place), writable, "" if writable else "set it to a writable folder"),
        Finding("free disk", f"{free:.0f} GiB", free > 1, "" if free > 1 else "the demo needs about 0.3 GiB"),
        Finding("ISTHMUS_DATA", f"{data}: {', '.join(present[:6]) or 'nothing'}", bool(present), advice, True),
    ]


def _extras() -> list[Finding]:
    findings = []
    for package, (extra, use) in _EXTRAS.items():
        there = importlib.util.find_spec(package) is not None
        advice = "" if there else f"pip install 'isthmus[{extra}]' for {use}"
        findings.append(Finding(package, "installed" if there else "missing", there, advice, optional=True))
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    advice = "" if chromium else "only one test needs it"
    findings.append(Finding("chromium", chromium or "missing", chromium is not None, advice, True))
    return findings


def doctor(as_json: Json = False) -> None:
    """Check this machine: versions, memory, disk, GPU and optional packages."""
    from rich.text import Text

    from isthmus.cli import terminal

    findings = diagnose()
    if as_json:
        terminal.print_json([vars(finding) for finding in findings])
    else:
        marks = {True: Text("✓", "green"), False: Text("–", "yellow")}
        rows = [[marks[finding.good], finding.subject, finding.found, finding.advice] for finding in findings]
        terminal.print_table("", ["", "item", "found", "advice"], rows)
    raise typer.Exit(0 if all(finding.good or finding.optional for finding in findings) else 1)
