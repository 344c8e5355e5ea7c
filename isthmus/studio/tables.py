"""Tables of runs and boxes of commands, which several pages show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from isthmus.core.titles import model_title
from isthmus.reports.markup import shorten
from isthmus.reports.sections import name_problem
from isthmus.reports.text import magnitude, metric_noun, quantity
from isthmus.studio.commands import find_commands
from isthmus.studio.contents import Studio
from isthmus.studio.figures import find_objective
from isthmus.studio.index import Run
from isthmus.studio.jobs import Job
from isthmus.studio.layout import button, command, link, moment, show_clock, table

ROWS = 50
"""Runs in one table."""
_SAID = 40
"""Lines of a command's output that are shown."""

HIDDEN = (
    "<p class='note'>The state is not known: the database of the study cannot be read here, and another machine may be "
    "training. The command of the study resumes it.</p>"
)


def run_link(run: Run | str) -> str:
    identity = run if isinstance(run, str) else run.id
    return f'<a href="/runs/{quote(identity)}"><code>{escape(identity[:8])}</code></a>'


def run_title(run: Run) -> str:
    return name_problem(run.config) if run.config else "damaged run"


def network_title(run: Run) -> str:
    return shorten(model_title(run.config["model"]), 60) if run.config else "–"


def wrapped(content: str) -> str:
    """Part of a table that may break into lines."""
    return f"<span class='wrapped'>{content}</span>"


def run_state(run: Run, workers: Mapping[str, str]) -> str:
    if run.damage:
        return "damaged"
    if run.record:
        return run.record.status
    if run.id in workers:
        return "training"
    return "not known" if run.has_hidden_leases else "stopped"


def run_quality(run: Run, split: str) -> str:
    value = run.record.quality(split) if run.record else None
    if value is not None and run.record:
        return _label_value(run.record.objective, value)
    line = run.log.last("validation") if split == "validation" and not run.has_ended else None
    if line is None:
        return "–"
    metric = find_objective(run.config, run.log.lines)
    return _label_value(metric, line[metric]) if metric in line else "–"


def _label_value(metric: str, value: float) -> str:
    """A value with its metric, which a narrow window puts above it."""
    return f"<span class='measured'><span>{escape(metric_noun(metric))}</span> {quantity(value, metric)}</span>"


def run_progress(run: Run) -> str:
    """How far an unfinished run is."""
    last = run.log.lines[-1]["epoch"] if run.log.lines else 0
    total = run.epochs
    if not total or not isinstance(last, int | float):
        return "–"
    share = min(1.0, last / total)
    label = f"epoch {round(last, 1):g} of {total:g}"
    return f'<progress max="1" value="{share:.3f}" aria-label="{label}"></progress> {label}'


def runs_table(runs: Sequence[Run], workers: Mapping[str, str], caption: str) -> str:
    heads = ["Run", "Network", "Validation", "Test", "Parameters", "Task and data", "Seed", "Changed"]
    rows = [
        [
            f"{run_link(run)}<span class='state'>{run_state(run, workers)}</span>",
            wrapped(network_title(run)),
            run_quality(run, "validation"),
            run_quality(run, "test"),
            magnitude(run.record.cost["params"]) if run.record and "params" in run.record.cost else "–",
            wrapped(
                f'<a href="/problems/{run.problem}">{shorten(run_title(run), 60)}</a>'
                if run.problem
                else escape(run_title(run))
            ),
            escape(str(run.config.get("seed", "–"))),
            moment(run.changed),
        ]
        for run in runs
    ]
    return table(caption, heads, rows, (4,), lesser=(6, 7), least=(3, 4))


def at_work_table(runs: Sequence[Run], workers: Mapping[str, str]) -> str:
    """Who trains what, and since when."""
    rows = [
        [
            run_link(run),
            wrapped(network_title(run)),
            run_quality(run, "validation"),
            run_progress(run),
            show_clock("since", began, "") if (began := _find_beginning(run)) else "–",
            escape(workers[run.id]),
        ]
        for run in runs
    ]
    heads = ["Run", "Network", "Validation", "Progress", "Training for", "By"]
    return table("Runs at work", heads, rows, least=(4, 5))


def _find_beginning(run: Run) -> float:
    """When the training began or was resumed: each line of the log has the seconds since then."""
    line = run.log.lines[-1] if run.log.lines else {}
    seconds = line.get("seconds")
    return run.log.written - seconds if isinstance(seconds, int | float) else 0.0


def job_box(studio: Studio, job: Job, *, show_output: bool = True) -> str:
    """A command that the studio started, with what it said and the buttons to pause or resume it."""
    jobs = studio.jobs
    is_running, code = jobs.is_running(job), jobs.code(job)
    if is_running:
        left = f", {show_clock('until', job.ends, '')} left" if job.ends and not job.asked_to_stop else ""
        state = f"{'pausing, saving its state' if job.asked_to_stop else 'at work'} for "
        state += show_clock("since", job.started, "") + left
        act = button(f"/jobs/{job.id}/stop", "Stop now" if job.asked_to_stop else "Pause")
    else:
        failed = code not in (None, 0) and not job.asked_to_stop
        state = "failed" if failed else "paused" if job.asked_to_stop else "ended"
        act = button(f"/jobs/{job.id}/resume", "Resume" if failed or job.asked_to_stop else "Run again")
    said = jobs.said(job)[-_SAID:] if show_output else []
    output = f"<details><summary>What it said</summary><pre tabindex='0'>{escape(chr(10).join(said))}</pre></details>"
    last = f"<p class='error' role='alert'>{escape(said[-1])}</p>" if said and not is_running and code else ""
    return (
        f"<div class='job'><div class='line'><span><b>{link(job_path(job), job.title)}</b>: {state}</span> {act}</div>"
        f"{last}{command(job.command)}{output if said else ''}</div>"
    )


def command_boxes(studio: Studio, runs: Sequence[Run], workers: Mapping[str, str], page: str) -> str:
    """The commands of terminals that train these runs, each with a button; empty if the studio started them."""
    if not workers:
        return ""
    ours = {job.pid for job in studio.jobs.newest() if studio.jobs.is_running(job)}
    commands = find_commands(run for run in runs if run.id in workers)
    if any(each.pid in ours for each in commands):
        return ""
    boxes = "".join(
        f"<div class='job'><div class='line'><span>At work in a terminal</span> "
        f"{button('/commands/pause', 'Pause', pid=str(each.pid), page=page)}</div>{command(each.text)}</div>"
        for each in commands
    )
    here = "<p class='note'>Started elsewhere: stop it where it was started, with Ctrl-C.</p>"
    return boxes or here


def job_path(job: Job) -> str:
    if "run" in job.facts:
        return f"/runs/{quote(job.facts['run'])}"
    if "inside" in job.facts:
        return f"/runs/{quote(job.facts['inside'])}/inside"
    if "study" in job.facts:
        return f"/studies/{quote(job.facts['study'])}"
    return f"/problems/{job.problem}" if job.problem else "/"
