"""Facts about the machine, package versions and code version, for the run record."""

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
    "core/draws.py", "core/protocols.py", "core/train_config.py", "layers/", "models/", "pathways/", "sources/",
    "tasks/", "training/",
)  # fmt: skip
"""Folders and files that a run's result depends on. A test lists all others."""
_CANNOT = "_prediction.py"
"""The suffix of files of tasks that are used after training only."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""From glibc's malloc.h."""


def usable_cores() -> int:
    """The cores that this process may use: in a container or under ``taskset`` fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(threads: int) -> int:
    """As many processes of so many threads as there are cores for."""
    return max(1, usable_cores() // threads)


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
    """Let malloc keep freed memory for the next step instead of returning it to the system: up to 1 GB, in blocks of up
    to 32 MB. C libraries without ``mallopt`` are left alone."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(_MMAP_THRESHOLD, 1 << 25)
    set_option(_TRIM_THRESHOLD, 1 << 30)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    return {name: _find_version(name) for name in packages}


@cache  # reading a package's metadata takes two milliseconds
def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


@cache
def code_version(*modules: str) -> dict[str, str]:
    """The release and a digest of all files that can change a run's bits, including other packages' ``modules``."""
    root = Path(__file__).parents[1]
    content = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if place.startswith(CAN_CHANGE_BITS) and not place.endswith(_CANNOT):
            content.update(place.encode() + b"\0" + path.read_bytes())
    for name in modules:
        file = sys.modules[name].__file__
        content.update(name.encode() + b"\0" + (Path(file).read_bytes() if file else b""))
    return {"version": versions(("isthmus",))["isthmus"], "digest": content.hexdigest()[:16]}


@cache
def bfloat16_works() -> bool:
    """Tested in another process, because some virtual machines advertise instructions that crash."""
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum().item()"
    return subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode == 0
