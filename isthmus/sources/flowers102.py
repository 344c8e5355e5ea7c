"""Oxford Flowers-102 (Nilsback, Zisserman 2008, "Automated Flower Classification over a Large Number of Classes").

Looked for in the folder ``flowers-102/``: ``jpg/image_00001.jpg`` to ``jpg/image_08189.jpg``, ``imagelabels.mat`` and
``setid.mat``. Or from the hub, such as ``dpdl-benchmark/oxford_flowers102``, in its three splits.

The official split trains on 1,020 images. The Hourglass paper's Table 10 counts 6,149 images for training and 1.0 k for
the test: the official test images were trained on. ``split`` chooses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import SplitName
from isthmus.sources.files import name_errors
from isthmus.sources.pictures import Found, PictureSource, find_folder, list_pictures, read_matlab

NAMES = {"flowers102": "Flowers102"}
MEANINGS = {"flowers102": "Oxford Flowers-102: 8,189 photographs of flowers in 102 classes."}

CLASSES = 102
SETS = {"train": "trnid", "validation": "valid", "test": "tstid"}
ADVICE = (
    "put 102flowers.tgz (unpacked: jpg/), imagelabels.mat and setid.mat of "
    "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ there, or set source.hub=dpdl-benchmark/oxford_flowers102"
)


class Flowers102(PictureSource):
    """uint8 (rows, 3, size, size), 102 classes; 1,020 / 1,020 / 6,149, or with ``swapped`` 6,149 / 1,020 / 1,020."""

    class Config(PictureSource.Config):
        folder: str = "flowers-102"
        """The folder of the data set: a path, absolute or under the data folder."""
        split: Literal["official", "swapped"] = "official"
        """``official``, or ``swapped``: the official test images train and the official training images test."""

    @property
    def official_splits(self) -> dict[SplitName, str]:
        train, test = ("test", "train") if self.config.split == "swapped" else ("train", "test")
        return {"train": train, "validation": "validation", "test": test}

    def find_pictures(self, data_dir: Path) -> Found:
        root = find_folder(data_dir, self.config.folder, ADVICE)
        sets = read_matlab(root / "setid.mat", ADVICE)
        content = read_matlab(root / "imagelabels.mat", ADVICE)
        with name_errors(root / "imagelabels.mat", "an array of labels"):
            labels = np.asarray(content["labels"]).astype(np.int64) - 1
        given = {}
        for split, official in self.official_splits.items():
            name = SETS[official]
            with name_errors(root / "setid.mat", f"a file with the set {name}"):
                numbers = np.atleast_1d(sets[name]).astype(np.int64)
            if numbers.min() < 1 or numbers.max() > len(labels):
                raise UserError(f"{root / 'setid.mat'}: {name} names images beyond the {len(labels)} that have labels")
            paths = [root / "jpg" / f"image_{number:05d}.jpg" for number in numbers.tolist()]
            given[split] = list_pictures(root, paths, labels[numbers - 1])
        return given, [str(number) for number in range(1, CLASSES + 1)]
