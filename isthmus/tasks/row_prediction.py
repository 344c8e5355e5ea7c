"""Predictions for images and for files of rows, which may be larger than memory."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile

from isthmus.core.errors import UserError
from isthmus.core.files import need_regular, resolve_links, write_with
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.core.protocols import Task
from isthmus.sources.files import member_size, open_archive, open_member, read_header
from isthmus.sources.images import SUFFIXES, channels_first, open_image
from isthmus.sources.streaming import array_pieces, npy_pieces, table_pieces, write_pieces
from isthmus.sources.tables import ENDINGS, as_names, numbers

RESULTS = {".npy": ".predicted.npy", ".npz": ".predicted.npy"} | dict.fromkeys(ENDINGS, ".predicted.csv")
"""Suffixes of files of rows, and of their results."""
_ROWS_AT_ONCE = 1000
_NUMBERS_AT_ONCE = 2**24
"""Inputs of a batch: large rows make smaller batches."""


class RowPredictor(Predictor):
    """Images are restored tile by tile, arrays and tables row by row."""

    def __init__(self, trained: Trained, iterations: int | None = None) -> None:
        self.columns, self.source, self.takes_flat_rows = trained.columns, trained.source, trained.takes_flat_rows
        self.model = trained.with_iterations(iterations)
        self.task: Task = trained.task
        self.classes = class_names(trained.classes)
        self.input_shape = self.task.row_shape
        self.takes_images = len(self.input_shape) == 3
        self.makes_images = len(self.task.signature.output_shape) == 3

    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        accepted = {*RESULTS, *SUFFIXES} if self.takes_images else {*RESULTS}
        for file in files:
            if _ending(file) not in accepted:
                raise UserError(f"{file}: this run takes {', '.join(sorted(accepted))} files")
        targets = result_paths([file for file in files if self.makes_images or _ending(file) in RESULTS], files, out)
        for file in files:
            progress(file, 0)
            if _ending(file) in RESULTS:
                write_pieces(targets[file], self._predict_pieces(file, progress))
            elif self.makes_images:
                write_image(targets[file], self.image(read_image(file, self.input_shape[0])))
            result = str(targets[file]) if file in targets else self._classify(file)
            yield Prediction(str(file), (f"{file} → {result}",), result)

    def as_json(self, predictions: Iterable[Prediction]) -> dict[str, str]:
        return {prediction.file: prediction.content for prediction in predictions}

    def _predict_pieces(self, file: Path, progress: Progress) -> Iterator[np.ndarray]:
        done = 0
        for piece in self.pieces(file):
            yield self.rows(piece, str(file))
            progress(file, done := done + len(piece))

    def _classify(self, file: Path) -> str:
        return str(self.rows(read_image(file, self.input_shape[0])[None], str(file))[0])

    @torch.no_grad()
    def rows(self, rows: Any, origin: str = "the input") -> np.ndarray:
        """Predictions in the user's units: values, images or class names."""
        if not isinstance(rows, np.ndarray):
            raise UserError(f"{origin} is a {type(rows).__name__}, not an array of rows; give np.asarray(rows)")
        if not self.fits(rows.shape):
            raise UserError(f"{origin}: rows of {rows.shape[1:]} do not fit a model of inputs {self.input_shape}")
        if not len(rows):
            raise UserError(f"{origin} has no rows; give at least one")
        if rows.dtype.kind not in "iu":  # integers are finite
            numbers(rows, origin)
        rows = pixels(rows, origin) if self.takes_images else rows
        at_once = max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // math.prod(self.task.signature.input_shape)))
        parts = [rows[i : i + at_once] for i in range(0, len(rows), at_once)]
        decoded = np.concatenate([self.task.decode(self.model(self._encode(part))) for part in parts])
        are_labels = decoded.ndim == 1 and decoded.dtype.kind == "i"
        named = are_labels and self.classes.shape == self.task.signature.output_shape
        return self.classes[decoded] if named else decoded

    def fits(self, shape: tuple[int, ...]) -> bool:
        flat = len(shape) in (1, 2) and math.prod(shape[1:]) == math.prod(self.input_shape)
        return flat or (len(shape) > 0 and _without_ones(shape[1:]) == _without_ones(self.input_shape))

    def _encode(self, part: np.ndarray) -> torch.Tensor:
        x = self.task.encode(part.reshape(len(part), *self.input_shape))
        return x.flatten(1) if self.takes_flat_rows else x  # an MLP flattens images itself, its exported graph does not

    def image(self, pixels: np.ndarray) -> np.ndarray:
        """Restore an image (channels, height, width) of any size in tiles of the model's size."""
        if not (self.takes_images and self.makes_images):
            raise UserError(f"this run does not restore images: it takes rows of {self.input_shape}; give them to rows")
        channels, height, width = self.input_shape
        given = np.shape(pixels)
        if not isinstance(pixels, np.ndarray) or len(given) != 3 or given[0] != channels or 0 in given:
            raise UserError(f"the image has the shape {given}, not ({channels}, height, width); transpose it")
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
        """The input rows of a file; columns and arrays that are not inputs are left out."""
        return np.concatenate(list(self.pieces(path)))

    def pieces(self, path: Path) -> Iterator[np.ndarray]:
        """The same piece by piece, for files larger than memory."""
        need_file(path)
        ending = _ending(path)
        if ending in ENDINGS:
            yield from table_pieces(path, self.source.get("header"), self.columns)
            return
        start, seen = 0, 0
        for rows in npy_pieces(path) if ending == ".npy" else self._from_archive(path):
            if rows.size:
                yield rows if self.takes_images and rows.dtype.kind in "iu" else numbers(rows, str(path), start)
            start, seen = start + len(rows), seen + rows.size
        if not seen:
            raise UserError(f"{path} has no rows")

    def _from_archive(self, path: Path) -> Iterator[np.ndarray]:
        with open_archive(path) as archive:
            name = self._choose_array(path, archive)
            with open_member(archive, name) as file:
                yield from array_pieces(file, member_size(archive, name))

    def _choose_array(self, path: Path, archive: NpzFile) -> str:
        """The only array, the one named as in training, or the only one that fits."""
        if len(archive.files) == 1:
            return str(archive.files[0])
        for name in as_names(self.source.get("inputs")):
            if name in archive.files:
                return name
        fitting = []
        for name in sorted(set(archive.files) - set(as_names(self.source.get("targets")))):
            with open_member(archive, name) as file:
                shape = read_header(file).shape
            fitting += [name] if math.prod(shape) and self.fits(shape) else []
        if len(fitting) == 1:
            return str(fitting[0])
        raise UserError(
            f"{path} holds the arrays {', '.join(archive.files) or '(none)'}, of which {len(fitting)} fit a model "
            f"of inputs {self.input_shape}; save only the one to predict from"
        )


def class_names(names: Sequence[str]) -> np.ndarray:
    """Class names as integers if all of them are, otherwise as text."""
    whole = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
    return np.array([int(name) for name in names], np.int64) if whole else np.array(names, np.str_)


def pixels(images: np.ndarray, origin: str) -> np.ndarray:
    """Images from 0 to 255. Other scales are refused, because a wrong guess would go unnoticed."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return images * np.float32(255)
    raise UserError(
        f"{origin}: this run takes images as uint8, or as floats from 0 to 1, "
        f"not as {images.dtype} from {images.min():g} to {images.max():g}"
    )


def result_paths(files: Sequence[Path], read: Sequence[Path], out: Path) -> dict[Path, Path]:
    """The result file of each of ``files``; files with the same name keep the folders that tell them apart.

    No result may overwrite an input or another result.
    """
    whole = {file: Path(os.path.abspath(file)) for file in files}  # noqa: PTH100 (a symbolic link keeps its own name)
    results = {file: file.name[: -len(_ending(file))] + RESULTS.get(_ending(file), ".png") for file in whole}
    folders = {file: Path() for file in whole}
    if len(set(results.values())) < len(results):
        common = os.path.commonpath([path.parent for path in whole.values()])
        folders = {file: path.parent.relative_to(common) for file, path in whole.items()}
    targets = {file: out / folders[file] / result for file, result in results.items()}
    taken = {resolve_links(file) for file in read}
    for file, target in targets.items():
        if resolve_links(target) in taken:
            raise UserError(f"{target} would be replaced by the result of {file}; predict it into another folder")
        taken.add(resolve_links(target))
    return targets


def _ending(file: Path) -> str:
    return ".csv.gz" if file.name.lower().endswith(".csv.gz") else file.suffix.lower()


def need_file(path: Path) -> None:
    if not path.exists():
        raise UserError(f"there is no file {path}")
    need_regular(path)


def read_image(path: Path, channels: int) -> np.ndarray:
    need_file(path)
    if channels not in (1, 3):
        raise UserError(f"{path}: this run takes images of {channels} channels; give them as an npy file")
    return channels_first(open_image(path, str(path), channels))


def write_image(path: Path, pixels: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)))
    write_with(path, lambda temporary: picture.save(temporary, "PNG"))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
