"""Any folder of images.

Accepted: images in class folders (``cats/1.jpg``), or images alone (then there are no targets); either directly in the
folder, or in its subfolders ``train``, ``val`` (``valid``, ``validation``) and ``test``. Of these, ``train`` is enough:
a split that has no subfolder is drawn from the training images. With ``patch``, all images of the folder and its
subfolders are cut into patches; those of one image are in one split. The images are decoded once into a memory-mapped
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Data, Source, Split, SplitName
from isthmus.sources.cache import SMALL
from isthmus.sources.images import count_patches, cut_patches, fit_square, image_size, open_as_shown
from isthmus.sources.pictures import (
    Pictures,
    decode_pictures,
    decode_splits,
    find_folder,
    list_classes,
    list_images,
    list_pictures,
    walk_images,
)
from isthmus.sources.splits import FoldedSplits, Rows, check_splits

if TYPE_CHECKING:
    from PIL.Image import Image

NAMES = {"image_folder": "ImageFolder"}
MEANINGS = {"image_folder": "Your own folder of images, with or without classes."}

SUBFOLDERS: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
_ADVICE = "give as source.path a folder that holds images, or class folders of images"
_SHOWN = 5
"""Files that a finding names."""


class ImageFolder(Source):
    """uint8 (rows, channels, size, size): the short side resized to ``size``, then the centre cropped; or patches."""

    class Config(FoldedSplits):
        path: str
        """The folder, absolute, under the data folder or under the current one."""
        size: Annotated[int, Field(ge=1, le=4096)] = 32
        """Height and width in pixels, if images are not cut into patches."""
        patch: Annotated[int, Field(ge=1, le=4096)] | None = None
        """Cut the images into squares of so many pixels instead of resizing them, for tasks that restore images. Class
        folders are then of no importance."""
        patches: Rows = 10_000
        """The largest number of patches, shared evenly among the images."""
        channels: Literal[1, 3] = 3
        """1 for greyscale, 3 for colour."""
        unreadable: Literal["fatal", "skip"] = "fatal"
        """An image that cannot be decoded is an error (``fatal``), or is reported and skipped."""

    def load(self, data_dir: Path) -> Data:
        root = find_folder(data_dir, self.config.path, _ADVICE)
        homes = find_homes(root)
        classes = [] if self.config.patch else list_classes(homes["train"])
        given = {name: self._list_split(root, home, classes) for name, home in homes.items()}
        rows = sum(len(pictures.items) for pictures in given.values())
        if not self.config.patch and rows * self.config.channels * self.config.size**2 > SMALL:
            return self._load_large(root, given, classes)
        decoded = {name: self._decode(root, pictures) for name, pictures in given.items()}
        skipped = [path for each in decoded.values() for path in each.skipped]
        skipped += [path for home in homes.values() for path in walk_images(home) if not path.exists()]
        pool = decoded.pop("train")
        parts = self._draw(root, pool, list(decoded))
        splits: dict[SplitName, Split] = {
            name: decoded[name].split if name in decoded else pool.take(part)
            for name, part in zip(SPLITS, parts, strict=True)
        }
        digests = [decoded[name].digest if name in decoded else None for name in SPLITS]
        data = check_splits(str(root), [splits[name] for name in SPLITS], classes, digests)
        return replace(data, findings=tuple(_describe_skipped(root, skipped)))

    def _load_large(self, root: Path, given: dict[SplitName, Pictures], classes: Sequence[str]) -> Data:
        """Splits decoded one by one, so that each is an array on disk of its own."""
        config, pool = self.config, given.pop("train")
        parts = config.draw(len(pool.items), pool.targets, list(given))
        splits = {name: pool.take(part) for name, part in zip(SPLITS, parts, strict=True)} | given
        decode, shape = partial(fit_square, size=config.size), (1, config.channels, config.size, config.size)
        skip = config.unreadable == "skip"
        return decode_splits("image_folder", splits, decode, shape, classes, skip, origin=str(root))

    def _list_split(self, root: Path, folder: Path, classes: Sequence[str]) -> Pictures:
        """The images of one split and, where there are class folders, their labels."""
        paths, labels = list_labelled(folder, classes, everything=self.config.patch is not None)
        lost = {path for path in paths if not path.exists()}
        if lost and self.config.unreadable == "fatal":
            raise UserError(f"{min(lost)} is a link to nothing; remove it, or leave it out: source.unreadable=skip")
        there = [place for place, path in enumerate(paths) if path not in lost]
        targets = None if labels is None else labels[there]
        pictures = list_pictures(root, [paths[place] for place in there], targets, self.config.channels)
        open_file = partial(_open_path, channels=self.config.channels)
        return pictures._replace(open=open_file, key={**pictures.key, "as_shown": True})

    def _decode(self, root: Path, pictures: Pictures) -> Decoded:
        config, skip = self.config, self.config.unreadable == "skip"
        if config.patch is None:
            side, counts = config.size, [1] * len(pictures.items)
            array = decode_pictures(
                "image_folder", pictures, partial(fit_square, size=side), (config.channels, side, side), counts, skip,
                origin=str(root),
            )  # fmt: skip
        else:
            side, most = config.patch, max(1, config.patches // len(pictures.items))
            counts = [min(most, _count_patches(path, side)) for path in pictures.items]
            cut = partial(draw_patches, size=side, most=most, root=root, seed=config.split_seed)
            chosen = {"patches": most, "split_seed": config.split_seed}
            array = decode_pictures(
                "image_folder", pictures._replace(key={**pictures.key, **chosen}), cut, (config.channels, side, side),
                counts, skip, origin=str(root),
            )  # fmt: skip
        owners = np.delete(np.repeat(np.arange(len(counts)), counts), list(array.unreadable))
        kept = np.unique(owners)
        if not len(kept):
            raise UserError(f"none of the {len(counts)} images in {root} can be read")
        skipped = [path for place, path in enumerate(pictures.items) if place not in set(kept.tolist())]
        targets = None if pictures.targets is None else pictures.targets[kept]
        return Decoded(array.array, array.digest, np.searchsorted(kept, owners), targets, skipped)

    def _draw(self, root: Path, pool: Decoded, given: Sequence[SplitName]) -> list[np.ndarray]:
        """The images of each split."""
        config, images = self.config, len(np.unique(pool.owners))
        held_out = config.held_out(images, given)
        needed = 1 + sum(1 for rows in held_out if rows)
        if images < needed:
            raise UserError(
                f"{root} has {images} readable image{'s' * (images > 1)}; training, validation and test need at least "
                f"{needed}, because no image is in two of them"
            )
        if config.folds is not None:  # of few photographs, each is a fold
            config = config.model_copy(update={"folds": max(2, min(config.folds, images - held_out[1]))})
        return config.draw(images, pool.targets, given)


class Decoded(NamedTuple):
    """The readable images of a folder: rows, the image of each row, and the label of each image."""

    rows: np.ndarray
    digest: str
    owners: np.ndarray
    targets: np.ndarray | None
    skipped: list[Path]

    @property
    def split(self) -> Split:
        return Split(self.rows, None if self.targets is None else self.targets[self.owners])

    def take(self, images: np.ndarray) -> Split:
        """The rows of these images, in their order."""
        starts, ends = np.searchsorted(self.owners, images), np.searchsorted(self.owners, images, "right")
        ranges = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        rows = np.concatenate([np.zeros(0, int), *ranges])
        return Split(self.rows[rows], None if self.targets is None else self.targets[self.owners[rows]])


def find_homes(root: Path) -> dict[SplitName, Path]:
    """The folder of each split that has one; of the training images, that may be the folder itself."""
    homes = {name: root / sub for name, subs in SUBFOLDERS.items() for sub in subs if (root / sub).is_dir()}
    if homes and "train" not in homes:
        raise UserError(f"{root} has a folder {next(iter(homes.values())).name} but no folder train")
    return homes or {"train": root}


def list_labelled(
    folder: Path, classes: Sequence[str], everything: bool = False
) -> tuple[list[Path], np.ndarray | None]:
    """The images in class folders with their labels; without classes, those in the folder, or ``everything`` below."""
    loose = list_images(folder)
    if classes and loose:
        raise UserError(
            f"{folder} has class folders and loose images such as {loose[0].name}; move them into one, "
            "or cut all images into patches, to restore them: source.patch=8"
        )
    if not classes:
        paths = walk_images(folder) if everything else loose
        if not paths:
            raise UserError(f"there are no images in {folder}{' or its subfolders' if everything else ''}")
        return paths, None
    by_class = {name: walk_images(folder / name) for name in list_classes(folder)}
    for name, paths in by_class.items():
        if name not in classes:
            raise UserError(f"{folder / name} is a class without training images; the classes are {', '.join(classes)}")
        if not paths:
            raise UserError(f"there are no images in the class folder {folder / name}; remove it, or add some")
    labels = [classes.index(name) for name, paths in by_class.items() for _ in paths]
    return [path for paths in by_class.values() for path in paths], np.array(labels, np.int64)


def draw_patches(image: Image, name: str, size: int, most: int, root: Path, seed: int) -> np.ndarray:
    """Some patches of an image; which, depends on its name and the seed only."""
    cut = cut_patches(image, size)
    key = Path(name).relative_to(root).as_posix()
    chosen: np.ndarray = cut[np.sort(numpy_generator(seed, f"patches/{key}").permutation(len(cut))[:most])]
    return chosen


class Facts(NamedTuple):
    """What the headers of some of the images of a folder say."""

    classes: list[str]
    side: int
    """The median of their short sides."""
    are_grey: bool
    has_nested_classes: bool
    """Whether the only class folder holds several folders."""


def look_at(root: Path, sample: int = 200) -> Facts:
    """Facts about a folder that is not loaded yet, from the headers of a sample of its training images."""
    home = find_homes(root)["train"]
    paths = walk_images(home)
    if not paths:
        raise UserError(f"there are no images in {root} or its subfolders; give a folder of .png or .jpg files")
    places = np.unique(np.linspace(0, len(paths) - 1, min(sample, len(paths))).astype(int))
    sizes = [size for place in places if (size := image_size(paths[place]))]
    if not sizes:
        raise UserError(f"none of the images in {root} can be read, such as {paths[0].relative_to(root)}")
    side = int(np.median([min(width, height) for width, height, _ in sizes]))
    classes = list_classes(home)
    has_nested_classes = len(classes) == 1 and len(list_classes(home / classes[0])) > 1
    return Facts(classes, side, all(is_grey for *_, is_grey in sizes), has_nested_classes)


def _open_path(path: Path, channels: int) -> Image:
    return open_as_shown(path, str(path), channels)


def _count_patches(path: Path, size: int) -> int:
    """The patches of an image by its header; 1 for an unreadable one, which is reported when it is decoded."""
    known = image_size(path)
    return count_patches(*known[:2], size) if known else 1


def _describe_skipped(root: Path, skipped: Sequence[Path]) -> list[str]:
    if not skipped:
        return []
    names = ", ".join(f"`{path.relative_to(root).as_posix()}`" for path in skipped[:_SHOWN])
    more = f" and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
    return [
        f"{len(skipped)} image{'s' * (len(skipped) > 1)} cannot be read and {'were' if len(skipped) > 1 else 'was'} "
        f"skipped: {names}{more} (source.unreadable=fatal refuses the folder instead)"
    ]
