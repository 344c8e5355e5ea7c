"""Tokenizers of images, from a run of ours or from the public VQGAN's file: images to tokens and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user, sha256
from isthmus.core.record import MODEL, find_run, read_record, verify_file
from isthmus.layers.published_weights import load_published
from isthmus.models.vqgan import STRIDE, TITLE, VQGAN
from isthmus.training.checkpoint import read_tensors
from isthmus.training.devices import best_device
from isthmus.training.loading import load_model

GREY = 128
_VALUES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Tokenizer:
    """A trained model with ``tokens`` and ``pictures``, identified by its weights."""

    model: Any
    digest: str
    """SHA-256 of the file of its weights."""
    codes: int
    input_shape: tuple[int, int, int]
    grid: tuple[int, int]

    @property
    def positions(self) -> int:
        return self.grid[0] * self.grid[1]

    @torch.no_grad()
    def tokens(self, images: np.ndarray) -> np.ndarray:
        """uint8 images as int16 (rows, positions)."""
        found = np.empty((len(images), self.positions), np.int16)
        for part in self._parts(len(images)):
            pixels = torch.from_numpy(np.array(images[part])).to(best_device())
            found[part] = self.encode(pixels).to(torch.int16).cpu().numpy()
        return found

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """uint8 images as int64 (rows, positions), on their device."""
        model = self.model.to(images.device)
        return torch.cat([model.tokens(images[part].float().div_(255)) for part in self._parts(len(images))])

    @torch.no_grad()
    def pictures(self, tokens: np.ndarray, hidden: np.ndarray | None = None) -> np.ndarray:
        """int (rows, positions) as uint8 images, grey where ``hidden`` (bool, of the same shape).

        A hidden token is drawn before it is covered, because it also colours the pixels of its neighbours.
        """
        images, device = np.empty((len(tokens), *self.input_shape), np.uint8), best_device()
        model = self.model.to(device)
        for part in self._parts(len(tokens)):
            drawn = model.pictures(torch.from_numpy(np.array(tokens[part], np.int64)).to(device))
            images[part] = drawn.clamp(0, 1).mul(255).round().to(torch.uint8).cpu().numpy()
        if hidden is not None:
            cell = [side // count for side, count in zip(self.input_shape[1:], self.grid, strict=True)]
            covered = np.kron(hidden.reshape(len(tokens), 1, *self.grid), np.ones((1, 1, *cell), bool))
            images = np.where(covered, np.uint8(GREY), images)
        return images

    def _parts(self, rows: int) -> list[slice]:
        size = max(1, _VALUES_AT_ONCE // int(np.prod(self.input_shape)))
        return [slice(start, start + size) for start in range(0, rows, size)]


def open_tokenizer(
    reference: str, data_dir: Path, images: tuple[int, ...] | None = None, positions: int = 256
) -> Tokenizer:
    """A run's id or folder, or a safetensors file (absolute, under the data folder or the current one).

    ``images`` is the shape of the images to encode. Without it the VQGAN, which takes images of any size, assumes a
    square of ``positions`` tokens.
    """
    file = next((place for place in (data_dir / reference, expand_user(reference)) if place.is_file()), None)
    if file is None and reference.endswith(".safetensors"):
        raise UserError(f"there is no file {data_dir / reference}; give the weights of a tokenizer, or a run of one")
    if file is not None and "model" not in (found := read_tensors(file))[1]:
        side = STRIDE * math.isqrt(positions)
        channels, height, width = images or (3, side, side)
        model: Any = VQGAN((channels, height, width))
        load_published(model, found[0], str(file), TITLE)
        return Tokenizer(model.eval(), sha256(file), model.codes, model.input_shape, model.grid)
    model, digest = _of_run(reference) if file is None else (load_model(file), sha256(file))
    if not hasattr(model, "tokens") or not hasattr(model, "pictures"):
        raise UserError(f"{reference} is a {model.config.name}, which makes no tokens; a vq_tokenizer does")
    if images not in (None, model.input_shape):
        raise UserError(f"tokenizer {reference} takes images of {model.input_shape}; the source has rows of {images}")
    return Tokenizer(model, digest, model.config.codes, model.input_shape, model.grid)


def _of_run(reference: str) -> tuple[Any, str]:
    try:
        folder = find_run(reference)
    except UserError as error:
        raise UserError(f"tokenizer: {error}; `isthmus train cifar10-tokenizer` trains one") from None
    record = read_record(folder)
    if record.status != "finished":
        raise UserError(f"run {record.id} failed and left no tokenizer: {record.reason}")
    verify_file(folder, MODEL, record)
    return load_model(folder), record.files[MODEL]
