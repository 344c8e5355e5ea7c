"""Trained models in portable and faster formats, and predictions on files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Gain", "HubModel", "export_run", "fold", "narrow", "narrow_gain"]

if TYPE_CHECKING:
    from isthmus.export.formats import export_run
    from isthmus.export.graphs import fold
    from isthmus.export.hub import HubModel
    from isthmus.export.narrow_form import Gain, narrow, narrow_gain

_HOMES = {
    "Gain": "narrow_form",
    "HubModel": "hub",
    "export_run": "formats",
    "fold": "graphs",
    "narrow": "narrow_form",
    "narrow_gain": "narrow_form",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus.export' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isthmus.export.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
