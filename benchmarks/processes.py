"""A home of its own for a measurement, and a fresh process for a measurement of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def empty_home() -> Iterator[Path]:
    """ISTHMUS_HOME is a temporary folder."""
    before = os.environ.get("ISTHMUS_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ISTHMUS_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["ISTHMUS_HOME"]
            else:
                os.environ["ISTHMUS_HOME"] = before


def ask_new_process(module: str, **request: object) -> int:
    """The number that a module prints when it is run with this request, as JSON, in a process of its own."""
    command = [sys.executable, "-m", module, json.dumps(request)]
    finished = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    return int(finished.stdout)


def read_memory(field: str) -> int:
    """Bytes of this process: ``VmRSS`` now, ``VmHWM`` at the peak. getrusage also counts the parent's peak."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024
