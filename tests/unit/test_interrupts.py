"""Signals end a command wherever they arrive."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from isthmus.cli.options import command_line
from isthmus.core.interrupts import end_on_signals, exit_code


class Ending:
    """Receives a signal while it is being finalised, where Python ignores exceptions."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def test_a_signal_within_a_finalizer_is_not_lost() -> None:
    def work() -> None:
        ending = Ending()
        del ending
        time.sleep(60)

    with end_on_signals(), pytest.raises(KeyboardInterrupt):
        work()
    assert exit_code() == 143


def test_a_password_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["isthmus", "study", "--storage", "postgresql://me:secret@host/db"])
    assert "secret" not in command_line()
    assert "me:***@host/db" in command_line()
