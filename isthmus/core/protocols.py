"""The vocabulary that the parts share: settings, data, signatures, batches, tasks and models; nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from isthmus.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torchmetrics import MetricCollection

    from isthmus.core.prediction import Predictor

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


class Settings(BaseModel):
    """Frozen, keyword-only, and closed: an unknown field is an error, and so is a number that is not finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """pydantic would read ``d_h=true`` as 1."""
        for name, value in given.items() if isinstance(given, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and not _takes_truth(field.annotation):
                raise ValueError(f"{name}={str(value).lower()}: a number or a name is needed, not true or false")
        return given


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_truth(part) for part in get_args(annotation))


class Component(Settings):
    """Settings of a source, a task or a model, led by the name under which the registry knows it."""

    name: str


class Signature(NamedTuple):
    """What a task asks of a model: the shapes of one input and of one output, without the batch axis."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    vocabulary: int = 0
    """Inputs are int64 tokens below this number; 0 where they are numbers."""


class ModelConfig(Component):
    """Settings of a model. What the task or the run's seed decides may be left out and is completed here."""

    def completed(self, signature: Signature, seed: int) -> Self:
        """With what the data's shapes and the run's seed decide."""
        return self

    def fitted(self, **needed: object) -> Self:
        """With what the task needs. A config may say it too, but not otherwise."""
        for name, value in needed.items():
            if getattr(self, name) not in (None, 0, value):
                raise UserError(f"model.{name}={getattr(self, name)}, but the task needs {value}; leave it out")
        return self.changed(**needed)

    def changed(self, **fields: object) -> Self:
        """A copy with other values, checked like the original."""
        try:
            return type(self)(**self.model_dump() | fields)
        except ValidationError as error:
            said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
            raise UserError(f"{self.name}: {said}") from None


@dataclass(frozen=True)
class Split:
    """Rows of one split, in memory or memory-mapped.

    ``inputs``: uint8 images (rows, channels, height, width), float32 features (rows, features) or int16 tokens
    (rows, positions).
    ``targets``: int64 labels (rows,), float32 values (rows, outputs), int16 tokens (rows, positions), or None.
    """

    inputs: np.ndarray
    targets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Data:
    """Checked arrays in three splits, and the fingerprint that identifies their content."""

    train: Split
    validation: Split
    test: Split
    fingerprint: str
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """The names of the input features, where they have some."""
    vocabulary: int = 0
    """How many different tokens there are, where rows are tokens of a tokenizer."""
    tokenizer: str = ""
    """SHA-256 of the weights of the tokenizer that made the rows, where one did."""

    def split(self, name: SplitName) -> Split:
        split: Split = getattr(self, name)
        return split


class Source(ABC):
    """Raw bytes to checked arrays."""

    Config: ClassVar[type[Component]]

    @abstractmethod
    def __init__(self, config: Any) -> None: ...

    @abstractmethod
    def load(self, data_dir: Path) -> Data:
        """Read, check, split and fingerprint; a missing file's error says where it was looked for and how to get it."""

    def pictures(self, rows: np.ndarray, data_dir: Path, hidden: np.ndarray | None = None) -> np.ndarray | None:
        """uint8 images of rows that are not images themselves but stand for some; grey where ``hidden``."""
        return None


class Batch(NamedTuple):
    """What the model receives and what its output is compared with."""

    input: Tensor
    target: Tensor


class SampleRows(NamedTuple):
    """Rows to picture, and which of their entries are hidden."""

    rows: np.ndarray
    hidden: np.ndarray | None = None


class Task(ABC):
    """What is learned from the data: how rows become batches, what is minimised, and what is reported.

    A task first learns from the training rows what it must remember (shapes, scaling, class targets). That memory is
    saved with the run, so that a prediction needs no data set.
    """

    Config: ClassVar[type[Component]]
    objective: ClassVar[str]
    """The metric by which models are compared."""
    maximise: ClassVar[bool]
    metric_versions: ClassVar[Mapping[str, int]] = {}
    """The versions of metrics that are not measured as they once were; all others are of version 1."""
    predictor: ClassVar[type[Predictor] | None] = None
    """Makes predictions from a user's files; None: of images and rows, through ``encode`` and ``decode``."""

    @abstractmethod
    def __init__(self, config: Any) -> None: ...

    @abstractmethod
    def learn(self, data: Data) -> None:
        """Read the memory off the training rows, and refuse data that the task cannot use."""

    @abstractmethod
    def memory(self) -> dict[str, Tensor]: ...

    @abstractmethod
    def recall(self, memory: Mapping[str, Tensor]) -> None: ...

    @property
    @abstractmethod
    def signature(self) -> Signature: ...

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a user's row, of which ``encode`` makes a model's input."""
        return self.signature.input_shape

    def views(self) -> int:
        """How often an epoch shows each training row, each time in another orientation."""
        return 1

    @abstractmethod
    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        """The batch of optimiser step ``step``; every random draw is keyed by (seed, stream, step).

        ``index`` holds the rows' positions in the split and ``view`` the orientation in which each is shown.
        """

    @abstractmethod
    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        """Block ``block`` of a split that is not trained on: the same for every run, whatever its seed."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def metrics(self, split: SplitName) -> MetricCollection:
        """Fresh metrics; validation may leave out the ones that are slow."""

    def directions(self) -> dict[str, bool]:
        """Whether more is better, of the loss, the objective and every metric that says it (``higher_is_better``)."""
        known: dict[str, bool] = {"loss": False}
        for split in ("validation", "test"):
            for name, metric in self.metrics(split).items():
                if (direction := getattr(metric, "higher_is_better", None)) is not None:
                    known[name] = bool(direction)
        return known | {self.objective: self.maximise}

    @abstractmethod
    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None: ...

    def inspect(self, model: Any, rows: Tensor, split: SplitName) -> dict[str, float]:
        """What is to be measured on a split with the model in hand, beside what its outputs tell."""
        return {}

    def sample_rows(self, model: Any, batch: Batch) -> list[SampleRows] | None:
        """Input, output and target of a sheet of samples for the source to picture; None if they need no source."""
        return None

    def refuse_other_data(self, data: Data, source: Mapping[str, Any]) -> None:
        """A ``UserError`` if the task can tell how these data differ from those it learned from."""
        return

    @abstractmethod
    def encode(self, rows: np.ndarray) -> Tensor:
        """A user's rows (images in [0, 255] or features) as model input, scaled as in training."""

    @abstractmethod
    def decode(self, output: Tensor) -> np.ndarray:
        """Model output in the user's units: uint8 images, labels, or values."""


class Model(Protocol):
    """What every architecture offers beside being a ``torch.nn.Module``."""

    Config: ClassVar[type[ModelConfig]]
    config: ModelConfig
    input_shape: tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor: ...

    def trajectory(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Every named intermediate, in the order of computation, ending with the output."""
