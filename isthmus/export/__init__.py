"""A trained model as a faster or a portable one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Gain", "narrow", "narrow_gain"]

if TYPE_CHECKING:
    from isthmus.export.narrowing import Gain, narrow, narrow_gain


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'isthmus.export' has no attribute {name!r}")
    from isthmus.export import narrowing

    return getattr(narrowing, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
