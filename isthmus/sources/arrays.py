"""Your own arrays: ``.npy``, ``.npz``, ``.csv`` (or ``.csv.gz``) and ``.parquet``.

- ``.npz``: ``targets`` names an array, the inputs are the other one (or ``inputs`` names it).
- ``.csv``, ``.parquet``: ``targets`` names one or more columns, the inputs are the others (or ``inputs`` names them).
  Without a header, and in a two-dimensional ``.npy``, a column is named by its number from "0".
Inputs of three or four dimensions are uint8 images: (rows, height, width), with the channels second or last.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from isthmus.errors import UserError, nearest
from isthmus.protocols import Data, Source, Split
from isthmus.sources.reading import open_archive, parsing, read_bytes, resolve
from isthmus.sources.splitting import DrawnSplits, checked, partition
from isthmus.sources.tables import Kind, column, columns, encode_targets, numbers

if TYPE_CHECKING:
    import pyarrow

NAMES = {"arrays": "Arrays"}


def as_names(value: Any) -> tuple[str, ...]:
    """One name or number of a column, or several, or none."""
    if value is None:
        return ()
    return tuple(str(name) for name in value) if isinstance(value, list | tuple) else (str(value),)


ColumnNames = Annotated[tuple[str, ...], BeforeValidator(as_names)]
ACCEPTED = ".npy, .npz, .csv, .csv.gz or .parquet"


class Arrays(Source):
    """float32 features (rows, features) or uint8 images (rows, channels, height, width); with or without targets."""

    class Config(DrawnSplits):
        path: str
        """The file, absolute, under the data folder or under the current one."""
        test_path: str | None = None
        """A file of the same form with the test rows; without it they are drawn from ``path``."""
        targets: ColumnNames = ()
        """The array or column(s) to predict; none for a task that needs no targets."""
        inputs: ColumnNames = ()
        """The array or columns to predict from; by default all others."""
        kind: Kind = "auto"
        """``auto``: text and whole numbers are classes; floats, or several columns, are values (``regression``)."""
        header: bool | None = None
        """Whether a csv file begins with names; by default, if no cell of its first line is a number."""
        layout: Literal["auto", "channels_first", "channels_last"] = "auto"
        """Of four-dimensional images; ``auto`` takes the axis of size 1 or 3."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def load(self, data_dir: Path) -> Data:
        paths = [
            resolve(data_dir, path, f"give a {ACCEPTED} file")
            for path in (self.config.path, self.config.test_path)
            if path
        ]
        parts = [self._read(path) for path in paths]
        if len({inputs.shape[1:] for inputs, _ in parts}) > 1:
            raise UserError(
                f"a row of {paths[0]} has the shape {parts[0][0].shape[1:]}, of {paths[1]} {parts[1][0].shape[1:]}"
            )
        inputs = np.concatenate([inputs for inputs, _ in parts])
        targets, classes = None, tuple[str, ...]()
        if self.config.targets:
            with parsing(paths[-1], "targets of the same kind as the training file's"):
                raw = np.concatenate([targets for _, targets in parts if targets is not None])
            targets, classes = encode_targets(raw, self.config.kind, str(paths[0]))
        pool = len(parts[0][0])
        held_out = self.config.drawn(pool, ["test"] if self.config.test_path else [])
        labels = targets[:pool] if targets is not None and classes else None
        rows = partition(pool, held_out, self.config.split_seed, labels)
        if self.config.test_path:
            rows[2] = np.arange(pool, len(inputs))
        chosen = [Split(inputs[part], None if targets is None else targets[part]) for part in rows]
        return checked(str(paths[0]), chosen, classes)

    def _read(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        """Inputs as they will be used, and targets as they are in the file."""
        name = path.name.lower()
        if name.endswith(".npz"):
            inputs, targets = self._from_archive(path)
        elif name.endswith(".npy"):
            inputs, targets = self._from_array(path)
        elif name.endswith((".csv", ".csv.gz")):
            inputs, targets = self._from_table(read_csv(path, self.config.header), path)
        elif name.endswith(".parquet"):
            inputs, targets = self._from_table(read_parquet(path), path)
        else:
            raise UserError(f"{path} is of a kind that is not read here; give a {ACCEPTED} file")
        if inputs.size == 0 or inputs.ndim == 0:
            raise UserError(f"{path} has no rows")
        if targets is not None and targets.shape[:1] != inputs.shape[:1]:
            raise UserError(f"{path}: {len(inputs)} inputs but {len(targets) if targets.ndim else 1} targets")
        return self._formed(inputs, path), targets

    def _from_archive(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        with open_archive(path) as archive:
            names = archive.files
            for name in (*self.config.targets, *self.config.inputs):
                if name not in names:
                    raise UserError(f"{path} has no array {name!r}; {nearest(name, names)}")
            wanted = self.config.inputs or tuple(name for name in names if name not in self.config.targets)
            if len(wanted) != 1 or len(self.config.targets) > 1:
                raise UserError(
                    f"{path} holds the arrays {', '.join(names)}: "
                    "say which one is the inputs and which one, if any, the targets"
                )
            return archive[wanted[0]], archive[self.config.targets[0]] if self.config.targets else None

    def _from_array(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        with parsing(path, "an npy file"):
            array = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise UserError(f"{path} is an npz archive; name it so")
        if not self.config.targets and not self.config.inputs:
            return array, None
        if array.ndim != 2:
            raise UserError(f"targets and inputs name columns, but {path} has the shape {array.shape}; use an npz file")
        numbered = {str(number): number for number in range(array.shape[1])}
        targets, inputs = self._names(list(numbered), path)
        chosen = array[:, [numbered[name] for name in inputs]]
        return chosen, array[:, [numbered[name] for name in targets]] if targets else None

    def _from_table(self, table: pyarrow.Table, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        if not table.num_rows:
            raise UserError(f"{path} has no rows")
        targets, inputs = self._names(table.column_names, path)
        features = columns(table, inputs, str(path))
        if len(targets) == 1:
            return features, column(table, targets[0], str(path))
        return features, columns(table, targets, str(path)) if targets else None

    def _names(self, names: list[str], path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that are targets and those that are inputs."""
        targets, inputs = self.config.targets, self.config.inputs
        if len(set(names)) < len(names):
            raise UserError(f"{path} has two columns of the same name: {', '.join(names)}")
        for name in (*targets, *inputs):
            if name not in names:
                raise UserError(f"{path} has no column {name!r}; {nearest(name, names)}")
        inputs = inputs or tuple(name for name in names if name not in targets)
        if not inputs:
            raise UserError(f"{path} has no column beside the targets")
        return targets, inputs

    def _formed(self, inputs: np.ndarray, path: Path) -> np.ndarray:
        """Features as float32 (rows, features), images as uint8 (rows, channels, height, width)."""
        if inputs.ndim <= 2:
            return numbers(inputs, f"{path}: the inputs").reshape(len(inputs), -1)
        if inputs.ndim > 4 or inputs.dtype != np.uint8:
            raise UserError(
                f"{path}: inputs are features (rows, features) or uint8 images in three or four dimensions, "
                f"not {inputs.dtype} of shape {inputs.shape}"
            )
        if inputs.ndim == 3:
            return inputs[:, None]
        first, last = inputs.shape[1] in (1, 3), inputs.shape[3] in (1, 3)
        layout = self.config.layout
        if layout == "auto" and first == last:
            raise UserError(
                f"{path}: where are the channels of images of shape {inputs.shape[1:]}? "
                "Say layout=channels_first or layout=channels_last"
            )
        channels_last = layout == "channels_last" or (layout == "auto" and last)
        return np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) if channels_last else inputs


def read_csv(path: Path, header: bool | None) -> pyarrow.Table:
    import pyarrow.csv

    raw = read_bytes(path)
    with parsing(path, "a csv table"):
        if not raw.strip():
            raise UserError(f"{path} has no rows")
        first_line = raw.lstrip().splitlines()[0].decode("utf-8-sig")
        named = header if header is not None else not any(is_number(cell) for cell in first_line.split(","))
        # One block for all: the type of a column is decided on its first block.
        options = pyarrow.csv.ReadOptions(block_size=max(len(raw), 1 << 16), autogenerate_column_names=not named)
        table = pyarrow.csv.read_csv(io.BytesIO(raw), options)
        names = table.column_names if named else [str(number) for number in range(table.num_columns)]
        return table.rename_columns([name.strip() for name in names])


def is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


def read_parquet(path: Path) -> pyarrow.Table:
    import pyarrow.parquet

    with parsing(path, "a parquet file"):
        return pyarrow.parquet.ParquetFile(path).read()
