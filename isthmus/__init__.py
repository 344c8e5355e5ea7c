"""Isthmus finds, trains and explains the shape of residual networks: wide skips, narrow computation.

The public functions are imported with their first use, so that ``import isthmus`` stays light. Other names have an
underscore, so that completion shows the public ones only.
"""

import typing as _typing

__version__ = "0.1.0"
__all__ = [
    "UserError", "compare", "cost", "create_model", "effective_weight", "find", "list_models", "load", "plot", "report",
    "runs", "study", "train",
]  # fmt: skip

if _typing.TYPE_CHECKING:
    from isthmus.api.compare import compare
    from isthmus.api.records import plot, report, runs
    from isthmus.api.study import study
    from isthmus.api.train import train
    from isthmus.core.errors import UserError
    from isthmus.core.registry import create_model, list_models
    from isthmus.export.prediction import load
    from isthmus.layers.effective_weight import effective_weight
    from isthmus.search.engine import find
    from isthmus.training.counting import cost

_HOMES = {
    "UserError": "isthmus.core.errors",
    "compare": "isthmus.api.compare",
    "cost": "isthmus.training.counting",
    "create_model": "isthmus.core.registry",
    "effective_weight": "isthmus.layers.effective_weight",
    "find": "isthmus.search.engine",
    "list_models": "isthmus.core.registry",
    "load": "isthmus.export.prediction",
    "plot": "isthmus.api.records",
    "report": "isthmus.api.records",
    "runs": "isthmus.api.records",
    "study": "isthmus.api.study",
    "train": "isthmus.api.train",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus' has no attribute {name!r}")
    import importlib
    import warnings

    with warnings.catch_warnings():
        # By tqdm, which Optuna imports, in a notebook without ipywidgets; our bars need neither.
        warnings.filterwarnings("ignore", message="IProgress not found")
        value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
