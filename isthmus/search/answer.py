"""The answer of a search: the network to use, how good it is, and what it was compared with."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.core.files import home, read_sealed, write_sealed
from isthmus.core.record import read_record, runs_folder
from isthmus.core.titles import model_title
from isthmus.reports.figures import front_members
from isthmus.reports.recommendation import fitted_partly
from isthmus.reports.text import magnitude, metric_noun, quantity
from isthmus.studies.statistics import Interval, compare_folds

ANSWER = "answer.json"
_ON_TEST = "bootstrap over test rows"
_NOTHING = 5e-5
"""Smaller differences than what is printed of a quality."""

_FEWEST_TEST_ROWS = 20
"""Fewer test rows decide nothing: a bootstrap of them does not cover other rows."""

_LINEAR_WITHOUT_BLOCKS = ("hourglass_mlp", "conventional_mlp")

_RARE = 0.1
"""Of classes with a smaller share of the rows, accuracy says little."""

_TOO_GOOD = 0.999
"""An R² or accuracy above it is often that of a table with a column that is a part of the answer."""


class Answer:
    """What a search found. ``content`` is plain JSON, as it is stored beside the study's page."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content

    @classmethod
    def read(cls, folder: Path) -> Answer:
        return cls(read_sealed(folder / ANSWER))

    def write(self) -> None:
        write_sealed(self.folder / ANSWER, dict(self.content))

    @property
    def name(self) -> str:
        return str(self.content["name"])

    @property
    def folder(self) -> Path:
        return home() / "finds" / self.name

    @property
    def run(self) -> str:
        """The id of the run whose network is handed over."""
        return str(self.content["best"]["run"])

    @property
    def best(self) -> Any:
        """The recommended model; it takes raw rows."""
        from isthmus.export.prediction import load

        return load(runs_folder() / self.run)

    def predict(self, rows: Any) -> Any:
        """Predictions of the recommended model for raw rows."""
        return self.best.predict(rows)

    def table(self) -> Any:
        """A DataFrame of the networks and the references, the best first."""
        import pandas

        return pandas.DataFrame(self.rows()).astype({"params": "Int64"})

    def rows(self) -> list[dict[str, Any]]:
        """Networks and references as plain rows, the best on validation data first."""
        content, found = self.content, []
        for each in [*content["networks"], *content["references"]]:
            values = each["values"]
            row = {"model": each["title"], "kind": "network" if "params" in each else "reference"}
            row |= {"params": each.get("params"), "looks": len(values)}
            found.append(row | {self._column: statistics.fmean(values) if values else None})
        name, sign = self._column, 1 if content["maximise"] else -1
        return sorted(found, key=lambda row: -math.inf if row[name] is None else sign * row[name], reverse=True)

    def front(self) -> Any:
        """A DataFrame of the networks that no other one beats with as few parameters, the smallest first.

        Networks have unequally many looks (folds or seeds), because the worse ones drop out early. References, which
        have no such size, are in ``table``.
        """
        import pandas

        return pandas.DataFrame(self._front_rows())

    def _front_rows(self) -> list[dict[str, Any]]:
        chosen = self.content["best"]["title"]
        return [
            {
                "model": each["title"],
                "params": each["params"],
                "looks": len(each["values"]),
                self._column: statistics.fmean(each["values"]),
                "recommended": each["title"] == chosen,
            }
            for _, each in front_members(self.content)
        ]

    def plot(self) -> Any:
        """A Matplotlib figure: validation quality over size for every network, the front, and references as lines."""
        from isthmus.reports.pictures import draw_answer

        return draw_answer(self.content, f"{self.content['task']} on {self._data}")

    @property
    def _column(self) -> str:
        return f"validation {self.content['objective']}"

    @property
    def _data(self) -> str:
        """The name of the data: that of the search without its checksum."""
        return self.name.rpartition("-")[0] or self.name

    def __repr__(self) -> str:
        best, objective = self.content["best"], self.content["objective"]
        quality = f"validation {metric_noun(objective)} {quantity(best['mean'], objective)}"
        return f"<find {self._data}: {best['title']}, {best['params']:,} parameters, {quality}, run {self.run}>"

    def _repr_html_(self) -> str:
        from isthmus.reports.notebook import summarise_answer

        return summarise_answer(self.sentences(), self.content["best"]["model"], self._front_rows())

    def runs(self) -> Any:
        """A DataFrame of all runs, one row each."""
        import pandas

        rows = []
        for identity in self.run_ids:
            record = read_record(runs_folder() / identity)
            row = {"run": identity, "network": model_title(record.config["model"]), "seed": record.seed}
            row |= {"params": record.cost.get("params"), "seconds": record.wall_seconds}
            for split, values in record.metrics.items():
                row |= {f"{split} {name}": value for name, value in values.items()}
            rows.append(row)
        return pandas.DataFrame(rows)

    @property
    def run_ids(self) -> list[str]:
        looked = [run for each in self.content["networks"] for run in each["runs"]]
        return [*looked, *self.content["refits"]]

    def report(self, out: Path | str | None = None) -> Path:
        """Write the page of all runs of the search; returns its path."""
        from isthmus.reports import write_report

        folders = [runs_folder() / run for run in self.run_ids]
        where = Path(out) if out is not None else home() / "reports" / self.name
        title = f"isthmus find: {self.name.rpartition('-')[0]}"
        return write_report(folders, where, title, str(self.content["command"]), answers=[self.for_page()])

    def for_page(self) -> dict[str, Any]:
        """The content with what a page says in words."""
        return {**self.content, "sentences": self.sentences(), "commands": self.commands()}

    def export(self, out: Path | str, to: str = "onnx") -> Path:
        """Export the recommended model; returns the folder."""
        from isthmus.export import export_run

        return export_run(runs_folder() / self.run, to, Path(out)).folder

    def commands(self) -> dict[str, str]:
        """What to type next, by what it does."""
        return {
            "Predict": f"isthmus predict {self.run} {'NEW.csv' if self.content.get('is_table', True) else 'FOLDER'}",
            "Python": f'isthmus.load("{self.run}").predict(rows)',
            "Export": f"isthmus export {self.run} --to onnx",
        }

    def sentences(self) -> list[str]:
        """The answer in words, the most important first."""
        return [*self._verdict(), *self._advice()]

    def _verdict(self) -> list[str]:
        content, best = self.content, self.content["best"]
        objective = content["objective"]
        noun, ahead, level = metric_noun(objective), [], []
        for reference in content["references"]:
            interval = self.compare(reference)
            on_test = interval.rule == _ON_TEST
            figure = quantity(reference["test"] if on_test else _mean(reference), objective)
            looks = sorted((best["looks"], len(reference["values"])))
            where = "" if on_test or looks[0] == looks[1] else f" on the {looks[0]} folds of both"
            text = f"{reference['title']} ({'test ' * on_test}{noun} {figure}; {_lead(interval)}{where})"
            if interval.decision == "behind":
                ahead.append(text)
            elif interval.decision == "undecided":
                level.append(text)
        lines = []
        if ahead:
            which = "A reference is" if len(ahead) == 1 else f"{len(ahead)} references are"
            lines.append(f"{which} better on these data: {', '.join(ahead)}.")
        figure = quantity(best["mean"], objective)
        kind, several = "fold" if content["folds"] else "seed", "s" * (best["looks"] > 1)
        how = f"{'mean of ' * (best['looks'] > 1)}{best['looks']} {kind}{several}"
        lines.append(
            f"{'The best network' if ahead else 'Use'} {_name(best)}, {magnitude(best['params'])} parameters: "
            f"validation {noun} {figure} ({how})."
        )
        if level and not ahead:
            lines.append(f"The data cannot distinguish it from {', '.join(level)}.")
        elif content["references"] and not ahead:
            lines.append("It is ahead of every reference.")
        return [*lines, *self._describe_partial_fits(), *self._describe_runner_up()]

    def _describe_partial_fits(self) -> list[str]:
        """The references that saw fewer rows than the network, which makes the comparison unfair to them."""
        partly = fitted_partly(self.content)
        if not partly:
            return []
        every, are_all = self.content["rows"]["train"], len(partly) == len(self.content["references"])
        which = "the references" if are_all else ", ".join(partly)
        return [
            f"There was only time to fit {which} to {min(partly.values()):,} of {every:,} training rows, so a longer "
            "--within may improve their figures."
        ]

    def _describe_runner_up(self) -> list[str]:
        """What the best network of another family loses, by the folds or seeds that both had."""
        content, best = self.content, self.content["best"]
        others = [each for each in content["networks"] if each["values"] and _family(each) != _family(best)]
        if not others:
            return []
        sign, objective = 1 if content["maximise"] else -1, content["objective"]
        rival = max(others, key=lambda each: (len(each["values"]), sign * _mean(each)))
        differences = [sign * (ours - other) for ours, other in zip(best["values"], rival["values"], strict=False)]
        name = f"The best of another family, {_name(rival)} with {magnitude(rival['params'])} parameters,"
        if len(differences) < 2:
            figure = quantity(_mean(rival), objective)
            return [f"{name} has {figure}; a single training of each does not show how sure that is."]
        ratio = content["rows"]["validation"] / content["rows"]["train"] if content["folds"] else 0.0
        interval = compare_folds(differences, ratio)
        low, high = interval.bounds or (interval.difference, interval.difference)
        if interval.decision == "ahead":
            return [f"{name} loses {interval.difference:.2g} ({low:.2g} to {high:.2g})."]
        if interval.decision == "behind":
            return [f"{name} is {_lead(interval)}, but not by its validation loss, which decides."]
        return [f"{name} may be as good ({_lead(interval)})."]

    def _advice(self) -> list[str]:
        content, test = self.content, self.content["test"]
        objective, lines = content["objective"], []
        if test:
            bounds = (
                f"{quantity(test['low'], objective)} to {quantity(test['high'], objective)}" if "low" in test else ""
            )
            each = ", ".join(quantity(value, objective) for value in test["values"])
            covered = f" (95 % interval {bounds}, over rows and seeds)" if bounds else ""
            rows = f"{content['rows']['test']:,} test row{'s' * (content['rows']['test'] != 1)}"
            lines.append(
                f"On {rows}, held out from every choice: {metric_noun(objective)} {each}"
                f"{' with seeds ' + _count(len(test['values'])) if len(test['values']) > 1 else ''}{covered}."
            )
        lines += self._describe_rare_class()
        best = content["best"]
        figures = [_mean(each) for each in [best, *content["references"]] if each["values"]]
        if content.get("giveaway") and max(figures, default=0) > _TOO_GOOD:
            column = content["giveaway"]
            lines.append(
                f"That is nearly perfect: if `{column}` or another column is known only after `{content['targets'][0]}`"
                f", leave it out: --without {shlex.quote(column)}."
            )
        if best["overfits"]:
            lines.append(f"It overfits after epoch {best['epoch']}, so its training ends there.")
        if content.get("late"):
            lines.append(f"There was no time for {' and '.join(content['late'])}.")
        if not content["is_whole"]:
            lines.append("There was no time for every network; repeat the command with a longer --within to continue.")
        return lines

    def _describe_rare_class(self) -> list[str]:
        """How many test rows of a rare class are recognised, which accuracy does not show."""
        confusion = self.content["test"].get("confusion")
        if not confusion or confusion["omitted"] or self.content["objective"] != "accuracy":
            return []
        rows = {name: sum(counts) for name, counts in zip(confusion["classes"], confusion["counts"], strict=True)}
        known = [name for name, count in rows.items() if count]
        name = min(known, key=rows.__getitem__)
        if len(known) < 2 or rows[name] >= _RARE * sum(rows.values()):
            return []
        place = confusion["classes"].index(name)
        right = confusion["counts"][place][place]
        of = f"test row{'s' * (rows[name] != 1)} of the rarest class `{name}`"
        return [f"Of {rows[name]:,} {of}, {right:,} {'is' if right == 1 else 'are'} predicted correctly."]

    def compare(self, reference: Mapping[str, Any]) -> Interval:
        """How far the best network is ahead of a reference, by the folds that both had, or on the test rows."""
        best = self.content["best"]
        pairs = list(zip(best["values"], reference["values"], strict=False))
        if not self.content["folds"] or len(pairs) < 2:
            return self._compare_on_test(reference)
        sign = 1 if self.content["maximise"] else -1
        rows = self.content["rows"]
        return compare_folds([sign * (ours - theirs) for ours, theirs in pairs], rows["validation"] / rows["train"])

    def _compare_on_test(self, reference: Mapping[str, Any]) -> Interval:
        difference, low, high = reference["lead"]
        if not self.content["maximise"]:
            difference, low, high = -difference, -high, -low
        if self.content["rows"]["test"] < _FEWEST_TEST_ROWS:
            return Interval(difference, None, None, None, _ON_TEST)
        return Interval(difference, low, high, None, _ON_TEST)


def _mean(tried: Mapping[str, Any]) -> float:
    return statistics.fmean(tried["values"])


def _family(network: Mapping[str, Any]) -> str:
    return str(network["model"]["name"])


def _name(network: Mapping[str, Any]) -> str:
    """Its title; without blocks it is a linear model, and its ``d_h`` has no effect."""
    model, name = network["model"], str(network["title"])
    if model["name"] not in _LINEAR_WITHOUT_BLOCKS or model.get("depth") != 0 or "pathway" in model:
        return name
    return name.replace(f" d_h={model['d_h']}", "", 1) + ", a linear model"


def _lead(interval: Interval) -> str:
    if interval.bounds is None:
        few = interval.rule == _ON_TEST
        return "too few test rows to compare" if few else f"difference {_sign(interval.difference)}"
    low, high = interval.bounds
    if interval.decision == "behind":
        return f"ahead by {-high:.2g} to {-low:.2g}"
    if max(abs(low), abs(high)) < _NOTHING:
        return "no difference"
    return f"difference {_sign(interval.difference)}, {_sign(low)} to {_sign(high)}"


def _sign(value: float) -> str:
    return f"{value:+.2g}" if abs(value) >= _NOTHING else "0"


def _count(number: int) -> str:
    return ", ".join(map(str, range(number)))
