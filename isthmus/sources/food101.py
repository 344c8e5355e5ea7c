"""Food-101 (Bossard, Guillaumin, Van Gool 2014, "Food-101 – Mining Discriminative Components with Random Forests").

Looked for in the folder ``food-101/`` as the authors' archive unpacks it: ``images/CLASS/ID.jpg``, and ``meta/`` with
``classes.txt``, ``train.txt`` and ``test.txt``. Or from the hub, such as ``ethz/food101``.
"""

from __future__ import annotations

from pathlib import Path

from isthmus.core.errors import UserError
from isthmus.sources.files import name_errors, not_found
from isthmus.sources.pictures import Found, Pictures, PictureSource, find_folder, list_pictures

NAMES = {"food101": "Food101"}
MEANINGS = {"food101": "Food-101: 101,000 photographs of dishes in 101 classes."}

ADVICE = "unpack https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz there, or set source.hub=ethz/food101"


class Food101(PictureSource):
    """uint8 (rows, 3, size, size), 101 classes; 75,750 for training and 25,250 for the test."""

    class Config(PictureSource.Config):
        folder: str = "food-101"
        """The folder of the unpacked archive: a path, absolute or under the data folder."""

    hub_test = "validation"

    def find_pictures(self, data_dir: Path) -> Found:
        root = find_folder(data_dir, self.config.folder, ADVICE)
        classes = read_names(root / "meta" / "classes.txt")
        return {"train": list_split(root, "train", classes), "test": list_split(root, "test", classes)}, classes


def list_split(root: Path, split: str, classes: list[str]) -> Pictures:
    listing = root / "meta" / f"{split}.txt"
    names = read_names(listing)
    numbers = {name: number for number, name in enumerate(classes)}
    for name in names:
        if name.split("/")[0] not in numbers:
            raise UserError(f"{listing}: {name} is of no class of classes.txt")
    labels = [numbers[name.split("/")[0]] for name in names]
    return list_pictures(root, [root / "images" / f"{name}.jpg" for name in names], labels)


def read_names(path: Path) -> list[str]:
    if not path.is_file():
        raise not_found(path.name, [path.parent], ADVICE)
    with name_errors(path, "a list of names"):
        return path.read_text(encoding="utf-8").split()
