"""Look inside a run: its curves, and what `isthmus analyze` measures, on request; two runs side by side.

A measurement is a process of its own and is stored beside the record, so that it is made once.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed
from isthmus.core.record import read_metrics
from isthmus.core.registry import catalogue, find
from isthmus.core.titles import model_title
from isthmus.reports.text import metric_title
from isthmus.studio.contents import Missing, Studio
from isthmus.studio.figures import draw_log
from isthmus.studio.index import Run
from isthmus.studio.jobs import Job
from isthmus.studio.layout import Figure, Part, View, button, command, link, table
from isthmus.studio.tables import job_box

_PICTURE = re.compile(r"[\w-]{1,100}\.png")
_MOST_OTHERS = 30
_LONGEST_TITLE = 5
"""Words of a heading."""


def title_of(name: str) -> tuple[str, str]:
    """The first line of an analysis's file says what it is and what it measures."""
    lines = (sys.modules[find("analyses", name).__name__].__doc__ or "").strip().splitlines()
    line = (lines or [""])[0]
    what, _, measured = line.partition(": ")
    if measured and len(what.split()) <= _LONGEST_TITLE:
        return what, measured[:1].upper() + measured[1:]
    return name.replace("_", " ").capitalize(), line


@lru_cache(maxsize=8)
def reasons(folder: Path, task: str) -> dict[str, str | None]:
    """For every analysis, why it does not apply to a run, or None."""
    from isthmus.training.loading import load_model

    model = load_model(folder)
    return {name: find("analyses", name).applies(model, task) for name in catalogue("analyses")}


def read_picture(run: Run, name: str) -> Path:
    """A figure of an analysis; only files of the run's own folder."""
    place = run.folder / "analysis"
    path = place / name
    if not _PICTURE.fullmatch(name) or path.is_symlink() or not path.is_file():
        raise Missing
    return path


def start_analysis(studio: Studio, run: Run, name: str, against: str = "") -> Job:
    """Start `isthmus analyze` for one analysis, or for all that apply."""
    if name and name not in catalogue("analyses"):
        raise UserError(f"there is no analysis {name[:60]!r}")
    words = ["analyze", run.id, *([f"--only={name}"] if name else [])]
    title = f"{name or 'all analyses'} of {run.id[:8]}"
    if against:
        other = studio.run(against).id if against != "untrained" else against
        words, title = [*words, f"--against={other}"], f"{title} against {other[:8]}"
    if any(job.words == tuple(words) and studio.jobs.is_running(job) for job in studio.jobs.newest()):
        raise UserError(f"{title} is being measured already")
    return studio.jobs.start(words, title, inside=run.id, analysis=name, against=against)


class Inside(View):
    """What was measured of a run, what can be, and how to get it."""

    def __init__(self, studio: Studio, identity: str, given: Mapping[str, str]) -> None:
        self.studio, self.run = studio, studio.run(identity)
        if self.run.record is None or self.run.record.status != "finished":
            raise UserError("only a finished run can be looked into")
        self.title = f"Inside run {identity}"
        other = given.get("with", "")
        self.other = studio.run(other) if other else None
        if self.other is not None and (self.other.record is None or self.other.record.status != "finished"):
            raise UserError("the other run has not finished")

    @property
    def runs(self) -> list[Run]:
        return [self.run] if self.other is None else [self.run, self.other]

    def stamp(self) -> list[int]:
        """When the last measurement of each run was stored."""
        places = [run.folder / "analysis" for run in self.runs]
        return [place.stat().st_mtime_ns for place in places if place.is_dir()]

    def parts(self) -> dict[str, Part]:
        record = self.run.record
        assert record is not None
        metric = record.objective
        logs = {f"{run.id[:8]}": _lines(run) for run in self.runs}
        return {
            "head": self._head(),
            "validation": Figure(f"Validation {metric_title(metric)}", draw_log(logs, "validation", metric)),
            "loss": Figure("Training loss", draw_log(logs, "train", "loss")),
            "jobs": self._jobs(),
            "analyses": self._analyses(),
        }

    def _head(self) -> str:
        names = " beside ".join(
            f"{link(f'/runs/{quote(run.id)}', run.id)} "
            f"<span class='quiet'>{escape(model_title(run.config['model']))}</span>"
            for run in self.runs
        )
        others = [
            run
            for run in self.studio.index.of_problem(self.run.problem)
            if run.record and run.record.status == "finished" and run is not self.run
        ]
        chosen = self.other.id if self.other else ""
        options = "".join(
            f"<option value='{run.id}'{' selected' * (run.id == chosen)}>{run.id[:8]} "
            f"{escape(model_title(run.config['model']))}, seed {escape(str(run.config['seed']))}</option>"
            for run in others[:_MOST_OTHERS]
        )
        form = (
            f"<form class='controls' method='get' action='/runs/{quote(self.run.id)}/inside' data-auto><label>Beside "
            f"<select name='with'><option value=''>no other run</option>{options}</select></label> "
            "<button class='act'>Show</button></form>"
            if others
            else ""
        )
        return f"<p>{names}</p>{form}"

    def _jobs(self) -> str:
        ids = {run.id for run in self.runs}
        jobs = [job for job in self.studio.jobs.newest() if job.facts.get("inside") in ids]
        shown = [job for job in jobs if self.studio.jobs.is_running(job) or self.studio.jobs.code(job)]
        return "".join(job_box(self.studio, job) + self._progress(job) for job in shown[:4])

    def _progress(self, job: Job) -> str:
        """How many measurements are stored, of a command that makes all of them."""
        if job.facts["analysis"] or not self.studio.jobs.is_running(job):
            return ""
        run = self.studio.run(job.facts["inside"])
        names = [name for name, reason in _reasons(run).items() if reason is None]
        done = sum((run.folder / "analysis" / f"{name}.json").is_file() for name in names)
        label = f"{done} of {len(names)} measured"
        return f"<p><progress max='{len(names)}' value='{done}' aria-label='{label}'></progress> {label}</p>"

    @property
    def _here(self) -> dict[str, str]:
        """The fields that lead back to this page."""
        return {"back": self.run.id} | ({"beside": self.other.id} if self.other else {})

    def _analyses(self) -> str:
        applies = [_reasons(run) for run in self.runs]
        names = [name for name in catalogue("analyses") if any(each[name] is None for each in applies)]
        path, here = f"/runs/{quote(self.run.id)}/inside", self._here
        blocks = [
            f"<h2>Measurements</h2><div class='line'>{button(path, 'Measure all that apply', **here)}</div>"
            f"{command(f'isthmus analyze {self.run.id}')}"
        ]
        for name in names:
            columns = "".join(self._column(run, each[name], name) for run, each in zip(self.runs, applies, strict=True))
            compare, (title, measured) = "", title_of(name)
            if "against" in inspect.signature(find("analyses", name).of_run).parameters:
                compare = button(path, "Compare with its untrained network", analysis=name, against="untrained", **here)
                if self.other is not None:
                    named = f"Compare with {self.other.id[:8]}"
                    compare += button(path, named, analysis=name, against=self.other.id, **here)
            blocks.append(
                f"<section><h3>{escape(title)}</h3><p class='note'>{escape(measured)}</p>"
                f"<div class='line'>{compare}</div><div class='pair'>{columns}</div></section>"
            )
        missing = [
            [escape(name), escape(applies[0][name] or "")]
            for name in catalogue("analyses")
            if applies[0][name] is not None
        ]
        if missing:
            shown = table("Analyses that do not apply", ["Analysis", "Reason"], missing)
            blocks.append(f"<details><summary>{len(missing)} do not apply to this run</summary>{shown}</details>")
        return "".join(blocks)

    def _column(self, run: Run, reason: str | None, name: str) -> str:
        head = f"<p class='quiet'>run {run.id[:8]}</p>" if self.other else ""
        if reason is not None:
            return f"<div>{head}<p>It does not apply: {escape(reason)}</p></div>"
        found = _read(run, name)
        pictures = _pictures(run, name)
        if not found and not pictures:
            act = button(f"/runs/{quote(run.id)}/inside", "Measure", analysis=name, **self._here)
            return f"<div>{head}{act}</div>"
        shown = "".join(
            f"<figure><img src='/runs/{quote(run.id)}/analysis/{file}' alt='{escape(name)} of run {run.id[:8]}' "
            "loading='lazy'></figure>"
            for file in pictures
        )
        rows = [[escape(str(title)), _show(value)] for title, value in found.items()]
        numbers = table(f"{name} of run {run.id[:8]}", ["Measured", "Value"], rows, (1,)) if rows else ""
        return f"<div>{head}{numbers}{shown}</div>"


def _reasons(run: Run) -> dict[str, str | None]:
    assert run.record is not None  # only finished runs are looked into
    return reasons(run.folder, run.record.task)


def _lines(run: Run) -> list[dict[str, Any]]:
    try:
        return read_metrics(run.folder)
    except UserError:
        return []


def _pictures(run: Run, name: str) -> list[str]:
    """The figures of an analysis: NAME.png and NAME-PART.png."""
    wanted = re.compile(rf"{re.escape(name)}(-[\w-]+)?\.png")
    place = run.folder / "analysis"
    return sorted(path.name for path in place.glob(f"{name}*.png") if wanted.fullmatch(path.name))


def _read(run: Run, name: str) -> dict[str, Any]:
    """The few numbers of a stored measurement."""
    try:
        found = read_sealed(run.folder / "analysis" / f"{name}.json")
        return dict(find("analyses", name).summary(found))
    except (UserError, KeyError, TypeError, ValueError, IndexError):  # not measured, or by another version
        return {}


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    return escape(str(value))
