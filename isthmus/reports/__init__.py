"""Records become tables, figures and one page. Reads records only and needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isthmus.core.files import make_folder, write_text, write_with
from isthmus.reports.tables import table

__all__ = ["table", "write_report"]


def write_report(
    folders_or_records: Sequence[Path],
    out: Path,
    title: str,
    command: str = "",
    published: Sequence[str] = (),
    costs: Mapping[str, Mapping[str, float]] | None = None,
    quality: str | None = None,
) -> Path:
    """Write ``index.html``, ``front.png``, ``curves.png``, ``candidates.csv`` and ``runs.csv``; returns the page.
    Where two architectures were tried in a common range, ``gap.png`` too.

    Each path is a run folder, its ``record.json``, or a folder of run folders. ``command`` is what re-creates the runs.
    ``published`` names papers' tables, such as ``hourglass/T8``, to be drawn over the fronts of the same task; without
    any, those of the same data and task are. ``costs`` maps further costs, such as latency, to values of run ids.
    ``quality`` is the metric to compare by; without it, the task's objective.
    """
    from isthmus.reports.drawing import curves_png, front_png, gap_png, has_gap
    from isthmus.reports.page import page
    from isthmus.reports.sections import gather
    from isthmus.reports.tables import candidates_csv, runs_csv

    sections, unfinished = gather(folders_or_records, published, costs, quality)
    text = page(sections, unfinished, title, command, published)  # first: a damaged picture leaves no half of a report
    make_folder(out)
    write_with(out / "front.png", lambda path: front_png(sections, path))
    write_with(out / "curves.png", lambda path: curves_png(sections, path))
    if has_gap(sections):
        write_with(out / "gap.png", lambda path: gap_png(sections, path))
    else:
        (out / "gap.png").unlink(missing_ok=True)  # of an earlier report: it would say what this one does not
    write_text(out / "candidates.csv", candidates_csv(sections))
    write_text(out / "runs.csv", runs_csv(sections))
    write_text(out / "index.html", text)
    return out / "index.html"
