"""What must be the same after a run that was stopped or killed and one that was not."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from isthmus.core.record import MODEL, read_metrics


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / MODEL).read_bytes()).hexdigest()


def without_time(folder: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_metrics(folder)]
