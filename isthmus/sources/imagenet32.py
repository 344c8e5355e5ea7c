"""ImageNet at 32×32 (Chrabaszcz, Loshchilov, Hutter 2017), from the npz files of image-net.org.

Looked for in ``imagenet32/``, ``Imagenet32_train/``, ``Imagenet32_val/`` and the data folder itself:
``train_data_batch_1.npz`` to ``train_data_batch_10.npz`` and ``val_data.npz``, each with ``data`` (rows of 3072 bytes:
red, green, blue) and ``labels`` from 1 to 1000. The pixels are kept in a memory-mapped cache of 4 GB.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.cache import CachedArray, cache_array
from isthmus.sources.files import locate, name_errors, open_archive, read_member
from isthmus.sources.splits import check_splits, partition

NAMES = {"imagenet32": "ImageNet32"}

CLASSES = 1000
FOLDERS = ["imagenet32", "Imagenet32_train", "Imagenet32_val", ""]
ADVICE = (
    "log in at https://image-net.org/download-images.php, download the 32×32 npz files "
    "(Imagenet32_train_npz.zip, Imagenet32_val_npz.zip) and unpack them into the first of these"
)


class ImageNet32(Source):
    """uint8 (rows, 3, 32, 32); 1,281,167 for training, the 50,000 validation images halved into validation and test."""

    class Config(Component):
        split_seed: int = 0
        """Seed of the halving; the run's seed does not change it."""

    def load(self, data_dir: Path) -> Data:
        names = [*(f"train_data_batch_{batch}.npz" for batch in range(1, 11)), "val_data.npz"]
        paths = [locate(data_dir, FOLDERS, [name], ADVICE) for name in names]
        train, labels = read_files(paths[:-1])
        held_out, held_out_labels = read_files(paths[-1:])
        halves = partition(len(held_out_labels), [len(held_out_labels) // 2], self.config.split_seed)
        validation, test = (Split(held_out.array[half], held_out_labels[half]) for half in halves)
        classes = [str(label) for label in range(1, CLASSES + 1)]
        splits = [Split(train.array, labels), validation, test]
        return check_splits("imagenet32", splits, classes, [train.digest, None, None])


def read_files(paths: list[Path]) -> tuple[CachedArray, np.ndarray]:
    """The images of these files behind one memory map, and their labels from 0."""
    labels = [read_numbers(path, "labels", 1).astype(np.int64) - 1 for path in paths]
    ends = np.cumsum([len(part) for part in labels])
    if not ends[-1]:
        raise UserError(f"{paths[0]} holds no rows")

    def fill(array: np.ndarray) -> None:
        for path, part in zip(paths, np.split(array, ends[:-1]), strict=True):
            pixels = read_numbers(path, "data", 2)
            if pixels.shape != (len(part), 3072) or pixels.dtype != np.uint8:
                raise UserError(f"{path}: data should be uint8 ({len(part)}, 3072), not {pixels.dtype} {pixels.shape}")
            part[:] = pixels.reshape(part.shape)

    key = {"files": [list_members(path) for path in paths]}
    return cache_array("imagenet32", key, (int(ends[-1]), 3, 32, 32), fill), np.concatenate(labels)


def list_members(path: Path) -> list[list[Any]]:
    """Names, sizes and stored checksums of the arrays in an npz file: faster than reading 4 GB."""
    with name_errors(path, "an npz file"), zipfile.ZipFile(path) as archive:
        return [[entry.filename, entry.file_size, entry.CRC] for entry in archive.infolist()]


def read_numbers(path: Path, name: str, dimensions: int) -> np.ndarray:
    with open_archive(path) as archive:
        array = read_member(path, archive, name)
        if array.ndim != dimensions or array.dtype.kind not in "iu":
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        return array
