"""A finished run, opened to be measured, and answers that are kept beside its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.core.config import run_config
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, write_sealed
from isthmus.core.protocols import Data, Task
from isthmus.core.record import RunRecord, find_run, read_record
from isthmus.core.registry import component
from isthmus.training.loading import load, load_task
from isthmus.training.loop import Rows
from isthmus.training.run import Options, load_data, starting_model

Answer = dict[str, Any]


@dataclass(frozen=True)
class Opened:
    """The trained model, ready for evaluation, the task with what it learned, and the data that both know."""

    folder: Path
    record: RunRecord
    model: Any
    task: Task
    data: Data

    def test_inputs(self, rows: int, batch: int, least: int = 1) -> Iterator[Tensor]:
        """At most so many rows of the test split as model inputs: drawn once and for every run of these data alike.

        Drawn, because a source may keep its rows in the order of their classes. A last batch below ``least`` is left
        out.
        """
        order = torch.randperm(len(self.data.test), generator=torch_generator(0, "analysed rows"))[:rows]
        device = torch.device("cpu")
        split = Rows.of(self.data.test, device)
        for block, index in enumerate(order.split(batch)):
            if len(index) >= least:
                yield self.task.evaluation_batch(*split.take(index, device), "test", block).input


def open_run(run: str | Path, data_dir: Path | None = None) -> Opened:
    folder = find_run(run)
    record = read_record(folder)
    model, task = load(folder), load_task(folder)
    source = record.config["source"]
    data = load_data(component("sources", source), data_dir)
    if data.fingerprint != record.fingerprint:
        task.refuse_other_data(data, source)
        raise UserError(f"run {record.id} was trained on other data than {source['name']} gives here")
    return Opened(folder, record, model, task, data)


def untrained(record: RunRecord) -> Any:
    """The run's model as its seed drew it, ready for evaluation."""
    config = run_config(record.config).model_copy(update={"init": None})
    return starting_model(config, Options()).model.eval()


def once(run: str | Path, name: str, schema: str, measure: Callable[[Path], Mapping[str, Any]]) -> Answer:
    """What ``measure`` says of a run's folder, or said before: ``analysis/NAME.json`` holds it, sealed."""
    folder = find_run(run)
    record = read_record(folder)
    path = folder / "analysis" / f"{name}.json"
    if path.is_file() and (known := read_sealed(path)).get("schema") == schema and known.get("run") == record.id:
        return known
    found = {"schema": schema, "run": record.id, **measure(folder)}
    write_sealed(path, found)
    return found


def need(reason: str | None, title: str, record: RunRecord) -> None:
    """``applies`` as an error of the user's."""
    if reason is not None:
        raise UserError(f"{title} does not apply to run {record.id}: {reason}")


def rounded(values: Tensor, digits: int = 4) -> Any:
    """Numbers for a picture, as nested lists of no more digits than a picture shows."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not largest > 0:
        return torch.zeros(values.shape).tolist()
    places = digits - 1 - math.floor(math.log10(largest))
    return _rounded(values.double().tolist(), places)


def _rounded(values: Any, places: int) -> Any:
    return [_rounded(value, places) for value in values] if isinstance(values, list) else round(values, places)
