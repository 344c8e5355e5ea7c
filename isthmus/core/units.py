"""Amounts and times as people type and read them: 200k parameters, 90s, 1 h 05 min."""

from __future__ import annotations

import math
import re
from typing import Any

from isthmus.core.errors import UserError

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_AMOUNT = 40


def amount(value: Any) -> Any:
    """Convert ``200k`` and ``1.5M`` to numbers; other values are returned for pydantic to check."""
    if not isinstance(value, str) or len(value) > _LONGEST_AMOUNT:
        return value
    if match := re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgb]?)", value.strip().lower(), re.ASCII):
        number = float(match[1]) * _SCALES[match[2]]
        if math.isfinite(number):
            return int(number) if number.is_integer() else number
    return value


def parse_seconds(text: float | str) -> float:
    """``90s``, ``30m``, ``1.5h`` or a number of seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", str(text).strip(), re.ASCII)
    if not match or not float(match[1]):
        raise UserError(f"{str(text)[:60]!r} is not a time; give one such as 90s, 30m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def duration(seconds: float) -> str:
    """Seconds as text, such as 1 h 05 min."""
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
