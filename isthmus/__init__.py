"""Isthmus finds, trains and explains the shape of residual networks: wide skips, narrow computation.

The public functions are imported with their first use, so that ``import isthmus`` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["UserError", "cost", "create_model", "effective_weight", "find", "list_models", "load"]

if TYPE_CHECKING:
    from isthmus.core.errors import UserError
    from isthmus.core.registry import create_model, list_models
    from isthmus.export.prediction import load
    from isthmus.layers.effective_weight import effective_weight
    from isthmus.search.engine import find
    from isthmus.training.counting import cost

_HOMES = {
    "create_model": "isthmus.core.registry",
    "list_models": "isthmus.core.registry",
    "cost": "isthmus.training.counting",
    "find": "isthmus.search.engine",
    "load": "isthmus.export.prediction",
    "effective_weight": "isthmus.layers.effective_weight",
    "UserError": "isthmus.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
