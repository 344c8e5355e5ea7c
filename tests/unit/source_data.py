"""Loads a source by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.core.registry import component, find


def load_source(name: str, data_dir: Path, **fields: Any) -> Any:
    return find("sources", name)(component("sources", {"name": name, **fields})).load(data_dir)
