"""The pages of several runs: those of one problem, and those of a study."""

from __future__ import annotations

import json
import statistics
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from isthmus.core.titles import model_title
from isthmus.reports import with_answer
from isthmus.reports.figures import front_figure
from isthmus.reports.markup import count, shorten
from isthmus.reports.plots import plotly_front
from isthmus.reports.recommendation import recommend
from isthmus.reports.sections import Run as ReportRun
from isthmus.reports.sections import Section, read_setting, varying_settings
from isthmus.reports.text import duration, magnitude, metric_title, quantity, with_spread
from isthmus.studies.fronts import COSTS, Candidate, is_refit, judge_by, summarise
from isthmus.studio.contents import Missing, Studio
from isthmus.studio.figures import draw_volume
from isthmus.studio.index import Run, Study
from isthmus.studio.jobs import Job
from isthmus.studio.layout import REST, Figure, Part, View, button, table
from isthmus.studio.tables import (
    HIDDEN,
    ROWS,
    at_work_table,
    command_boxes,
    job_box,
    run_link,
    run_title,
    runs_table,
    wrapped,
)

_LEADERS = 12


class Listed:
    """The runs of a page, and what is counted of them until one is added or ends."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.number = len(runs)
        self.ended = [run for run in runs if run.has_ended]
        self.open = [run for run in runs if not run.has_ended]
        self.damaged = sum(bool(run.damage) for run in runs)
        records = [run.record for run in self.ended if run.record]
        self.failed = sum(record.status == "failed" for record in records)
        self.mean_seconds = statistics.fmean(record.wall_seconds for record in records) if records else None


class Group(View):
    """Runs of the same data and task: the front so far, what is at work, and the best networks.

    A new line of a log changes what is said of open runs. Only a run that is added or ends makes the page list all of
    them again. Figures follow with a delay in proportion to what they cost.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._listed, self._revision = Listed([]), -1
        self._results, self._drawn, self._due = dict[str, Part](), -1, 0.0
        self._shown: Any = None

    @abstractmethod
    def runs(self) -> list[Run]: ...

    @abstractmethod
    def head(self, listed: Listed, workers: Mapping[str, str]) -> str:
        """What stands above everything else."""

    def basis(self) -> Any:
        """Differs when the figures change although no run ended."""
        return len(self.studio.index.answers)

    def stamp(self) -> float:
        """Make the figures again if they changed and are due; returns when they are due next."""
        revision = self.studio.index.revision
        if revision != self._drawn and time.monotonic() >= self._due:
            began, self._drawn = time.thread_time(), revision
            shown = self._list().ended, self.basis()
            if shown != self._shown:
                self._results, self._shown = self._draw(shown[0]), shown
            self._due = time.monotonic() + REST * (time.thread_time() - began)
        return self._due

    def _list(self) -> Listed:
        revision = self.studio.index.revision
        if revision != self._revision:
            self._listed, self._revision = Listed(self.runs()), revision
        return self._listed

    def section(self, runs: Sequence[Run]) -> Section | None:
        """The ended runs, of the data as they are now, as the report sees them."""
        section = make_section(runs)
        return section and with_answer(section, [each.for_page() for each, _ in reversed(self.studio.index.answers)])

    def parts(self) -> dict[str, Part]:
        self.stamp()
        listed = self._list()
        workers = self.studio.index.find_workers(listed.open)
        return {
            "head": self.head(listed, workers),
            "work": self._work(listed.open, workers),
            **self._results,
            "stopped": self._list_stopped([run for run in listed.open if run.id not in workers], workers),
        }

    def _work(self, open_runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        training = [run for run in open_runs if run.id in workers]
        return f"<h2>At work</h2>{at_work_table(training, workers)}" if training else ""

    def _list_stopped(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        if not runs:
            return ""
        hidden = sum(run.has_hidden_leases for run in runs)
        kinds = [count(len(runs) - hidden, "stopped run")] * (hidden < len(runs))
        kinds += [f"{count(hidden, 'run')} whose state is not known"] * bool(hidden)
        shown = runs_table(runs[:ROWS], workers, "Runs that are not at work")
        return f"<details><summary>{', '.join(kinds)}</summary>{HIDDEN * bool(hidden)}{shown}</details>"

    def _draw(self, ended: Sequence[Run]) -> dict[str, Part]:
        section = self.section(ended)
        front = volume = None
        answer = leaders = ""
        if section is not None and section.candidates:
            front = plotly_front(front_figure(section))
            volume = draw_volume([run.record for run in section.runs])
            leaders = leaders_table(section)
        if section is not None and section.found:
            answer = f"<h2 class='unseen'>Answer</h2><div class='answer-box'>{recommend(section)}</div>"
            best = quote(section.found["best"]["run"])
            answer += f'<p><a class="act strong" href="/runs/{best}">Open the recommended run</a></p>'
        front_note = (
            "Lines: the front of each architecture, chosen on validation data; values are on test data. "
            "Faint: other networks. Error bars: 1 σ over runs."
        )
        volume_note = (
            "The area that the networks found so far dominate: better and smaller networks make it larger. Measured on "
            "validation data, from the largest network and the worst quality. A network counts with the mean of its "
            "runs, so that further seeds may make the area smaller; the line then stays at the largest so far. What a "
            "search does before its first run and after its last one is not on it."
        )
        return {
            "answer": answer,
            "front": Figure("Quality over size", front, front_note),
            "volume": Figure("Hypervolume over time", volume, volume_note),
            "leaders": leaders,
        }


def make_section(
    runs: Sequence[Run], quality: str | None = None, costs: Mapping[str, Mapping[str, float]] | None = None
) -> Section | None:
    """The ended runs on the data and with the objective of the latest one, and those trained on all its rows."""
    known = [(run, run.record) for run in runs if run.record is not None]
    if not known:
        return None
    # The recommended network is trained without validation rows, so that its data have another fingerprint.
    latest = max(known, key=lambda pair: (not is_refit(pair[1]), pair[0].changed))[1]
    alike = [pair for pair in known if pair[1].fingerprint == latest.fingerprint]
    began = min(run.changed for run, _ in alike)
    refits = [
        pair
        for pair in known
        if pair[1].fingerprint != latest.fingerprint and is_refit(pair[1]) and pair[0].changed >= began
    ]
    ours = [
        ReportRun(run.folder, judge_by(record, quality or record.objective))
        for run, record in [*alike, *refits]
        if record.objective == latest.objective
    ]
    return Section(tuple(ours), tuple(summarise((run.record for run in ours), costs)))


def leaders_table(section: Section) -> str:
    """The best networks on validation data, each as the settings trained it that were best."""
    sign = -1 if section.first.maximise else 1
    networks = defaultdict[str, list[Candidate]](list)
    for each in sorted(section.candidates, key=lambda each: (sign * each.validation, each.params)):
        networks[json.dumps(each.settings["model"], sort_keys=True)].append(each)
    leaders = list(networks.values())[:_LEADERS]
    titles = _title_networks([tried[0] for tried in leaders])
    names = (name for tried in leaders for name in varying_settings(tried))
    varied = dict.fromkeys(name for name in names if not name.startswith("model."))
    metric = section.objective
    rows = [
        [
            "●" if each.run_ids in section.front_ids else "",
            wrapped(shorten(title, 60)),
            magnitude(each.params),
            quantity(each.validation, metric),
            with_spread(each.mean, each.std, metric),
            wrapped(_describe_training(each, varied, 1 + len(others))),
            str(len(each.run_ids)),
            run_link(section.best_of(each).record.id),
        ]
        for title, (each, *others) in zip(titles, leaders, strict=True)
    ]
    noun = metric_title(metric)
    heads = ["Front", "Network", "Parameters", f"Validation {noun}", f"Test {noun}", "Trained with", "Runs", "Best run"]
    return (
        f"<h2>Best networks</h2>{table('Best networks on validation data', heads, rows, (2, 3, 4, 6), least=(4, 5, 6))}"
    )


def _title_networks(networks: Sequence[Candidate]) -> list[str]:
    """Titles that tell networks apart: one that several share names the fields in which these differ."""
    alike = defaultdict[str, list[Candidate]](list)
    for each in networks:
        alike[model_title(each.settings["model"])].append(each)
    models = [
        (each.settings["model"], varying_settings(alike[model_title(each.settings["model"])])) for each in networks
    ]
    return [model_title(model, (name.removeprefix("model.") for name in names)) for model, names in models]


def _describe_training(candidate: Candidate, names: Iterable[str], tried: int) -> str:
    """The settings that trained a network, such as ``learning rate 0.01, weight decay 0.1, best of 3``."""
    values: dict[str, Any] = {"learning rate": candidate.learning_rate}
    values |= {name.rpartition(".")[2].replace("_", " "): read_setting(candidate, name) for name in names}
    told = [
        f"{name} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in values.items()
        if value != ""
    ]
    return escape(", ".join(told + [f"best of {tried}"] * (tried > 1)))


def counts(listed: Listed, workers: Mapping[str, str]) -> str:
    parts = [f"{len(listed.ended):,} of {count(listed.number, 'run')} ended", f"{len(workers)} at work"]
    hidden = sum(run.has_hidden_leases and run.id not in workers for run in listed.open)
    parts += [f"{hidden} not known"] * bool(hidden)
    parts += [f"{listed.failed} failed"] * bool(listed.failed) + [f"{listed.damaged} damaged"] * bool(listed.damaged)
    return f'<p role="status">{", ".join(parts)}</p>'


class ProblemPage(Group):
    """The runs on the same data for the same task, whoever trains them."""

    def __init__(self, studio: Studio, key: str) -> None:
        super().__init__(studio)
        self.key = key
        studio.index.read_all()
        runs, jobs = self.runs(), self.jobs
        if not runs and not jobs:
            raise Missing
        self.title = run_title(runs[0]) if runs else jobs[0].title.removeprefix("search: ")

    @property
    def jobs(self) -> list[Job]:
        return [job for job in self.studio.jobs.newest() if job.problem == self.key]

    def runs(self) -> list[Run]:
        return self.studio.index.of_problem(self.key)

    def head(self, listed: Listed, workers: Mapping[str, str]) -> str:
        boxes = "".join(job_box(self.studio, job) for job in self.jobs[:3])
        elsewhere = command_boxes(self.studio, listed.open, workers, f"/problems/{self.key}")
        report = f'<p><a href="/problems/{self.key}/report">Full report of the ended runs</a></p>'
        report *= bool(listed.number)
        return counts(listed, workers) + boxes + elsewhere + report


class StudyPage(Group):
    """The runs of a study."""

    def __init__(self, studio: Studio, name: str) -> None:
        super().__init__(studio)
        self.name = studio.study(name).name
        self.title = f"Study {name}"

    @property
    def study(self) -> Study:
        return self.studio.study(self.name)

    def runs(self) -> list[Run]:
        wanted = set(self.study.run_ids)
        return [run for run in self.studio.index.newest() if run.id in wanted]

    def basis(self) -> Any:
        return super().basis(), self.study.changed

    def section(self, runs: Sequence[Run]) -> Section | None:
        config, trials = self.study.content["config"], self.study.content["trials"]
        cost = config.get("cost", "params")
        known = {run: trial["cost"] for trial in trials for run in trial["runs"]}
        return make_section(runs, config.get("quality"), None if cost in COSTS else {cost: known})

    def head(self, listed: Listed, workers: Mapping[str, str]) -> str:
        states = self.study.states
        kinds = {state: states.count(state) for state in ("finished", "pruned", "failed", "open")}
        said = ", ".join(f"{number} {state}" for state, number in kinds.items() if number)
        jobs = [job for job in self.studio.jobs.newest() if job.facts.get("study") == self.name]
        running = any(self.studio.jobs.is_running(job) for job in jobs)
        boxes = "".join(job_box(self.studio, job) for job in jobs[:1])
        has_own_database = (self.studio.index.home / "studies" / self.name / "study.db").is_file()
        hidden = any(run.has_hidden_leases for run in listed.open)
        if not workers and not running and "open" in states and has_own_database and not hidden and not jobs:
            resume = button(f"/studies/{quote(self.name)}/resume", "Resume")
            boxes += f"<div class='line'>Nobody is at work. {resume}</div>"
        boxes += command_boxes(self.studio, listed.open, workers, f"/studies/{quote(self.name)}")
        return f"<p>Candidates: {said or 'none yet'}.</p>{counts(listed, workers)}{self._left(listed, workers)}{boxes}"

    def _left(self, listed: Listed, workers: Mapping[str, str]) -> str:
        """The time left for the runs of the candidates that are known, by the mean of those that ended."""
        left = len(set(self.study.content.get("needs", ())) - {run.id for run in listed.ended})
        if not workers or listed.mean_seconds is None or not left:
            return ""
        estimate = left * listed.mean_seconds / len(workers)
        return f"<p>{count(left, 'run')} of the known candidates left: about {duration(estimate)}.</p>"
