"""A trained model as a faster or a portable one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Gain", "HubModel", "export_run", "folded", "narrow", "narrow_gain"]

if TYPE_CHECKING:
    from isthmus.export.folding import folded
    from isthmus.export.hub import HubModel
    from isthmus.export.narrowing import Gain, narrow, narrow_gain
    from isthmus.export.writing import export_run

_HOMES = {
    "Gain": "narrowing",
    "HubModel": "hub",
    "export_run": "writing",
    "folded": "folding",
    "narrow": "narrowing",
    "narrow_gain": "narrowing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus.export' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isthmus.export.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
