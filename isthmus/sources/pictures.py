"""Base of the labelled photograph data sets: pictures from files or the hub, decoded to one size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Data, Source, Split, SplitName
from isthmus.sources.cache import MemoryMapped, decode_all, memory_mapped
from isthmus.sources.files import name_errors, not_found, resolve, stamp
from isthmus.sources.huggingface import image_opener, labels_of, open_hub
from isthmus.sources.images import center_crop, channels_first, open_image, resize_short_side
from isthmus.sources.splits import HeldOutRows, array_digest, check_labels, check_splits, partition

if TYPE_CHECKING:
    from PIL.Image import Image


class Pictures(NamedTuple):
    items: Sequence[Any]
    labels: np.ndarray
    open: Callable[[Any], Image]
    key: Mapping[str, Any]
    """Identifies these pictures in the cache."""

    def take(self, rows: np.ndarray) -> Pictures:
        items = [self.items[row] for row in rows.tolist()]
        return Pictures(items, self.labels[rows], self.open, {**self.key, "rows": array_digest(rows)})


class PictureSettings(Component):
    """Settings of a source of photographs."""

    hub: str | None = None
    """Read from the Hugging Face hub instead of a folder: a repository, or a folder of parquet files."""
    revision: str | None = None
    """Branch, tag or commit on the hub; a commit keeps a run repeatable."""
    size: Annotated[int, Field(ge=1, le=4096)] = 256
    """Height and width: the short side is resized, then the centre cropped. 256 suits ``task.resize=224`` with
    ``task.crop_ratio=0.875``."""
    validation: HeldOutRows = 1_000
    """Training rows held out for validation, if the data set has no validation split."""
    split_seed: int = 0
    """Seed of the choice of these rows; the run's seed does not change it."""
    unreadable: Literal["fatal", "skip"] = "fatal"
    """An image that cannot be decoded is an error (``fatal``), or is reported and skipped."""


class PictureSource(Source):
    """Decodes the pictures that a subclass finds into a memory-mapped cache."""

    title: ClassVar[str]
    hub_splits: ClassVar[dict[SplitName, str]] = {"train": "train", "test": "test"}
    hub_columns: ClassVar[tuple[str, str]] = ("image", "label")

    @abstractmethod
    def find_pictures(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        """The splits found in the files, and the names of the classes."""

    def load(self, data_dir: Path) -> Data:
        given, classes = self._on_hub(data_dir) if self.config.hub else self.find_pictures(data_dir)
        for name, pictures in given.items():
            self._check(name, pictures, len(classes))
        if "validation" not in given:
            pool = given["train"]
            parts = partition(len(pool.items), [self.config.validation], self.config.split_seed, pool.labels)
            given = {**given, "train": pool.take(parts[0]), "validation": pool.take(parts[1])}
        decoded = {name: self._decode(given[name]) for name in SPLITS}
        splits = [
            Split(decoded[name].array, np.delete(given[name].labels, list(decoded[name].unreadable))) for name in SPLITS
        ]
        return check_splits(self.title, splits, classes, [decoded[name].digest for name in SPLITS])

    def _check(self, name: str, pictures: Pictures, classes: int) -> None:
        if not len(pictures.labels):
            raise UserError(f"{self.title} has no {name} pictures here")
        check_labels(f"{self.title}, {name}", pictures.labels, classes)  # before hours of decoding

    def _on_hub(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        given: dict[SplitName, Pictures] = {}
        names: Sequence[str] | None = None
        image, label = self.hub_columns
        for name, split in self.hub_splits.items():
            dataset = open_hub(data_dir, self.config.hub, split, revision=self.config.revision)
            labels = labels_of(dataset, self.config.hub, label)
            names = names or getattr(dataset.features[label], "names", None)
            opener = image_opener(dataset, self.config.hub, image)
            given[name] = Pictures(range(len(dataset)), labels, opener, {"content": dataset._fingerprint})
        last = max(int(pictures.labels.max()) for pictures in given.values())
        return given, names or [str(number) for number in range(last + 1)]

    def _decode(self, pictures: Pictures) -> MemoryMapped:
        size, skip = self.config.size, self.config.unreadable == "skip"

        def decode(item: Any) -> np.ndarray:
            return channels_first(center_crop(resize_short_side(pictures.open(item), size, item), size))

        def fill(array: np.ndarray) -> list[int]:
            return decode_all(array, pictures.items, decode, f"decoding {self.title}", skip)

        key = {**pictures.key} | ({"unreadable": "skip"} if skip else {})
        return memory_mapped(self.title, key, (len(pictures.items), 3, size, size), fill)


def list_pictures(root: Path, paths: Sequence[Path], labels: Sequence[int] | np.ndarray) -> Pictures:
    """Pictures in files; a missing file is reported before decoding."""
    for path in paths:
        if not path.is_file():
            raise not_found(path.name, [path.parent], "the download is incomplete; download it again")
    return Pictures(
        paths,
        np.asarray(labels, np.int64),
        lambda path: open_image(path, str(path)),
        {"files": stamp(root, paths)},
    )


def folder(data_dir: Path, path: str, advice: str) -> Path:
    """A folder given in the settings: absolute, under the data folder or under the current one."""
    found = resolve(data_dir, path, advice)
    if not found.is_dir():
        raise UserError(f"{found} is a file; {advice}")
    return found


def matlab(path: Path, advice: str) -> dict[str, Any]:
    """The arrays of a MATLAB 5 file."""
    from scipy.io import loadmat

    if not path.is_file():
        raise not_found(path.name, [path.parent], advice)
    with name_errors(path, "a MATLAB file"):
        return dict(loadmat(path, squeeze_me=True))
