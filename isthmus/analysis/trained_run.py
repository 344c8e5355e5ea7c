"""A finished run to measure, and its measurements, kept beside its record."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.core.config import run_config
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, write_sealed
from isthmus.core.protocols import Data, Task
from isthmus.core.record import find_run, read_record
from isthmus.core.registry import component
from isthmus.training.loading import load_model, load_task
from isthmus.training.loop import Rows
from isthmus.training.run import Options, load_data, starting_model

Answer = dict[str, Any]


class TrainedRun:
    """A finished run. Its model (in evaluation mode), task and data are loaded when first used."""

    def __init__(self, run: str | Path, data_dir: Path | None = None) -> None:
        self.folder, self.data_dir = find_run(run), data_dir
        self.record = read_record(self.folder)

    @cached_property
    def model(self) -> Any:
        return load_model(self.folder)

    @cached_property
    def task(self) -> Task:
        return load_task(self.folder)

    @cached_property
    def data(self) -> Data:
        """The data of the training; other data are refused."""
        source = self.record.config["source"]
        data = load_data(component("sources", source), self.data_dir)
        if data.fingerprint != self.record.fingerprint:
            self.task.refuse_other_data(data, source)
            raise UserError(f"run {self.record.id} was trained on other data than {source['name']} gives here")
        return data

    def untrained(self) -> TrainedRun:
        """The same run with the weights that its seed drew."""
        config = run_config(self.record.config).model_copy(update={"init": None})
        other = copy.copy(self)
        other.model = starting_model(config, Options()).model.eval()
        return other

    def test_inputs(self, rows: int, batch: int, least: int = 1) -> Iterator[Tensor]:
        """At most this many test rows as model inputs, the same for every run on these data.

        They are drawn, because a source may keep its rows in the order of their classes. A last batch with fewer than
        ``least`` rows is left out.
        """
        order = torch.randperm(len(self.data.test), generator=torch_generator(0, "analysed rows"))[:rows]
        device = torch.device("cpu")
        split = Rows.of(self.data.test, device)
        for block, index in enumerate(order.split(batch)):
            if len(index) >= least:
                yield self.task.evaluation_batch(*split.take(index, device), "test", block).input

    def need(self, applies: Callable[[Any, str], str | None], analysis: str) -> None:
        """Refuse a run that an analysis does not apply to."""
        if (reason := applies(self.model, self.record.task)) is not None:
            raise UserError(f"{analysis} does not apply to run {self.record.id}: {reason}")


def measure_once(
    run: str | Path,
    name: str,
    schema: str,
    measure: Callable[[TrainedRun], Mapping[str, Any]],
    applies: Callable[[Any, str], str | None],
    data_dir: Path | None = None,
) -> Answer:
    """What ``measure`` returns for a run, or returned before: the sealed ``analysis/NAME.json`` keeps it."""
    trained = TrainedRun(run, data_dir)
    identity, path = trained.record.id, trained.folder / "analysis" / f"{name}.json"
    if path.is_file() and (known := read_sealed(path)).get("schema") == schema and known.get("run") == identity:
        return known
    trained.need(applies, schema.split(".")[-1].split("/")[0])
    found = {"schema": schema, "run": identity, **measure(trained)}
    write_sealed(path, found)
    return found


def round_values(values: Tensor, digits: int = 4) -> Any:
    """Nested lists with this many significant digits of the largest number: enough for a picture."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not largest > 0:
        return torch.zeros(values.shape).tolist()
    places = digits - 1 - math.floor(math.log10(largest))
    return _round(values.double().tolist(), places)


def _round(values: Any, places: int) -> Any:
    return [_round(value, places) for value in values] if isinstance(values, list) else round(values, places)
