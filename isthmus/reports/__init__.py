"""Records become tables, figures and one page. Reads records only and needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isthmus.files import make_folder, write_text, write_with
from isthmus.reports.tables import table

__all__ = ["table", "write_report"]


def write_report(folders_or_records: Sequence[Path], out: Path, title: str, command: str = "") -> Path:
    """Write ``index.html``, ``front.png``, ``curves.png``, ``candidates.csv`` and ``runs.csv``; returns the page.

    Each path is a run folder, its ``record.json``, or a folder of run folders. ``command`` is what re-creates the runs.
    """
    from isthmus.reports.drawing import curves_png, front_png
    from isthmus.reports.page import page
    from isthmus.reports.sections import gather
    from isthmus.reports.tables import candidates_csv, runs_csv

    sections, unfinished = gather(folders_or_records)
    text = page(sections, unfinished, title, command)  # first: a damaged picture leaves no half of a report
    make_folder(out)
    write_with(out / "front.png", lambda path: front_png(sections, path))
    write_with(out / "curves.png", lambda path: curves_png(sections, path))
    write_text(out / "candidates.csv", candidates_csv(sections))
    write_text(out / "runs.csv", runs_csv(sections))
    write_text(out / "index.html", text)
    return out / "index.html"
