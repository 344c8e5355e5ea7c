"""The diary of a run folder: a line per log entry, and the state from which a stopped run goes on."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from isthmus.errors import UserError
from isthmus.files import sha256, write_text
from isthmus.record import METRICS, read_metrics
from isthmus.training.checkpoint import State


class Journal:
    """What the loop writes to and resumes from. Of several processes only one ``writes``."""

    def __init__(
        self,
        folder: Path,
        *,
        code: str,
        other_code: bool,
        save_every: float,
        stop: Callable[[], bool],
        heard: Callable[[Mapping[str, Any]], None],
        tensorboard: bool,
        writes: bool,
    ) -> None:
        self.folder, self.code, self.other_code = folder, code, other_code
        self.save_every, self.stop_is_asked, self.heard, self.writes = save_every, stop, heard, writes
        self.state = State(folder)
        self.saved_at = time.monotonic()
        self._board: Any = _tensorboard(folder / "tensorboard") if tensorboard and writes else None
        self._lines: TextIO | None = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lines is not None:
            os.fsync(self._lines.fileno())
            self._lines.close()
        if self._board is not None:
            self._board.close()

    def resume(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The saved state, with the log cut back to its step."""
        saved = self.state.load(self.code, self.other_code)
        log, kept = self.folder / METRICS, ""
        if saved is not None:
            known = saved[1].pop("log")
            lines = [line for line in read_metrics(self.folder) if line["step"] <= saved[1]["step"]]
            kept = "".join(json.dumps(line) + "\n" for line in lines)
            if self.writes and hashlib.sha256(kept.encode()).hexdigest() != known:
                raise UserError(
                    f"{log} was altered since the run stopped; `isthmus runs clean {self.folder.name}` starts it again"
                )
        if self.writes:
            write_text(log, kept)
            self._lines = log.open("a", encoding="utf-8")
        return saved

    def log(self, line: Mapping[str, Any]) -> None:
        if self._lines is None:
            return
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        self.heard(line)
        if self._board is not None:
            for name in line.keys() - {"step", "epoch", "split", "seconds", "metric_versions"}:
                self._board.add_scalar(f"{line['split']}/{name}", line[name], line["step"])

    def save_is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.save_every

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        if self._lines is not None:
            os.fsync(self._lines.fileno())  # the log up to this step must outlive the state that goes on from it
        self.state.save(tensors, {**values, "log": sha256(self.folder / METRICS)}, self.code)
        self.saved_at = time.monotonic()


def _tensorboard(folder: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs TensorBoard: pip install 'isthmus[tensorboard]'") from None
    return SummaryWriter(str(folder))
