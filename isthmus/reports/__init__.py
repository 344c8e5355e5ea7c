"""Reads run records and writes tables, figures and one HTML page. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.files import make_folder, write_text, write_with
from isthmus.reports.sections import Section
from isthmus.reports.tables import table
from isthmus.studies.fronts import Candidate

__all__ = ["table", "write_report"]


def write_report(
    paths: Sequence[Path],
    out: Path,
    title: str,
    command: str = "",
    published: Sequence[str] = (),
    costs: Mapping[str, Mapping[str, float]] | None = None,
    quality: str | None = None,
    answers: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    versions: Sequence[Candidate] = (),
) -> Path:
    """Write ``index.html``, ``front.png``, ``curves.png``, ``candidates.csv`` and ``runs.csv``; returns the page.

    ``gap.png`` is added if two architectures share a range of costs. Each path is a run folder, its ``record.json``, or
    a folder of run folders. ``command`` re-creates the runs. ``published`` names tables of papers, such as
    ``hourglass/T8``, to draw over fronts of the same task (default: tables of the same data and task). ``costs`` maps
    further costs, such as latency, to values by run id. ``quality`` is the metric to compare by (default: the task's
    objective). ``answers`` are what searches found, with their ``sentences`` and ``commands``; the section with
    the runs of a search begins with its answer. ``notes`` are sentences about the whole study.
    ``versions`` are candidates with int8 weights, which ``int8.csv`` lists.
    """
    from isthmus.reports.page import page
    from isthmus.reports.pictures import draw_curves, draw_front, draw_gap, has_gap, save
    from isthmus.reports.sections import gather
    from isthmus.reports.tables import candidates_csv, runs_csv, versions_csv

    sections, unfinished = gather(paths, published, costs, quality, versions)
    sections = [with_answer(section, answers) for section in sections]
    # First, so that nothing is written if an input is damaged.
    text = page(sections, unfinished, title, command, published, notes)
    make_folder(out)
    write_with(out / "front.png", lambda path: save(draw_front(sections), path))
    write_with(out / "curves.png", lambda path: save(draw_curves(sections), path))
    compared = [section for section in sections if not section.found]
    if has_gap(compared):
        write_with(out / "gap.png", lambda path: save(draw_gap(compared), path))
    else:
        (out / "gap.png").unlink(missing_ok=True)  # left by an earlier report
    write_text(out / "candidates.csv", candidates_csv(sections))
    write_text(out / "runs.csv", runs_csv(sections))
    if versions:
        write_text(out / "int8.csv", versions_csv(sections))
    else:
        (out / "int8.csv").unlink(missing_ok=True)
    write_text(out / "index.html", text)
    return out / "index.html"


def with_answer(section: Section, answers: Sequence[Mapping[str, Any]]) -> Section:
    """The section with the last answer whose recommended run it has."""
    ours = [answer for answer in answers if answer["best"]["run"] in section.by_id]
    if not ours:
        return section
    known = {each["title"]: each["test"] for each in ours[-1]["references"] if math.isfinite(each["test"])}
    return replace(section, found=ours[-1], references=known)
