"""Any folder of images.

Accepted: images in class folders (``cats/1.jpg``), or images alone (then there are no targets); either directly in the
folder, or in its subfolders ``train``, ``val`` (``valid``, ``validation``) and ``test``. Of these, ``train`` is enough:
a split that has no subfolder is drawn from the training images. The images are decoded once into a memory-mapped cache.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Data, Source, SplitName
from isthmus.sources.images import fit_square
from isthmus.sources.pictures import Pictures, decode_splits, find_folder, list_classes, list_folder, list_images
from isthmus.sources.splits import FoldedSplits

NAMES = {"image_folder": "ImageFolder"}
MEANINGS = {"image_folder": "Your own folder of images, with or without classes."}

SUBFOLDERS: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


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
        config = self.config
        advice = "give as source.path a folder that holds images, or class folders of images"
        root = find_folder(data_dir, config.path, advice)
        homes = {name: root / sub for name, subs in SUBFOLDERS.items() for sub in subs if (root / sub).is_dir()}
        if homes and "train" not in homes:
            raise UserError(f"{root} has a folder {next(iter(homes.values())).name} but no folder train")
        homes = homes or {"train": root}
        classes = list_classes(homes["train"])
        given = {name: list_split(root, home, classes, config.channels) for name, home in homes.items()}
        pool = given.pop("train")
        parts = config.draw(len(pool.items), pool.targets, list(given))
        splits = {name: pool.take(part) for name, part in zip(SPLITS, parts, strict=True)} | given
        decode, shape = partial(fit_square, size=config.size), (1, config.channels, config.size, config.size)
        skip = config.unreadable == "skip"
        return decode_splits("image_folder", splits, decode, shape, classes, skip, origin=str(root))


def list_split(root: Path, folder: Path, classes: list[str], channels: int) -> Pictures:
    """The images of one split and, where there are class folders, their labels."""
    loose = list_images(folder)
    if classes and loose:
        raise UserError(f"{folder} has class folders and loose images such as {loose[0].name}; move them into one")
    for name in list_classes(folder) if classes else ():
        if name not in classes:
            raise UserError(f"{folder / name} is a class without training images; the classes are {', '.join(classes)}")
        if not list_images(folder / name):
            raise UserError(f"there are no images in the class folder {folder / name}")
    pictures = list_folder(root, folder, classes, channels)
    if not pictures.items:
        raise UserError(f"there are no images in {folder}")
    return pictures
