"""A finished run, and its measurements, which are stored beside its record."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.core.config import run_config
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, write_sealed
from isthmus.core.protocols import Batch, Data, Task
from isthmus.core.record import find_run, read_record
from isthmus.core.registry import component
from isthmus.training.devices import best_device
from isthmus.training.loading import load_model, load_task
from isthmus.training.loop import EVALUATION_BLOCK, Rows
from isthmus.training.prepare import Options, load_data, starting_model

Answer = dict[str, Any]
Measure = Callable[["TrainedRun"], Answer]
OfRun = Callable[..., Answer]
Applies = Callable[[Any, str], str | None]
CPU = torch.device("cpu")


class TrainedRun:
    """A finished run. Its model (in evaluation mode), task and data are loaded when first used.

    The model and its batches are on a GPU where there is one, or on the given device.
    """

    def __init__(self, run: str | Path, data_dir: Path | None = None, device: torch.device | None = None) -> None:
        self.folder, self.data_dir = find_run(run), data_dir
        self.device = device or best_device()
        self.record = read_record(self.folder)

    @cached_property
    def model(self) -> Any:
        return load_model(self.folder).to(self.device)

    @cached_property
    def task(self) -> Task:
        return load_task(self.folder)

    @cached_property
    def data(self) -> Data:
        """The data of the training; other data are an error."""
        source = self.record.config["source"]
        data = load_data(component("sources", source), self.data_dir)
        if data.fingerprint != self.record.fingerprint:
            self.task.refuse_other_data(data, source)
            raise UserError(f"run {self.record.id} was trained on other data than {source['name']} gives here")
        return data

    def load_initial(self) -> TrainedRun:
        """The same run with its initial weights."""
        config = run_config(self.record.config).model_copy(update={"init": None})
        other = copy.copy(self)
        other.model = starting_model(config, Options()).model.eval().to(self.device)
        return other

    def test_inputs(self, rows: int, batch: int, least: int = 1) -> Iterator[Tensor]:
        """At most ``rows`` test rows as model inputs, the same for every run on these data."""
        for drawn in self.drawn_batches(rows, batch, least):
            yield drawn.input

    def drawn_batches(self, rows: int, batch: int, least: int = 1) -> Iterator[Batch]:
        """At most ``rows`` test rows, the same for every run on these data.

        They are drawn at random, because a source may sort its rows by class. A last batch with fewer than ``least``
        rows is left out.
        """
        order = torch.randperm(len(self.data.test), generator=torch_generator(0, "analysed rows"))[:rows]
        split = Rows.of(self.data.test, self.device)
        for block, index in enumerate(order.split(batch)):
            if len(index) >= least:
                yield self.task.evaluation_batch(*split.take(index, self.device), "test", block)

    def test_batches(self) -> Iterator[Batch]:
        """All test rows, with the inputs that the run was tested with."""
        split = Rows.of(self.data.test, self.device)
        for block, start in enumerate(range(0, len(split), EVALUATION_BLOCK)):
            yield self.task.evaluation_batch(*split.block(start, self.device), "test", block)

    def need(self, applies: Applies, analysis: str) -> None:
        """Raise an error if an analysis does not apply to this run."""
        if (reason := applies(self.model, self.record.task)) is not None:
            raise UserError(f"{analysis} does not apply to run {self.record.id}: {reason}")


def measure_once(
    run: str | Path,
    name: str,
    schema: str,
    measure: Measure,
    applies: Applies,
    data_dir: Path | None = None,
    device: torch.device | None = None,
) -> Answer:
    """The result of ``measure``, which is stored in the sealed ``analysis/NAME.json`` and read from there later."""
    trained = TrainedRun(run, data_dir, device)
    identity, path = trained.record.id, trained.folder / "analysis" / f"{name}.json"
    if path.is_file() and (known := read_sealed(path)).get("schema") == schema and known.get("run") == identity:
        return known
    trained.need(applies, schema.split(".")[-1].split("/")[0])
    found = {"schema": schema, "run": identity, **measure(trained)}
    write_sealed(path, found)
    return found


def store_results(schema: str, applies: Applies, device: torch.device | None = None) -> Callable[[Measure], OfRun]:
    """A decorator that makes ``of_run(run, data_dir)`` of a function that measures a ``TrainedRun`` on a device."""
    name = schema.split(".")[-1].split("/")[0]

    def decorate(measure: Measure) -> OfRun:
        def of_run(run: str | Path, data_dir: Path | None = None) -> Answer:
            return measure_once(run, name, schema, measure, applies, data_dir, device)

        of_run.__doc__ = measure.__doc__
        return of_run

    return decorate


def round_values(values: Tensor, digits: int = 4) -> Any:
    """Nested lists, rounded to this many significant digits of the largest number, for a picture."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    places = digits - 1 - math.floor(math.log10(largest)) if largest > 0 else 0
    return _map_numbers(lambda value: round(value, places), values.double().tolist())


def finite_values(values: Tensor) -> Any:
    """Nested lists with None for infinity and NaN, which JSON does not have."""
    return _map_numbers(lambda value: value if math.isfinite(value) else None, values.double().tolist())


def _map_numbers(function: Callable[[float], float | None], values: Any) -> Any:
    return [_map_numbers(function, value) for value in values] if isinstance(values, list) else function(values)
