"""A trained run applied to a user's files: images are restored tile by tile, arrays row by row."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from isthmus.errors import UserError
from isthmus.files import write_text, write_with
from isthmus.loading import load, load_task
from isthmus.protocols import Task
from isthmus.record import find_run, read_record
from isthmus.sources.arrays import as_names
from isthmus.sources.imaging import SUFFIXES, channels_first, open_image
from isthmus.sources.reading import open_archive, read_npy
from isthmus.sources.tables import ENDINGS, columns, numbers, read_table

RESULTS = {".npy": ".predicted.npy", ".npz": ".predicted.npy"} | dict.fromkeys(ENDINGS, ".predicted.csv")
"""The endings of the files of rows that are read here, and of what is written for them."""
_ROWS_AT_ONCE = 1000


class Predictor:
    """The model and the task of a run, ready for rows."""

    def __init__(self, run: str | Path) -> None:
        record = read_record(find_run(run))
        self.model: nn.Module = load(run)
        self.task: Task = load_task(run)
        self.classes = class_names(record.data.get("classes", []))
        self.columns: list[str] = record.data.get("columns", [])
        self.source = record.config["source"] if record.config["source"]["name"] == "arrays" else {}
        self.input_shape = self.task.row_shape
        self.takes_images = len(self.input_shape) == 3
        self.makes_images = len(self.task.signature.output_shape) == 3

    @torch.no_grad()
    def rows(self, rows: np.ndarray, origin: str = "the input") -> np.ndarray:
        """Outputs in the user's units (values, images or the names of classes), a batch at a time."""
        if not self.fits(rows):
            raise UserError(f"{origin}: rows of {rows.shape[1:]} do not fit a model of inputs {self.input_shape}")
        rows = pixels(rows, origin) if self.takes_images else rows
        parts = [rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE)]
        decoded = np.concatenate([self.task.decode(self.model(self._encoded(part))) for part in parts])
        are_labels = decoded.ndim == 1 and decoded.dtype.kind == "i"
        named = are_labels and self.classes.shape == self.task.signature.output_shape
        return self.classes[decoded] if named else decoded

    def fits(self, rows: np.ndarray) -> bool:
        flat = rows.ndim in (1, 2) and rows[0].size == math.prod(self.input_shape)
        return flat or (rows.ndim > 0 and _without_ones(rows.shape[1:]) == _without_ones(self.input_shape))

    def _encoded(self, part: np.ndarray) -> torch.Tensor:
        return self.task.encode(part.reshape(len(part), *self.input_shape))

    def image(self, pixels: np.ndarray) -> np.ndarray:
        """An image (channels, height, width) of any size: cut into tiles of the model's size, restored and joined."""
        channels, height, width = self.input_shape
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

    def read(self, path: Path) -> np.ndarray:
        """The rows of a file that the run's source could read, without the columns or arrays that are no inputs."""
        _need_file(path)
        ending = _ending(path)
        if ending in ENDINGS:
            table, named = read_table(path, self.source.get("header"))
            return columns(table, self.columns if named and self.columns else table.column_names, str(path))
        rows = read_npy(path) if ending == ".npy" else self._from_archive(path)
        if rows.ndim == 0 or rows.size == 0:
            raise UserError(f"{path} has no rows")
        return rows if self.takes_images and rows.dtype.kind in "iu" else numbers(rows, str(path))

    def _from_archive(self, path: Path) -> np.ndarray:
        """The only array, the one named as in training, or the only one that fits."""
        with open_archive(path) as archive:
            if len(archive.files) == 1:
                return archive[archive.files[0]]
            for name in as_names(self.source.get("inputs")):
                if name in archive.files:
                    return archive[name]
            others = set(archive.files) - set(as_names(self.source.get("targets")))
            fitting = [rows for rows in (archive[name] for name in sorted(others)) if rows.size and self.fits(rows)]
            if len(fitting) == 1:
                return fitting[0]
            raise UserError(
                f"{path} holds the arrays {', '.join(archive.files) or '(none)'}, of which {len(fitting)} fit a model "
                f"of inputs {self.input_shape}; save the one to predict from alone"
            )


def class_names(names: Sequence[str]) -> np.ndarray:
    """The classes as the user knows them: whole numbers if every name is one, else text."""
    whole = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
    return np.array([int(name) for name in names], np.int64) if whole else np.array(names, np.str_)


def pixels(images: np.ndarray, origin: str) -> np.ndarray:
    """Images as tasks take them, from 0 to 255. Guessing the scale of other numbers would be wrong without a word."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return images * np.float32(255)
    raise UserError(
        f"{origin}: this run takes images as uint8, or as floats from 0 to 1, "
        f"not as {images.dtype} from {images.min():g} to {images.max():g}"
    )


def predict_files(run: str | Path, files: Iterable[Path], out: Path) -> Iterator[tuple[Path, str]]:
    """Predict each file and write the result into ``out``; yields the file and what became of it."""
    predictor = Predictor(run)
    files = list(files)
    accepted = {*RESULTS, *SUFFIXES} if predictor.takes_images else {*RESULTS}
    for file in files:
        if _ending(file) not in accepted:
            raise UserError(f"{file}: this run takes {', '.join(sorted(accepted))} files")
    targets = result_paths([file for file in files if predictor.makes_images or _ending(file) in RESULTS], files, out)
    for file in files:
        if _ending(file) in RESULTS:
            write_array(targets[file], predictor.rows(predictor.read(file), str(file)))
        elif predictor.makes_images:
            write_image(targets[file], predictor.image(read_image(file, predictor.input_shape[0])))
        else:
            image = read_image(file, predictor.input_shape[0])
            yield file, str(predictor.rows(image[None], str(file))[0])
            continue
        yield file, str(targets[file])


def result_paths(files: Sequence[Path], read: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where the result of each of ``files`` goes: files of one name keep the folders in which they differ.

    No result may replace a file that is to be read, nor another result.
    """
    whole = {file: Path(os.path.abspath(file)) for file in files}  # noqa: PTH100 (a link keeps its own name)
    results = {file: file.name[: -len(_ending(file))] + RESULTS.get(_ending(file), ".png") for file in whole}
    folders = {file: Path() for file in whole}
    if len(set(results.values())) < len(results):
        common = os.path.commonpath([path.parent for path in whole.values()])
        folders = {file: path.parent.relative_to(common) for file, path in whole.items()}
    targets = {file: out / folders[file] / result for file, result in results.items()}
    taken = {file.resolve() for file in read}
    for file, target in targets.items():
        if target.resolve() in taken:
            raise UserError(f"{target} would be replaced by the result of {file}; predict it into another folder")
        taken.add(target.resolve())
    return targets


def _ending(file: Path) -> str:
    return ".csv.gz" if file.name.lower().endswith(".csv.gz") else file.suffix.lower()


def _need_file(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"there is no file {path}")


def read_image(path: Path, channels: int) -> np.ndarray:
    _need_file(path)
    if channels not in (1, 3):
        raise UserError(f"{path}: this run takes images of {channels} channels; give them as an npy file")
    return channels_first(open_image(path, str(path), channels))


def write_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def write_array(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".csv":
        text = io.StringIO()
        cells = rows.reshape(len(rows), -1).tolist()
        lines = ([f"{cell:.9g}" if isinstance(cell, float) else cell for cell in row] for row in cells)
        csv.writer(text, lineterminator="\n").writerows(lines)
        write_text(path, text.getvalue())
    else:
        write_with(path, lambda temporary: np.save(temporary, rows))
