"""Any data set of the Hugging Face hub, through its package ``datasets`` (``pip install 'isthmus[hub]'``).

``repo`` may also be a folder that ``datasets.load_dataset`` can read, such as one of parquet files. Either ``image``
names a column of images, or ``features`` names columns of numbers. Images are decoded once into a memory-mapped cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Data, Source, Split, SplitName
from isthmus.sources.images import channels_first, fit_square
from isthmus.sources.pictures import Pictures, decode_splits, list_hub_pictures, need_column, open_hub
from isthmus.sources.splits import FoldedSplits, check_labels, check_splits
from isthmus.sources.tables import Kind, column, columns, encode_targets

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"hub": "Hub"}


class Hub(Source):
    """uint8 images (rows, channels, height, width) or float32 features (rows, features); with or without targets."""

    class Config(FoldedSplits):
        repo: str
        """Name on the hub (``owner/name``), or a folder, absolute or under the data folder."""
        subset: str | None = None
        """The data set's configuration, if it has several."""
        revision: str | None = None
        """Branch, tag or commit; a commit keeps a run repeatable."""
        image: str | None = None
        """The column of images."""
        features: tuple[str, ...] = ()
        """Columns of numbers, or of lists of numbers of one length."""
        label: str | None = None
        """The column to predict."""
        kind: Kind = "auto"
        """``auto``: text and whole numbers are classes, floats are values (``regression``)."""
        train_split: str = "train"
        """The data set's name for its training split."""
        validation_split: str | None = None
        """The data set's name for its validation split (default: drawn from the training rows)."""
        test_split: str | None = None
        """The data set's name for its test split (default: drawn from the training rows)."""
        size: Annotated[int, Field(ge=1, le=4096)] | None = None
        """Height and width to resize and centre-crop images to (default: all images must have one size)."""
        channels: Literal[1, 3] = 3
        """1 for greyscale images, 3 for colour."""
        unreadable: Literal["fatal", "skip"] = "fatal"
        """An image that cannot be decoded is an error (``fatal``), or is reported and skipped."""

        @model_validator(mode="after")
        def _one_kind_of_input(self) -> Self:
            if (self.image is None) == (not self.features):
                raise ValueError("give either source.image (a column of images) or source.features (of numbers)")
            return self

    def load(self, data_dir: Path) -> Data:
        config = self.config
        names = {"train": config.train_split, "validation": config.validation_split, "test": config.test_split}
        given = {
            name: open_hub(data_dir, config.repo, names[name], config.subset, config.revision)
            for name in SPLITS
            if names[name]
        }
        targets, classes = self._targets(given)
        pool = len(given["train"])
        labels = targets["train"] if classes else None
        parts = config.draw(pool, labels, list(given))
        rows = dict(zip(SPLITS, parts, strict=True))
        rows |= {name: np.arange(len(dataset)) for name, dataset in given.items() if name != "train"}
        homes: dict[SplitName, SplitName] = {name: name if name in given else "train" for name in SPLITS}
        if config.image is None:
            features = {name: self._features(dataset) for name, dataset in given.items()}
            splits = [
                Split(features[home][rows[name]], targets[home][rows[name]] if targets else None)
                for name, home in homes.items()
            ]
            return check_splits(config.repo, splits, classes, columns=config.features)
        pictures = {name: self._pictures(dataset, targets.get(name)) for name, dataset in given.items()}
        return self._decode({name: pictures[home].take(rows[name]) for name, home in homes.items()}, classes)

    def _targets(self, given: dict[SplitName, Any]) -> tuple[dict[SplitName, np.ndarray], tuple[str, ...]]:
        """The targets of each split, encoded together so that class numbers agree."""
        label, repo = self.config.label, self.config.repo
        if label is None:
            return {}, ()
        raw = [column(read_table(dataset, repo, [label]), label, repo) for dataset in given.values()]
        names = getattr(given["train"].features[label], "names", None)
        if names and self.config.kind != "regression":
            labels = {name: part.astype(np.int64) for name, part in zip(given, raw, strict=True)}
            for name, part in labels.items():
                check_labels(f"{repo}, {name}", part, len(names))  # before hours of decoding
            return labels, tuple(names)
        encoded, classes = encode_targets(np.concatenate(raw), self.config.kind, repo)
        bounds = np.cumsum([len(part) for part in raw])[:-1]
        return dict(zip(given, np.split(encoded, bounds), strict=True)), classes

    def _features(self, dataset: Any) -> np.ndarray:
        names, repo = self.config.features, self.config.repo
        return columns(read_table(dataset, repo, names), names, repo, whole=True)

    def _pictures(self, dataset: Any, targets: np.ndarray | None) -> Pictures:
        config = self.config
        pictures = list_hub_pictures(dataset, config.repo, config.image, targets, config.channels)
        return pictures._replace(key={**pictures.key, "column": config.image})

    def _decode(self, splits: dict[SplitName, Pictures], classes: tuple[str, ...]) -> Data:
        size, channels, skip = self.config.size, self.config.channels, self.config.unreadable == "skip"
        height, width = (size, size) if size else size_of_first(splits["train"], skip)

        def decode(image: Image, name: str) -> np.ndarray:
            if size:
                return fit_square(image, name, size)
            if (image.height, image.width) != (height, width):
                raise UserError(
                    f"{name} is {image.height}×{image.width}, another is {height}×{width}; "
                    "set source.size to resize them all"
                )
            return channels_first(image)

        shape = (1, channels, height, width)
        return decode_splits("hub", splits, decode, shape, classes, skip, origin=self.config.repo)


def size_of_first(pictures: Pictures, skip: bool) -> tuple[int, int]:
    """Height and width of the first image that can be read."""
    for row in pictures.items:
        try:
            image = pictures.open(row)
        except UserError:
            if not skip:
                raise
        else:
            return image.height, image.width
    raise UserError(f"none of the {len(pictures.items)} training images can be decoded")


def read_table(dataset: Any, repo: str, names: Sequence[str]) -> Any:
    """Columns as an Arrow table."""
    for name in names:
        need_column(dataset, repo, name)
    return dataset.select_columns(list(names)).with_format("arrow")[:]
