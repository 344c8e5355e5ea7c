"""Colour patches cut from photographs that come with scikit-image: no download.

Eight of its scenes are colour photographs (left and right motorcycle are one scene; the colour wheel and the logo are
drawings; the textures are grey). Whole scenes are assigned to splits, so no scene is in two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from pydantic import model_validator

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import nearest
from isthmus.core.protocols import SPLITS, Component, Data, Source, Split, SplitName
from isthmus.sources.files import find_packaged
from isthmus.sources.images import cut_patches, open_image
from isthmus.sources.splits import Rows, check_splits

NAMES = {"photos": "Photos"}

SIZE = 32
FILES = {
    "astronaut": "astronaut.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "hubble": "hubble_deep_field.jpg",
    "ihc": "ihc.png",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
}


class Photos(Source):
    """uint8 (patches, 3, 32, 32) without targets; by default six scenes / ``chelsea`` (a cat) / ``coffee`` (a cup)."""

    class Config(Component):
        validation: tuple[str, ...] = ("chelsea",)
        """Scenes held out for validation."""
        test: tuple[str, ...] = ("coffee",)
        """Scenes held out for the test."""
        patches_per_photo: Rows = 256
        """Maximum number of patches per scene, so that large photographs do not dominate."""
        split_seed: int = 0
        """Seed of the choice among a scene's patches; the run's seed does not change it."""

        @model_validator(mode="after")
        def _scenes_exist_once(self) -> Self:
            held_out = [*self.validation, *self.test]
            for scene in held_out:
                if scene not in FILES:
                    raise ValueError(f"there is no scene {scene!r}; {nearest(scene, FILES)}")
            if len(set(held_out)) < len(held_out):
                raise ValueError(f"a scene can be held out once only, given {', '.join(held_out)}")
            if not self.validation or not self.test or len(held_out) == len(FILES):
                raise ValueError(f"each split needs a scene of {', '.join(FILES)}")
            return self

    def load(self, data_dir: Path) -> Data:
        scenes: dict[SplitName, tuple[str, ...]] = {"validation": self.config.validation, "test": self.config.test}
        scenes["train"] = tuple(scene for scene in FILES if scene not in self.config.validation + self.config.test)
        splits = [Split(np.concatenate([self._cut(scene) for scene in scenes[name]])) for name in SPLITS]
        return check_splits("photos", splits)

    def _cut(self, scene: str) -> np.ndarray:
        path = find_packaged("skimage", "data", FILES[scene])
        cut = cut_patches(open_image(path, str(path)), SIZE)
        # The retina is a round picture on black; black patches are useless for restoration.
        cut = cut[np.ptp(cut.reshape(len(cut), -1), axis=1) >= 16]
        order = numpy_generator(self.config.split_seed, f"photos/{scene}").permutation(len(cut))
        chosen: np.ndarray = cut[np.sort(order[: self.config.patches_per_photo])]
        return chosen
