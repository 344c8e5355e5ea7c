"""`isthmus.study`: many runs that answer one question, and what they found."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from isthmus.core.config import Given, Overrides, StudyConfig, find_settings, study_config
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.prediction import Trained
from isthmus.core.titles import model_title
from isthmus.core.units import parse_seconds
from isthmus.export.precision import Tell, find_versions, need_int8
from isthmus.export.prediction import load
from isthmus.reports import write_report
from isthmus.reports.notebook import summarise_answer
from isthmus.reports.sections import Section, gather
from isthmus.reports.text import answer as answer_in_words
from isthmus.reports.text import describe_pathway, metric_noun, quantity, summary
from isthmus.search.display import Bar, Display, Silence
from isthmus.studies.complete import Watcher, complete_study
from isthmus.studies.fronts import Candidate, best, cost_of, front, summarise
from isthmus.studies.plan import Plan
from isthmus.studies.shared import LEAST_AGREEMENT
from isthmus.studies.study import Study
from isthmus.training.prepare import Options
from isthmus.training.tracking import prepare_tracking


def study(
    config: Given,
    settings: Overrides = (),
    *,
    workers: int | None = None,
    cluster: str | None = None,
    storage: str | None = None,
    within: float | str | None = None,
    shared: bool = False,
    rebuild: bool = False,
    data_dir: Path | str | None = None,
    tensorboard: bool = False,
    mlflow: str | None = None,
    progress: bool = True,
) -> StudyAnswer:
    """Search a space of networks: many candidates over several seeds. The same call again resumes the study.

    :param config: the name of a study's recipe (``isthmus recipes``), a JSON or YAML file, a dict of the same fields,
        or a ``StudyConfig``.
    :param settings: fields to change: ``{"sampling.candidates": 24}`` or ``["sampling.candidates=24"]``.
    :param workers: processes on this machine (default: cores / threads).
    :param cluster: a Ray cluster: ``auto``, or its address.
    :param storage: the URL of a database, ``postgresql://…`` (default: SQLite in ISTHMUS_HOME).
    :param within: reduce the study to this time, such as ``"90s"``, ``"30m"`` or a number of seconds;
        ``sampling.name=model`` keeps its size and makes no decision after it.
    :param shared: rank a grid by one super-network, and train only the promising candidates alone.
    :param rebuild: rebuild the study's database from the run records.
    :param data_dir: the folder of data files (default: ``ISTHMUS_DATA``).
    :param tensorboard: also write TensorBoard logs to the runs' folders.
    :param mlflow: also log to this MLflow folder or server.
    :param progress: whether to show an estimate and a bar.

    >>> import isthmus
    >>> shapes = {
    ...     "name": "narrow-or-wide",
    ...     "base": {
    ...         "source": {"name": "digits"},
    ...         "task": {"name": "classification"},
    ...         "train": {"epochs": 2},
    ...         "threads": 1,
    ...     },
    ...     "spaces": [{"model": {"name": "hourglass_mlp", "d_z": 32, "depth": 1}, "vary": {"d_h": [4, 16]}}],
    ... }
    >>> found = isthmus.study(shapes, {"seeds": [0, 1]}, workers=1, progress=False)
    >>> len(found.table()), len(found.runs())
    (2, 4)
    >>> found.best.classes
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    options = Options(data_dir=None if data_dir is None else Path(data_dir), command="isthmus.study")
    seconds = None if within is None else parse_seconds(within)
    with Bar() if progress else Silence() as display:
        plan = plan_study(config, settings, options, shared)
        tracking = prepare_tracking(tensorboard, mlflow, plan.config.name)
        plan = replace(plan, options=replace(options, tracking=tracking))
        found = complete_study(
            plan, plan.options, workers, cluster=cluster, url=storage, within=seconds, rebuild=rebuild,
            watcher=_Shown(display),
        )  # fmt: skip
        return StudyAnswer(found, lambda text, fraction: display.advance(fraction, text))


def plan_study(config: Given, settings: Overrides, options: Options, shared: bool = False) -> Plan:
    """The plan of a study. ``shared`` is the field of the same name with its defaults, unless settings give it."""
    given = find_settings(config, StudyConfig, settings)
    complete = study_config(({"shared": {}} if shared else {}) | given)
    if "int8" in complete.precision:
        need_int8()
    return Plan.of(complete, options)


def describe_sharing(study: Study) -> list[str]:
    """How well inherited quality agrees with stand-alone quality; nothing if the study has no super-network."""
    if study.plan.inherited is None:
        return []
    trained, all_of_them = len(study.trials), len(study.plan.candidates)
    tau = "unknown" if study.agreement is None else f"{study.agreement:.2f}"
    said = f"Weight sharing: Kendall's τ of inherited and stand-alone quality is {tau} over {trained} candidates."
    if study.has_fallen_back:
        return [f"{said} It was below {LEAST_AGREEMENT} on the first of them, so the study trained all candidates."]
    return [f"{said} The other {all_of_them - trained} candidates were ranked lower and not trained alone."]


def describe_versions(members: Sequence[Candidate], cost: str) -> list[str]:
    """How many members of the front have int8 weights."""
    number = {name: sum(member.precision == name for member in members) for name in ("float32", "int8", "mixed")}
    return [
        f"Precision: of the {len(members)} members of the front over {cost}, {number['int8']} have int8 weights in all "
        f"layers, {number['mixed']} in some, and {number['float32']} in none; each was measured in onnxruntime."
    ]


class StudyAnswer:
    """What a study found: its candidates, the front, and the network that is best on validation data."""

    def __init__(self, study: Study, tell: Tell = lambda text, fraction: None) -> None:
        self.study, self.config = study, study.config
        records = study.records()
        if not any(record.status == "finished" for record in records):
            reasons = "; ".join(dict.fromkeys(trial.reason for trial in study.trials if trial.reason))
            raise UserError(f"no run of the study {self.name!r} finished: {reasons or 'nothing was trained'}")
        self.costs, self.versions, self.notes = study.costs, list[Candidate](), describe_sharing(study)
        self.candidates: list[Candidate] = summarise(records, study.costs, self.config.quality)
        if "int8" in self.config.precision:
            cost = self.config.cost
            found = find_versions(self.candidates, cost, study.plan.data, tell)
            self.versions, self.costs = found.candidates, {cost: self.costs[cost] | found.costs}
            self.candidates = summarise(records, self.costs, self.config.quality)
            self.notes += [*describe_versions(self.front_members, cost), *found.notes]

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def run_ids(self) -> list[str]:
        return [folder.name for folder in self.study.folders]

    @property
    def front_members(self) -> list[Candidate]:
        """The candidates that no other of their architecture dominates."""
        return front([*self.candidates, *self.versions], self.config.cost)

    @cached_property
    def _best(self) -> Candidate:
        return best(self.candidates, self.config.cost)

    @property
    def best(self) -> Trained:
        """The network that is best on validation data, of its first seed; it takes raw rows."""
        return load(self._best.run_ids[0])

    def table(self) -> Any:
        """A DataFrame of the candidates, the best on validation data first."""
        import pandas

        on_front = {each.identity for each in self.front_members}
        sign = -1 if self._best.maximise else 1
        ordered = sorted([*self.candidates, *self.versions], key=lambda each: sign * each.validation)
        return pandas.DataFrame([self._row(each) | {"on front": each.identity in on_front} for each in ordered])

    def front(self) -> Any:
        """A DataFrame of the candidates that no other of their architecture dominates, the smallest first."""
        import pandas

        return pandas.DataFrame([self._row(each) for each in self.front_members])

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        cost, metric = self.config.cost, candidate.objective
        row = {"model": model_title(candidate.settings["model"], self._varied_fields), "params": candidate.params}
        row |= {"precision": candidate.precision} if self.versions else {}
        row |= {} if cost == "params" else {cost: cost_of(candidate, cost)}
        row |= {"learning rate": candidate.learning_rate, "seeds": len(candidate.seeds)}
        row |= {f"validation {metric}": candidate.validation, f"test {metric}": candidate.mean, "std": candidate.std}
        return row | {"run": candidate.run_ids[0]}

    @property
    def _varied_fields(self) -> list[str]:
        return sorted({field for space in self.config.spaces for field in space.vary})

    def runs(self) -> Any:
        """A DataFrame of all runs, one row each."""
        from isthmus.api.records import runs

        return runs(self)

    def sections(self) -> list[Section]:
        return gather(self.study.folders, (), self.costs, self.config.quality, self.versions)[0]

    def plot(self) -> Any:
        """A Matplotlib figure: test quality over cost, with the front of each architecture."""
        from isthmus.reports.pictures import draw_front

        return draw_front(self.sections(), self.config.cost)

    def report(self, out: Path | str | None = None) -> Path:
        """Write the page of all runs; returns its path."""
        where = Path(out) if out is not None else home() / "reports" / self.name
        title, command = f"Isthmus {self.name}", self.study.plan.options.command
        return write_report(
            self.study.folders, where, title, command, costs=self.costs, quality=self.config.quality, notes=self.notes,
            versions=self.versions,
        )  # fmt: skip

    def sentences(self) -> list[str]:
        """The conclusion in words."""
        cost, said = self.config.cost, []
        for section in self.sections():
            said.append(" ".join(answer_in_words(section, cost)).strip())
            said += [describe_pathway(gap, section.objective) for gap in section.pathway_gaps]
            said += summary(section, cost)
        return said + self.notes

    def __repr__(self) -> str:
        chosen = self._best
        title, metric = model_title(chosen.settings["model"], self._varied_fields), chosen.objective
        quality = f"validation {metric_noun(metric)} {quantity(chosen.validation, metric)}"
        number = f"{len(self.candidates)} candidate{'s' * (len(self.candidates) > 1)}"
        return f"<study {self.name}: {number}, best {title}, {chosen.params:,} parameters, {quality}>"

    def _repr_html_(self) -> str:
        rows = [self._row(each) for each in self.front_members]
        shown = [{name: value for name, value in row.items() if name not in ("run", "std")} for row in rows]
        return summarise_answer(self.sentences(), self._best.settings["model"], shown)


class _Shown(Watcher):
    """Shows a study by one bar."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.work, self.runs, self.ended = 1.0, 0, 0
        self.done = dict[str, float]()

    def measure(self) -> AbstractContextManager[Any]:
        self.display.advance(0.0, "measuring a few steps")
        return nullcontext()

    def rank(self, text: str, fraction: float) -> None:
        self.display.advance(0.0, f"{text}: {fraction:.0%}")

    def announce(self, text: str) -> None:
        self.display.say(text)

    def train(self, work: float, runs: int, ended: int) -> AbstractContextManager[Any]:
        self.work, self.runs, self.ended = max(1.0, work), runs, ended
        return nullcontext()

    def advance(self, run: str, work: float, fraction: float, name: str) -> None:
        self.done[run] = work * fraction
        self.display.move(self._fraction)

    def finish(self, run: str, work: float, name: str, note: str) -> None:
        self.done[run] = work
        self.ended += 1
        self.display.advance(self._fraction, f"{self.ended} of {max(self.runs, self.ended)} runs  {name}  {note}")

    @property
    def _fraction(self) -> float:
        return min(1.0, sum(self.done.values()) / self.work)
