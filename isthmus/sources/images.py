"""Opens, resizes, crops and cuts images."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.files import need_regular
from isthmus.sources.files import name_errors

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST_PIXELS = 2**28
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def open_image(file: Path | bytes, name: str, channels: int = 3) -> Image:
    """A decoded image in RGB, or in greyscale with one channel, as the published data sets are read."""
    with _open(file, name) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would silently clip 16 bits to 8
            raise UserError(f"{name} has more than 8 bits per channel; convert it to an 8-bit image first")
        return image.convert("RGB" if channels == 3 else "L")


def open_as_shown(file: Path | bytes, name: str, channels: int = 3) -> Image:
    """A user's image as a viewer shows it; see :func:`as_shown`."""
    with _open(file, name) as image:
        return as_shown(image, name, channels)


def as_shown(image: Image, name: str, channels: int = 3) -> Image:
    """An image turned upright by its EXIF data, its transparent parts on white, 16 bits reduced to 8."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        image = _reduce_depth(image, name)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB" if channels == 3 else "L")


def image_size(path: Path) -> tuple[int, int, bool] | None:
    """Width, height and whether it is grey, from the header; None if it cannot be read."""
    try:
        with _open(path, str(path)) as image:
            return *image.size, image.getbands()[0] in ("1", "L", "I", "F")
    except UserError:
        return None


@contextmanager
def _open(file: Path | bytes, name: str) -> Iterator[Image]:
    from PIL import Image, UnidentifiedImageError

    if isinstance(file, Path):
        need_regular(file)
    with name_errors(name, "an image"):
        try:
            opened = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file)
        except UnidentifiedImageError:  # its message names an object in memory
            raise UserError(f"cannot read {name} as an image: the format is unknown") from None
        with opened as image:
            yield image


def _reduce_depth(image: Image, name: str) -> Image:
    """Pixels of more than 8 bits as 8 bits: 16-bit numbers divided by 257, floats from 0 to 1 times 255."""
    from PIL import Image

    values = np.asarray(image)
    low, high, is_float = values.min(), values.max(), values.dtype.kind == "f"
    if not (low >= 0 and high <= (1 if is_float else 65535)):  # also if there are NaNs
        raise UserError(
            f"{name} has pixels from {low:g} to {high:g}; save it with 8 or 16 bits per channel, or floats from 0 to 1"
        )
    return Image.fromarray(np.rint(values * 255.0 if is_float else values / 257).astype(np.uint8))


Filter = Literal["bilinear", "bicubic"]


def resize_short_side(image: Image, size: int, name: object = "the image", resampling: Filter = "bilinear") -> Image:
    """Resize the short side to ``size``, with antialiasing."""
    short, long = min(image.size), max(image.size)
    if size * (size * long // short) > _MOST_PIXELS:
        raise UserError(
            f"{name} of {image.width}×{image.height} pixels is too elongated to be resized to a short side of {size}; "
            "crop it first"
        )
    return _resize(image, (size * image.width // short, size * image.height // short), resampling)


def _resize(image: Image, size: tuple[int, int], resampling: Filter) -> Image:
    from PIL.Image import Resampling

    return image.resize(size, Resampling[resampling.upper()])


def center_crop(image: Image, size: int) -> Image:
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def channels_first(image: Image) -> np.ndarray:
    """(channels, height, width)."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def fit_square(image: Image, name: object, size: int, resampling: Filter = "bilinear") -> np.ndarray:
    """(channels, size, size): the short side resized to ``size``, then the centre cropped."""
    return channels_first(center_crop(resize_short_side(image, size, name, resampling), size))


def squeeze(image: Image, name: object, size: int, resampling: Filter = "bilinear") -> np.ndarray:
    """(channels, size, size): the whole image, both sides resized to ``size``."""
    return channels_first(_resize(image, (size, size), resampling))


def cut_patches(image: Image, size: int) -> np.ndarray:
    """Disjoint square patches from the top left, row by row: (patches, channels, size, size).

    An image that is smaller than a patch is continued by its edge pixels.
    """
    pixels = channels_first(image)
    channels, rows, columns = len(pixels), max(1, image.height // size), max(1, image.width // size)
    missing = [(0, max(0, size - length)) for length in pixels.shape[1:]]
    pixels = np.pad(pixels, [(0, 0), *missing], mode="edge")
    grid = pixels[:, : rows * size, : columns * size].reshape(channels, rows, size, columns, size)
    return np.ascontiguousarray(grid.transpose(1, 3, 0, 2, 4).reshape(-1, channels, size, size))


def count_patches(width: int, height: int, size: int) -> int:
    return max(1, width // size) * max(1, height // size)
