"""MNIST (LeCun, Bottou, Bengio, Haffner 1998), and other data sets in its four idx files.

Looked for in ``mnist/``, ``MNIST/raw/`` (torchvision's place) and the data folder itself, packed (``.gz``) or not:
``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``.
"""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.files import locate, read_bytes
from isthmus.sources.splits import HeldOutRows, check_splits, partition

NAMES = {"mnist": "MNIST"}
MEANINGS = {"mnist": "MNIST: 70,000 handwritten digits of 28×28 pixels; also other data sets in its four idx files."}

# Of the unpacked content: the same digits packed again have other bytes.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class MNIST(Source):
    """uint8 (rows, 1, 28, 28). The 60,000 training images are partitioned at random into 50,000 and 10,000."""

    class Config(Component):
        validation: HeldOutRows = 10_000
        """Rows of the training file held out for validation."""
        split_seed: int = 0
        """Seed of the partition; the run's seed does not change it."""
        idx: str | None = None
        """Folder of another data set in the same four files, such as ``fashion-mnist``; its content is not checked."""

    def load(self, data_dir: Path) -> Data:
        images, labels = self._read(data_dir, "train")
        test_images, test_labels = self._read(data_dir, "t10k")
        train, validation = partition(len(labels), [self.config.validation], self.config.split_seed)
        splits = [Split(images[rows], labels[rows]) for rows in (train, validation)]
        classes = [str(label) for label in range(int(labels.max()) + 1)]
        return check_splits(self.config.idx or "mnist", [*splits, Split(test_images, test_labels)], classes)

    def _read(self, data_dir: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
        images = self._read_idx(data_dir, f"{part}-images-idx3-ubyte", 3)
        labels = self._read_idx(data_dir, f"{part}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise UserError(f"{self.config.idx or 'mnist'}: {len(images)} {part} images but {len(labels)} labels")
        return images[:, None], labels.astype(np.int64)

    def _read_idx(self, data_dir: Path, name: str, dimensions: int) -> np.ndarray:
        idx = self.config.idx
        folders = [idx, f"{idx}/raw"] if idx else ["mnist", "MNIST/raw", ""]
        origin = "" if idx else "from https://ossci-datasets.s3.amazonaws.com/mnist/ "
        advice = f"put the four idx files {origin}into the first of these"
        path = locate(data_dir, folders, [name, f"{name}.gz"], advice)
        raw = read_bytes(path)
        array = parse_idx(raw, path, dimensions)
        if not idx and hashlib.sha256(raw).hexdigest() != SHA256[name]:
            raise UserError(
                f"{path} is not MNIST's: its content has another checksum; download it again, "
                "or set source.idx to the folder of another data set in this layout"
            )
        return array


def parse_idx(raw: bytes, path: Path, dimensions: int) -> np.ndarray:
    """The bytes of an idx file: two zeros, 8 (unsigned byte), the number of dimensions, the sizes, the values."""
    start = 4 + 4 * dimensions
    if len(raw) < start or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise UserError(f"{path} is not an idx file with {dimensions} axes: it begins with {raw[:4].hex(' ')!r}")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) != start + math.prod(shape):
        raise UserError(f"{path} is damaged: its header asks for {start + math.prod(shape)} bytes, it has {len(raw)}")
    if 0 in shape:
        raise UserError(f"{path} holds no data: its header says {' × '.join(map(str, shape))}")
    return np.frombuffer(bytearray(raw), np.uint8, offset=start).reshape(shape)
