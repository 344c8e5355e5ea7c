"""What a training writes into its run folder: the log, and the state from which a stopped run resumes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from isthmus.core.errors import UserError
from isthmus.core.files import sha256, write_text
from isthmus.core.record import METRICS, LogChecks, read_log
from isthmus.training.checkpoint import State
from isthmus.training.listener import Listener
from isthmus.training.loop import NoJournal


class Overtaken(UserError):
    """Another process resumed the run while this one was suspended."""


class Journal(NoJournal):
    """The log and the saved state of a run. Of several processes only one ``writes``."""

    def __init__(
        self,
        folder: Path,
        *,
        code: str,
        other_code: bool,
        save_every: float,
        writes: bool,
        listener: Listener,
    ) -> None:
        self.folder, self.code, self.other_code = folder, code, other_code
        self.save_every, self.writes, self.listener = save_every, writes, listener
        self.state = State(folder)
        self.saved_at = time.monotonic()
        self._lines: TextIO | None = None
        self._checks = LogChecks(folder.name)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._lines is None:
            return
        with self._lines as lines:
            os.fsync(lines.fileno())
            if kind is None:
                self._check_ownership()  # the results come next

    def resume(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The saved state, after cutting the log back to its step."""
        saved = self.state.load(self.code, self.other_code)
        log, kept = self.folder / METRICS, ""
        if saved is not None:
            known = saved[1].pop("log")
            lines = [line for line in read_log(self.folder) if line.content["step"] <= saved[1]["step"]]
            kept = "".join(f"{line.text}\n" for line in lines)
            for line in lines:
                self._checks.add(line.content)
            if self.writes and hashlib.sha256(kept.encode()).hexdigest() != known:
                raise UserError(f"{log} was altered; `isthmus runs clean {self.folder.name}` starts the run again")
        if self.writes:
            if kept:
                write_text(log, kept)
            else:
                log.unlink(missing_ok=True)
            self._lines = log.open("a", encoding="utf-8")
        return saved

    def log(self, line: Mapping[str, Any]) -> None:
        if self._lines is None:
            return
        self._check_ownership()
        text = json.dumps(line)
        self._lines.write(f'{text[:-1]}, "check": "{self._checks.add_text(text)}"}}\n')
        self._lines.flush()
        self.listener.line(line)

    def save_is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.save_every

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        if self._lines is not None:
            self._check_ownership()
            os.fsync(self._lines.fileno())  # the log up to this step must be on disk before the state is
        self.state.save(tensors, {**values, "log": sha256(self.folder / METRICS)}, self.code)
        self.saved_at = time.monotonic()

    def _check_ownership(self) -> None:
        """Raise if another process took over the run, which replaces its log file.

        A suspended machine can lose the lock of a shared folder; its late results must not mix with its successor's.
        """
        assert self._lines is not None
        path = self.folder / METRICS
        try:
            is_ours = os.path.samestat(os.fstat(self._lines.fileno()), path.stat())
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise Overtaken(f"another process has taken over the run in {self.folder}, or removed its log")
