"""Your own arrays: ``.npy``, ``.npz``, ``.csv`` (or ``.csv.gz``) and ``.parquet``.

- ``.npz``: ``targets`` names an array, the inputs are the other one (or ``inputs`` names it).
- ``.csv``, ``.parquet``: ``targets`` names one or more columns, the inputs are the others (or ``inputs`` names them).
  Without a header, and in a two-dimensional ``.npy``, a column is named by its number from "0".
Inputs of three or four dimensions are uint8 images: (rows, height, width), with the channels second or last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.core.protocols import Data, Source, Split
from isthmus.sources.files import name_errors, open_archive, read_member, read_npy, resolve
from isthmus.sources.splits import check_splits
from isthmus.sources.tables import (
    ENDINGS,
    FileSettings,
    Kind,
    column,
    column_names,
    columns,
    encode_targets,
    numbers,
    read_table,
)

NAMES = {"arrays": "Arrays"}

ACCEPTED = ".npy, .npz, .csv, .csv.gz or .parquet"


class Part(NamedTuple):
    """The content of one file: converted inputs, raw targets, and the names of the input columns."""

    inputs: np.ndarray
    targets: np.ndarray | None
    columns: tuple[str, ...] = ()
    header_guessed_absent: bool = False


class Arrays(Source):
    """float32 features (rows, features) or uint8 images (rows, channels, height, width); with or without targets."""

    class Config(FileSettings):
        kind: Kind = "auto"
        """``auto``: text and whole numbers are classes; floats, or several columns, are values (``regression``)."""
        header: bool | None = None
        """Whether a csv file has a header (default: if no cell of its first line is a number)."""
        layout: Literal["auto", "channels_first", "channels_last"] = "auto"
        """Position of the channels of four-dimensional images; ``auto``: the axis of size 1 or 3."""

    def load(self, data_dir: Path) -> Data:
        given = {"source.path": self.config.path, "source.test_path": self.config.test_path}
        paths = [resolve(data_dir, path, f"give a {ACCEPTED} file as {field}") for field, path in given.items() if path]
        parts = [self._read(paths[0], self.config.inputs)]
        # The test file may have its columns in another order.
        parts += [self._read(path, self.config.inputs or parts[0].columns) for path in paths[1:]]
        shapes = [part.inputs.shape[1:] for part in parts]
        if len(set(shapes)) > 1:
            raise UserError(f"a row of {paths[0]} has the shape {shapes[0]}, of {paths[1]} {shapes[1]}")
        inputs = np.concatenate([part.inputs for part in parts])
        targets, classes = None, tuple[str, ...]()
        if self.config.targets:
            with name_errors(paths[-1], "targets of the same kind as the training file's"):
                raw = np.concatenate([part.targets for part in parts if part.targets is not None])
            with hint_at_header(any(part.header_guessed_absent for part in parts)):
                targets, classes = encode_targets(raw, self.config.kind, str(paths[0]))
        pool = len(parts[0].inputs)
        labels = targets[:pool] if targets is not None and classes else None
        rows = self.config.draw(pool, labels, ["test"] if self.config.test_path else [])
        if self.config.test_path:
            rows[2] = np.arange(pool, len(inputs))
        chosen = [Split(inputs[part], None if targets is None else targets[part]) for part in rows]
        return check_splits(str(paths[0]), chosen, classes, columns=parts[0].columns)

    def _read(self, path: Path, names: tuple[str, ...]) -> Part:
        """Read one file; ``names`` are the input columns (default: all except targets)."""
        name = path.name.lower()
        if name.endswith(".npz"):
            part = self._from_archive(path)
        elif name.endswith(".npy"):
            part = self._from_array(path)
        elif name.endswith(ENDINGS):
            part = self._from_table(path, names)
        else:
            raise UserError(f"{path} has an unsupported format; give a {ACCEPTED} file")
        inputs, targets = part.inputs, part.targets
        if inputs.size == 0 or inputs.ndim == 0:
            raise UserError(f"{path} has no rows")
        if targets is not None and targets.shape[:1] != inputs.shape[:1]:
            raise UserError(f"{path}: {len(inputs)} inputs but {len(targets) if targets.ndim else 1} targets")
        return part._replace(inputs=self._shape_inputs(inputs, path))

    def _from_archive(self, path: Path) -> Part:
        with open_archive(path) as archive:
            names = archive.files
            for name in (*self.config.targets, *self.config.inputs):
                if name not in names:
                    raise UserError(f"{path} has no array {name!r}; {nearest(name, names)}")
            wanted = self.config.inputs or tuple(name for name in names if name not in self.config.targets)
            if len(wanted) != 1 or len(self.config.targets) > 1:
                raise UserError(
                    f"{path} contains the arrays {', '.join(names)}; "
                    "set source.inputs and, if there are targets, source.targets"
                )
            inputs, *targets = (read_member(path, archive, name) for name in (*wanted, *self.config.targets))
            return Part(inputs, targets[0] if targets else None)

    def _from_array(self, path: Path) -> Part:
        array = read_npy(path)
        targets = self.config.targets
        if not array.size or (not targets and not self.config.inputs):
            return Part(array, None)
        if array.ndim != 2:
            raise UserError(
                f"source.targets and source.inputs name columns, but {path} has the shape {array.shape}; "
                "use an npz file"
            )
        numbered = {str(number): number for number in range(array.shape[1])}
        inputs = self._inputs(self.config.inputs, list(numbered), path)
        chosen = array[:, [numbered[name] for name in inputs]]
        return Part(chosen, array[:, [numbered[name] for name in targets]] if targets else None)

    def _from_table(self, path: Path, names: tuple[str, ...]) -> Part:
        table, named = read_table(path, self.config.header)
        targets, guessed = self.config.targets, not named and self.config.header is None
        with hint_at_header(guessed):
            inputs = self._inputs(names, table.column_names, path)
            features = columns(table, inputs, str(path), whole=True)
            part = Part(features, None, inputs if named else (), guessed)
            if not targets:
                return part
            several = len(targets) > 1
            read = columns(table, targets, str(path), whole=True) if several else column(table, targets[0], str(path))
            return part._replace(targets=read)

    def _inputs(self, wanted: tuple[str, ...], names: list[str], path: Path) -> tuple[str, ...]:
        """The wanted columns, or all except targets; unknown names are refused."""
        for name in (*self.config.targets, *wanted):
            if name not in names:
                raise UserError(f"{path} has no column {name!r}; {nearest(name, names)}")
        inputs = wanted or tuple(name for name in names if name not in self.config.targets)
        if not inputs:
            raise UserError(f"{path} has no column besides source.targets")
        return inputs

    def _shape_inputs(self, inputs: np.ndarray, path: Path) -> np.ndarray:
        """Features as float32 (rows, features), images as uint8 (rows, channels, height, width)."""
        if inputs.ndim <= 2:
            return numbers(inputs, f"{path}: the inputs", whole=True).reshape(len(inputs), -1)
        if inputs.ndim > 4 or inputs.dtype != np.uint8:
            raise UserError(
                f"{path}: inputs must be features (rows, features) or uint8 images in three or four dimensions, "
                f"not {inputs.dtype} of shape {inputs.shape}"
            )
        if inputs.ndim == 3:
            return inputs[:, None]
        first, last = inputs.shape[1] in (1, 3), inputs.shape[3] in (1, 3)
        layout = self.config.layout
        if layout == "auto" and first == last:
            raise UserError(
                f"{path}: the channel axis of images of shape {inputs.shape[1:]} is ambiguous; "
                "set source.layout=channels_first or source.layout=channels_last"
            )
        channels_last = layout == "channels_last" or (layout == "auto" and last)
        return np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) if channels_last else inputs


def names_in(path: Path) -> list[str]:
    """The names of the arrays of an archive or the columns of a table; empty for an npy file."""
    name = path.name.lower()
    if name.endswith(".npz"):
        with open_archive(path) as archive:
            return list(archive.files)
    return column_names(path) if name.endswith(ENDINGS) else []


@contextmanager
def hint_at_header(guessed_absent: bool) -> Iterator[None]:
    """Mention the header in errors, because a header such as ``2019,2020,y`` looks like a row."""
    try:
        yield
    except UserError as error:
        hint = "; if its first line is a header, set source.header=true" if guessed_absent else ""
        raise UserError(f"{error}{hint}") from None
