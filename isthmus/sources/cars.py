"""Stanford Cars (Krause, Stark, Deng, Fei-Fei 2013, "3D Object Representations for Fine-Grained Categorization").

Looked for in the folder ``stanford_cars/``: ``cars_train/*.jpg``, ``cars_test/*.jpg``, and ``devkit/`` with
``cars_train_annos.mat`` and ``cars_meta.mat``; ``cars_test_annos_withlabels.mat`` beside them or one folder up. Or from
the hub, such as ``tanganke/stanford_cars``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.sources.files import name_errors
from isthmus.sources.pictures import Found, Pictures, PictureSource, find_folder, list_pictures, read_matlab

NAMES = {"cars": "Cars"}
MEANINGS = {"cars": "Stanford Cars: 16,185 photographs of cars in 196 classes."}

ADVICE = (
    "it should hold cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat of Stanford Cars; "
    "or set source.hub=tanganke/stanford_cars"
)


class Cars(PictureSource):
    """uint8 (rows, 3, size, size), 196 classes; 8,144 for training and 8,041 for the test."""

    class Config(PictureSource.Config):
        folder: str = "stanford_cars"
        """The folder of the data set: a path, absolute or under the data folder."""

    def find_pictures(self, data_dir: Path) -> Found:
        root = find_folder(data_dir, self.config.folder, ADVICE)
        kit = root / "devkit"
        labelled = next((place for place in (root, kit) if (place / "cars_test_annos_withlabels.mat").is_file()), root)
        classes = [str(name) for name in np.atleast_1d(read_matlab(kit / "cars_meta.mat", ADVICE)["class_names"])]
        train = read_annotated(root / "cars_train", kit / "cars_train_annos.mat")
        test = read_annotated(root / "cars_test", labelled / "cars_test_annos_withlabels.mat")
        return {"train": train, "test": test}, classes


def read_annotated(images: Path, annotations: Path) -> Pictures:
    """The pictures that a file of annotations names; its classes count from 1."""
    content = read_matlab(annotations, ADVICE)
    with name_errors(annotations, "annotations with the fields fname and class"):
        entries = np.atleast_1d(content["annotations"])
        paths = [images / str(name) for name in entries["fname"]]
        labels = [int(number) - 1 for number in entries["class"]]
    return list_pictures(images, paths, labels)
