"""ImageNet at 224×224, of each image the central nine patches of 32×32 (the Hourglass paper's "ImageNet-224").

Each image is resized to 256 and centre-cropped to 224×224, of which the central 96×96 are cut into nine patches. The
paper prints "we first follow the standard procedure to resize each image to 256×256×3". The standard procedure, used
here, resizes the short side to 256; the literal reading, which distorts, is ``resize="square"``. The validation images
are halved, by image, into validation and test.

Looked for in the folder ``imagenet/``: ``train/CLASS/*.JPEG`` and ``val/``, with or without class folders; or taken
from the Hugging Face hub. The patches are cut once into a memory-mapped cache: 35 GB for the 1,281,167 training images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.cache import MemoryMapped, decode_all, memory_mapped
from isthmus.sources.files import resolve, stamp
from isthmus.sources.huggingface import image_opener, open_hub
from isthmus.sources.images import SUFFIXES, center_crop, open_image, patches, resize_short_side
from isthmus.sources.splits import check_splits, partition

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"imagenet224": "ImageNet224"}

ADVICE = "it should hold train/CLASS/*.JPEG and val/ of ILSVRC 2012, see https://image-net.org/download-images.php"


class Images(NamedTuple):
    items: Sequence[Any]
    open: Callable[[Any], Image]
    key: dict[str, Any]
    """What identifies these images, in this order."""


class ImageNet224(Source):
    """uint8 (patches, 3, 32, 32) without targets; 11.5 million / 225,000 / 225,000 patches of the complete ImageNet."""

    class Config(Component):
        folder: str = "imagenet"
        """The folder of images: a path, absolute or under the data folder."""
        hub: str | None = None
        """Taken from the Hugging Face hub instead, such as ``ILSVRC/imagenet-1k``: its splits train and validation."""
        resize: Literal["short_side", "square"] = "short_side"
        """``short_side`` keeps the proportions; ``square`` is the paper's literal 256×256."""
        split_seed: int = 0
        """Seed of the halving of the validation images; the run's seed does not change it."""

    def load(self, data_dir: Path) -> Data:
        if self.config.hub:
            train, held_out = (hub_images(data_dir, self.config.hub, split) for split in ("train", "validation"))
        else:
            folder = resolve(data_dir, self.config.folder, ADVICE)
            train, held_out = (folder_images(folder / split) for split in ("train", "val"))
        halves = partition(len(held_out.items), [len(held_out.items) // 2], self.config.split_seed)
        validation, test = (self._half(held_out, half, number) for number, half in enumerate(halves))
        cuts = [self._cut(images) for images in (train, validation, test)]
        digests = [cut.digest for cut in cuts]
        return check_splits("imagenet224", [Split(cut.array) for cut in cuts], input_digests=digests)

    def _half(self, images: Images, rows: np.ndarray, number: int) -> Images:
        key = {**images.key, "split_seed": self.config.split_seed, "half": number}
        return Images([images.items[row] for row in rows.tolist()], images.open, key)

    def _cut(self, images: Images) -> MemoryMapped:
        resize = self.config.resize

        def fill(array: np.ndarray) -> None:
            decode_all(array, images.items, lambda item: nine_patches(images.open(item), resize), "cutting ImageNet")

        key = {**images.key, "resize": resize}
        return memory_mapped("imagenet224", key, (9 * len(images.items), 3, 32, 32), fill)


def nine_patches(image: Image, resize: str) -> np.ndarray:
    """(9, 3, 32, 32), row by row from the top left of the central 96×96."""
    from PIL.Image import Resampling

    resized = resize_short_side(image, 256) if resize == "short_side" else image.resize((256, 256), Resampling.BILINEAR)
    return patches(center_crop(center_crop(resized, 224), 96), 32)


def folder_images(folder: Path) -> Images:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if not paths:
        raise UserError(f"there are no images in {folder}; {ADVICE}")
    return Images(paths, lambda path: open_image(path, str(path)), {"files": stamp(folder, paths)})


def hub_images(data_dir: Path, repo: str, split: str) -> Images:
    dataset = open_hub(data_dir, repo, split)
    key = {"hub": repo, "split": split, "rows": len(dataset), "content": dataset._fingerprint}
    return Images(range(len(dataset)), image_opener(dataset, repo, "image"), key)
