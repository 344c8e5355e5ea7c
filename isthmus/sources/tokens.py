"""The tokens that a tokenizer makes of another source's images, without their labels.

They are cached under the tokenizer's hash and the images' fingerprint; the fingerprint of the data includes both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.protocols import SPLITS, Component, Data, Source, Split
from isthmus.core.registry import component, find
from isthmus.sources.cache import cache_array
from isthmus.sources.splits import check_splits

if TYPE_CHECKING:
    from isthmus.training.tokenizers import Tokenizer

NAMES = {"tokens": "ImageTokens"}


class ImageTokens(Source):
    """int16 (rows, positions), from 0 to the size of the codebook less one, in the splits of the images."""

    class Config(Component):
        tokenizer: str
        """A run of task tokenization (its id or folder), or a safetensors file: its weights, or the public VQGAN's."""
        images: Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("sources", value))]
        """The source of the images: ``{name: cifar10}``."""

    def load(self, data_dir: Path) -> Data:
        images: Data = find("sources", self.config.images.name)(self.config.images).load(data_dir)
        if images.train.inputs.ndim != 4:
            raise UserError(f"source.images.name={self.config.images.name} has no images to make tokens of")
        tokenizer = self.open_tokenizer(data_dir, images.train.inputs.shape[1:])
        splits = [Split(self._tokens(images, name, tokenizer)) for name in SPLITS]
        data = check_splits(f"tokens of {self.config.images.name}", splits)
        identity = digest([data.fingerprint, tokenizer.digest, images.fingerprint])
        return replace(
            data, fingerprint=identity, vocabulary=tokenizer.codes, tokenizer=tokenizer.digest, pictures=images.train,
            tokenize=tokenizer.encode,
        )  # fmt: skip

    def open_tokenizer(self, data_dir: Path, images: tuple[int, ...] | None = None, positions: int = 256) -> Tokenizer:
        from isthmus.training.tokenizers import open_tokenizer

        return open_tokenizer(self.config.tokenizer, data_dir, images, positions)

    def pictures(self, rows: np.ndarray, data_dir: Path, hidden: np.ndarray | None = None) -> np.ndarray:
        return self.open_tokenizer(data_dir, positions=rows.shape[1]).pictures(rows, hidden)

    def _tokens(self, images: Data, name: Any, tokenizer: Tokenizer) -> np.ndarray:
        inputs = images.split(name).inputs
        key = {"tokenizer": tokenizer.digest, "images": images.fingerprint, "split": name}

        def make(array: np.ndarray) -> None:
            array.view(np.int16)[..., 0] = tokenizer.tokens(inputs)

        kept = cache_array("tokens", key, (len(inputs), tokenizer.positions, 2), make)  # two bytes for a token
        return np.array(kept.array.view(np.int16)[..., 0])
