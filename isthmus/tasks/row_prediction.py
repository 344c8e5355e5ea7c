"""Predictions for images, arrays and tables, in memory or in files, which may be larger than memory."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from isthmus.core.errors import UserError
from isthmus.core.files import advise_path, expand_user
from isthmus.core.prediction import Prediction, Predictor, Progress, Trained, show_nothing
from isthmus.core.protocols import Task
from isthmus.sources.dialects import ENDINGS
from isthmus.sources.images import SUFFIXES
from isthmus.sources.streaming import write_columns, write_pieces
from isthmus.sources.tables import numbers, table_of
from isthmus.tasks.file_prediction import LISTING, RESULTS, array_rows, ending_of, result_paths
from isthmus.tasks.image_prediction import (
    ImageReader,
    expand_folders,
    image_paths,
    join_tiles,
    need_file,
    pixels,
    read_image,
    write_image,
)
from isthmus.tasks.table_prediction import Block, EncodedRows, PlainRows

_ROWS_AT_ONCE = 1000
_SHOWN = 3
"""Classes or files that a line names."""
_NUMBERS_AT_ONCE = 2**24
"""Inputs of a batch: large rows make smaller batches."""


class Answers(NamedTuple):
    """Predictions for some rows in the user's units, and the probability of each class if there are classes."""

    values: np.ndarray
    probabilities: np.ndarray | None = None
    files: Sequence[str] | None = None
    """The files of a folder, which name its rows."""


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
        targets, listing = result_paths(written, expand_folders(files), out), out / LISTING
        if len(written) < len(single) and listing in {*targets.values(), *files}:
            raise UserError(f"{listing} would hold the classes of the images; give another folder with --out")
        skipped, read, classified = list[Skipped](), 0, dict[str, Answers]()
        for file in single:
            progress(file, 0)
            result: str | None
            if ending_of(file) in RESULTS and not file.is_dir():
                result = self._predict_file(file, targets[file], progress)
            elif file in targets:
                predict = self._restore_image if self.makes_images else self._classify_folder
                result = predict(file, targets[file], skipped, progress)
            else:
                result = self._classify_image(file, skipped, classified)
            if result is not None:
                read += 1
                line = self._describe_class(classified[str(file)]) if str(file) in classified else result
                yield Prediction(str(file), (f"{file} → {line}",), result)
        if classified:
            write_columns(listing, [self._columns({"file": [file]}, found) for file, found in classified.items()])
            yield Prediction("", (f"the probabilities of all classes → {listing}",), None)
        if skipped and not read:
            more = f" (and {len(skipped) - 1} more files could not be read)" if len(skipped) > 1 else ""
            raise UserError(f"{skipped[0].reason}{more}")
        yield from (Prediction(str(file), (f"skipped: {reason}",), None) for file, reason in skipped)

    def as_json(self, predictions: Iterable[Prediction]) -> dict[str, str | None]:
        """The result of every file; null for those that were skipped."""
        return {prediction.file: prediction.content for prediction in predictions if prediction.file}

    def _check_files(self, files: Sequence[Path]) -> None:
        accepted = {*RESULTS, *SUFFIXES} if self.images else {*RESULTS}
        for file in files:
            if self.images and file.is_dir():
                continue
            if not file.exists():
                raise UserError(f"there is no file {'or folder ' if self.images else ''}{file}; {advise_path(file)}")
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

    def _classify_image(self, file: Path, skipped: list[Skipped], classified: dict[str, Answers]) -> str | None:
        image = self._read_image(file, skipped)
        if image is None:
            return None
        classified[str(file)] = answers = self._answer(image[None])
        return str(answers.values[0])

    def _describe_class(self, answers: Answers) -> str:
        """The class, and the probabilities of the most probable ones."""
        if answers.probabilities is None:
            return str(answers.values[0])
        chances, names = answers.probabilities[0], self._class_names(answers.probabilities)
        first = np.argsort(-chances, kind="stable")[:_SHOWN]
        return f"{answers.values[0]} ({', '.join(f'p({names[place]}) = {chances[place]:.3g}' for place in first)})"

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
        if self.makes_images and (images := self._find_images(rows)) is not None:
            restored = [self.image(image) for _, image in images]
            return np.stack(restored) if len({image.shape for image in restored}) == 1 else restored
        values, _, files = self._answer_all(rows)
        names = [name or "predicted" for name in self.output_names(values)]
        return _like(rows, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values, names, files)

    def predict_probabilities(self, rows: Any) -> Any:
        rows = rows.detach().cpu().numpy() if isinstance(rows, torch.Tensor) else rows
        _, found, files = self._answer_all(rows)
        if found is None:
            return super().predict_probabilities(rows)
        return _like(rows, found, self._class_names(found), files)

    def _answer_all(self, data: Any) -> Answers:
        """Predictions for data of any form."""
        if (images := self._find_images(data)) is not None:
            answers = _join(self._answer_image_batches(images))
            return answers if _as_folder(data) else answers._replace(files=None)
        if paths := _as_paths(data):
            for path in paths:
                if not path.exists():
                    raise UserError(
                        f"there is no file {'or folder ' if self.images else ''}{path}; {advise_path(path)}"
                    )
                if ending_of(path) not in RESULTS or path.is_dir():
                    raise UserError(f"{path}: this run takes {', '.join(sorted(RESULTS))} files")
            return _join(answers for path in paths for _, answers in self._predict_blocks(path, show_nothing))
        return self._answer(self._check(self._features(data), "the input"))

    def _answer_image_batches(self, images: Iterable[tuple[str, np.ndarray]]) -> Iterator[Answers]:
        assert self.images is not None  # they were found by it
        for batch in _batches(images, _ROWS_AT_ONCE):
            fitted = [self.images.fit(pixels(image, name), name) for name, image in batch]
            yield self._answer(np.stack(fitted))._replace(files=[name for name, _ in batch])

    def _find_images(self, data: Any) -> Iterator[tuple[str, np.ndarray]] | None:
        """Images in memory or in files with their names; None if the data are rows of numbers."""
        if self.images is None:
            return None
        if folder := _as_folder(data):
            return self.images.read_folder(folder)
        if (paths := _as_paths(data)) is None:
            are_rows = isinstance(data, np.ndarray) and self.fits(data.shape)  # of the run's size, so in batches
            return self.images.read(data) if self.images.takes(data) and not are_rows else None
        are_images = [path.is_dir() or path.suffix.lower() in SUFFIXES for path in paths]
        return self.images.read(expand_folders(paths)) if any(are_images) else None

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
        """Restore an image (channels, height, width) of any size in tiles of the model's size, which overlap."""
        if not (self.images and self.makes_images):
            raise UserError(f"this run does not restore images: it takes rows of {self.input_shape}; give them to rows")
        channels, height, width = self.input_shape
        given = np.shape(image)
        if not isinstance(image, np.ndarray) or len(given) != 3 or given[0] != channels or 0 in given:
            raise UserError(f"the image has the shape {given}, not ({channels}, height, width); transpose it")
        scale = self.task.signature.output_shape[1] // height
        return join_tiles(pixels(image, "the image"), (height, width), scale, lambda tiles: self._answer(tiles).values)


def class_names(names: Sequence[str]) -> np.ndarray:
    """Class names as truth values or as integers if all of them are, otherwise as text."""
    if set(names) == {"False", "True"}:
        return np.array(names) == "True"
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


def _join(parts: Iterable[Answers]) -> Answers:
    """The answers for several batches as one."""
    values, probabilities, files = zip(*parts, strict=True) if (parts := list(parts)) else ((), (), ())
    if not values:
        raise UserError("the input has no rows; give at least one")
    known = None if probabilities[0] is None else np.concatenate(probabilities)
    return Answers(np.concatenate(values), known, None if files[0] is None else list(itertools.chain(*files)))


def _as_folder(data: Any) -> Path | None:
    """The folder that the user gave; None for anything else."""
    return path if isinstance(data, str | Path) and (path := expand_user(data)).is_dir() else None


def _as_paths(data: Any) -> list[Path] | None:
    """The paths that the user gave; None for anything else."""
    if isinstance(data, str | Path):
        return [expand_user(data)]
    are_paths = isinstance(data, list | tuple) and data and all(isinstance(each, str | Path) for each in data)
    return [expand_user(path) for path in data] if are_paths else None


def _as_array(rows: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(rows)
    except ValueError:
        raise UserError("the rows of the input differ in length") from None


def _like(data: Any, values: np.ndarray, names: Sequence[Any], files: Sequence[str] | None = None) -> Any:
    """Values in the form of the data: with the index of a pandas DataFrame or the files of a folder, else an array."""
    is_frame = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
    if not is_frame and (files is None or find_spec("pandas") is None):
        return values
    import pandas

    index = pandas.Index(files, name="file") if files is not None else data.index
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=names[0])
    return pandas.DataFrame(values.reshape(len(values), -1), index=index, columns=list(names))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
