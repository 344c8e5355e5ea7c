"""The page of one run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from isthmus.core.errors import UserError
from isthmus.core.record import SAMPLES, read_metrics
from isthmus.core.titles import model_title
from isthmus.reports.drawing import draw_network
from isthmus.reports.markup import copy_button
from isthmus.reports.text import duration, metric_title, quantity
from isthmus.studio.contents import Studio
from isthmus.studio.figures import draw_log, find_objective
from isthmus.studio.jobs import Job
from isthmus.studio.layout import Figure, Part, View, button, command, facts, link, moment, table
from isthmus.studio.tables import HIDDEN, command_boxes, job_box, run_progress, run_state, run_title


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
        metric = run.record.objective if run.record else find_objective(run.config, lines)
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
        known = {"State": escape(run_state(run, workers))}
        if run.damage:
            return facts(known | {"Damage": escape(run.damage)})
        known["Task and data"] = link(f"/problems/{run.problem}", run_title(run))
        known["Network"] = escape(model_title(run.config["model"]))
        acts = ""
        if run.record:
            record = run.record
            if record.reason:
                known["Reason"] = escape(record.reason)
            known["Parameters"] = f"{record.cost.get('params', 0):,}"
            if "macs" in record.cost:
                known["Multiply-adds"] = f"{record.cost['macs']:,} per row"
            known["Trained"] = f"{record.steps:,} steps in {duration(record.wall_seconds)}, until {moment(run.changed)}"
            if record.status == "finished":
                path = f"/runs/{quote(run.id)}"
                acts = (
                    f'<p><a class="act strong" href="{path}/try">Try it</a> '
                    f'<a class="act" href="{path}/inside">Look inside</a></p>'
                ) + command(f"isthmus predict {run.id} NEW-FILES")
        else:
            known["Progress"] = run_progress(run)
            nobody = "not known" if run.has_hidden_leases else "nobody"
            known["Trained by"] = escape(workers.get(run.id, nobody))
            acts = command_boxes(self.studio, [run], workers, f"/runs/{quote(run.id)}")
            if run.id not in workers and not self._job:
                acts = HIDDEN if run.has_hidden_leases else button(f"/runs/{run.id}/resume", "Resume")
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
