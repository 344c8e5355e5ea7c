"""A trained run applied to a user's images with parts hidden, or to tokens with gaps: what it fills in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, expand_user
from isthmus.core.record import find_run, read_record
from isthmus.export.prediction import iterated, need_file, result_paths, write_image
from isthmus.sources.files import read_npy
from isthmus.sources.images import SUFFIXES, center_crop, channels_first, open_image, resize_short_side
from isthmus.sources.streaming import write_pieces
from isthmus.tasks.unmasking import exact_mask
from isthmus.training.exported import is_exported, read_exported
from isthmus.training.loading import load_task, task_name
from isthmus.training.tokenizers import Tokenizer, open_tokenizer, refuse_another


@dataclass(frozen=True)
class Filled:
    """What became of one file. Of an image it is known what was hidden."""

    file: str
    result: str
    hidden: int
    tokens: int
    right: int | None = None
    psnr: float | None = None
    psnr_tokenizer: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        said = f"{self.file}: {self.result}, {self.hidden} of {self.tokens} tokens filled in"
        if self.right is None:
            return said
        return (
            f"{said}, {self.right} of them as they were; {self.psnr:.2f} dB to the original, "
            f"{self.psnr_tokenizer:.2f} dB with nothing hidden"
        )


def fills_masks(run: str | Path) -> bool:
    """Whether a run was trained on masked tokens."""
    return task_name(run) == "masked_tokens"


@torch.no_grad()
def filled(
    run: str | Path, files: Iterable[Path], out: Path, share: float | None = None, iterations: int | None = None
) -> Iterator[Filled]:
    """Images become original, hidden and filled in, side by side; npy files of tokens get their gaps filled.

    ``share`` of an image's tokens is hidden, without it as much as in the run's tests.
    """
    files = list(files)
    for file in files:
        if file.suffix.lower() not in {*SUFFIXES, ".npy"}:
            raise UserError(f"{file}: this run takes {', '.join(sorted({*SUFFIXES, '.npy'}))} files")
        need_file(file)
    model, task = iterated(run, iterations), load_task(run)
    targets = result_paths(files, files, out)
    pictures = [file for file in files if file.suffix.lower() != ".npy"]
    tokenizer = _tokenizer(run, task) if pictures else None
    for file in files:
        if tokenizer is not None and file in pictures:
            yield _image(file, targets[file], model, task, tokenizer, share)
        else:
            yield _tokens(file, targets[file], model, task)


def _tokenizer(run: str | Path, task: Any) -> Tokenizer:
    """An export names it as its run did, and has no copy."""
    folder = expand_user(run)
    source = read_exported(folder).source if is_exported(folder) else read_record(find_run(run)).config["source"]
    reference = source.get("tokenizer")
    if not isinstance(reference, str):
        raise UserError(f"{run} does not say which tokenizer made its tokens; export its run again")
    tokenizer = open_tokenizer(reference, data_dir(), positions=task.positions)
    refuse_another(reference, tokenizer.digest, tokenizer.codes, tokenizer.positions, task)
    return tokenizer


def _tokens(file: Path, target: Path, model: Any, task: Any) -> Filled:
    rows = read_npy(file)
    if rows.ndim != 2 or rows.shape[1] != task.positions or rows.dtype.kind not in "iu":
        raise UserError(f"{file}: rows of {task.positions} whole numbers are needed, not {rows.dtype} of {rows.shape}")
    given = task.encode(rows)
    found = task.filled(model, given, torch_generator(0, "predicted"))
    write_pieces(target, [found.to(torch.int16).numpy()])
    return Filled(str(file), str(target), int((given == task.mask_token).sum()), given.numel())


def _image(file: Path, target: Path, model: Any, task: Any, tokenizer: Tokenizer, share: float | None) -> Filled:
    """The image is brought to the tokenizer's size, and which tokens are hidden does not depend on it."""
    channels, height, width = tokenizer.input_shape
    picture = open_image(file, str(file), channels)
    if (picture.height, picture.width) != (height, width):
        if height != width:
            raise UserError(f"{file}: this run takes images of {height}×{width} pixels")
        picture = center_crop(resize_short_side(picture, height, file), height)
    original = channels_first(picture)[None]
    tokens = torch.from_numpy(tokenizer.tokens(original)).long()
    part = task.config.evaluation_masked if share is None else share
    mask = exact_mask(1, task.positions, part, torch_generator(0, "hidden"))
    hidden = tokens.masked_fill(mask, task.mask_token)
    found = task.filled(model, hidden, torch_generator(0, "predicted"))
    drawn, whole = tokenizer.pictures(found.numpy()), tokenizer.pictures(tokens.numpy())
    grey = tokenizer.pictures(torch.where(mask, -1 - tokens, tokens).numpy())
    write_image(target, np.concatenate([original[0], grey[0], drawn[0]], axis=2))
    right = int((found == tokens)[mask].sum())
    measured = (_psnr(drawn, original), _psnr(whole, original))
    return Filled(str(file), str(target), int(mask.sum()), task.positions, right, *measured)


def _psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    error = np.square(ours.astype(np.float64) - theirs).mean() / 255**2
    return float(-10 * np.log10(max(error, 1e-10)))
