"""How a task's predictions are made and shown: what a predictor is given, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from isthmus.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Progress = Callable[[Path, int], None]
"""Called when a file is opened, and with the number of rows done so far."""


def show_nothing(file: Path, rows: int) -> None:
    pass


@dataclass(frozen=True)
class Trained:
    """A trained run or an export, opened to predict."""

    name: str
    """The id or folder that the user gave."""
    model: Any
    task: Any
    source: Mapping[str, Any]
    """The settings of its source; an export keeps them only if predictions need them."""
    classes: Sequence[str] = ()
    columns: Sequence[str] = ()
    takes_flat_rows: bool = False
    """An exported MLP takes vectors; the MLP itself also flattens images."""

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

    def as_json(self, predictions: Iterable[Prediction]) -> Any:
        return [prediction.content for prediction in predictions]
