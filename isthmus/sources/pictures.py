"""Finds pictures in folders and on the hub, decodes each split once, and is the base of the photograph data sets."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from isthmus.core.errors import UserError, nearest, quiet
from isthmus.core.files import expand_user
from isthmus.core.protocols import SPLITS, Component, Data, Source, Split, SplitName
from isthmus.sources.cache import CachedArray, cache_array, decode_all
from isthmus.sources.files import name_errors, not_found, resolve, stamp
from isthmus.sources.images import SUFFIXES, Filter, fit_square, open_image, squeeze
from isthmus.sources.splits import HeldOutRows, array_digest, check_labels, check_splits, partition

if TYPE_CHECKING:
    from PIL.Image import Image


class Pictures(NamedTuple):
    items: Sequence[Any]
    """Paths, or rows of a data set of the hub."""
    targets: np.ndarray | None
    open: Callable[[Any], Image]
    key: Mapping[str, Any]
    """Identifies these pictures in the cache."""

    def take(self, rows: np.ndarray) -> Pictures:
        items = [self.items[row] for row in rows.tolist()]
        targets = None if self.targets is None else self.targets[rows]
        return Pictures(items, targets, self.open, {**self.key, "rows": array_digest(rows)})


Decode = Callable[["Image", str], np.ndarray]
"""Converts an image with its name to rows."""
Found = tuple[dict[SplitName, Pictures], Sequence[str]]
"""The splits that a data set has, and the names of its classes."""


class PictureSource(Source):
    """Decodes the pictures that a subclass finds; without a validation split, training rows are held out."""

    class Config(Component):
        hub: str | None = None
        """Read from the Hugging Face hub instead of a folder: a repository, or a folder of parquet files."""
        revision: str | None = None
        """Branch, tag or commit on the hub; a commit keeps a run repeatable."""
        size: Annotated[int, Field(ge=1, le=4096)] = 256
        """Height and width: the short side is resized, then the centre cropped. 256 suits ``task.resize=224`` with
        ``task.crop_ratio=0.875``."""
        resampling: Filter = "bilinear"
        """Of these resized photographs."""
        extent: Literal["square", "whole"] = "square"
        """What is kept of a training photograph: the central square, or all of it, squeezed into a square, from which
        ``task.augment.resized_crop`` then cuts parts in their true proportions."""
        validation: HeldOutRows = 1_000
        """Training rows held out for validation, if the data set has no validation split."""
        split_seed: int = 0
        """Seed of the choice of these rows; the run's seed does not change it."""
        unreadable: Literal["fatal", "skip"] = "fatal"
        """An image that cannot be decoded is an error (``fatal``), or is reported and skipped."""

    hub_test = "test"
    """The hub's name of the test split."""

    @property
    def official_splits(self) -> dict[SplitName, str]:
        """The names that the splits have in the published data set."""
        return {"train": "train", "test": self.hub_test}

    @abstractmethod
    def find_pictures(self, data_dir: Path) -> Found: ...

    def load(self, data_dir: Path) -> Data:
        config = self.config
        given, classes = self._find_on_hub(data_dir) if config.hub else self.find_pictures(data_dir)
        for name, pictures in given.items():
            if pictures.targets is None or not len(pictures.targets):
                raise UserError(f"{config.name} has no {name} pictures here")
            check_labels(f"{config.name}, {name}", pictures.targets, len(classes))  # before hours of decoding
        if "validation" not in given:
            pool = given["train"]
            parts = partition(len(pool.items), [config.validation], config.split_seed, pool.targets)
            given |= {"train": pool.take(parts[0]), "validation": pool.take(parts[1])}
        if config.resampling != "bilinear":
            given = {name: part._replace(key={**part.key, "resampling": "bicubic"}) for name, part in given.items()}
        decode, whole = (partial(fit, size=config.size, resampling=config.resampling) for fit in (fit_square, squeeze))
        shape, skip = (1, 3, config.size, config.size), config.unreadable == "skip"
        if config.extent == "square":
            return decode_splits(config.name, given, decode, shape, classes, skip)
        return decode_splits(config.name, given, decode, shape, classes, skip, whole=whole)

    def _find_on_hub(self, data_dir: Path) -> Found:
        given: dict[SplitName, Pictures] = {}
        names: Sequence[str] | None = None
        last = 0
        for name, split in self.official_splits.items():
            dataset = open_hub(data_dir, self.config.hub, split, revision=self.config.revision)
            labels = read_labels(dataset, self.config.hub, "label")
            given[name] = list_hub_pictures(dataset, self.config.hub, "image", labels)
            names = names or getattr(dataset.features["label"], "names", None)
            last = max(last, int(labels.max()))
        return given, names or [str(number) for number in range(last + 1)]


def decode_splits(
    cache: str,
    splits: Mapping[SplitName, Pictures],
    decode: Decode,
    shape: tuple[int, ...],
    classes: Sequence[str] = (),
    skip: bool | None = None,
    origin: str = "",
    whole: Decode | None = None,
) -> Data:
    """Decode every picture once into the cache, skipping unreadable ones if asked.

    ``decode`` converts an image with its name to ``shape``: the number of images, channels, height and width.
    ``whole`` converts training pictures instead, and their sizes are kept as the rows' extents.
    """
    counts = {name: [shape[0]] * len(splits[name].items) for name in SPLITS}
    ways = dict.fromkeys(SPLITS, decode)
    if whole:
        train = splits["train"]
        splits = {**splits, "train": train._replace(key={**train.key, "extent": "whole"})}
        ways["train"] = whole
    decoded = [
        decode_pictures(cache, splits[name], ways[name], shape[1:], counts[name], skip, origin) for name in SPLITS
    ]
    targets = [splits[name].targets for name in SPLITS]
    kept = [
        Split(each.array, None if every is None else np.delete(every, list(each.unreadable), axis=0))
        for each, every in zip(decoded, targets, strict=True)
    ]
    if whole:
        kept[0] = replace(kept[0], extents=_read_extents(cache, splits["train"], skip, origin))
    return check_splits(origin or cache, kept, classes, [each.digest for each in decoded])


def _read_extents(cache: str, pictures: Pictures, skip: bool | None, origin: str) -> np.ndarray:
    """int32 (pictures, 2): height and width in pixels, of the pictures that can be decoded; cached as bytes."""

    def measure(image: Image, name: str) -> np.ndarray:
        return np.array([image.height, image.width], np.int32).view(np.uint8)

    measured = pictures._replace(key={**pictures.key, "extent": "sizes"})
    kept = decode_pictures(cache, measured, measure, (8,), [1] * len(pictures.items), skip, origin)
    return np.array(kept.array.view(np.int32))


def decode_pictures(
    cache: str,
    pictures: Pictures,
    decode: Decode,
    shape: tuple[int, ...],
    counts: Sequence[int],
    skip: bool | None,
    origin: str = "",
) -> CachedArray:
    """Decode pictures once into the cache; each becomes ``counts`` images of ``shape``.

    ``skip`` says whether unreadable ones are skipped; None if the source has no such setting.
    """
    size = (sum(counts), *shape)
    if not pictures.items:
        empty = np.zeros(size, np.uint8)
        return CachedArray(empty, array_digest(empty))

    def decode_item(item: Any) -> np.ndarray:
        name = str(item) if isinstance(item, Path) else f"{origin or cache}: the image of row {item}"
        try:
            return decode(pictures.open(item), name)
        except UserError as error:
            if skip is not False:
                raise
            raise UserError(f"{error} (source.unreadable=skip leaves such images out)") from None

    def fill(array: np.ndarray) -> list[int]:
        return decode_all(array, pictures.items, decode_item, f"decoding {origin or cache}", bool(skip), counts)

    key = {**pictures.key} | ({"unreadable": "skip"} if skip else {})
    return cache_array(cache, key, size, fill)


def list_pictures(root: Path, paths: Sequence[Path], labels: Any = None, channels: int = 3) -> Pictures:
    """Pictures in files, with or without labels; a missing file is reported before decoding."""
    for path in paths:
        if not path.exists():
            raise not_found(path.name, [path.parent], "the download is incomplete; download it again")
    numbers = None if labels is None else np.asarray(labels, np.int64)
    return Pictures(paths, numbers, lambda path: open_image(path, str(path), channels), {"files": stamp(root, paths)})


def open_hub(data_dir: Path, repo: str, split: str, subset: str | None = None, revision: str | None = None) -> Any:
    """One split as ``datasets.Dataset``; ``repo`` may be a folder, under ``data_dir`` or by its path."""
    try:
        import datasets
    except ImportError:
        raise UserError("data sets of the hub need the package datasets: pip install 'isthmus[hub]'") from None
    folder = data_dir / expand_user(repo)
    place = str(folder) if folder.is_dir() else repo
    named = name_errors(f"the split {split!r} of {repo!r}", "a folder or a data set of the hub")
    with named, quiet("huggingface_hub", "datasets"):  # the hub warns on every retry
        dataset = datasets.load_dataset(place, subset, revision=revision, split=split)
    if not len(dataset):
        raise UserError(f"{repo}: the split {split!r} has no rows")
    return dataset


def need_column(dataset: Any, repo: str, column: str) -> None:
    if column not in dataset.column_names:
        raise UserError(f"{repo} has no column {column!r}; {nearest(column, dataset.column_names)}")


def read_labels(dataset: Any, repo: str, column: str) -> np.ndarray:
    """A column of whole numbers."""
    need_column(dataset, repo, column)
    with name_errors(f"{repo}, column {column!r}", "labels of whole numbers"):
        values = dataset.select_columns([column]).with_format("numpy")[:][column]
        return np.asarray(values).astype(np.int64, casting="safe")


def list_hub_pictures(
    dataset: Any, repo: str, column: str, targets: np.ndarray | None = None, channels: int = 3
) -> Pictures:
    """The images in a column of a data set of the hub."""
    import datasets

    need_column(dataset, repo, column)
    if not isinstance(dataset.features[column], datasets.Image):
        raise UserError(f"the column {column!r} of {repo} does not hold images but {dataset.features[column]}")
    encoded = dataset.select_columns([column]).cast_column(column, datasets.Image(decode=False))

    def open_row(row: int) -> Image:
        image, name = encoded[row][column], f"{repo}, {dataset.split}, row {row}"
        if not image:
            raise UserError(f"{name}: there is no image in {column!r}")
        return open_image(image["bytes"] or Path(image["path"]), name, channels)

    return Pictures(range(len(dataset)), targets, open_row, {"content": dataset._fingerprint})


def list_images(folder: Path) -> list[Path]:
    """The image files directly in a folder, sorted by name, without hidden files; empty without the folder."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if is_image_name(path.name))


def walk_images(folder: Path) -> list[Path]:
    """The image files in a folder and its subfolders, sorted, without hidden ones; links are followed once."""
    found, seen = list[Path](), set[str]()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        found += [] if real in seen else [Path(here, name) for name in files if is_image_name(name)]
        seen.add(real)
    return sorted(found)


def is_image_name(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def list_classes(folder: Path) -> list[str]:
    """The names of the folders in a folder, sorted, without hidden ones; empty without the folder."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def list_folder(root: Path, folder: Path, classes: Sequence[str]) -> Pictures:
    """The pictures in the class folders of a folder, labelled by class; without classes, those in the folder itself."""
    if not classes:
        return list_pictures(root, list_images(folder), None)
    by_class = [list_images(folder / name) for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in by_class])
    return list_pictures(root, [path for paths in by_class for path in paths], labels)


def find_folder(data_dir: Path, path: str, advice: str) -> Path:
    """A folder given in the settings: absolute, under the data folder or under the current one."""
    found = resolve(data_dir, path, advice)
    if not found.is_dir():
        raise UserError(f"{found} is a file; {advice}")
    return found


def read_matlab(path: Path, advice: str) -> dict[str, Any]:
    """The arrays of a MATLAB 5 file."""
    from scipy.io import loadmat

    if not path.is_file():
        raise not_found(path.name, [path.parent], advice)
    with name_errors(path, "a MATLAB file"):
        return dict(loadmat(path, squeeze_me=True))
