"""The first page: what is at work, what searches and studies found, and all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote, urlencode

from isthmus.reports.markup import count, shorten
from isthmus.reports.text import magnitude, metric_noun, quantity
from isthmus.studio.contents import Studio
from isthmus.studio.index import Run
from isthmus.studio.layout import Part, View, link, moment, table
from isthmus.studio.tables import ROWS, at_work_table, job_box, run_title, runs_table, wrapped


class Home(View):
    """Everything at a glance: what is at work, what searches and studies found, and the runs, the newest first."""

    title = "Isthmus Studio"

    def __init__(self, studio: Studio, page: int = 1, words: str = "") -> None:
        self.studio, self.number, self.words = studio, max(1, page), words.strip()[:200]

    def parts(self) -> dict[str, Part]:
        index = self.studio.index
        open_runs = index.open_runs()
        workers = index.find_workers(open_runs[:ROWS])
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
        problems = dict.fromkeys((run.problem, run_title(run)) for run in training if run.problem)
        links = "".join(f"<li>{link(f'/problems/{key}', title)}</li>" for key, title in problems)
        shown = at_work_table(training, workers) if training else ""
        return f"<h2>At work</h2>{boxes}<ul class='facts'>{links}</ul>{shown}"

    def _searches(self) -> str:
        rows = []
        for answer, changed in self.studio.index.answers[:ROWS]:
            content, best = answer.content, answer.content["best"]
            run = self.studio.index.runs.get(answer.run)
            title = run_title(run) if run else answer.name
            value = quantity(best["mean"], content["objective"]) if best.get("mean") is not None else "–"
            rows.append(
                [
                    wrapped(link(f"/problems/{run.problem}", title) if run and run.problem else escape(title)),
                    wrapped(shorten(best["title"], 70)),
                    f"{escape(metric_noun(content['objective']))} {value}",
                    magnitude(best["params"]),
                    moment(changed),
                ]
            )
        if not rows:
            return ""
        heads = ["Task and data", "Recommended network", "Validation", "Parameters", "Found"]
        return f"<h2>Searches</h2>{table('Searches', heads, rows, (3,), lesser=(4,), least=(3,))}"

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
            runs = [run for run in runs if all(word in run.words for word in wanted)]
        pages = max(1, -(-len(runs) // ROWS))
        number = min(self.number, pages)
        shown = runs[(number - 1) * ROWS : number * ROWS]
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
