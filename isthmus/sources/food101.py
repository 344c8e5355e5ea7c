"""Food-101 (Bossard, Guillaumin, Van Gool 2014, "Food-101 – Mining Discriminative Components with Random Forests").

Looked for in the folder ``food-101/`` as the authors' archive unpacks it: ``images/CLASS/ID.jpg``, and ``meta/`` with
``classes.txt``, ``train.txt`` and ``test.txt``. Or from the hub, such as ``ethz/food101``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from isthmus.core.errors import UserError
from isthmus.core.protocols import SplitName
from isthmus.sources.files import name_errors, not_found
from isthmus.sources.pictures import Pictures, PictureSettings, PictureSource, folder, list_pictures

NAMES = {"food101": "Food101"}

ADVICE = "unpack https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz there, or set source.hub=ethz/food101"


class Food101(PictureSource):
    """uint8 (rows, 3, size, size), 101 classes; 75,750 for training and 25,250 for the test."""

    class Config(PictureSettings):
        folder: str = "food-101"
        """The folder of the unpacked archive: a path, absolute or under the data folder."""

    title = "food101"
    hub_splits: ClassVar[dict[SplitName, str]] = {"train": "train", "test": "validation"}

    def find_pictures(self, data_dir: Path) -> tuple[dict[SplitName, Pictures], Sequence[str]]:
        root = folder(data_dir, self.config.folder, ADVICE)
        classes = lines(root / "meta" / "classes.txt")
        numbers = {name: number for number, name in enumerate(classes)}
        given: dict[SplitName, Pictures] = {}
        splits: tuple[SplitName, ...] = ("train", "test")
        for split in splits:
            names = lines(root / "meta" / f"{split}.txt")
            unknown = next((name for name in names if name.split("/")[0] not in numbers), None)
            if unknown:
                raise UserError(f"{root / 'meta' / f'{split}.txt'}: {unknown} is of no class of classes.txt")
            paths = [root / "images" / f"{name}.jpg" for name in names]
            given[split] = list_pictures(root, paths, [numbers[name.split("/")[0]] for name in names])
        return given, classes


def lines(path: Path) -> list[str]:
    if not path.is_file():
        raise not_found(path.name, [path.parent], ADVICE)
    with name_errors(path, "a list of names"):
        return path.read_text(encoding="utf-8").split()
