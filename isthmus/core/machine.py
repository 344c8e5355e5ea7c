"""What this machine is and which versions it runs: the part of a record that explains a difference."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("isthmus", "torch", "numpy", "torchmetrics", "safetensors", "pydantic")

CAN_CHANGE_BITS = (
    "core/draws.py", "core/protocols.py", "core/train_config.py", "layers/", "models/", "sources/", "tasks/",
    "training/",
)  # fmt: skip
"""What a run's result depends on: folders and files of the package. A test keeps the list of the others."""


def machine() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what a step has freed for the next one, where it would give it back and fault it in again.

    That is up to a gigabyte, in blocks of up to 32 MB. C libraries without this setting are left as they are.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(_MMAP_THRESHOLD, 1 << 25)
    set_option(_TRIM_THRESHOLD, 1 << 30)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's malloc.h."""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


@cache
def code_version(*modules: str) -> dict[str, str]:
    """The release, and a digest of every file of ours that can change a run's bits; ``modules`` are other packages'."""
    root = Path(__file__).parents[1]
    content = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if place.startswith(CAN_CHANGE_BITS):
            content.update(place.encode() + b"\0" + path.read_bytes())
    for name in modules:
        file = sys.modules[name].__file__
        content.update(name.encode() + b"\0" + (Path(file).read_bytes() if file else b""))
    return {"version": versions(("isthmus",))["isthmus"], "digest": content.hexdigest()[:16]}


@cache
def bfloat16_works() -> bool:
    """Some virtual machines announce instructions that kill the process that uses them; so another one tries."""
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum().item()"
    return subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode == 0
