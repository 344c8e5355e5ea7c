"""`isthmus.runs`, `isthmus.report` and `isthmus.plot`: what run records show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import home
from isthmus.core.record import run_folders, select_runs
from isthmus.reports import write_report
from isthmus.reports.sections import gather
from isthmus.search.answer import ANSWER, Answer
from isthmus.studies.runs import COLUMNS, describe_run, list_runs

TITLE = "Shapes of residual networks"
KINDS = ("front", "curves", "gap")


def runs(what: Any = None) -> Any:
    """A DataFrame with one row per run, the newest first, finished or not.

    :param what: an answer of ``find`` or ``study``, a folder of runs, or ids (default: all runs).

    >>> import isthmus
    >>> known = isthmus.runs()
    >>> list(known.columns[:7])
    ['run', 'status', 'data', 'task', 'model', 'seed', 'params']

    Its rows select runs elsewhere: ``isthmus.report(known[known["data"] == "digits"])``.
    """
    import pandas

    lines = list_runs() if what is None else [describe_run(folder) for folder in select_runs(what)]
    frame = pandas.DataFrame(lines, columns=list(COLUMNS))
    whole = dict.fromkeys(("seed", "params"), "Int64") | dict.fromkeys(("validation", "test", "seconds"), float)
    return frame.astype(whole)


def report(
    what: Any = None, out: Path | str = "report", *, title: str | None = None, command: str = "isthmus.report"
) -> Path:
    """Write one self-contained page, with PNG and CSV files beside it; returns the path of the page.

    :param what: an answer of ``find`` or ``study``, a model of ``load`` or ``train``, ids or folders of runs, or rows
        of ``isthmus.runs()`` (default: all runs).
    :param out: the folder of the page.
    :param title: its headline.
    :param command: what the page names as its origin.

    >>> import isthmus
    >>> digits = {
    ...     "source": {"name": "digits"},
    ...     "task": {"name": "classification"},
    ...     "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 8, "depth": 1},
    ...     "train": {"epochs": 2},
    ... }
    >>> isthmus.report(isthmus.train(digits, {"threads": 1}, progress=False), "page").name
    'index.html'
    """
    if _is_answer(what) and title is None:
        return what.report(out)
    if what is None and not any(run_folders()):
        raise UserError("there are no runs yet; `isthmus find DATA` trains some")
    return write_report(select_runs(what), Path(out), title or TITLE, command, answers=_read_answers())


def _read_answers() -> list[dict[str, Any]]:
    """What `isthmus find` found, the latest last."""
    files = sorted((home() / "finds").glob(f"*/{ANSWER}"), key=lambda file: file.stat().st_mtime)
    return [Answer.read(file.parent).for_page() for file in files]


def plot(what: Any = None, kind: str | None = None) -> Any:
    """A Matplotlib figure of runs; ``plot(…).savefig("front.png")`` keeps it.

    :param what: as in ``isthmus.report``.
    :param kind: ``front`` (quality over size), ``curves`` (over epochs), or ``gap`` (the difference of two
        architectures at equal size). The default is ``curves`` for one run and ``front`` for several.

    >>> import isthmus
    >>> digits = {
    ...     "source": {"name": "digits"},
    ...     "task": {"name": "classification"},
    ...     "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 8, "depth": 1},
    ...     "train": {"epochs": 2},
    ... }
    >>> isthmus.plot(isthmus.train(digits, {"threads": 1}, progress=False))
    <Picture size 1100x440 with 2 Axes>
    """
    from isthmus.reports.pictures import draw_curves, draw_front, draw_gap, has_gap

    if kind is not None and kind not in KINDS:
        raise UserError(f"there is no plot {kind!r}; {nearest(kind, KINDS)}")
    if _is_answer(what) and kind in (None, "front"):
        return what.plot()
    folders = select_runs(what)
    sections = gather(folders)[0]
    if kind == "curves" or (kind is None and len(folders) == 1):
        return draw_curves(sections)
    if kind == "gap" and not has_gap(sections):
        raise UserError(
            "these runs have no two architectures of overlapping sizes, so there is no gap; use kind='front'"
        )
    return draw_gap(sections) if kind == "gap" else draw_front(sections)


def _is_answer(what: Any) -> bool:
    """Whether it is of ``find`` or ``study``, which draw and report themselves."""
    return hasattr(what, "run_ids") and hasattr(what, "report")
