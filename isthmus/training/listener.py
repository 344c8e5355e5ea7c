"""What hears of a training while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Listener:
    """Hears of a run's progress and may stop it. This one ignores everything; a subclass overrides what it needs."""

    def step(self, step: int, steps: int) -> None:
        """Called after every step."""

    def line(self, line: Mapping[str, Any]) -> None:
        """Called with every line of the log as it is written."""

    def should_stop(self) -> bool:
        """Asked after every step. True saves the state and raises ``Stopped``."""
        return False
