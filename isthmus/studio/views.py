"""The pages that follow records: home, the runs of one problem, a study, a run."""

from __future__ import annotations

import json
import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from isthmus.core.errors import UserError
from isthmus.core.record import SAMPLES, read_metrics
from isthmus.core.registry import model_title
from isthmus.reports import with_answer
from isthmus.reports.drawing import draw_network
from isthmus.reports.figures import front_figure
from isthmus.reports.markup import copy_button, count, shorten
from isthmus.reports.plots import plotly_front
from isthmus.reports.recommendation import recommend
from isthmus.reports.sections import Run as ReportRun
from isthmus.reports.sections import Section, name_problem
from isthmus.reports.text import duration, magnitude, metric_noun, metric_title, quantity, with_spread
from isthmus.studies.fronts import COSTS, judge_by, summarise
from isthmus.studio.figures import draw_log, draw_volume, guess_objective
from isthmus.studio.index import Index, Run, Study
from isthmus.studio.jobs import Job, Jobs
from isthmus.studio.layout import Figure, Part, View, button, command, facts, link, moment, show_clock, table
from isthmus.studio.opened import Opened, Shelf
from isthmus.studio.start import Plans

_ROWS = 50
"""Runs on one page."""
_LEADERS = 12
_SAID = 40
"""Lines of a command's output that are shown."""


class Missing(Exception):
    """There is no such page."""


@dataclass
class Studio:
    """What all pages read."""

    index: Index
    jobs: Jobs
    shelf: Shelf
    plans: Plans

    def run(self, identity: str) -> Run:
        if identity not in self.index.runs:
            self.index.update()  # it may be new
        if identity not in self.index.runs:
            raise Missing
        return self.index.runs[identity]

    def study(self, name: str) -> Study:
        found = self.index.studies.get(name)
        if found is None:
            raise Missing
        return found

    def find_opened(self, identity: str) -> Opened:
        found = self.shelf.find(identity)
        if found is None:
            raise Missing
        return found

    def stamp(self) -> tuple[Any, ...]:
        """Differs when something changed that a page may show."""
        jobs = self.jobs.newest()
        states = tuple((job.id, job.started, job.asked_to_stop, self.jobs.is_running(job)) for job in jobs)
        return self.index.version, states


def run_link(run: Run | str) -> str:
    identity = run if isinstance(run, str) else run.id
    return f'<a href="/runs/{quote(identity)}"><code>{escape(identity[:8])}</code></a>'


def _title(run: Run) -> str:
    return name_problem(run.config) if run.config else "damaged run"


def _network(run: Run) -> str:
    return shorten(model_title(run.config["model"]), 60) if run.config else "–"


def _state(run: Run, workers: Mapping[str, str]) -> str:
    if run.damage:
        return "damaged"
    if run.record:
        return run.record.status
    return "training" if run.id in workers else "stopped"


def _quality(run: Run, split: str) -> str:
    value = run.record.quality(split) if run.record else None
    if value is not None and run.record:
        return f"{escape(metric_noun(run.record.objective))} {quantity(value, run.record.objective)}"
    line = run.log.last("validation") if split == "validation" and not run.has_ended else None
    if line is None:
        return "–"
    metric = guess_objective(run.log.lines)
    return f"{escape(metric_noun(metric))} {quantity(line[metric], metric)}" if metric in line else "–"


def _progress(run: Run) -> str:
    """How far an unfinished run is."""
    last = run.log.lines[-1]["epoch"] if run.log.lines else 0
    total = run.epochs
    if not total or not isinstance(last, int | float):
        return "–"
    share = min(1.0, last / total)
    label = f"epoch {last:g} of {total:g}"
    return f'<progress max="1" value="{share:.3f}" aria-label="{label}"></progress> {label}'


def runs_table(runs: Sequence[Run], workers: Mapping[str, str], caption: str) -> str:
    heads = ["Run", "State", "Task and data", "Network", "Seed", "Parameters", "Validation", "Test", "Changed"]
    rows = [
        [
            run_link(run),
            _state(run, workers),
            f'<a href="/problems/{run.problem}">{shorten(_title(run), 60)}</a>' if run.problem else escape(_title(run)),
            _network(run),
            escape(str(run.config.get("seed", "–"))),
            magnitude(run.record.cost["params"]) if run.record and "params" in run.record.cost else "–",
            _quality(run, "validation"),
            _quality(run, "test"),
            moment(run.changed),
        ]
        for run in runs
    ]
    return table(caption, heads, rows, (5,))


def at_work_table(runs: Sequence[Run], workers: Mapping[str, str]) -> str:
    """Who trains what, and since when."""
    rows = [
        [
            run_link(run),
            _network(run),
            _progress(run),
            _quality(run, "validation"),
            show_clock("since", began, "") if (began := _find_beginning(run)) else "–",
            escape(workers[run.id]),
        ]
        for run in runs
    ]
    heads = ["Run", "Network", "Progress", "Validation", "Training for", "By"]
    return table("Runs at work", heads, rows)


def _find_beginning(run: Run) -> float:
    """When the training began or was resumed: each line of the log has the seconds since then."""
    line = run.log.lines[-1] if run.log.lines else {}
    seconds = line.get("seconds")
    return run.log.written - seconds if isinstance(seconds, int | float) else 0.0


def job_box(studio: Studio, job: Job, *, show_output: bool = True) -> str:
    """A command that the studio started, with what it said and the buttons to stop or resume it."""
    jobs = studio.jobs
    is_running, code = jobs.is_running(job), jobs.code(job)
    if is_running:
        left = f", {show_clock('until', job.started + job.seconds, '')} left" if job.seconds else ""
        state = f"{'stopping, saving its state' if job.asked_to_stop else 'at work'} for "
        state += show_clock("since", job.started, "") + left
        act = button(f"/jobs/{job.id}/stop", "End now" if job.asked_to_stop else "Stop and save")
    else:
        failed = code not in (None, 0) and not job.asked_to_stop
        state = "failed" if failed else "stopped" if job.asked_to_stop else "ended"
        act = button(f"/jobs/{job.id}/resume", "Resume" if failed or job.asked_to_stop else "Run again")
    said = jobs.said(job)[-_SAID:] if show_output else []
    output = f"<details><summary>What it said</summary><pre tabindex='0'>{escape(chr(10).join(said))}</pre></details>"
    last = f"<p class='error' role='alert'>{escape(said[-1])}</p>" if said and not is_running and code else ""
    return (
        f"<div class='job'><div class='line'><span><b>{link(job_path(job), job.title)}</b>: {state}</span> {act}</div>"
        f"{last}{command(job.command)}{output if said else ''}</div>"
    )


class Home(View):
    """Everything at a glance: what is at work, what searches and studies found, and the runs, the newest first."""

    title = "Isthmus Studio"

    def __init__(self, studio: Studio, page: int = 1, words: str = "") -> None:
        self.studio, self.number, self.words = studio, max(1, page), words.strip()[:200]

    def parts(self) -> dict[str, Part]:
        index = self.studio.index
        open_runs = index.open_runs()
        workers = index.find_workers(open_runs[:_ROWS])
        return {
            "now": self._now(open_runs, workers),
            "searches": self._searches(),
            "studies": self._studies(),
            "runs": self._runs(workers),
        }

    def _now(self, open_runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        jobs = [job for job in self.studio.jobs.newest() if self.studio.jobs.is_running(job)]
        training = [run for run in open_runs if run.id in workers]
        if not jobs and not training:
            return (
                "<p class='lead'>Nothing is at work. <a class='act strong' href='/start'>Start a search</a> "
                "<a class='act' href='/design'>Design a network</a></p>"
            )
        boxes = "".join(job_box(self.studio, job, show_output=False) for job in jobs)
        problems = dict.fromkeys((run.problem, _title(run)) for run in training if run.problem)
        links = "".join(f"<li>{link(f'/problems/{key}', title)}</li>" for key, title in problems)
        shown = at_work_table(training, workers) if training else ""
        return f"<h2>At work</h2>{boxes}<ul class='facts'>{links}</ul>{shown}"

    def _searches(self) -> str:
        rows = []
        for answer, changed in self.studio.index.answers[:_ROWS]:
            content, best = answer.content, answer.content["best"]
            run = self.studio.index.runs.get(answer.run)
            title = _title(run) if run else answer.name
            value = quantity(best["mean"], content["objective"]) if best.get("mean") is not None else "–"
            rows.append(
                [
                    link(f"/problems/{run.problem}", title) if run and run.problem else escape(title),
                    shorten(best["title"], 70),
                    magnitude(best["params"]),
                    f"{escape(metric_noun(content['objective']))} {value}",
                    moment(changed),
                ]
            )
        if not rows:
            return ""
        heads = ["Task and data", "Recommended network", "Parameters", "Validation", "Found"]
        return f"<h2>Searches</h2>{table('Searches', heads, rows, (2,))}"

    def _studies(self) -> str:
        rows = []
        for study in sorted(self.studio.index.studies.values(), key=lambda study: -study.changed):
            states = study.states
            done = f"{sum(state != 'open' for state in states)} of {len(states)} candidates"
            rows.append([link(f"/studies/{quote(study.name)}", study.name), done, moment(study.changed)])
        return f"<h2>Studies</h2>{table('Studies', ['Study', 'Ended', 'Changed'], rows)}" if rows else ""

    def _runs(self, workers: Mapping[str, str]) -> str:
        runs = self.studio.index.newest()
        if self.words:
            wanted = self.words.lower().split()
            runs = [run for run in runs if all(word in _describe(run) for word in wanted)]
        pages = max(1, -(-len(runs) // _ROWS))
        number = min(self.number, pages)
        shown = runs[(number - 1) * _ROWS : number * _ROWS]
        box = (
            f'<form class="controls" role="search" action="/"><label>Find runs <input type="search" name="words" '
            f'value="{escape(self.words)}"></label> <button class="act">Find</button></form>'
        )
        if not runs:
            none = "No run has these words." if self.words else "There are no runs yet."
            return f"<h2>Runs</h2>{box}<p>{none}</p>"
        return (
            f"<h2>{count(len(runs), 'run')}</h2>{box}{runs_table(shown, workers, 'Runs, the newest first')}"
            f"{self._pager(number, pages)}"
        )

    def _pager(self, number: int, pages: int) -> str:
        if pages == 1:
            return ""

        def to(page: int, name: str) -> str:
            given = {"page": str(page)} | ({"words": self.words} if self.words else {})
            return link(f"/?{urlencode(given)}", name) if 1 <= page <= pages and page != number else name

        return (
            f'<nav aria-label="Pages of runs"><p>{to(1, "first")} · {to(number - 1, "newer")} · '
            f"page {number} of {pages} · {to(number + 1, 'older')} · {to(pages, 'last')}</p></nav>"
        )


def _describe(run: Run) -> str:
    """The words by which a run is found."""
    status = run.record.status if run.record else "damaged" if run.damage else "unfinished"
    return f"{run.id} {status} {_title(run)} {_network(run)}".lower()


def job_path(job: Job) -> str:
    if "run" in job.facts:
        return f"/runs/{quote(job.facts['run'])}"
    if "inside" in job.facts:
        return f"/runs/{quote(job.facts['inside'])}/inside"
    if "study" in job.facts:
        return f"/studies/{quote(job.facts['study'])}"
    return f"/problems/{job.problem}" if job.problem else "/"


class Group(View):
    """Runs of the same data and task: the front so far, what is at work, and the best networks."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._known: tuple[Any, dict[str, Part]] = (None, {})

    @abstractmethod
    def runs(self) -> list[Run]: ...

    @abstractmethod
    def head(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        """What stands above everything else."""

    def section(self, runs: Sequence[Run]) -> Section | None:
        """The ended runs, of the data as they are now, as the report sees them."""
        section = make_section(runs)
        return section and with_answer(section, [each.for_page() for each, _ in reversed(self.studio.index.answers)])

    def parts(self) -> dict[str, Part]:
        runs = self.runs()
        ended = [run for run in runs if run.has_ended]
        open_runs = [run for run in runs if not run.has_ended]
        workers = self.studio.index.find_workers(open_runs)
        key = (len(ended), max((run.changed for run in ended), default=0.0), len(self.studio.index.answers))
        if self._known[0] != key:  # figures change only when a run ends
            self._known = key, self._results(ended)
        return {
            "head": self.head(runs, workers),
            "work": self._work(open_runs, workers),
            **self._known[1],
            "stopped": self._list_stopped([run for run in open_runs if run.id not in workers], workers),
        }

    def _work(self, open_runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        training = [run for run in open_runs if run.id in workers]
        return f"<h2>At work</h2>{at_work_table(training, workers)}" if training else ""

    def _list_stopped(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        if not runs:
            return ""
        shown = runs_table(runs[:_ROWS], workers, "Stopped runs")
        return f"<details><summary>{count(len(runs), 'stopped run')}</summary>{shown}</details>"

    def _results(self, ended: Sequence[Run]) -> dict[str, Part]:
        section = self.section(ended)
        front = volume = None
        answer = leaders = ""
        if section is not None and section.candidates:
            front = plotly_front(front_figure(section))
            volume = draw_volume([run.record for run in section.runs])
            leaders = leaders_table(section)
        if section is not None and section.found:
            answer = f"<div class='answer-box'>{recommend(section)}</div>"
            best = quote(section.found["best"]["run"])
            answer += f'<p><a class="act strong" href="/runs/{best}">Open the recommended run</a></p>'
        front_note = (
            "Lines: the front of each architecture, chosen on validation data; values are on test data. "
            "Faint: other networks. Error bars: 1 σ over runs."
        )
        volume_note = (
            "The area that the networks found so far dominate: better and smaller networks make it larger. Measured on "
            "validation data, from the largest network and the worst quality."
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
    """The ended runs that share the data and the objective of the latest one."""
    known = [(run, run.record) for run in runs if run.record is not None]
    if not known:
        return None
    latest = max(known, key=lambda pair: pair[0].changed)[1]
    ours = [
        ReportRun(run.folder, judge_by(record, quality or record.objective))
        for run, record in known
        if (record.fingerprint, record.objective) == (latest.fingerprint, latest.objective)
    ]
    return Section(tuple(ours), tuple(summarise((run.record for run in ours), costs)))


def leaders_table(section: Section) -> str:
    """The best networks on validation data."""
    sign = -1 if section.first.maximise else 1
    ordered = sorted(section.candidates, key=lambda each: (sign * each.validation, each.params))
    metric = section.objective
    rows = [
        [
            "●" if each.run_ids in section.front_ids else "",
            shorten(model_title(each.settings["model"]), 60),
            magnitude(each.params),
            quantity(each.validation, metric),
            with_spread(each.mean, each.std, metric),
            str(len(each.run_ids)),
            run_link(section.best_of(each).record.id),
        ]
        for each in ordered[:_LEADERS]
    ]
    noun = metric_title(metric)
    heads = ["Front", "Network", "Parameters", f"Validation {noun}", f"Test {noun}", "Runs", "Best run"]
    return f"<h2>Best networks</h2>{table('Best networks on validation data', heads, rows, (2, 3, 4, 5))}"


def counts(runs: Sequence[Run], workers: Mapping[str, str]) -> str:
    ended = [run for run in runs if run.has_ended]
    failed = sum(run.record is not None and run.record.status == "failed" for run in ended)
    damaged = sum(bool(run.damage) for run in runs)
    parts = [f"{len(ended):,} of {count(len(runs), 'run')} ended", f"{len(workers)} at work"]
    parts += [f"{failed} failed"] * bool(failed) + [f"{damaged} damaged"] * bool(damaged)
    return f'<p role="status">{", ".join(parts)}</p>'


class Problem(Group):
    """The runs on the same data for the same task, whoever trains them."""

    def __init__(self, studio: Studio, key: str) -> None:
        super().__init__(studio)
        self.key = key
        studio.index.read_all()
        runs, jobs = self.runs(), self.jobs
        if not runs and not jobs:
            raise Missing
        self.title = _title(runs[0]) if runs else jobs[0].title.removeprefix("search: ")

    @property
    def jobs(self) -> list[Job]:
        return [job for job in self.studio.jobs.newest() if job.problem == self.key]

    def runs(self) -> list[Run]:
        return self.studio.index.of_problem(self.key)

    def head(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        boxes = "".join(job_box(self.studio, job) for job in self.jobs[:3])
        elsewhere = ""
        if workers and not any(self.studio.jobs.is_running(job) for job in self.jobs):
            elsewhere = "<p class='note'>Started elsewhere: stop it where it was started, with Ctrl-C.</p>"
        report = f'<p><a href="/problems/{self.key}/report">Full report of the ended runs</a></p>' if runs else ""
        return counts(runs, workers) + boxes + elsewhere + report


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

    def section(self, runs: Sequence[Run]) -> Section | None:
        config, trials = self.study.content["config"], self.study.content["trials"]
        cost = config.get("cost", "params")
        known = {run: trial["cost"] for trial in trials for run in trial["runs"]}
        return make_section(runs, config.get("quality"), None if cost in COSTS else {cost: known})

    def head(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        states = self.study.states
        kinds = {state: states.count(state) for state in ("finished", "pruned", "failed", "open")}
        said = ", ".join(f"{number} {state}" for state, number in kinds.items() if number)
        jobs = [job for job in self.studio.jobs.newest() if job.facts.get("study") == self.name]
        running = any(self.studio.jobs.is_running(job) for job in jobs)
        boxes = "".join(job_box(self.studio, job) for job in jobs[:1])
        has_own_database = (self.studio.index.home / "studies" / self.name / "study.db").is_file()
        if not workers and not running and "open" in states and has_own_database and not jobs:
            resume = button(f"/studies/{quote(self.name)}/resume", "Resume")
            boxes += f"<div class='line'>Nobody is at work. {resume}</div>"
        if workers and not running:
            boxes += "<p class='note'>Started elsewhere: stop it where it was started, with Ctrl-C.</p>"
        return f"<p>Candidates: {said or 'none yet'}.</p>{counts(runs, workers)}{self._left(runs, workers)}{boxes}"

    def _left(self, runs: Sequence[Run], workers: Mapping[str, str]) -> str:
        """The time left for the runs of the candidates that are known, by the mean of those that ended."""
        needed = set(self.study.content.get("needs", ()))
        seconds = [run.record.wall_seconds for run in runs if run.record]
        left = len(needed) - sum(run.id in needed and run.has_ended for run in runs)
        if not workers or not seconds or left <= 0:
            return ""
        estimate = left * statistics.fmean(seconds) / len(workers)
        return f"<p>{count(left, 'run')} of the known candidates left: about {duration(estimate)}.</p>"


class RunPage(View):
    """One run: its curves as they grow, its figures, its network and its config."""

    def __init__(self, studio: Studio, identity: str) -> None:
        self.studio = studio
        self.run = studio.run(identity)
        self.title = f"Run {identity}"

    def parts(self) -> dict[str, Part]:
        run = self.run
        workers = self.studio.index.find_workers([run])
        lines, trouble = self._lines()
        metric = run.record.objective if run.record else guess_objective(lines)
        logs = {run.id[:8]: lines}
        validation = draw_log(logs, "validation", metric)
        return {
            "head": self._head(workers) + (f"<p class='error'>{escape(trouble)}</p>" if trouble else ""),
            "network": self._network(),
            "validation": Figure(f"Validation {metric_title(metric)}", validation),
            "loss": Figure("Training loss", draw_log(logs, "train", "loss")),
            "metrics": self._metrics(),
            "samples": self._samples(),
            "config": self._config(),
        }

    def _lines(self) -> tuple[list[dict[str, Any]], str]:
        if not self.run.has_ended:
            return self.run.log.lines, ""
        try:
            return read_metrics(self.run.folder), ""
        except UserError as error:
            return [], str(error)

    def _head(self, workers: Mapping[str, str]) -> str:
        run = self.run
        known = {"State": escape(_state(run, workers))}
        if run.damage:
            return facts(known | {"Damage": escape(run.damage)})
        known["Task and data"] = link(f"/problems/{run.problem}", _title(run))
        known["Network"] = escape(model_title(run.config["model"]))
        acts = ""
        if run.record:
            record = run.record
            if record.reason:
                known["Reason"] = escape(record.reason)
            known["Parameters"] = f"{record.cost.get('params', 0):,}"
            if "macs" in record.cost:
                known["Multiply-accumulates"] = f"{record.cost['macs']:,} per row"
            known["Trained"] = f"{record.steps:,} steps in {duration(record.wall_seconds)}, until {moment(run.changed)}"
            if record.status == "finished":
                path = f"/runs/{quote(run.id)}"
                acts = (
                    f'<p><a class="act strong" href="{path}/try">Try it</a> '
                    f'<a class="act" href="{path}/inside">Look inside</a></p>'
                ) + command(f"isthmus predict {run.id} NEW-FILES")
        else:
            known["Progress"] = _progress(run)
            known["Trained by"] = escape(workers.get(run.id, "nobody"))
            if run.id not in workers and not self._job:
                acts = button(f"/runs/{run.id}/resume", "Resume")
        return facts(known) + acts + (job_box(self.studio, self._job) if self._job else "")

    @property
    def _job(self) -> Job | None:
        """The command of the studio that trains this run and no other."""
        return next((job for job in self.studio.jobs.newest() if job.facts.get("run") == self.run.id), None)

    def _network(self) -> str:
        model = self.run.config.get("model", {})
        drawn = draw_network(model) if isinstance(model, Mapping) and "name" in model else ""
        return f"<h2>Network</h2><figure class='drawn'>{drawn}</figure>" if drawn else ""

    def _metrics(self) -> str:
        record = self.run.record
        if not record or not record.metrics:
            return ""
        names = list(dict.fromkeys(name for values in record.metrics.values() for name in values))
        rows = [
            [escape(split), *(quantity(values[name], name) if name in values else "–" for name in names)]
            for split, values in record.metrics.items()
        ]
        heads = ["Split", *(metric_title(name) for name in names)]
        return f"<h2>Metrics</h2>{table('Metrics', heads, rows, range(1, len(heads)))}"

    def _samples(self) -> str:
        record = self.run.record
        if not record or SAMPLES not in record.files or not (self.run.folder / SAMPLES).is_file():
            return ""
        return (
            "<h2>Samples</h2><p class='note'>Rows from top to bottom: input, output, target; test rows.</p>"
            f"<figure><img src='/runs/{quote(self.run.id)}/samples.png' alt='Input, output and target of test rows'>"
            "</figure>"
        )

    def _config(self) -> str:
        text = json.dumps(self.run.config, indent=2, ensure_ascii=False)
        return (
            f"<details><summary>Complete config</summary><p>{copy_button(text, 'copy')}</p>"
            f"<pre tabindex='0'>{escape(text)}</pre></details>"
        )
