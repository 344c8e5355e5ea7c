"""A trained run applied to a user's files: images are restored tile by tile, arrays row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import nn

from isthmus.errors import UserError
from isthmus.files import write_text, write_with
from isthmus.loading import load, load_task
from isthmus.protocols import Task
from isthmus.sources.arrays import is_number
from isthmus.sources.imaging import channels_first, open_image
from isthmus.sources.reading import parsing
from isthmus.sources.tables import numbers

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif"}
ARRAYS = {".npy", ".npz", ".csv"}
_ROWS_AT_ONCE = 1000


class Predictor:
    """The model and the task of a run, ready for rows."""

    def __init__(self, run: str | Path) -> None:
        self.model: nn.Module = load(run)
        self.task: Task = load_task(run)

    @torch.no_grad()
    def rows(self, rows: np.ndarray) -> np.ndarray:
        """Outputs in the user's units, a batch at a time."""
        shape = self.task.signature.input_shape
        flat_rows = rows.ndim <= 2 and rows[0].size == math.prod(shape)
        if not flat_rows and _without_ones(rows.shape[1:]) != _without_ones(shape):
            raise UserError(f"rows of {rows.shape[1:]} do not fit a model of inputs {shape}")
        parts = [rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE)]
        return np.concatenate([self.task.decode(self.model(self._encoded(part))) for part in parts])

    def _encoded(self, part: np.ndarray) -> torch.Tensor:
        return self.task.encode(part.reshape(len(part), *self.task.signature.input_shape))

    def image(self, pixels: np.ndarray) -> np.ndarray:
        """An image (channels, height, width) of any size: cut into tiles of the model's size, restored and joined."""
        channels, height, width = self.task.signature.input_shape
        scale_y = self.task.signature.output_shape[1] // height
        scale_x = self.task.signature.output_shape[2] // width
        down, across = -(-pixels.shape[1] // height), -(-pixels.shape[2] // width)
        missing = (down * height - pixels.shape[1], across * width - pixels.shape[2])
        padded = np.pad(pixels, ((0, 0), (0, missing[0]), (0, missing[1])), mode="edge")
        tiles = padded.reshape(channels, down, height, across, width).transpose(1, 3, 0, 2, 4)
        restored = self.rows(tiles.reshape(-1, channels, height, width))
        grid = restored.reshape(down, across, channels, height * scale_y, width * scale_x).transpose(2, 0, 3, 1, 4)
        joined = grid.reshape(channels, down * height * scale_y, across * width * scale_x)
        return joined[:, : pixels.shape[1] * scale_y, : pixels.shape[2] * scale_x]


def predict_files(run: str | Path, files: Iterable[Path], out: Path) -> Iterator[tuple[Path, str]]:
    """Predict each file and write the result into ``out``; yields the file and what became of it."""
    predictor = Predictor(run)
    shape = predictor.task.signature.input_shape
    makes_images = len(predictor.task.signature.output_shape) == 3
    accepted = ARRAYS | IMAGES if len(shape) == 3 else ARRAYS
    for file, target in _targets(list(files), out, accepted):
        if file.suffix.lower() in ARRAYS:
            write_array(target, predictor.rows(read_array(file)))
            yield file, str(target)
        elif makes_images:
            write_image(target, predictor.image(read_image(file, shape[0])))
            yield file, str(target)
        else:
            yield file, str(predictor.rows(read_image(file, shape[0])[None])[0])


def _targets(files: list[Path], out: Path, accepted: set[str]) -> list[tuple[Path, Path]]:
    """Where each result goes. No result may replace a file that is to be read, nor another result."""
    endings = {".csv": ".predicted.csv", ".npy": ".predicted.npy", ".npz": ".predicted.npy"}
    taken = {file.resolve() for file in files}
    targets = []
    for file in files:
        if file.suffix.lower() not in accepted:
            raise UserError(f"{file}: this run takes {', '.join(sorted(accepted))} files")
        target = out / (file.stem + endings.get(file.suffix.lower(), ".png"))
        if target.resolve() in taken:
            raise UserError(f"{target} would be replaced by the result of {file}; predict it into another folder")
        taken.add(target.resolve())
        targets.append((file, target))
    return targets


def read_image(path: Path, channels: int) -> np.ndarray:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    if channels not in (1, 3):
        raise UserError(f"{path}: this run takes images of {channels} channels; give them as an npy file")
    return channels_first(open_image(path, str(path), channels))


def write_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def read_array(path: Path) -> np.ndarray:
    """Rows of a file: npy, the first array of an npz, or the numbers of a csv (a header is skipped)."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    with parsing(path, "rows of numbers"), path.open("rb") as file:
        if path.suffix.lower() == ".csv":
            lines = [line for line in file.read().decode("utf-8-sig").splitlines() if line.strip()]
            lines = lines[1:] if lines and not any(map(is_number, lines[0].split(","))) else lines
            rows = np.loadtxt(lines, delimiter=",", dtype=np.float32, ndmin=2) if lines else np.empty(0)
        else:
            content = np.load(file, allow_pickle=False)
            rows = content[content.files[0]] if isinstance(content, NpzFile) else content
    if rows.ndim == 0 or rows.size == 0:
        raise UserError(f"{path} has no rows")
    return np.ascontiguousarray(numbers(rows, str(path)))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def write_array(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".csv":
        lines = (",".join(f"{value:.9g}" for value in row) for row in rows.reshape(len(rows), -1))
        write_text(path, "\n".join(lines) + "\n")
    else:
        write_with(path, lambda temporary: np.save(temporary, rows))
