"""Predictions for images, arrays and tables, in memory or in files, which may be larger than memory."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.core.protocols import Task
from isthmus.sources.dialects import ENDINGS
from isthmus.sources.images import SUFFIXES
from isthmus.sources.streaming import write_columns, write_pieces
from isthmus.sources.tables import numbers, table_of
from isthmus.tasks.file_prediction import RESULTS, array_rows, ending_of, result_paths
from isthmus.tasks.image_prediction import (
    ImageReader,
    expand_folders,
    image_paths,
    need_file,
    pixels,
    read_image,
    write_image,
)
from isthmus.tasks.table_prediction import Block, EncodedRows, PlainRows

_ROWS_AT_ONCE = 1000
_NUMBERS_AT_ONCE = 2**24
"""Inputs of a batch: large rows make smaller batches."""


class Answers(NamedTuple):
    """Predictions for some rows in the user's units, and the probability of each class if there are classes."""

    values: np.ndarray
    probabilities: np.ndarray | None = None


class Skipped(NamedTuple):
    """A file that could not be read, and why."""

    file: Path
    reason: str


class RowPredictor(Predictor):
    """Restores images tile by tile or classifies them; predicts arrays and tables row by row."""

    def __init__(self, trained: Trained, iterations: int | None = None) -> None:
        self.source, self.takes_flat_rows = trained.source, trained.takes_flat_rows
        self.takes_raw_rows = trained.takes_raw_rows
        self.model = trained.with_iterations(iterations)
        self.task: Task = trained.task
        self.classes = np.array(trained.classes)
        self.input_shape = self.task.row_shape
        self.makes_images = len(self.task.signature.output_shape) == 3
        self.images = ImageReader(self.input_shape) if len(self.input_shape) == 3 else None
        width = math.prod(self.input_shape)
        self.reader: EncodedRows | PlainRows = PlainRows(trained.columns, width, self.source)
        if trained.table:
            self.reader = EncodedRows(trained.table, self.source.get("header"), expand=not self.takes_raw_rows)
            self.input_shape = self.reader.row_shape

    def predict(self, files: Sequence[Path], out: Path, progress: Progress = show_nothing) -> Iterator[Prediction]:
        self._check_files(files)
        single = expand_folders(files) if self.makes_images else list(files)
        written = [file for file in single if self.makes_images or file.is_dir() or ending_of(file) in RESULTS]
        targets = result_paths(written, expand_folders(files), out)
        skipped, read = list[Skipped](), 0
        for file in single:
            progress(file, 0)
            result: str | None
            if ending_of(file) in RESULTS and not file.is_dir():
                result = self._predict_file(file, targets[file], progress)
            elif file in targets:
                predict = self._restore_image if self.makes_images else self._classify_folder
                result = predict(file, targets[file], skipped, progress)
            else:
                result = self._classify_image(file, skipped)
            if result is not None:
                read += 1
                yield Prediction(str(file), (f"{file} → {result}",), result)
        if skipped and not read:
            more = f" (and {len(skipped) - 1} more files could not be read)" if len(skipped) > 1 else ""
            raise UserError(f"{skipped[0].reason}{more}")
        yield from (Prediction(str(file), (f"skipped: {reason}",), None) for file, reason in skipped)

    def as_json(self, predictions: Iterable[Prediction]) -> dict[str, str | None]:
        """The result of every file; null for those that were skipped."""
        return {prediction.file: prediction.content for prediction in predictions}

    def _check_files(self, files: Sequence[Path]) -> None:
        accepted = {*RESULTS, *SUFFIXES} if self.images else {*RESULTS}
        for file in files:
            if self.images and file.is_dir():
                continue
            if ending_of(file) not in accepted:
                folders = " files, and folders of images" if self.images else " files"
                raise UserError(f"{file}: this run takes {', '.join(sorted(accepted))}{folders}")
            if ending_of(file) in SUFFIXES:
                need_file(file)

    def _predict_file(self, file: Path, target: Path, progress: Progress) -> str:
        if target.suffix == ".csv":
            write_columns(target, self._predict_columns(file, progress))
        else:
            write_pieces(target, (answers.values for _, answers in self._predict_blocks(file, progress)))
        return str(target)

    def _predict_blocks(self, file: Path, progress: Progress) -> Iterator[tuple[Block, Answers]]:
        done = 0
        for block in self.blocks(file):
            yield block, self._answer(self._check(block.rows, str(file)))
            progress(file, done := done + len(block.rows))

    def _predict_columns(self, file: Path, progress: Progress) -> Iterator[dict[str, Any]]:
        """The columns of a result: what names the rows, the predictions and the probabilities."""
        done = 0
        for block, answers in self._predict_blocks(file, progress):
            numbered = {"row": range(done, done + len(block.rows))}
            yield self._columns(block.names or numbered, answers)
            done += len(block.rows)

    def _columns(self, names: Mapping[str, Sequence[Any]], answers: Answers) -> dict[str, Any]:
        values = answers.values.reshape(len(answers.values), -1)
        found: dict[str, Any] = dict(names)
        for place, name in enumerate(self.output_names(answers.values)):
            found[f"{name} predicted".strip()] = values[:, place]
        if answers.probabilities is not None:
            for place, name in enumerate(self._class_names(answers.probabilities)):
                found[f"p({name})"] = answers.probabilities[:, place]
        return found

    def _classify_image(self, file: Path, skipped: list[Skipped]) -> str | None:
        image = self._read_image(file, skipped)
        return None if image is None else str(self._answer(image[None]).values[0])

    def _restore_image(self, file: Path, target: Path, skipped: list[Skipped], progress: Progress) -> str | None:
        image = self._read_image(file, skipped)
        if image is None:
            return None
        write_image(target, self.image(image))
        return str(target)

    def _classify_folder(self, folder: Path, target: Path, skipped: list[Skipped], progress: Progress) -> str | None:
        def classify() -> Iterator[dict[str, Any]]:
            done = 0
            for paths in _batches(image_paths(folder), _ROWS_AT_ONCE):
                read = {path: self._read_image(path, skipped) for path in paths}
                known = {str(path.relative_to(folder)): image for path, image in read.items() if image is not None}
                if known:
                    yield self._columns({"file": list(known)}, self._answer(np.stack(list(known.values()))))
                progress(folder, done := done + len(paths))

        pieces = classify()
        first = next(pieces, None)
        if first is None:
            return None
        write_columns(target, itertools.chain([first], pieces))
        return str(target)

    def _read_image(self, file: Path, skipped: list[Skipped]) -> np.ndarray | None:
        """An image at its own size if it is to be restored, else at the run's size; None if it is unreadable."""
        try:
            image = read_image(file, self.input_shape[0])
            return image if self.makes_images or self.images is None else self.images.fit(image, str(file))
        except UserError as error:
            skipped.append(Skipped(file, str(error)))
            return None

    def predict_rows(self, rows: Any) -> Any:
        rows = rows.detach().cpu().numpy() if isinstance(rows, torch.Tensor) else rows
        if self.images and self.makes_images and (given := self._find_images(rows)) is not None:
            restored = [self.image(image) for image in self.images.read(given)]
            return np.stack(restored) if len({image.shape for image in restored}) == 1 else restored
        values = self._answer_all(rows).values
        names = [name or "predicted" for name in self.output_names(values)]
        return _like(rows, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values, names)

    def predict_probabilities(self, rows: Any) -> Any:
        rows = rows.detach().cpu().numpy() if isinstance(rows, torch.Tensor) else rows
        found = self._answer_all(rows).probabilities
        return super().predict_probabilities(rows) if found is None else _like(rows, found, self._class_names(found))

    def _answer_all(self, data: Any) -> Answers:
        """Predictions for data of any form."""
        if self.images and (given := self._find_images(data)) is not None:
            fitted = (self.images.fit(pixels(image, "the image"), "the image") for image in self.images.read(given))
            parts = [self._answer(np.stack(batch)) for batch in _batches(fitted, _ROWS_AT_ONCE)]
        elif paths := _as_paths(data):
            for path in paths:
                if ending_of(path) not in RESULTS or path.is_dir():
                    raise UserError(f"{path}: this run takes {', '.join(sorted(RESULTS))} files")
            parts = [answers for path in paths for _, answers in self._predict_blocks(path, show_nothing)]
        else:
            parts = [self._answer(self._check(self._features(data), "the input"))]
        if not parts:
            raise UserError("the input has no rows; give at least one")
        probabilities = [part.probabilities for part in parts if part.probabilities is not None]
        values = np.concatenate([part.values for part in parts])
        return Answers(values, np.concatenate(probabilities) if probabilities else None)

    def _find_images(self, data: Any) -> Any:
        """Images in memory or paths of images; None if the data are rows of numbers."""
        if (paths := _as_paths(data)) is None:
            are_rows = isinstance(data, np.ndarray) and self.fits(data.shape)  # of the run's size, so in batches
            return data if self.images and self.images.takes(data) and not are_rows else None
        are_images = [path.is_dir() or path.suffix.lower() in SUFFIXES for path in paths]
        return expand_folders(paths) if any(are_images) else None

    def _features(self, data: Any) -> np.ndarray:
        """Rows in memory as features."""
        if isinstance(data, list | tuple) and data and all(isinstance(row, list | tuple | np.ndarray) for row in data):
            data = _as_array(data)
        if isinstance(data, np.ndarray):
            return self._from_array(data, "the input")
        table = table_of(data)
        if not table.num_rows:
            raise UserError("the input has no rows; give at least one")
        return self.reader.from_table(table, "the input").rows

    def rows(self, rows: Any, origin: str = "the input") -> np.ndarray:
        """Predictions for an array of features or images, in the user's units: values, images or class names."""
        return self._answer(self._check(rows, origin)).values

    def _check(self, rows: Any, origin: str) -> np.ndarray:
        """Rows that fit the model and are finite; images are scaled from 0 to 255."""
        if not isinstance(rows, np.ndarray):
            raise UserError(f"{origin} is a {type(rows).__name__}, not an array of rows; give np.asarray(rows)")
        if not self.fits(rows.shape):
            raise UserError(f"{origin}: rows of {rows.shape[1:]} do not fit a model of inputs {self.input_shape}")
        if not len(rows):
            raise UserError(f"{origin} has no rows; give at least one")
        if rows.dtype.kind not in "iu" and not isinstance(self.reader, EncodedRows):  # others are finite, or codes
            numbers(rows, origin)
        return pixels(rows, origin) if self.images else rows

    @torch.no_grad()
    def _answer(self, rows: np.ndarray) -> Answers:
        at_once = max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // math.prod(self.task.signature.input_shape)))
        outputs = [self.model(self._encode(part)) for part in _batches(rows, at_once)]
        chances = [found for output in outputs if (found := self.task.probabilities(output)) is not None]
        decoded = np.concatenate([self.task.decode(output) for output in outputs])
        if self.takes_raw_rows:  # such a graph gives probabilities, or values in the user's units
            raw = [output.numpy() for output in outputs]
            chances, decoded = (raw, decoded) if chances else ([], np.concatenate(raw))
        are_labels = decoded.ndim == 1 and decoded.dtype.kind == "i"
        named = are_labels and self.classes.shape == self.task.signature.output_shape
        return Answers(self.classes[decoded] if named else decoded, np.concatenate(chances) if chances else None)

    def output_names(self, values: np.ndarray) -> list[str]:
        """The names of the columns of predictions: the targets', as far as they are known."""
        width, targets = math.prod(values.shape[1:]), list(self.reader.targets)
        if len(targets) == width:
            return targets
        first = targets[0] if len(targets) == 1 else ""
        return [first] if width == 1 else [f"{first} {place}".strip() for place in range(width)]

    def _class_names(self, probabilities: np.ndarray) -> list[Any]:
        count = probabilities.shape[1]
        return self.classes.tolist() if len(self.classes) == count else list(range(count))

    def fits(self, shape: tuple[int, ...]) -> bool:
        flat = len(shape) in (1, 2) and math.prod(shape[1:]) == math.prod(self.input_shape)
        return flat or (len(shape) > 0 and _without_ones(shape[1:]) == _without_ones(self.input_shape))

    def _encode(self, part: np.ndarray) -> torch.Tensor:
        if self.takes_raw_rows:
            return torch.from_numpy(np.array(part, np.float64))
        x = self.task.encode(part.reshape(len(part), *self.input_shape))
        return x.flatten(1) if self.takes_flat_rows else x  # an MLP flattens images itself, its exported graph does not

    def blocks(self, path: Path) -> Iterator[Block]:
        """The rows of a file piece by piece; columns and arrays that are not inputs are left out."""
        need_file(path)
        if ending_of(path) in ENDINGS:
            yield from self.reader.from_file(path)
            return
        start = 0
        for rows in array_rows(path, self.source, self._fits_array, self.input_shape):
            yield Block(self._from_array(rows, str(path), start))
            start += len(rows)

    def _fits_array(self, shape: tuple[int, ...]) -> bool:
        if isinstance(self.reader, EncodedRows):
            return len(shape) == 2 and self.reader.takes_width(shape[1])
        return self.fits(shape)

    def _from_array(self, array: np.ndarray, origin: str, start: int = 0) -> np.ndarray:
        are_pixels = self.images is not None and array.dtype.kind in "iu"
        return array if are_pixels else self.reader.from_array(array, origin, start)

    def image(self, image: np.ndarray) -> np.ndarray:
        """Restore an image (channels, height, width) of any size in tiles of the model's size."""
        if not (self.images and self.makes_images):
            raise UserError(f"this run does not restore images: it takes rows of {self.input_shape}; give them to rows")
        channels, height, width = self.input_shape
        given = np.shape(image)
        if not isinstance(image, np.ndarray) or len(given) != 3 or given[0] != channels or 0 in given:
            raise UserError(f"the image has the shape {given}, not ({channels}, height, width); transpose it")
        scale_y = self.task.signature.output_shape[1] // height
        scale_x = self.task.signature.output_shape[2] // width
        down, across = -(-image.shape[1] // height), -(-image.shape[2] // width)
        missing = (down * height - image.shape[1], across * width - image.shape[2])
        padded = np.pad(image, ((0, 0), (0, missing[0]), (0, missing[1])), mode="edge")
        tiles = padded.reshape(channels, down, height, across, width).transpose(1, 3, 0, 2, 4)
        restored = self.rows(tiles.reshape(-1, channels, height, width))
        grid = restored.reshape(down, across, channels, height * scale_y, width * scale_x).transpose(2, 0, 3, 1, 4)
        joined = grid.reshape(channels, down * height * scale_y, across * width * scale_x)
        return joined[:, : image.shape[1] * scale_y, : image.shape[2] * scale_x]


def class_names(names: Sequence[str]) -> np.ndarray:
    """Class names as integers if all of them are, otherwise as text."""
    whole = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names)
    return np.array([int(name) for name in names], np.int64) if whole else np.array(names, np.str_)


def _batches(items: Any, size: int) -> Iterator[Any]:
    """Slices of an array, or lists of the items of an iterator."""
    if isinstance(items, np.ndarray):
        yield from (items[start : start + size] for start in range(0, len(items), size))
        return
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _as_paths(data: Any) -> list[Path] | None:
    """The paths that the data are; None if they are none."""
    if isinstance(data, str | Path):
        return [expand_user(data)]
    are_paths = isinstance(data, list | tuple) and data and all(isinstance(each, str | Path) for each in data)
    return [expand_user(path) for path in data] if are_paths else None


def _as_array(rows: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(rows)
    except ValueError:
        raise UserError("the rows of the input differ in length") from None


def _like(data: Any, values: np.ndarray, names: Sequence[Any]) -> Any:
    """Values in the form of the data: with the index of a pandas DataFrame, otherwise as an array."""
    if type(data).__module__.partition(".")[0] != "pandas" or not hasattr(data, "columns"):
        return values
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index=data.index, name=names[0])
    return pandas.DataFrame(values.reshape(len(values), -1), index=data.index, columns=list(names))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
