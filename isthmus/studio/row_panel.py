"""The panel of tables: a form with their columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.studio.figures import draw_lines, line_trace
from isthmus.studio.layout import Figure, Part, link
from isthmus.studio.panel import SAMPLES, TURN, Panel, show_probabilities

_MOST_FIELDS, _MOST_OPTIONS, _GRID, _AVERAGED = 200, 200, 30, 100


class RowPanel(Panel):
    """A form with the columns of a table: the prediction, probabilities of classes, and the dependence on a column."""

    @cached_property
    def columns(self) -> list[Any]:
        from isthmus.sources.encoding import Column
        from isthmus.tasks.table_prediction import EncodedRows

        if self.trained.table:
            return list(EncodedRows(self.trained.table).encoder.columns)
        names = self.trained.columns or [str(number) for number in range(math.prod(self.trained.task.row_shape))]
        return [Column(str(name), "number") for name in names]

    @cached_property
    def table(self) -> Any:
        """The rows of the file, if it is still there: pyarrow's table."""
        from isthmus.sources.dialects import read_frame
        from isthmus.sources.table import write_bikes

        path = write_bikes() if self.trained.source["name"] == "bikes" else self.trained.source.get("path")
        if not path or not self.trained.table:
            return None
        try:
            table = read_frame(Path(path)).table
            return table if all(column.name in table.column_names for column in self.columns) else None
        except UserError:
            return None

    @property
    def _first(self) -> str:
        """The first column whose values have an order or a list."""
        return next((f"c{number}" for number, each in enumerate(self.columns) if each.kind not in ("date", "text")), "")

    def _values(self, given: Mapping[str, str]) -> dict[str, str]:
        """The cells of the form; of a new form, those of a row of the data, or usual values."""
        row = self._row(given.get("row", ""))
        known = {}
        for number, column in enumerate(self.columns):
            field = f"c{number}"
            usual = column.values[0] if column.values else "true" if column.kind == "boolean" else f"{column.fill:.6g}"
            known[column.name] = given.get(
                field, row.get(column.name, "" if column.kind in ("date", "text") else usual)
            )
        return known

    def _row(self, text: str) -> dict[str, str]:
        number = int(text) if re.fullmatch("[0-9]{1,2}", text) else 0
        if number >= SAMPLES:
            return {}
        if self.table is not None and self.table.num_rows:
            place = round(number * (self.table.num_rows - 1) / (SAMPLES - 1))
            cells = self.table.slice(place, 1).to_pylist()[0]
            return {column.name: "" if (cell := cells[column.name]) is None else str(cell) for column in self.columns}
        if self.samples is not None and not self.trained.table and self.samples.inputs.ndim == 2:
            values = self.samples.inputs[number % len(self.samples.inputs)]
            return {column.name: f"{value:.6g}" for column, value in zip(self.columns, values, strict=True)}
        return {}

    def form(self, given: Mapping[str, str]) -> str:
        if len(self.columns) > _MOST_FIELDS:
            raise UserError(f"this run takes {len(self.columns):,} columns, which are too many for a form")
        values = self._values(given)
        fields = "".join(_cell(f"c{number}", column, values[column.name]) for number, column in enumerate(self.columns))
        names = {"": "no column"} | {f"c{number}": column.name for number, column in enumerate(self.columns)}
        vary = _options(names, given.get("vary", self._first))
        rows = " ".join(link(f"{self.path}?row={number}", str(number + 1)) for number in range(SAMPLES))
        taken = f"<p>Take a row of the data: {rows}</p>" if self._row("0") else ""
        return (
            f"{taken}<div class='fields cells'>{fields}</div>"
            f"<p><label>Show the dependence on <select name='vary'>{vary}</select></label></p>"
        )

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        values = self._values(given)
        is_class = bool(self.trained.classes)
        text = self._say_classes(values) if is_class else self._say_values(values)
        return {"answer": text, "dependence": self._dependence(values, given.get("vary", self._first), is_class)}

    def _predict(self, rows: Mapping[str, Sequence[str]], proba: bool) -> np.ndarray:
        """Predictions for cells that are text; an empty one is missing."""
        import pyarrow

        columns = {
            name: pyarrow.array([cell or None for cell in cells], pyarrow.string()) for name, cells in rows.items()
        }
        with TURN:
            if self.trained.table:
                table = pyarrow.table(columns)
                found = self.trained.predict_proba(table) if proba else self.trained.predict(table)
            else:
                array = np.array([[_number(cell, name) for cell in cells] for name, cells in rows.items()]).T
                found = self.trained.predict_proba(array) if proba else self.trained.predict(array)
        return np.asarray(found)

    def _say_values(self, values: Mapping[str, str]) -> str:
        found = np.atleast_1d(self._predict({name: [cell] for name, cell in values.items()}, False)[0])
        targets = list(self.trained.source.get("targets") or ())
        names = [str(name) for name in targets] if len(targets) == len(found) else [""] * len(found)
        rows = "".join(
            f"<div><dt>{escape(name or 'Prediction')}</dt><dd><b>{float(value):.6g}</b></dd></div>"
            for name, value in zip(names, found, strict=True)
        )
        return f"<h2>Prediction</h2><dl class='figures' aria-live='polite'>{rows}</dl>"

    def _say_classes(self, values: Mapping[str, str]) -> str:
        found = self._predict({name: [cell] for name, cell in values.items()}, True)[0]
        return f"<h2>Prediction</h2>{show_probabilities(self.trained.classes, found)}"

    def _dependence(self, values: Mapping[str, str], vary: str, is_class: bool) -> Figure:
        """The prediction over the values of a column: for this row, and on average over rows of the data."""
        number = int(vary[1:]) if re.fullmatch("c[0-9]{1,4}", vary) else -1
        if not 0 <= number < len(self.columns) or self.columns[number].kind in ("text", "date"):
            return Figure("Dependence", None)
        column = self.columns[number]
        grid = self._grid(column, values[column.name])
        rows = {name: [cell] * len(grid) for name, cell in values.items()} | {column.name: grid}
        own = self._predict(rows, is_class)
        place = (
            int(np.argmax(self._predict({name: [cell] for name, cell in values.items()}, True)[0])) if is_class else 0
        )
        x: Sequence[Any] = grid if column.kind in ("category", "boolean") else [float(value) for value in grid]
        traces = [line_trace(x, _pick(own, place).tolist(), 0, name="this row", mode="lines+markers")]
        if self.table is not None:
            average = self._average(column.name, grid, place, is_class)
            traces.append(line_trace(x, average, 1, name="partial dependence"))
        what = f"probability of {self.trained.classes[place]}" if is_class else "prediction"
        shown = {name: escape(text, quote=False) for name, text in (("x", column.name), ("y", str(what)))}
        note = "Blue: this row with other values of the column."
        if len(traces) > 1:
            number = min(_AVERAGED, self.table.num_rows)
            note += f" Orange: the partial dependence, the mean over {number} rows of the data."
        return Figure(f"Dependence on {column.name}", draw_lines(traces, shown["x"], shown["y"]), note)

    def _grid(self, column: Any, cell: str) -> list[str]:
        if column.kind == "category":
            return list(column.values[:_GRID])
        if column.kind == "boolean":
            return ["false", "true"]
        low, high = self._range(column, cell)
        return [f"{value:.6g}" for value in np.linspace(low, high, _GRID)]

    def _range(self, column: Any, cell: str) -> tuple[float, float]:
        from isthmus.sources import cells

        known = np.array([])
        if self.table is not None:
            known = cells.numbers(self.table[column.name], column.comma)
        elif self.samples is not None and not self.trained.table:
            known = self.samples.inputs[:, [each.name for each in self.columns].index(column.name)]
        known = known[np.isfinite(known)]
        if len(known) and known.min() < known.max():
            return float(known.min()), float(known.max())
        centre = float(cell) if re.fullmatch(r"-?\d+(\.\d+)?", cell) else column.fill
        return centre - max(1.0, abs(centre)), centre + max(1.0, abs(centre))

    def _average(self, name: str, grid: Sequence[str], place: int, is_class: bool) -> list[float]:
        number = min(_AVERAGED, self.table.num_rows)
        places = np.linspace(0, self.table.num_rows - 1, number).astype(int)
        taken = self.table.take(places).to_pydict()
        rows = {
            column.name: ["" if cell is None else str(cell) for cell in taken[column.name]] * len(grid)
            for column in self.columns
        }
        rows[name] = [value for value in grid for _ in range(number)]
        return [
            float(value)
            for value in _pick(self._predict(rows, is_class), place).reshape(len(grid), number).mean(axis=1)
        ]


def _pick(found: np.ndarray, place: int) -> np.ndarray:
    """One output of each row."""
    return np.asarray(found if found.ndim == 1 else found[:, place], dtype=float)


def _number(cell: str, name: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise UserError(f"{name}: {cell[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise UserError(f"{name}: give a finite number")
    return value


def _cell(field: str, column: Any, value: str) -> str:
    label = escape(column.name)
    if column.kind in ("category", "boolean"):
        known = list(column.values[:_MOST_OPTIONS]) or ["true", "false"]
        options = _options(
            {"": "missing"} | {text: text for text in dict.fromkeys([*known, *([value] if value else [])])}, value
        )
        return f"<label>{label} <select name='{field}'>{options}</select></label>"
    return f"<label>{label} <input name='{field}' value='{escape(value)}' size='12'></label>"


def _options(names: Mapping[str, str], chosen: str) -> str:
    return "".join(
        f"<option value='{escape(value)}'{' selected' * (value == chosen)}>{escape(text[:80])}</option>"
        for value, text in names.items()
    )
