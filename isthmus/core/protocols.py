"""The shared types: settings, data, signatures, batches, sources and tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args

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
    """Frozen, keyword-only settings; unknown fields and non-finite numbers are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Refuse ``d_h=true``, which pydantic would convert to 1."""
        for name, value in given.items() if isinstance(given, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and not _takes_truth(field.annotation):
                raise ValueError(f"{name}={str(value).lower()}: give a number or a name, not true or false")
        return given


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_truth(part) for part in get_args(annotation))


class Component(Settings):
    """Settings of a source, task or model with its registered name."""

    name: str


class Signature(NamedTuple):
    """What a task requires of a model: the shapes of one input and one output, without the batch axis."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    vocabulary: int = 0
    """The number of distinct int64 input tokens; 0 if inputs are real numbers."""


class ModelConfig(Component):
    """Settings of a model. Fields that the task or the seed determines may be left out."""

    sliced: ClassVar[tuple[str, ...]] = ()
    """Sizes of which a smaller network can take the first part of a larger one's weights; none: it cannot be sliced."""

    @classmethod
    def cover(cls, configs: Sequence[Any]) -> Self:
        """The smallest network of which all of these, which differ only in sizes, are parts."""
        return configs[0].replace(**{name: max(getattr(config, name) for config in configs) for name in cls.sliced})

    def complete(self, signature: Signature, seed: int) -> Self:
        """A copy with the fields that the task's shapes and the run's seed determine."""
        return self

    def require(self, **needed: object) -> Self:
        """A copy with the values that the task needs; a different value in the config is an error."""
        for name, value in needed.items():
            if getattr(self, name) not in (None, 0, value):
                raise UserError(f"model.{name}={getattr(self, name)}, but the task needs {value}; leave it out")
        return self.replace(**needed)

    def replace(self, **fields: object) -> Self:
        """A validated copy with other values."""
        try:
            return type(self)(**self.model_dump() | fields)
        except ValidationError as error:
            problems = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
            raise UserError(f"{self.name}: {problems}") from None


@dataclass(frozen=True)
class Split:
    """Rows of one split, in memory or memory-mapped.

    ``inputs``: uint8 images (rows, channels, height, width), float32 features (rows, features) or int16 tokens
    (rows, positions).
    ``targets``: int64 labels (rows,), float32 values (rows, outputs), int16 tokens (rows, positions), or None.
    """

    inputs: np.ndarray
    targets: np.ndarray | None = None
    extents: np.ndarray | None = None
    """int32 (rows, 2): height and width of the photographs, if each row is a whole one squeezed into a square."""

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
    """The names of the input features, if they have names."""
    vocabulary: int = 0
    """The number of distinct tokens, if rows are tokens."""
    tokenizer: str = ""
    """SHA-256 of the weights of the tokenizer that made the rows, if one did."""
    pictures: Split | None = None
    """The images of the training rows, if rows are their tokens."""
    tokenize: Callable[[Tensor], Tensor] | None = None
    """Converts uint8 images to tokens, as the rows were made."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """How the features were made of a user's table, and what was found in it, as JSON."""
    findings: tuple[str, ...] = ()
    """What was found in a user's images and done with it, in sentences."""

    def split(self, name: SplitName) -> Split:
        split: Split = getattr(self, name)
        return split


class Source(ABC):
    """Reads raw files into checked arrays."""

    Config: ClassVar[type[Component]]

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def load(self, data_dir: Path) -> Data:
        """Read, check, split and fingerprint. The error for a missing file says where to put it and how to get it."""

    def pictures(self, rows: np.ndarray, data_dir: Path, hidden: np.ndarray | None = None) -> np.ndarray | None:
        """Rows as uint8 images, if they represent images without being images (tokens); grey where ``hidden``."""
        return None


class Batch(NamedTuple):
    """The model's input, and the target of its output."""

    input: Tensor
    target: Tensor


class SampleRows(NamedTuple):
    """Rows to picture, and which of their entries are hidden."""

    rows: np.ndarray
    hidden: np.ndarray | None = None


class Task(ABC):
    """How rows become batches, which loss is minimised, and which metrics are reported.

    A task first computes its state from the training rows (shapes, scaling, class targets). The state is saved with the
    run, so that a prediction needs no data set.
    """

    Config: ClassVar[type[Component]]
    objective: ClassVar[str]
    """The metric by which models are compared."""
    maximise: ClassVar[bool]
    metric_versions: ClassVar[Mapping[str, int]] = {}
    """The versions of metrics whose computation changed; all others have version 1."""
    predictor: ClassVar[type[Predictor] | None] = None
    """Makes predictions from a user's files (default: images and rows, through ``encode`` and ``decode``)."""

    _directions: dict[str, bool] | None = None

    @abstractmethod
    def __init__(self, config: Any) -> None: ...

    @abstractmethod
    def learn(self, data: Data) -> None:
        """Compute the state from the training rows, and refuse data that the task cannot use."""

    @abstractmethod
    def memory(self) -> dict[str, Tensor]: ...

    @abstractmethod
    def recall(self, memory: Mapping[str, Tensor]) -> None: ...

    @property
    @abstractmethod
    def signature(self) -> Signature: ...

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a user's row, which ``encode`` converts to model input."""
        return self.signature.input_shape

    @property
    def crops_photographs(self) -> bool:
        """Whether training batches are crops, for which a row may be a whole photograph squeezed into a square."""
        return False

    def views(self) -> int:
        """How many orientations of each training row an epoch contains."""
        return 1

    @abstractmethod
    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        """The batch of optimiser step ``step``; every random draw is keyed by (seed, stream, step).

        ``index`` holds the rows' positions in the split, ``view`` their orientations.
        """

    def fixed_batch(self, rows: Tensor, targets: Tensor | None) -> Batch | None:
        """All training rows as every batch has them, if batches draw nothing; ``train.stack`` needs it."""
        return None

    def row_losses(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of each row, whose mean is ``loss``; ``train.stack`` needs it."""
        raise NotImplementedError

    @abstractmethod
    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        """Batch ``block`` of the validation or test split: the same for every run, whatever its seed."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def metrics(self, split: SplitName) -> MetricCollection:
        """New metrics; validation may omit slow ones."""

    def directions(self) -> dict[str, bool]:
        """Whether higher is better: of the loss, the objective and every metric with ``higher_is_better``."""
        if self._directions is None:  # making metrics takes milliseconds
            known: dict[str, bool] = {"loss": False}
            for split in ("validation", "test"):
                for name, metric in self.metrics(split).items():
                    if (direction := getattr(metric, "higher_is_better", None)) is not None:
                        known[name] = bool(direction)
            self._directions = known | {self.objective: self.maximise}
        return dict(self._directions)

    @abstractmethod
    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None: ...

    def inspect(self, model: Any, rows: Tensor, split: SplitName) -> dict[str, float]:
        """Further numbers of a split that need the model itself and not only its outputs."""
        return {}

    def sample_rows(self, model: Any, batch: Batch) -> list[SampleRows] | None:
        """Input, output and target of a sample sheet, for the source to picture; None if the batch holds images."""
        return None

    def refuse_other_data(self, data: Data, source: Mapping[str, Any]) -> None:
        """A ``UserError`` if the task can tell how these data differ from those it learned from."""
        return

    @abstractmethod
    def encode(self, rows: np.ndarray) -> Tensor:
        """Convert a user's rows (images in [0, 255] or features) to model input, scaled as in training."""

    @abstractmethod
    def decode(self, output: Tensor) -> np.ndarray:
        """Convert model output to the user's units: uint8 images, labels, or values."""

    def probabilities(self, output: Tensor) -> np.ndarray | None:
        """The probability of each class (rows, classes); None if the task's outputs are no classes."""
        return None
