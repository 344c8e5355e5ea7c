"""A user's images to predict from: arrays, PIL images, files and folders, of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.files import need_regular, write_with
from isthmus.sources.images import SUFFIXES, center_crop, channels_first, open_image, resize_short_side


class ImageReader:
    """Reads images (channels, height, width) with the channels of a run, and fits them to its size."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.channels, self.height, self.width = shape

    def takes(self, data: Any) -> bool:
        """Whether data are images, rather than rows of numbers."""
        if isinstance(data, list | tuple):
            return bool(data) and all(is_picture(each) or _dimensions(each) in (2, 3) for each in data)
        return is_picture(data) or _dimensions(data) in (3, 4)

    def read(self, data: Any, origin: str = "the input") -> Iterator[np.ndarray]:
        """One image after another, each of its own size."""
        if isinstance(data, str | Path):
            yield read_image(Path(data), self.channels)
        elif isinstance(data, list | tuple):
            for place, each in enumerate(data):
                yield from self.read(each, f"image {place} of {origin}")
        elif is_picture(data):
            if data.mode.startswith(("I", "F")):  # Pillow would silently clip 16 bits to 8
                raise UserError(f"{origin} has more than 8 bits per channel; convert it to an 8-bit image first")
            self._need_usual(origin)
            yield channels_first(data.convert("RGB" if self.channels == 3 else "L"))
        else:
            yield from self._split(np.asarray(data), origin)

    def fit(self, image: np.ndarray, origin: str = "the image") -> np.ndarray:
        """The image at the run's size: the short side resized and the centre cropped, as folders of images are."""
        if image.shape[1:] == (self.height, self.width):
            return image
        if self.height != self.width:
            raise UserError(f"{origin}: this run takes images of {self.height}×{self.width} pixels, {_say(image)}")
        from PIL import Image

        self._need_usual(origin)
        whole = np.ascontiguousarray(np.rint(pixels(image, origin)).astype(np.uint8).transpose(1, 2, 0))
        picture = Image.fromarray(whole[..., 0] if self.channels == 1 else whole)
        return channels_first(center_crop(resize_short_side(picture, self.height, origin), self.height))

    def _need_usual(self, origin: str) -> None:
        if self.channels not in (1, 3):
            raise UserError(f"{origin}: this run takes images of {self.channels} channels; give arrays of its size")

    def _split(self, array: np.ndarray, origin: str) -> Iterator[np.ndarray]:
        """The images of an array: (images, height, width), with the channels second or last; or a single image."""
        channels = self.channels
        if array.ndim == 4 and array.shape[1] != channels and array.shape[3] == channels:
            array = array.transpose(0, 3, 1, 2)
        elif array.ndim == 3 and array.shape[2] == channels:
            array = array.transpose(2, 0, 1)[None]
        elif array.ndim == 3:
            array = array[:, None] if channels == 1 else array[None]
        elif array.ndim == 2 and channels == 1:
            array = array[None, None]
        if array.ndim != 4 or array.shape[1] != channels or 0 in array.shape:
            shown = f"(images, {channels}, height, width) or (images, height, width, {channels})"
            raise UserError(f"{origin} has the shape {array.shape}; this run takes images as {shown}")
        yield from array


def is_picture(data: Any) -> bool:
    """Whether it is an image of PIL, which is not imported for the question."""
    return type(data).__module__.partition(".")[0] == "PIL" and hasattr(data, "convert")


def image_paths(folder: Path) -> list[Path]:
    """All images of a folder and its subfolders, sorted, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    paths = sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    if not paths:
        raise UserError(f"there are no images in {folder} or its subfolders")
    return paths


def expand_folders(files: Sequence[Path]) -> list[Path]:
    """The files, and in the place of a folder all its images."""
    return [path for file in files for path in (image_paths(file) if file.is_dir() else [file])]


def pixels(images: np.ndarray, origin: str) -> np.ndarray:
    """Images from 0 to 255. Other scales are refused, because a wrong guess would go unnoticed."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return images * np.float32(255)
    if images.dtype.kind not in "biuf":
        raise UserError(f"{origin}: {images.dtype} is not a number; give images as uint8, or as floats from 0 to 1")
    raise UserError(
        f"{origin}: this run takes images as uint8, or as floats from 0 to 1, "
        f"not as {images.dtype} from {images.min():g} to {images.max():g}"
    )


def need_file(path: Path) -> None:
    if not path.exists():
        raise UserError(f"there is no file {path}")
    need_regular(path)


def read_image(path: Path, channels: int) -> np.ndarray:
    need_file(path)
    if channels not in (1, 3):
        raise UserError(f"{path}: this run takes images of {channels} channels; give them as an npy file")
    return channels_first(open_image(path, str(path), channels))


def write_image(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def _dimensions(data: Any) -> int:
    return data.ndim if isinstance(data, np.ndarray) else 0


def _say(image: np.ndarray) -> str:
    return f"not of {image.shape[1]}×{image.shape[2]}"
