"""Any data set of the Hugging Face hub, through its package ``datasets`` (``pip install 'isthmus[hub]'``).

``repo`` may also be a folder that ``datasets.load_dataset`` can read, such as one of parquet files. Either ``image``
names a column of images, or ``features`` names columns of numbers. Images are decoded once into a memory-mapped cache.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Data, Source, Split, SplitName
from isthmus.sources.cache import MemoryMapped, decode_all, memory_mapped
from isthmus.sources.huggingface import image_opener, need_column, open_hub
from isthmus.sources.images import center_crop, channels_first, resize_short_side
from isthmus.sources.splits import FoldedSplits, array_digest, check_labels, check_splits
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
                raise ValueError(
                    "give either source.image (a column of images) or source.features (columns of numbers)"
                )
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
        pool = given["train"]
        labels = targets["train"] if classes else None
        parts = config.draw(len(pool), labels, list(given))
        rows = dict(zip(SPLITS, parts, strict=True))
        inputs, splits = [], []
        for name in SPLITS:
            home: SplitName = name if name in given else "train"
            chosen = np.arange(len(given[home])) if home == name != "train" else rows[name]
            inputs.append(self._inputs(given[home], chosen))
            kept = np.delete(chosen, list(inputs[-1].unreadable))
            splits.append(Split(inputs[-1].array, targets[home][kept] if targets else None))
        return check_splits(config.repo, splits, classes, [each.digest for each in inputs], config.features)

    def _targets(self, given: dict[SplitName, Any]) -> tuple[dict[SplitName, np.ndarray], tuple[str, ...]]:
        """The targets of each split, encoded together so that class numbers agree."""
        label, repo = self.config.label, self.config.repo
        if label is None:
            return {}, ()
        for dataset in given.values():
            need_column(dataset, repo, label)
        raw = [column(arrow_table(dataset, [label]), label, repo) for dataset in given.values()]
        names = getattr(given["train"].features[label], "names", None)
        if names and self.config.kind != "regression":
            labels = {name: part.astype(np.int64) for name, part in zip(given, raw, strict=True)}
            for name, part in labels.items():
                check_labels(f"{repo}, {name}", part, len(names))  # before hours of decoding
            return labels, tuple(names)
        encoded, classes = encode_targets(np.concatenate(raw), self.config.kind, repo)
        bounds = np.cumsum([len(part) for part in raw])[:-1]
        return dict(zip(given, np.split(encoded, bounds), strict=True)), classes

    def _inputs(self, dataset: Any, rows: np.ndarray) -> MemoryMapped:
        if self.config.image is None:
            for name in self.config.features:
                need_column(dataset, self.config.repo, name)
            table = arrow_table(dataset, list(self.config.features))
            features = columns(table, self.config.features, self.config.repo, whole=True)[rows]
            return MemoryMapped(features, array_digest(features))
        open_row = image_opener(dataset, self.config.repo, self.config.image, self.config.channels)
        size, skip = self.config.size, self.config.unreadable == "skip"
        height, width = (size, size) if size else shape_of_first(open_row, rows, skip)

        def decode(row: int) -> np.ndarray:
            image = open_row(row)
            if size:
                image = center_crop(resize_short_side(image, size, f"{self.config.repo}: the image of row {row}"), size)
            elif (image.height, image.width) != (height, width):
                raise UserError(
                    f"{self.config.repo}: the image of row {row} is {image.height}×{image.width}, "
                    f"another is {height}×{width}; set source.size to resize them all"
                )
            return channels_first(image)

        def fill(array: np.ndarray) -> list[int]:
            return decode_all(array, rows.tolist(), decode, f"decoding {self.config.repo}", skip)

        key = {"content": dataset._fingerprint, "rows": array_digest(rows), "column": self.config.image}
        key |= {"unreadable": "skip"} if skip else {}
        return memory_mapped("hub", key, (len(rows), self.config.channels, height, width), fill)


def shape_of_first(open_row: Callable[[int], Image], rows: np.ndarray, skip: bool) -> tuple[int, int]:
    """Height and width of the first image that can be read."""
    for row in rows.tolist():
        try:
            image = open_row(row)
        except UserError:
            if not skip:
                raise
        else:
            return image.height, image.width
    raise UserError(f"none of the {len(rows)} images of a split can be decoded")


def arrow_table(dataset: Any, names: list[str]) -> Any:
    return dataset.select_columns(names).with_format("arrow")[:]
