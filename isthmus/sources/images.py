"""Opens, resizes, crops and cuts images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.files import need_regular
from isthmus.sources.files import name_errors

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST_PIXELS = 2**28
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def open_image(file: Path | bytes, name: str, channels: int = 3) -> Image:
    """A decoded image in RGB, or in greyscale with one channel."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(file, Path):
        need_regular(file)
    with name_errors(name, "an image"):
        try:
            opened = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file)
        except UnidentifiedImageError:  # its message names an object in memory
            raise UserError(f"cannot read {name} as an image: the format is unknown") from None
        with opened as image:
            if image.mode.startswith(("I", "F")):  # Pillow would silently clip 16 bits to 8
                raise UserError(f"{name} has more than 8 bits per channel; convert it to an 8-bit image first")
            return image.convert("RGB" if channels == 3 else "L")


def resize_short_side(image: Image, size: int, name: object = "the image") -> Image:
    """Resize the short side to ``size``, bilinear with antialiasing."""
    from PIL.Image import Resampling

    short, long = min(image.size), max(image.size)
    if size * (size * long // short) > _MOST_PIXELS:
        raise UserError(
            f"{name} of {image.width}×{image.height} pixels is too elongated to be resized to a short side of {size}; "
            "crop it first"
        )
    return image.resize((size * image.width // short, size * image.height // short), Resampling.BILINEAR)


def center_crop(image: Image, size: int) -> Image:
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def channels_first(image: Image) -> np.ndarray:
    """(channels, height, width)."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def fit_square(image: Image, name: object, size: int) -> np.ndarray:
    """(channels, size, size): the short side resized to ``size``, then the centre cropped."""
    return channels_first(center_crop(resize_short_side(image, size, name), size))


def cut_patches(image: Image, size: int) -> np.ndarray:
    """Disjoint square patches from the top left, row by row: (patches, channels, size, size)."""
    pixels = channels_first(image)
    channels, rows, columns = len(pixels), image.height // size, image.width // size
    grid = pixels[:, : rows * size, : columns * size].reshape(channels, rows, size, columns, size)
    return np.ascontiguousarray(grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, size, size))
