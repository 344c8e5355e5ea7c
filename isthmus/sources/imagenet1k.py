"""ImageNet-1k (ILSVRC 2012) and its subset of a hundred classes, as photographs with labels.

Looked for in the folder ``imagenet/`` (``imagenet100/``): ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``, the layout
that training scripts use. Or from the hub, such as ``ILSVRC/imagenet-1k`` (``ilee0022/ImageNet100``). The labelled
validation images are the test; validation rows are drawn from the training images.

The cache holds raw pixels: 252 GB for all training images at 256 pixels, 19 GB at 70.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from isthmus.errors import UserError
from isthmus.protocols import SplitName
from isthmus.sources.imaging import image_files
from isthmus.sources.pictures import Pictures, PictureSettings, PictureSource, folder, listed
from isthmus.sources.splitting import Rows

NAMES = {"imagenet1k": "ImageNet1k", "imagenet100": "ImageNet100"}

ADVICE = "it should hold train/CLASS/*.JPEG and val/CLASS/*.JPEG, see https://image-net.org/download-images.php"


class ImageNet1k(PictureSource):
    """uint8 (rows, 3, size, size), 1000 classes; 1,281,167 of which some validate, and 50,000 for the test."""

    class Config(PictureSettings):
        folder: str = "imagenet"
        """The folder of images: a path, absolute or under the data folder."""
        validation: Rows = 10_000
        """Training rows held out for validation."""

    title = "imagenet1k"
    classes: ClassVar[int] = 1000
    hub_splits: ClassVar[dict[SplitName, str]] = {"train": "train", "test": "validation"}

    def found(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        root = folder(data_dir, self.config.folder, ADVICE)
        classes = class_folders(root / "train")
        if len(classes) != self.classes:
            raise UserError(f"{root / 'train'} holds {len(classes)} class folders, not {self.classes}; {ADVICE}")
        other = class_folders(root / "val")
        if other != classes:
            odd = sorted(set(other) ^ set(classes))
            raise UserError(f"{root}: train and val differ in their class folders, first in {odd[0]}; {ADVICE}")
        return {"train": labelled(root / "train", classes), "test": labelled(root / "val", classes)}, classes


class ImageNet100(ImageNet1k):
    """uint8 (rows, 3, size, size), a hundred of the classes; about 126,000 training images, fewer in some versions."""

    class Config(PictureSettings):
        folder: str = "imagenet100"
        """The folder of images: a path, absolute or under the data folder."""
        validation: Rows = 5_000
        """Training rows held out for validation."""

    title = "imagenet100"
    classes: ClassVar[int] = 100


def class_folders(place: Path) -> list[str]:
    if not place.is_dir():
        raise UserError(f"there is no folder {place}; {ADVICE}")
    found = sorted(sub.name for sub in place.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    if not found:
        raise UserError(f"there are no class folders in {place}; {ADVICE}")
    return found


def labelled(place: Path, classes: Sequence[str]) -> Pictures:
    by_class = [image_files(place / name) for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(paths) for paths in by_class])
    return listed(place, [path for paths in by_class for path in paths], labels)
