"""How predictions are made and shown: the trained model that takes raw rows, and the predictor of its task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord
from isthmus.core.titles import model_title

if TYPE_CHECKING:
    from torch import Tensor

Progress = Callable[[Path, int], None]
"""Called when a file is opened, and with the number of rows done so far."""


def show_nothing(file: Path, rows: int) -> None:
    pass


@dataclass(frozen=True, repr=False, eq=False)
class Trained:
    """A trained model that takes your rows as they are and answers in your units; `isthmus.load` opens it.

    Called with a tensor, it gives ``model(x)``.
    """

    name: str
    """The id, folder or file that the user gave."""
    model: Any
    """The ``torch.nn.Module`` in evaluation mode; of an ONNX or torch export, the module that runs its graph."""
    task: Any = None
    """The task with what it learned; None for a file of weights."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The settings of its source; an export keeps them only if predictions need them."""
    classes: Sequence[Any] = ()
    """The classes as ``predict`` calls them, in the order of ``predict_proba``."""
    columns: Sequence[str] = ()
    """The columns that ``predict`` needs, in the order of training; empty if they have no names."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """How the source ``table`` makes features of these columns."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the model."""
    kind: type[Predictor] | None = None
    """Makes the predictions."""
    record: RunRecord | None = None
    """The record of its run, with config, costs and metrics; None for an export or a file of weights."""
    takes_raw_rows: bool = False
    """The graph of an export may take raw columns, or their codes, and give values or probabilities."""
    takes_flat_rows: bool = False
    """An exported MLP takes vectors; the MLP itself also flattens images."""

    @property
    def id(self) -> str:
        """The id of its run."""
        return self._known_record.id

    @property
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """The metrics of its run by split: ``model.metrics["test"]``."""
        return self._known_record.metrics

    @property
    def _known_record(self) -> RunRecord:
        if self.record is None:
            raise UserError(f"{self.name} has no record; load its run (the id or the folder)")
        return self.record

    def __call__(self, x: Tensor, **options: Any) -> Tensor:
        output: Tensor = self.model(x, **options)
        return output

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        size += sum(getattr(part, "fixed_params", 0) for part in self.model.modules())
        network = model_title(self.network) if self.network else type(self.model).__name__
        task = self.task.config.name if self.task is not None else "no task"
        return f"<{Path(self.name).name}: {network}, {f'{size:,} parameters, ' if size else ''}{task}>"

    def predict(self, rows: Any) -> Any:
        """Predictions for rows, in the units of the targets or as names of classes: an array, one entry per row.

        ``rows`` is a pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts, an array (its
        columns as in training), or the path of a csv, tsv, parquet, npy or npz file. For a pandas DataFrame the result
        is a Series with the same index, or a DataFrame if there are several targets.

        A run on images takes images of any size: arrays, PIL images, paths or a folder, whose unreadable files are
        skipped with a warning. Classes of a folder are a Series by file, if pandas is installed; restored images are
        an array (images, channels, height, width), or a list if their sizes differ.
        """
        return self.open().predict_rows(rows)

    def predict_proba(self, rows: Any) -> Any:
        """The probability of each of ``classes`` (rows, classes) for rows as in ``predict``.

        For a pandas DataFrame the result is a DataFrame whose columns are the classes.
        """
        return self.open().predict_probabilities(rows)

    def open(self, **options: Any) -> Any:
        """The predictor of its task, with options of ``isthmus predict``."""
        if self.task is None or self.kind is None:
            raise UserError(
                f"{self.name} holds weights without a task, so it cannot predict; "
                "load its run (the id or the folder) or the folder of an export"
            )
        for name in options:
            if name not in self.kind.options:
                raise UserError(f"--{name} does not apply to task {self.task.config.name} of {self.name}; leave it out")
        return self.kind(self, **options)

    def with_iterations(self, iterations: int | None) -> Callable[[Tensor], Tensor]:
        """The model with another number of iterations than it was trained with; None keeps that number."""
        if iterations is None:
            function: Callable[[Tensor], Tensor] = self.model
            return function
        if not hasattr(self.model, "states"):
            raise UserError(f"--iterations applies only to recurrent models; {self.name} is not one, leave it out")
        return partial(self.model, iterations=iterations)


class Prediction(NamedTuple):
    """The result of one input: what a person reads, and the same as JSON."""

    file: str
    lines: tuple[str, ...]
    content: Any


class Predictor(ABC):
    """Makes the predictions of one task from a user's files."""

    options: ClassVar[frozenset[str]] = frozenset({"iterations"})
    """The options of ``isthmus predict`` that it takes."""

    @abstractmethod
    def __init__(self, trained: Trained, **options: Any) -> None: ...

    @abstractmethod
    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        """Check all files, then predict one after another; files of results go into the folder ``out``."""

    def predict_rows(self, rows: Any) -> Any:
        """Predictions for rows in memory or in a file; by default, the task takes files only."""
        raise UserError("the task of this run predicts from files: `isthmus predict RUN FILES`")

    def predict_probabilities(self, rows: Any) -> Any:
        """The probability of each class for the same rows."""
        raise UserError("the task of this run predicts no classes, so there are no probabilities; use predict")

    def as_json(self, predictions: Iterable[Prediction]) -> Any:
        return [prediction.content for prediction in predictions]
