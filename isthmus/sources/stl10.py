"""STL-10 (Coates, Lee, Ng 2011, "An Analysis of Single Layer Networks in Unsupervised Feature Learning").

Looked for in ``stl10_binary/``, in ``stl10/`` and in the data folder itself, as the authors' archive unpacks it:
``train_X.bin``, ``train_y.bin``, ``test_X.bin`` and ``test_y.bin`` (the unlabelled images are not read). Or from the
hub, such as ``tanganke/stl10``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from isthmus.core.errors import UserError
from isthmus.core.files import sha256
from isthmus.sources.files import locate, read_bytes
from isthmus.sources.pictures import Found, Pictures, PictureSource
from isthmus.sources.splits import HeldOutRows

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"stl10": "STL10"}
MEANINGS = {"stl10": "STL-10: 13,000 colour images of 96×96 pixels in ten classes."}

SIDE = 96
CLASSES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
FOLDERS = ["stl10_binary", "stl10/stl10_binary", "stl10", ""]
ADVICE = (
    "unpack http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz into the data folder, "
    "or set source.hub=tanganke/stl10"
)


class STL10(PictureSource):
    """uint8 (rows, 3, size, size), ten classes; 5,000 images for training and validation, 8,000 for the test."""

    class Config(PictureSource.Config):
        size: Annotated[int, Field(ge=1, le=4096)] = SIDE
        """Height and width to which the images of 96 pixels are resized; papers use 32, 90 and 96."""
        validation: HeldOutRows = 500
        """Training rows held out for validation."""

    def find_pictures(self, data_dir: Path) -> Found:
        return {"train": list_binary(data_dir, "train"), "test": list_binary(data_dir, "test")}, CLASSES


def list_binary(data_dir: Path, split: str) -> Pictures:
    images, labels = (locate(data_dir, FOLDERS, [f"{split}_{letter}.bin"], ADVICE) for letter in "Xy")
    rows = images.stat().st_size // (3 * SIDE * SIDE)
    classes = np.frombuffer(read_bytes(labels), np.uint8).astype(np.int64) - 1
    if images.stat().st_size != rows * 3 * SIDE * SIDE or len(classes) != rows:
        raise UserError(
            f"{images} holds {images.stat().st_size:,} bytes, which is not {len(classes):,} images of 3×96×96, "
            f"as many as {labels.name} has labels; unpack it again"
        )
    if not rows:
        raise UserError(f"{images} holds no images")
    # Each colour is stored column by column.
    pixels = np.memmap(images, np.uint8, "r", shape=(rows, 3, SIDE, SIDE)).transpose(0, 3, 2, 1)

    def open_row(row: int) -> Image:
        from PIL import Image

        return Image.fromarray(np.ascontiguousarray(pixels[row]))

    return Pictures(range(rows), classes, open_row, {"files": sha256(images)})
