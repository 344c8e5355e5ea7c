"""ImageNet at 224×224, of each image the central nine patches of 32×32 (the Hourglass paper's "ImageNet-224").

Each image is resized to 256 and centre-cropped to 224×224, of which the central 96×96 are cut into nine patches. The
paper prints "we first follow the standard procedure to resize each image to 256×256×3". The standard procedure, used
here, resizes the short side to 256; the literal reading, which distorts, is ``resize="square"``. The validation images
are halved, by image, into validation and test.

Looked for in the folder ``imagenet/``: ``train/CLASS/*.JPEG`` and ``val/``, with or without class folders; or taken
from the Hugging Face hub. The patches are cut once into a memory-mapped cache: 35 GB for the 1,281,167 training images.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Source, SplitName
from isthmus.sources.files import resolve
from isthmus.sources.images import SUFFIXES, center_crop, cut_patches, resize_short_side
from isthmus.sources.pictures import Pictures, decode_splits, list_hub_pictures, list_pictures, open_hub
from isthmus.sources.splits import partition

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"imagenet224": "ImageNet224"}

ADVICE = "it should hold train/CLASS/*.JPEG and val/ of ILSVRC 2012, see https://image-net.org/download-images.php"


class ImageNet224(Source):
    """uint8 (patches, 3, 32, 32) without targets; 11.5 million / 225,000 / 225,000 patches of the complete ImageNet."""

    class Config(Component):
        folder: str = "imagenet"
        """The folder of images: a path, absolute or under the data folder."""
        hub: str | None = None
        """Read from the Hugging Face hub instead, such as ``ILSVRC/imagenet-1k``: its splits train and validation."""
        resize: Literal["short_side", "square"] = "short_side"
        """``short_side`` keeps the proportions; ``square`` is the paper's literal 256×256."""
        split_seed: int = 0
        """Seed of the halving of the validation images; the run's seed does not change it."""

    def load(self, data_dir: Path) -> Data:
        if repo := self.config.hub:
            datasets = [open_hub(data_dir, repo, split) for split in ("train", "validation")]
            train, held_out = (list_hub_pictures(dataset, repo, "image") for dataset in datasets)
        else:
            folder = resolve(data_dir, self.config.folder, ADVICE)
            train, held_out = (list_tree(folder / split) for split in ("train", "val"))
        resize = self.config.resize
        train, held_out = (part._replace(key={**part.key, "resize": resize}) for part in (train, held_out))
        halves = partition(len(held_out.items), [len(held_out.items) // 2], self.config.split_seed)
        validation, test = (held_out.take(half) for half in halves)
        splits: dict[SplitName, Pictures] = {"train": train, "validation": validation, "test": test}
        return decode_splits("imagenet224", splits, partial(cut_nine, resize=resize), (9, 3, 32, 32))


def list_tree(folder: Path) -> Pictures:
    if not (paths := sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)):
        raise UserError(f"there are no images in {folder}; {ADVICE}")
    return list_pictures(folder, paths)


def cut_nine(image: Image, name: str, resize: str) -> np.ndarray:
    """(9, 3, 32, 32), row by row from the top left of the central 96×96."""
    from PIL.Image import Resampling

    square = resize == "square"
    resized = image.resize((256, 256), Resampling.BILINEAR) if square else resize_short_side(image, 256, name)
    return cut_patches(center_crop(center_crop(resized, 224), 96), 32)
