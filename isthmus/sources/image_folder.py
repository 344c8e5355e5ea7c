"""Any folder of images.

Accepted: images in class folders (``cats/1.jpg``), or images alone (then there are no targets); either directly in the
folder, or in its subfolders ``train``, ``val`` (``valid``, ``validation``) and ``test``. Of these, ``train`` is enough:
a split that has no subfolder is drawn from the training images. The images are decoded once into a memory-mapped cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Data, Source, Split, SplitName
from isthmus.sources.cache import MemoryMapped, decode_all, memory_mapped
from isthmus.sources.files import resolve, stamp
from isthmus.sources.images import center_crop, channels_first, image_files, open_image, resize_short_side
from isthmus.sources.splits import FoldedSplits, check_splits

NAMES = {"image_folder": "ImageFolder"}

SUBFOLDERS: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


class Files(NamedTuple):
    paths: list[Path]
    labels: np.ndarray | None

    def take(self, rows: np.ndarray) -> Files:
        labels = None if self.labels is None else self.labels[rows]
        return Files([self.paths[row] for row in rows.tolist()], labels)


class ImageFolder(Source):
    """uint8 (rows, channels, size, size): the short side resized to ``size``, then the centre cropped."""

    class Config(FoldedSplits):
        path: str
        """The folder, absolute, under the data folder or under the current one."""
        size: Annotated[int, Field(ge=1, le=4096)] = 32
        """Height and width in pixels."""
        channels: Literal[1, 3] = 3
        """1 for greyscale, 3 for colour."""
        unreadable: Literal["fatal", "skip"] = "fatal"
        """An image that cannot be decoded is an error (``fatal``), or is reported and skipped."""

    def load(self, data_dir: Path) -> Data:
        advice = "give as source.path a folder that holds images, or class folders of images"
        root = resolve(data_dir, self.config.path, advice)
        if not root.is_dir():
            raise UserError(f"{root} is a file; {advice}")
        homes = {name: root / sub for name, subs in SUBFOLDERS.items() for sub in subs if (root / sub).is_dir()}
        if homes and "train" not in homes:
            raise UserError(f"{root} has a folder {next(iter(homes.values())).name} but no folder train")
        homes = homes or {"train": root}
        classes = class_names(homes["train"])
        given = {name: list_files(home, classes) for name, home in homes.items()}
        pool = given["train"]
        parts = self.config.draw(len(pool.paths), pool.labels, list(given))
        chosen = {name: pool.take(part) for name, part in zip(SPLITS, parts, strict=True)}
        chosen |= {name: files for name, files in given.items() if name != "train"}
        decoded = [self._decode(root, chosen[name].paths) for name in SPLITS]
        splits = [
            Split(images.array, without(chosen[name].labels, images.unreadable))
            for name, images in zip(SPLITS, decoded, strict=True)
        ]
        return check_splits(str(root), splits, classes, [images.digest for images in decoded])

    def _decode(self, root: Path, paths: list[Path]) -> MemoryMapped:
        size, channels, skip = self.config.size, self.config.channels, self.config.unreadable == "skip"

        def decode(path: Path) -> np.ndarray:
            image = open_image(path, str(path), channels)
            return channels_first(center_crop(resize_short_side(image, size, path), size))

        def fill(array: np.ndarray) -> list[int]:
            return decode_all(array, paths, decode, f"decoding {root.name}", skip)

        key = {"files": stamp(root, paths)} | ({"unreadable": "skip"} if skip else {})
        return memory_mapped("image_folder", key, (len(paths), channels, size, size), fill)


def without(labels: np.ndarray | None, places: tuple[int, ...]) -> np.ndarray | None:
    return None if labels is None else np.delete(labels, list(places))


def class_names(folder: Path) -> list[str]:
    return sorted(sub.name for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith("."))


def list_files(folder: Path, classes: list[str]) -> Files:
    """The images of one split and, where there are class folders, their labels."""
    loose = image_files(folder)
    if not classes:
        if not loose:
            raise UserError(f"there are no images in {folder}")
        return Files(loose, None)
    if loose:
        raise UserError(
            f"{folder} has class folders and loose images such as {loose[0].name}; move these into a class folder"
        )
    unknown = sorted(set(class_names(folder)) - set(classes))
    if unknown:
        raise UserError(
            f"{folder / unknown[0]} is a class without training images; the classes are {', '.join(classes)}"
        )
    by_class = [image_files(folder / name) if (folder / name).is_dir() else [] for name in classes]
    for name, paths in zip(classes, by_class, strict=True):
        if not paths and (folder / name).is_dir():
            raise UserError(f"there are no images in the class folder {folder / name}")
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in by_class])
    paths = [path for paths in by_class for path in paths]
    if not paths:
        raise UserError(f"there are no images in {folder}")
    return Files(paths, labels.astype(np.int64))
