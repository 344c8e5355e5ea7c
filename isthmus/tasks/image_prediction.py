"""A user's images to predict from: arrays, PIL images, files and folders, of any size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.files import advise_path, need_regular, write_with
from isthmus.sources.images import as_shown, center_crop, channels_first, open_as_shown, resize_short_side
from isthmus.sources.pictures import walk_images

Restore = Callable[[np.ndarray], np.ndarray]
"""Gives the restored images of tiles (tiles, channels, height, width)."""


class ImageReader:
    """Reads images (channels, height, width) with the channels of a run, and fits them to its size."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.channels, self.height, self.width = shape

    def takes(self, data: Any) -> bool:
        """Whether data are images, rather than rows of numbers."""
        if isinstance(data, list | tuple):
            return bool(data) and all(is_picture(each) or _dimensions(each) in (2, 3) for each in data)
        return is_picture(data) or _dimensions(data) in (3, 4)

    def read(self, data: Any, origin: str = "the input") -> Iterator[tuple[str, np.ndarray]]:
        """One image after another with its name, each of its own size."""
        if isinstance(data, str | Path):
            yield str(data), read_image(Path(data), self.channels)
        elif isinstance(data, list | tuple):
            for place, each in enumerate(data):
                yield from self.read(each, f"image {place} of {origin}")
        elif is_picture(data):
            self._need_usual(origin)
            yield origin, channels_first(as_shown(data, origin, self.channels))
        else:
            yield from ((origin, image) for image in self._split(np.asarray(data), origin))

    def read_folder(self, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
        """The images of a folder by their names in it; unreadable ones are skipped with a warning, as in a search."""
        paths, unreadable = image_paths(folder), list[str]()
        for path in paths:
            try:
                image = read_image(path, self.channels)
            except UserError as error:
                unreadable.append(str(error))
            else:
                yield path.relative_to(folder).as_posix(), image
        if len(unreadable) == len(paths):
            raise UserError(unreadable[0])
        if unreadable:
            more = f" (and {len(unreadable) - 1} more such files)" if len(unreadable) > 1 else ""
            warnings.warn(f"skipped: {unreadable[0]}{more}", stacklevel=2)

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
        shape, channels = array.shape, self.channels
        if array.ndim == 2:
            array = array[None, None]
        elif array.ndim == 3 and shape[2] in (1, 3, 4, channels):
            array = array.transpose(2, 0, 1)[None]
        elif array.ndim == 3:
            array = array[None] if shape[0] in (3, 4, channels) and channels > 1 else array[:, None]
        elif array.ndim == 4 and shape[1] != channels and (shape[3] == channels or shape[1] not in (1, 3, 4)):
            array = array.transpose(0, 3, 1, 2)
        takes = (1, 3, 4) if channels in (1, 3) else (channels,)
        if array.ndim != 4 or array.shape[1] not in (*takes, channels) or 0 in array.shape:
            shown = f"(images, {channels}, height, width) or (images, height, width, {channels})"
            raise UserError(f"{origin} has the shape {shape}; this run takes images as {shown}")
        if array.shape[1] == channels:
            yield from array
        else:
            yield from (self._convert(pixels(image, origin)) for image in array)

    def _convert(self, image: np.ndarray) -> np.ndarray:
        """An array of grey, colour or transparent pixels with the channels of the run, as its file would be read."""
        from PIL import Image

        whole = np.ascontiguousarray(np.rint(image).astype(np.uint8).transpose(1, 2, 0))
        return channels_first(
            as_shown(Image.fromarray(whole.squeeze(2) if len(image) == 1 else whole), "", self.channels)
        )


def join_tiles(image: np.ndarray, size: tuple[int, int], scale: int, restore: Restore) -> np.ndarray:
    """Restore an image (channels, height, width) in tiles of ``size`` that overlap by half.

    Where tiles overlap, their results are averaged, with weights that fall from the centre of a tile to its edge, so
    that no seams show. An image that is smaller than a tile is continued by its edge pixels.
    """
    channels, height, width = image.shape
    missing = [(0, max(0, side - length)) for side, length in zip(size, image.shape[1:], strict=True)]
    padded = np.pad(image, [(0, 0), *missing], mode="edge")
    tops, lefts = (_tile_starts(length, side) for length, side in zip(padded.shape[1:], size, strict=True))
    down, across = (_tile_weights(side * scale) for side in size)
    joined = np.zeros((channels, padded.shape[1] * scale, padded.shape[2] * scale), np.float32)
    for top in tops:
        tiles = np.stack([padded[:, top : top + size[0], left : left + size[1]] for left in lefts])
        weighted = restore(tiles).astype(np.float32) * np.outer(down, across)
        band = joined[:, top * scale : (top + size[0]) * scale]
        for column in range(size[1] * scale):
            band[:, :, np.array(lefts) * scale + column] += weighted[:, :, :, column].transpose(1, 2, 0)
    joined /= np.outer(_sum_weights(tops, down, scale), _sum_weights(lefts, across, scale))
    whole: np.ndarray = np.rint(joined[:, : height * scale, : width * scale]).astype(np.uint8)
    return whole


def _tile_starts(length: int, side: int) -> list[int]:
    return [*range(0, length - side, max(1, side // 2)), length - side]


def _tile_weights(side: int) -> np.ndarray:
    rising = np.arange(1, side + 1, dtype=np.float32)
    return np.minimum(rising, rising[::-1])


def _sum_weights(starts: Sequence[int], weights: np.ndarray, scale: int) -> np.ndarray:
    total = np.zeros(starts[-1] * scale + len(weights), np.float32)
    for start in starts:
        total[start * scale : start * scale + len(weights)] += weights
    return total


def is_picture(data: Any) -> bool:
    """Whether it is an image of PIL, which is not imported for the question."""
    return type(data).__module__.partition(".")[0] == "PIL" and hasattr(data, "convert")


def image_paths(folder: Path) -> list[Path]:
    """All images of a folder and its subfolders, sorted, without hidden ones."""
    paths = walk_images(folder)
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
        raise UserError(f"there is no file {path}; {advise_path(path)}")
    need_regular(path)


def read_image(path: Path, channels: int) -> np.ndarray:
    need_file(path)
    if channels not in (1, 3):
        raise UserError(f"{path}: this run takes images of {channels} channels; give them as an npy file")
    return channels_first(open_as_shown(path, str(path), channels))


def write_image(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def _dimensions(data: Any) -> int:
    return data.ndim if isinstance(data, np.ndarray) else 0


def _say(image: np.ndarray) -> str:
    return f"not of {image.shape[1]}×{image.shape[2]}"
