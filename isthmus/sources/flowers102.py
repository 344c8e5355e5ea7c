"""Oxford Flowers-102 (Nilsback, Zisserman 2008, "Automated Flower Classification over a Large Number of Classes").

Looked for in the folder ``flowers-102/``: ``jpg/image_00001.jpg`` to ``jpg/image_08189.jpg``, ``imagelabels.mat`` and
``setid.mat``. Or from the hub, such as ``dpdl-benchmark/oxford_flowers102``, in its three splits.

The official split trains on 1,020 images. The Hourglass paper's Table 10 counts 6,149 images for training and 1.0 k for
the test: the official test images were trained on. Both are here, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import SplitName
from isthmus.sources.files import name_errors
from isthmus.sources.pictures import Pictures, PictureSettings, PictureSource, folder, list_pictures, matlab

NAMES = {"flowers102": "Flowers102"}

CLASSES = 102
SETS: dict[SplitName, str] = {"train": "trnid", "validation": "valid", "test": "tstid"}
ADVICE = (
    "put 102flowers.tgz (unpacked: jpg/), imagelabels.mat and setid.mat of "
    "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ there, or set source.hub=dpdl-benchmark/oxford_flowers102"
)


class Flowers102(PictureSource):
    """uint8 (rows, 3, size, size), 102 classes; 1,020 / 1,020 / 6,149, or with ``swapped`` 6,149 / 1,020 / 1,020."""

    class Config(PictureSettings):
        folder: str = "flowers-102"
        """The folder of the data set: a path, absolute or under the data folder."""
        split: Literal["official", "swapped"] = "official"
        """``official``, or ``swapped``: the official test images train and the official training images test."""

    title = "flowers102"
    hub_splits: ClassVar[dict[SplitName, str]] = {"train": "train", "validation": "validation", "test": "test"}

    def find_pictures(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        root = folder(data_dir, self.config.folder, ADVICE)
        sets = matlab(root / "setid.mat", ADVICE)
        content = matlab(root / "imagelabels.mat", ADVICE)
        with name_errors(root / "imagelabels.mat", "an array of labels"):
            labels = np.asarray(content["labels"]).astype(np.int64) - 1
        given: dict[SplitName, Pictures] = {}
        for split, name in SETS.items():
            with name_errors(root / "setid.mat", f"a file with the set {name}"):
                numbers = np.atleast_1d(sets[name]).astype(np.int64)
            if numbers.min() < 1 or numbers.max() > len(labels):
                raise UserError(f"{root / 'setid.mat'}: {name} names images beyond the {len(labels)} that have labels")
            paths = [root / "jpg" / f"image_{number:05d}.jpg" for number in numbers.tolist()]
            given[split] = list_pictures(root, paths, labels[numbers - 1])
        return self._assign_splits(given), [str(number) for number in range(1, CLASSES + 1)]

    def _on_hub(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        given, classes = super()._on_hub(data_dir)
        return self._assign_splits(given), classes

    def _assign_splits(self, given: dict[SplitName, Pictures]) -> dict[SplitName, Pictures]:
        if self.config.split == "official":
            return given
        return {"train": given["test"], "validation": given["validation"], "test": given["train"]}
