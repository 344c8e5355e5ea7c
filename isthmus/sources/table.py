"""Your own table, as it is: words, dates, blanks and numbers in a csv, tsv, txt (or .gz of these) or parquet file.

What is done with each column is learned from the training rows (``encoding``) and stored in the run's record. Use the
source ``arrays`` for columns that are to be taken exactly as they are. The source ``bikes`` is a table to try this on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import home, write_text
from isthmus.core.protocols import Data, Source, Split
from isthmus.sources.bicycles import bikes_csv
from isthmus.sources.cells import say_unreadable, type_numbers, unreadable
from isthmus.sources.dialects import Frame, read_frame
from isthmus.sources.encoding import TableEncoder
from isthmus.sources.files import need_room, resolve
from isthmus.sources.splits import FoldedSplits, check_splits
from isthmus.sources.tables import ColumnNames, FileSettings, Kind
from isthmus.sources.targets import Targets, read_targets

if TYPE_CHECKING:
    import pyarrow

NAMES = {"table": "Table", "bikes": "Bikes"}
MEANINGS = {"bikes": "1,200 invented rows of bicycle rentals with words, dates and blanks, embedded: no download."}


class Table(Source):
    """float32 features (rows, features), with labels, values or no targets."""

    class Config(FileSettings):
        kind: Kind = "auto"
        """``auto``: words, booleans and few whole numbers are classes, other numbers are values (``regression``)."""
        header: bool | None = None
        """Whether a text file has a header (default: detected)."""
        delimiter: str | None = None
        """The character between the cells of a text file (default: detected)."""
        text: Literal["hash", "drop"] = "hash"
        """Whether free text becomes counts of hashed words or is left out."""
        without: ColumnNames = ()
        """Columns that are no inputs, such as what is known only after the fact."""
        row_names: str | None = None
        """A column that names the rows and is no input (default: a first column without a name)."""

    def load(self, data_dir: Path) -> Data:
        given = {"source.path": self.config.path, "source.test_path": self.config.test_path}
        paths = [
            resolve(data_dir, path, f"give a csv, tsv, txt or parquet file as {field}")
            for field, path in given.items()
            if path
        ]
        frames = [read_frame(path, self.config.header, self.config.delimiter) for path in paths]
        for path, frame in zip(paths[1:], frames[1:], strict=True):
            for name in self.config.targets:
                if name not in (names := frame.table.column_names):
                    raise UserError(f"{path}, the test rows, has no column {name!r}; {nearest(name, names)}")
        return self.prepare(frames, str(paths[0]))

    def prepare(self, frames: Sequence[Frame], origin: str) -> Data:
        """Split and encode tables: all rows, or the rows to train on and those of the test."""
        findings, tables = list(frames[0].findings), [frame.table for frame in frames]
        names = self._inputs(frames[0], origin)
        tables[0] = type_numbers(tables[0], (*names, *self.config.targets))
        targets = read_targets(tables, self.config.targets, self.config.kind) if self.config.targets else None
        pool = tables[0].num_rows
        if targets is not None:
            findings += self._describe_targets(targets, tables[0])
            pool = int(targets.known[:pool].sum())
            tables = _keep_known(tables, targets.known)
        if not all(table.num_rows for table in tables):
            raise UserError(f"{origin} has no rows in which {', '.join(self.config.targets) or 'anything'} is known")
        labels = targets.values[:pool] if targets and targets.classes else None
        rows = self.config.draw(pool, labels, ["test"] if len(tables) > 1 else [])
        # In the order of the table, so that the encoder does not depend on the draw's order.
        encoder = TableEncoder.learn(tables[0].take(np.sort(rows[0])), names, self.config.text == "hash")
        if not encoder.features:
            raise UserError(f"{origin} has no column to predict from: {'; '.join(encoder.findings)}")
        need_room(origin, 4 * len(encoder.features) * sum(table.num_rows for table in tables))
        tables[1:] = [encoder.follow_decimals(table) for table in tables[1:]]
        inputs = np.concatenate([encoder.expand(encoder.codes(table)) for table in tables])
        if len(tables) > 1:
            rows[2] = np.arange(pool, len(inputs))
        splits = [Split(inputs[part], None if targets is None else targets.values[part]) for part in rows]
        data = check_splits(origin, splits, targets.classes if targets else (), columns=encoder.features)
        learned = {
            "encoder": encoder.memory(),
            "inputs": names,
            "targets": list(self.config.targets),
            "row_names": self.config.row_names or frames[0].row_names,
            "findings": findings + encoder.findings,
        }
        return replace(data, table=learned)

    def _inputs(self, frame: Frame, origin: str) -> list[str]:
        """The wanted columns, or all except targets and the names of rows; unknown names are refused."""
        names, config = frame.table.column_names, self.config
        row_names = config.row_names or frame.row_names
        given = {"targets": config.targets, "inputs": config.inputs, "without": config.without}
        for name in (*itertools.chain(*given.values()), *([config.row_names] if config.row_names else [])):
            if name not in names:
                raise UserError(f"{origin} has no column {name!r}; {nearest(name, names)}")
        for one, other in itertools.combinations(given, 2):
            if both := set(given[one]) & set(given[other]):
                raise UserError(f"{sorted(both)[0]!r} is both in source.{one} and in source.{other}")
        others = (*config.targets, *config.without, row_names)
        inputs = list(config.inputs) or [name for name in names if name not in others]
        if not inputs:
            besides = "source.targets" + " and source.without" * bool(config.without)
            raise UserError(f"{origin} has no column besides {besides}")
        return inputs

    def _describe_targets(self, targets: Targets, table: pyarrow.Table) -> list[str]:
        name, known = self.config.targets[0], targets.known[: table.num_rows]
        findings = [f"predicting `{name}`: {targets.reason}"] if targets.reason else []
        if lacking := int((~targets.known).sum()):
            verb = "has" if lacking == 1 else "have"
            note = say_unreadable(unreadable(table[name], known)) if len(self.config.targets) == 1 else ""
            findings.append(f"{lacking:,} of {len(targets.known):,} rows {verb} no target, left out{note}")
        return findings


class Bikes(Source):
    """An invented table of bicycle rentals with words, dates and blanks, written to ISTHMUS_HOME/examples/bikes.csv."""

    class Config(FoldedSplits):
        targets: ColumnNames = ("rentals",)
        """The column(s) to predict."""
        kind: Kind = "auto"
        """``auto``: words, booleans and few whole numbers are classes, other numbers are values (``regression``)."""

    def load(self, data_dir: Path) -> Data:
        settings = self.config.model_dump() | {"name": "table", "path": str(write_bikes())}
        return Table(Table.Config(**settings)).load(data_dir)


def write_bikes() -> Path:
    """The file of the embedded table, written if it is not there."""
    path, text = (home() / "examples" / "bikes.csv").absolute(), bikes_csv()
    if not path.exists() or path.read_bytes() != text.encode():
        write_text(path, text)
    return path


def _keep_known(tables: Sequence[pyarrow.Table], known: np.ndarray) -> list[pyarrow.Table]:
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    parts = np.split(known, ends)
    return [table if part.all() else table.filter(part) for table, part in zip(tables, parts, strict=True)]
