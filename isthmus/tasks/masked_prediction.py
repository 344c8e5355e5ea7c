"""Predictions of masked models: the hidden tokens of a user's images, or the gaps in rows of tokens, filled in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.core.registry import component, find
from isthmus.sources.files import read_npy
from isthmus.sources.images import SUFFIXES, channels_first, fit_square, open_as_shown
from isthmus.sources.streaming import write_pieces
from isthmus.tasks.file_prediction import result_paths
from isthmus.tasks.image_prediction import expand_folders, need_file, write_image
from isthmus.tasks.masks import exact_mask


class MaskedPredictor(Predictor):
    """Fills in hidden tokens: of images, whose tokens it hides first, and of npy files of tokens with gaps.

    An image becomes three side by side: the original, the hidden one and the one that was filled in.
    """

    options = frozenset({"iterations", "masked"})

    def __init__(self, trained: Trained, iterations: int | None = None, masked: float | None = None) -> None:
        self.trained, self.task = trained, trained.task
        self.model = trained.with_iterations(iterations)
        self.share = self.task.config.evaluation_masked if masked is None else masked

    @torch.no_grad()
    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        files = expand_folders(files)
        for file in files:
            if file.suffix.lower() not in {*SUFFIXES, ".npy"}:
                raise UserError(f"{file}: this run takes {', '.join(sorted({*SUFFIXES, '.npy'}))} files")
            need_file(file)
        targets = result_paths(files, files, out)
        tokenizer = None
        for file in files:
            progress(file, 0)
            if file.suffix.lower() == ".npy":
                yield self._fill_tokens(file, targets[file])
            else:
                tokenizer = tokenizer or self._open_tokenizer()
                yield self._fill_image(file, targets[file], tokenizer)

    def _open_tokenizer(self) -> Any:
        """An export names the tokenizer of its run and holds no copy."""
        settings = self.trained.source
        if not isinstance(reference := settings.get("tokenizer"), str):
            raise UserError(f"{self.trained.name} does not say which tokenizer made its tokens; export its run again")
        source = find("sources", settings["name"])(component("sources", dict(settings)))
        tokenizer = source.open_tokenizer(data_dir(), positions=self.task.positions)
        self.task.need_tokenizer(reference, tokenizer.digest, tokenizer.codes, tokenizer.positions)
        return tokenizer

    def _fill_tokens(self, file: Path, target: Path) -> Prediction:
        rows, positions = read_npy(file), self.task.positions
        if rows.ndim != 2 or rows.shape[1] != positions or rows.dtype.kind not in "iu":
            raise UserError(f"{file}: rows of {positions} whole numbers are needed, not {rows.dtype} of {rows.shape}")
        given = self.task.encode(rows)
        found = self.task.fill_in(self.model, given, torch_generator(0, "predicted"))
        write_pieces(target, [found.to(torch.int16).numpy()])
        return describe(file, target, int((given == self.task.mask_token).sum()), given.numel())

    def _fill_image(self, file: Path, target: Path, tokenizer: Any) -> Prediction:
        """The image is resized to what the tokenizer takes; every image gets the same mask."""
        channels, height, width = tokenizer.input_shape
        picture = open_as_shown(file, str(file), channels)
        if height == width:
            original = fit_square(picture, file, height)[None]
        elif (picture.height, picture.width) == (height, width):
            original = channels_first(picture)[None]
        else:
            raise UserError(f"{file}: this run takes images of {height}×{width} pixels")
        tokens = torch.from_numpy(tokenizer.tokens(original)).long()
        mask = exact_mask(1, self.task.positions, self.share, torch_generator(0, "hidden"))
        hidden = tokens.masked_fill(mask, self.task.mask_token)
        found = self.task.fill_in(self.model, hidden, torch_generator(0, "predicted"))
        drawn, whole = tokenizer.pictures(found.numpy()), tokenizer.pictures(tokens.numpy())
        grey = tokenizer.pictures(tokens.numpy(), mask.numpy())
        write_image(target, np.concatenate([original[0], grey[0], drawn[0]], axis=2))
        right = int((found == tokens)[mask].sum())
        compared = (right, _psnr(drawn, original), _psnr(whole, original))
        return describe(file, target, int(mask.sum()), self.task.positions, compared)


def describe(file: Path, target: Path, hidden: int, tokens: int, compared: Sequence[Any] = (None,) * 3) -> Prediction:
    """The result of one file; an image is ``compared`` with the original: tokens that agree, and two PSNRs."""
    right, psnr, psnr_tokenizer = compared
    line = f"{file}: {target}, {hidden} of {tokens} tokens filled in"
    if right is not None:
        line += f", {right} of them as they were; {psnr:.2f} dB to the original"
        line += f", {psnr_tokenizer:.2f} dB with nothing hidden"
    content = {"file": str(file), "result": str(target), "hidden": hidden, "tokens": tokens, "right": right}
    return Prediction(str(file), (line,), content | {"psnr": psnr, "psnr_tokenizer": psnr_tokenizer})


def _psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    error = np.square(ours.astype(np.float64) - theirs).mean() / 255**2
    return float(-10 * np.log10(max(error, 1e-10)))
