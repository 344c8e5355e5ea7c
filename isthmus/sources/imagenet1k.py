"""ImageNet-1k (ILSVRC 2012) and its subset of a hundred classes, as photographs with labels.

Looked for in the folder ``imagenet/`` (``imagenet100/``): ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``, the layout
that training scripts use. Or from the hub, such as ``ILSVRC/imagenet-1k`` (``ilee0022/ImageNet100``). The labelled
validation images are the test; validation rows are drawn from the training images. There are two versions of the
hundred classes: ``hub=ilee0022/ImageNet100`` (117,000 and 13,000 images), and the CMC list of ImageNet-1k
(``folder=imagenet listed=cmc``; 126,689 and 5,000).

The cache holds raw pixels: 252 GB for all training images at 256 pixels, 19 GB at 70.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from isthmus.core.errors import UserError
from isthmus.sources.pictures import Found, PictureSource, find_folder, list_classes, list_folder
from isthmus.sources.splits import HeldOutRows

NAMES = {"imagenet1k": "ImageNet1k", "imagenet100": "ImageNet100"}
MEANINGS = {
    "imagenet1k": "ImageNet-1k (ILSVRC 2012): 1.3 million photographs in a thousand classes.",
    "imagenet100": "A hundred classes of ImageNet-1k.",
}

_CMC = (
    1558993, 1692333, 1729322, 1735189, 1749939, 1773797, 1820546, 1855672, 1978455, 1980166,
    1983481, 2009229, 2018207, 2085620, 2086240, 2086910, 2087046, 2089867, 2089973, 2090622,
    2091831, 2093428, 2099849, 2100583, 2104029, 2105505, 2106550, 2107142, 2108089, 2109047,
    2113799, 2113978, 2114855, 2116738, 2119022, 2123045, 2138441, 2172182, 2231487, 2259212,
    2326432, 2396427, 2483362, 2488291, 2701002, 2788148, 2804414, 2859443, 2869837, 2877765,
    2974003, 3017168, 3032252, 3062245, 3085013, 3259280, 3379051, 3424325, 3492542, 3494278,
    3530642, 3584829, 3594734, 3637318, 3642806, 3764736, 3775546, 3777754, 3785016, 3787032,
    3794056, 3837869, 3891251, 3903868, 3930630, 3947888, 4026417, 4067472, 4099969, 4111531,
    4127249, 4136333, 4229816, 4238763, 4336792, 4418357, 4429376, 4435653, 4485082, 4493381,
    4517823, 4589890, 4592741, 7714571, 7715103, 7753275, 7831146, 7836838, 13037406, 13040303,
)  # fmt: skip
CMC = frozenset(f"n{number:08d}" for number in _CMC)
"""The hundred classes that contrastive multiview coding uses (``imagenet100.txt``)."""
ADVICE = (
    "it should hold train/CLASS/*.JPEG and val/CLASS/*.JPEG, see https://image-net.org/download-images.php; "
    "or set source.hub (ILSVRC/imagenet-1k; of a hundred classes ilee0022/ImageNet100)"
)


class ImageNet1k(PictureSource):
    """uint8 (rows, 3, size, size), 1000 classes; 1,281,167 images for training and validation, 50,000 for the test."""

    class Config(PictureSource.Config):
        folder: str = "imagenet"
        """The folder of images: a path, absolute or under the data folder."""
        validation: HeldOutRows = 10_000
        """Training rows held out for validation."""

    classes = 1000
    hub_test = "validation"

    def find_pictures(self, data_dir: Path) -> Found:
        root = find_folder(data_dir, self.config.folder, ADVICE)
        classes, other = (self.choose_classes(list_classes(root / part)) for part in ("train", "val"))
        if len(classes) != self.classes:
            raise UserError(f"{root / 'train'} holds {len(classes)} class folders, not {self.classes}; {ADVICE}")
        if odd := sorted(set(other) ^ set(classes)):
            raise UserError(f"{root}: train and val differ in their class folders, first in {odd[0]}; {ADVICE}")
        train, test = (list_folder(root / part, root / part, classes) for part in ("train", "val"))
        return {"train": train, "test": test}, classes

    def choose_classes(self, classes: list[str]) -> list[str]:
        """Those of a folder's classes that belong to the data set."""
        return classes


class ImageNet100(ImageNet1k):
    """uint8 (rows, 3, size, size), a hundred of the classes; about 126,000 training images, fewer in some versions."""

    class Config(PictureSource.Config):
        folder: str = "imagenet100"
        """The folder of images: a path, absolute or under the data folder."""
        listed: Literal["all", "cmc"] = "all"
        """``cmc``: only the classes of the CMC list (126,689 and 5,000 images); the folder may hold all thousand."""
        validation: HeldOutRows = 5_000
        """Training rows held out for validation."""

    classes = 100

    def choose_classes(self, classes: list[str]) -> list[str]:
        return [name for name in classes if name in CMC] if self.config.listed == "cmc" else classes
