"""A trained run applied to a user's files: images are restored tile by tile, arrays row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from isthmus.errors import UserError
from isthmus.files import make_folder, write_text, write_with
from isthmus.protocols import Task
from isthmus.run import load, load_task

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
        if rows[0].size != int(np.prod(shape)):
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
    makes_images = len(predictor.task.signature.output_shape) == 3
    make_folder(out)
    for file in files:
        if file.suffix.lower() in IMAGES and len(predictor.task.signature.input_shape) == 3:
            pixels = read_image(file, predictor.task.signature.input_shape[0])
            if makes_images:
                target = out / f"{file.stem}.png"
                write_image(target, predictor.image(pixels))
                yield file, str(target)
            else:
                yield file, str(predictor.rows(pixels[None])[0])
        elif file.suffix.lower() in ARRAYS:
            target = out / f"{file.stem}.predicted{'.csv' if file.suffix == '.csv' else '.npy'}"
            write_array(target, predictor.rows(read_array(file)))
            yield file, str(target)
        else:
            accepted = sorted(ARRAYS | IMAGES if len(predictor.task.signature.input_shape) == 3 else ARRAYS)
            raise UserError(f"{file}: this run takes {', '.join(accepted)} files")


def read_image(path: Path, channels: int) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read as an image: {error}") from None
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def write_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def read_array(path: Path) -> np.ndarray:
    """Rows of a file: npy, the first array of an npz, or the numbers of a csv (a header is skipped)."""
    try:
        if path.suffix == ".csv":
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = np.loadtxt(lines[_has_header(lines) :], delimiter=",", dtype=np.float32, ndmin=2)
        else:
            content = np.load(path, allow_pickle=False)
            rows = content[content.files[0]] if path.suffix == ".npz" else content
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except Exception as error:  # numpy and zipfile raise a dozen kinds for a damaged file
        raise UserError(f"{path} cannot be read as numbers: {error}") from None
    if rows.size == 0 or rows.dtype.kind not in "fiu" or not np.isfinite(rows).all():
        raise UserError(f"{path} holds no rows of finite numbers")
    return np.ascontiguousarray(rows)


def _has_header(lines: list[str]) -> int:
    try:
        [float(cell) for cell in lines[0].split(",")]
    except ValueError:
        return 1
    return 0


def write_array(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".csv":
        lines = (",".join(f"{value:.9g}" for value in row) for row in rows.reshape(len(rows), -1))
        write_text(path, "\n".join(lines) + "\n")
    else:
        write_with(path, lambda temporary: np.save(temporary, rows))
