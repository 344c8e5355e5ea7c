"""Tables of candidates and runs for the terminal, the page, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.files import as_cell
from isthmus.core.record import flatten
from isthmus.reports.sections import Section, metric_names, read_setting, varying_settings
from isthmus.reports.text import (
    architecture_title,
    axis_title,
    cost_kind,
    duration,
    magnitude,
    metric_title,
    quantity,
    unit,
    with_spread,
)
from isthmus.studies.fronts import Candidate, front


@dataclass(frozen=True)
class Column:
    """``value`` is the sort key, ``text`` the cell shown."""

    title: str
    value: Callable[[Candidate], Any]
    text: Callable[[Candidate], str]
    numeric: bool = True
    extra: bool = False
    """Shown on the page on request."""


def columns(candidates: Sequence[Candidate]) -> list[Column]:
    """The settings that differ, costs, metrics, and how they were obtained."""
    objectives = {candidate.objective for candidate in candidates}
    objective = axis_title("Test", objectives.pop()) if len(objectives) == 1 else "Test objective"
    frozen = any(candidate.trainable_params != candidate.params for candidate in candidates)
    trainable = Column("Trainable", lambda c: c.trainable_params, lambda c: magnitude(c.trainable_params), extra=True)
    precision = Column("Precision", lambda c: c.precision, lambda c: c.precision, False)
    same_rate = len({candidate.learning_rate for candidate in candidates}) == 1
    none_failed = not any(candidate.failed for candidate in candidates)
    return [
        Column(
            "Shape", lambda c: architecture_title(c.architecture), lambda c: architecture_title(c.architecture), False
        ),
        *(_setting_column(name, candidates) for name in varying_settings(candidates)),
        Column("Params", lambda c: c.params, lambda c: magnitude(c.params)),
        *([trainable] if frozen else []),
        Column("MACs", lambda c: c.macs, lambda c: magnitude(c.macs), extra=True),
        *([precision] if any(candidate.precision != "float32" for candidate in candidates) else []),
        *(_cost_column(name) for name in dict.fromkeys(name for each in candidates for name in each.costs)),
        Column(objective, lambda c: c.mean, lambda c: with_spread(c.mean, c.std, c.objective)),
        Column("5 σ", lambda c: _blank(c.five_sigma), lambda c: _spread(c.five_sigma, c.objective), extra=True),
        Column("Validation", lambda c: c.validation, lambda c: quantity(c.validation, c.objective)),
        Column("Learning rate", lambda c: c.learning_rate, lambda c: f"{c.learning_rate:g}", extra=same_rate),
        Column(_repeats(candidates), lambda c: len(c.seeds), lambda c: str(len(c.seeds))),
        Column("Failed", lambda c: c.failed, lambda c: str(c.failed or "–"), extra=none_failed),
        Column("Time", lambda c: c.wall_seconds, lambda c: duration(c.wall_seconds), extra=True),
        *(_metric_column(name) for name in metric_names(candidates)[1:]),
    ]


def _repeats(candidates: Iterable[Candidate]) -> str:
    """The title of the column that counts the runs of a candidate."""
    return "Folds" if any(candidate.settings["source"].get("folds") for candidate in candidates) else "Seeds"


def _cost_column(name: str) -> Column:
    kind = cost_kind(name)

    def show(candidate: Candidate) -> str:
        value = candidate.costs.get(name)
        return "" if value is None else f"{value:.3g}" if kind.is_measured else magnitude(value)

    title = f"{kind.quantity.capitalize()} ({kind.unit})" if kind.quantity else kind.title
    return Column(title, lambda candidate: _blank(candidate.costs.get(name)), show)


def _cost_key(name: str) -> str:
    """The csv column of a cost; a measured one has its unit in the name."""
    kind = cost_kind(name)
    return f"{name}_{kind.unit}" if kind.is_measured else name


def table(candidates: Sequence[Candidate], cost: str = "params") -> list[dict[str, str]]:
    """Rows for a terminal, one per candidate; ``●`` marks members of the front, chosen on validation data."""
    wide = {"Trainable", "MACs", "5 σ", "Validation", *map(metric_title, metric_names(candidates)[1:])}
    shown = [column for column in columns(candidates) if column.title not in wide]
    members = {
        member.identity
        for problem in {(candidate.source, candidate.task) for candidate in candidates}
        for member in front((item for item in candidates if (item.source, item.task) == problem), cost)
    }
    return [
        {"": "●" if candidate.identity in members else ""} | {column.title: column.text(candidate) for column in shown}
        for candidate in candidates
    ]


def candidates_csv(sections: Iterable[Section]) -> str:
    """Every candidate, unrounded."""
    rows = []
    for section in sections:
        for candidate in section.candidates:
            rows.append(
                {
                    "source": candidate.source,
                    "task": candidate.task,
                    "architecture": candidate.architecture,
                    "on_front": candidate.run_ids in section.front_ids,
                    "params": candidate.params,
                    "trainable_params": candidate.trainable_params,
                    "macs": candidate.macs,
                    **{_cost_key(name): value for name, value in candidate.costs.items()},
                    "objective": candidate.objective,
                    "test_mean": candidate.mean,
                    "test_std": candidate.std,
                    "test_5sigma": candidate.five_sigma,
                    "test_per_seed": " ".join(map(repr, candidate.test)),
                    "validation_mean": candidate.validation,
                    "learning_rate": candidate.learning_rate,
                    "seeds": " ".join(map(str, candidate.seeds)),
                    "failed_runs": candidate.failed,
                    "wall_seconds": candidate.wall_seconds,
                    "run_ids": " ".join(candidate.run_ids),
                }
                | {f"test_{name}_mean": statistics.fmean(values) for name, values in candidate.metrics.items()}
                | flatten(candidate.settings)
            )
    return csv_text(rows)


def versions_csv(sections: Iterable[Section]) -> str:
    """The candidates with int8 weights; their settings are in the row of the same runs in ``candidates.csv``."""
    rows = []
    for section in sections:
        for version in section.versions:
            (cost,) = version.costs
            rows.append(
                {
                    "run_ids": " ".join(version.run_ids), "precision": version.precision,
                    "on_front": version.identity in section.front_at(cost), _cost_key(cost): version.costs[cost],
                    "objective": version.objective, "test_mean": version.mean, "test_std": version.std,
                    "test_per_seed": " ".join(map(repr, version.test)), "validation_mean": version.validation,
                }
            )  # fmt: skip
    return csv_text(rows)


def runs_csv(sections: Iterable[Section]) -> str:
    """Every run, including failed ones, with its complete config."""
    rows = []
    for section in sections:
        chosen = {identity for candidate in section.candidates for identity in candidate.run_ids}
        for run in section.runs:
            record = run.record
            rows.append(
                {
                    "id": record.id,
                    "status": record.status,
                    "reason": record.reason,
                    "source": record.config["source"]["name"],
                    "task": record.task,
                    "architecture": run.architecture,
                    "learning_rate": record.config["train"]["learning_rate"],
                    "seed": record.seed,
                    "chosen_learning_rate": record.id in chosen,
                    **flatten(record.metrics),
                    **flatten({"cost": record.cost, "selected": record.selected}),
                    "steps": record.steps,
                    "wall_seconds": record.wall_seconds,
                    "samples_per_second": record.samples_per_second,
                    "started": record.started,
                    "finished": record.finished,
                    "fingerprint": record.fingerprint,
                    **flatten({"code": record.code, "versions": record.versions}),
                    "command": record.command,
                    "config": json.dumps(record.config, ensure_ascii=False),
                }
            )
    return csv_text(rows)


def _blank(value: Any) -> Any:
    """An empty cell if nothing was measured."""
    return "" if value is None else value


def _spread(value: float | None, metric: str) -> str:
    return "–" if value is None else f"{value:.3f}" if unit(metric) == "dB" else f"{value:.2g}"


def _metric_column(name: str) -> Column:
    def mean(candidate: Candidate) -> float:
        return statistics.fmean(candidate.metrics[name])

    return Column(metric_title(name), mean, lambda c: quantity(mean(c), name), extra=True)


def _setting_column(name: str, candidates: Iterable[Candidate]) -> Column:
    values = [read_setting(candidate, name) for candidate in candidates]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    title = name.removeprefix("model.").removeprefix("train.")

    def show(candidate: Candidate) -> str:
        value = read_setting(candidate, name)
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return Column(title, lambda c: read_setting(c, name), show, numeric)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a column for every name."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(as_cell, names))
    writer.writerows([as_cell(row.get(name, "")) for name in names] for row in rows)
    return text.getvalue()


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown; None becomes an empty cell."""
    if not rows:
        return ["none"]
    cells = [["" if cell is None else str(cell).replace("|", "\\|") for cell in row.values()] for row in rows]
    return [" | ".join(["", *line, ""]).strip() for line in [list(rows[0]), ["---"] * len(rows[0]), *cells]]
