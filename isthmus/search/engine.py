"""`isthmus find`: from somebody's data to the network to use, within a given time."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.core.config import Overrides, RunConfig, override, parse_override, run_config
from isthmus.core.errors import UserError
from isthmus.core.files import expand_user, home, make_folder
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.machine import default_workers
from isthmus.core.protocols import SPLITS, Split
from isthmus.core.record import read_record
from isthmus.core.titles import model_title
from isthmus.core.units import amount, parse_seconds
from isthmus.reports.figures import front_members
from isthmus.reports.text import magnitude, metric_noun
from isthmus.search.answer import Answer
from isthmus.search.belief import Tried, believe
from isthmus.search.display import Bar, Display, Silence
from isthmus.search.networks import STACKABLE, list_networks
from isthmus.search.question import Question, ask
from isthmus.search.race import FOLDS, SEEDS, SMALL, Network, Race, Score
from isthmus.search.references import Reference, find_giveaway, fit_references, list_references
from isthmus.search.scores import SCORES, bootstrap
from isthmus.studies.executors import Executor, LocalWorkers, ThisProcess
from isthmus.training.counting import count_params
from isthmus.training.devices import arithmetic
from isthmus.training.loading import load_model
from isthmus.training.prepare import Options, Prepared
from isthmus.training.stacks import choose_stack
from isthmus.training.tracking import prepare_tracking

_POINTS, _CLASSES = 500, 20
"""Test rows and classes that the answer stores for its page."""
_PAGE_SECONDS = 2.0
"""The time that the answer and its page take on a quiet machine."""
_MOST_WORKERS = 8
"""Each loads torch and the data, which more of them would do for longer than they work in a short search."""
_LARGE = 2**26  # bytes
_WORKER_SECONDS = 4.0
"""The start of a worker, which imports torch. That of large data starts only after this process has read them."""
_LONG_LOADING = 0.1
"""If a worker needs a larger share of the time to start and load the data, this process alone works, without refits."""
_REPEATS, _MOST_SECONDS = 100, 0.3
"""Predictions of a single row that are timed, and the time that this may take."""


def find(
    data: Any,
    target: Any = None,
    *,
    task: str | None = None,
    test: Any = None,
    budget: float | str = "50k",
    within: float | str = "2m",
    workers: int | None = None,
    settings: Overrides = (),
    data_dir: Path | None = None,
    progress: bool | Display = True,
    command: str = "",
    began: float | None = None,
    tensorboard: bool = False,
    mlflow: str | None = None,
) -> Answer:
    """The best network for these data within a budget of parameters and of time.

    :param data: a file (csv, tsv, parquet, npy, npz), a folder of images, the name of a source, a pandas or polars
        DataFrame, an Arrow table, or an array.
    :param target: the column to predict, or an array of its values (default: guessed, and said).
    :param task: ``regression``, ``classification``, ``denoise``, … (default: by the target).
    :param test: data of the same form with the test rows (default: a tenth of the rows).
    :param budget: the largest number of parameters, such as ``"50k"``.
    :param within: the time that it may take, such as ``"90s"``, ``"2m"`` or a number of seconds.
    :param workers: processes of one thread each (default: one for each core, at most 8).
    :param settings: fields to change: ``{"source.split_seed": 1}`` or ``["source.split_seed=1"]``.
    :param data_dir: the folder of data files (default: ``ISTHMUS_DATA``).
    :param progress: whether to show what was guessed, and a bar; or what shows them.
    :param command: the command line that the runs' records keep.
    :param began: when its time began to count, by ``time.monotonic`` (default: now).
    :param tensorboard: also write TensorBoard logs to the folder of each run.
    :param mlflow: also show each run in MLflow: a folder, a tracking URI or ``"auto"``.

    The same call again resumes an interrupted search::

        found = isthmus.find("houses.csv", target="price", within="1m")
        found.table()
        found.predict(new_houses)
    """
    began = time.monotonic() if began is None else began
    limit = amount(int(budget) if isinstance(budget, float) and budget.is_integer() else budget)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise UserError(f"budget {budget!r} is not a number of parameters; give one such as 50k or 50000")
    workers = min(default_workers(1), _MOST_WORKERS) if workers is None else workers
    if not isinstance(workers, int) or workers < 1:
        raise UserError(f"workers={workers!r} is not a number of processes; give 1 or more")
    ends, options = began + parse_seconds(within), Options(data_dir=data_dir, command=command)
    early = not _is_large(data)
    executor = LocalWorkers(workers, early=early) if workers > 1 else ThisProcess()
    with executor, Bar() if progress is True else progress or Silence() as display:
        clock, processor = time.monotonic(), time.process_time()
        question = ask(data, target, task, test, settings, options)
        make_folder(home())  # before the work, if it cannot be written
        options = replace(options, tracking=prepare_tracking(tensorboard, mlflow))
        for line in [*question.words, *question.findings]:
            display.say(line)
        slowness = (time.monotonic() - clock) / max(time.process_time() - processor, 1e-3)
        slowness = min(max(slowness, 1.0), 5.0)
        return _Search(question, limit, options, display, began, ends, executor, slowness, early).answer()


@dataclass
class _Search:
    question: Question
    budget: int
    options: Options
    display: Display
    began: float
    ends: float
    executor: Executor
    slowness: float
    """How many times as long as on a quiet machine the work of this process takes."""
    has_early_workers: bool
    """Whether workers start while this process reads the data."""
    references: list[Reference] = field(default_factory=list)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Parameters and validation qualities of the networks so far, by title."""

    def __post_init__(self) -> None:
        if self.is_loading_long:
            self.executor = ThisProcess()

    @property
    def seconds(self) -> float:
        return self.ends - self.began

    @property
    def is_loading_long(self) -> bool:
        late = 0.0 if self.has_early_workers else _WORKER_SECONDS
        return self.question.seconds + late > _LONG_LOADING * self.seconds

    def answer(self) -> Answer:
        networks = self._networks()
        ends = self.ends - self.slowness * _PAGE_SECONDS
        race = Race(networks, self.question.learned, self.options, self.executor, ends)
        race.tell, race.say = partial(self._show, race), self.display.say
        race.know(self.question.source, self.question.data, self.question.learned)
        with requests_to_stop(self.executor.stop) as race.should_stop:
            with self._beside(race):
                best = race.search()
            refits = self._refit(race, best)
        return self._conclude(race, best, refits)

    def _networks(self) -> list[Network]:
        question, source = self.question, self.question.source
        rows = {name: len(question.data.split(name)) for name in SPLITS}
        if rows["train"] + rows["validation"] < SMALL and "folds" in type(source).model_fields:
            source = source.model_copy(update={"folds": FOLDS})
            rows["train"] = (rows["train"] + rows["validation"]) * (FOLDS - 1) // FOLDS
        base = {"source": source.model_dump(mode="json"), "task": question.task.model_dump(mode="json"), "threads": 1}
        wanted = [value for path, value in map(parse_override, question.settings) if path == ["train", "epochs"]]
        epochs = wanted[-1] if wanted and isinstance(wanted[-1], int) else None
        proposed = list_networks(question.learned.signature, question.task.name, rows["train"], self.budget, epochs)
        configs = [run_config(override(base | each, question.settings)) for each in proposed]
        # A look trains together with its other folds, and with other recipes of its shape.
        shapes = Counter(config.model for config in configs)
        has_others = [getattr(source, "folds", None) is not None or shapes[each.model] > 1 for each in configs]
        stacked = [
            self._stack(each, rows["train"]) if others else each
            for each, others in zip(configs, has_others, strict=True)
        ]
        return [Network(number, config) for number, config in enumerate(stacked)]

    def _stack(self, config: RunConfig, rows: int) -> RunConfig:
        """The config with the stack in which its looks train together, if it is small and we know that it can be."""
        model, learned = config.model, self.question.learned
        is_plain = model.name in STACKABLE and getattr(model, "pathway", model).name == "plain"
        if not is_plain or config.train.stack is not None or config.task.name not in SCORES:
            return config
        if len(learned.signature.input_shape) != 1:  # batches of images may draw
            return config
        size = choose_stack(config, 6 * count_params(model.complete(learned.signature, config.seed)), rows)
        return config.model_copy(update={"train": config.train.model_copy(update={"stack": size})})

    @contextmanager
    def _beside(self, race: Race) -> Iterator[None]:
        """Fit the references beside a search in other processes; before one in this process, whose draws they share."""
        self.references = list_references(self.question.task.name)
        first, failed = race.networks[0], list[BaseException]()
        folds = [race.data(first.look(number))[0] for number in range(FOLDS if first.is_folded else 1)]
        refit = None if self.is_loading_long else first.refit(1, 0)
        whole = race.data(refit)[0] if refit and self.references else None
        ends = max(self.began + self.seconds / 4, time.monotonic() + 1)

        def fit() -> None:
            try:
                score = SCORES[self.question.task.name]
                fit_references(self.references, folds, whole, score, ends, lambda: race.is_stopped)
            except BaseException as error:  # raised in the thread that waits
                failed.append(error)

        thread = threading.Thread(target=fit, daemon=True)
        if self.references:
            thread.start()
            if isinstance(self.executor, ThisProcess):
                thread.join()
        yield
        if self.references:  # a fit that takes longer than expected is left out
            thread.join(max(0.0, race.ends - time.monotonic()))
        if failed:
            raise failed[0]

    def _refit(self, race: Race, best: Score) -> list[Prepared]:
        """The chosen network on training and validation rows, with three seeds, as far as time allows."""
        if self.is_loading_long:
            return []
        if race.is_stopped and not race.should_stop():  # the workers were told to end
            race.executor, race.is_stopped = ThisProcess(), False
        self.display.say("training the best network on all rows but the test rows")
        return race.refit(best, SEEDS)

    def _show(self, race: Race, network: Network, look: int, score: Score | None) -> None:
        if score is None:
            return
        kind, objective = "fold" if network.is_folded else "seed", self.question.learned.objective
        text = f"{title(network)}: validation {metric_noun(objective)} {score.mean:.4g} ({kind} {look})"
        self.display.advance(min(1.0, (time.monotonic() - self.began) / self.seconds), text)
        seen = self.seen.setdefault(title(network), {"params": race.run(network, look).cost.params, "values": []})
        seen["values"].append(score.mean)
        found = {"maximise": race.task.maximise, "networks": list(self.seen.values())}
        names = list(self.seen)
        self.display.show(
            [
                (names[place], f"{statistics.fmean(each['values']):.4g}", magnitude(each["params"]))
                for place, each in front_members(found)
            ]
        )

    def _conclude(self, race: Race, best: Score, refits: Sequence[Prepared]) -> Answer:
        question, first = self.question, race.run(best.network, 0)
        delivered = refits or [first]
        networks = [_describe(race, network) for network in race.networks if race.looks(network)]
        sign = -1 if race.task.maximise else 1
        content = {
            "name": question.name,
            "command": self.options.command,
            "words": list(question.words),
            "findings": list(question.findings),
            "task": question.task.name,
            "targets": list(question.data.table.get("targets", ())),
            "is_table": question.data.train.inputs.ndim == 2,
            "objective": race.task.objective,
            "maximise": race.task.maximise,
            "budget": self.budget,
            "folds": FOLDS if best.network.is_folded else 0,
            "rows": {name: len(first.data.split(name)) for name in SPLITS},
            "best": _describe(race, best.network)
            | {"run": delivered[0].id, "epoch": best.epoch, "overfits": best.overfits},
            "refits": [run.id for run in refits],
            **self._test(delivered),
            "networks": sorted(networks, key=lambda each: (-each["looks"], sign * each["mean"])),
            "giveaway": find_giveaway(first.data),
            "belief": self._believe(race),
            "latency": _time_row(delivered[0]),
            "failures": dict(race.failures),
            "is_whole": race.is_whole,
            "seconds": round(time.monotonic() - self.began, 1),
        }
        answer = Answer(content)
        answer.write()
        return answer

    def _believe(self, race: Race) -> list[dict[str, float]]:
        """What the trainings say about every size, networks without one included."""
        signature, known = self.question.learned.signature, list[Tried]()
        for network in race.networks:
            score = race.score(network, race.looks(network)) if race.looks(network) else None
            params = count_params(network.config.model.complete(signature, 0))
            found = (score.mean, len(score.values)) if score and math.isfinite(score.mean) else ()
            known.append(Tried(network.config, params, *found))
        return believe(known, race.task.maximise)

    def _test(self, runs: Sequence[Prepared]) -> dict[str, Any]:
        """Figures on the test rows: of each refit, and of the references."""
        task, objective = self.question.task.name, self.question.learned.objective
        values = [read_record(run.folder).metrics["test"].get(objective) for run in runs]
        test: dict[str, Any] = {"values": values}
        references: list[dict[str, Any]] = []
        if task in SCORES:
            targets, score = runs[0].data.test.targets, SCORES[task]
            assert targets is not None  # such tasks have targets
            predictions = [_predict(run, runs[0].data.test) for run in runs]
            test |= sample_rows(predictions[0], targets, runs[0].data.classes)
            test |= dict(zip(("low", "high"), bootstrap(predictions, targets, score), strict=True))
            for each in self.references:
                # A refit and a fold have the same test rows in another order.
                is_refit = not len(runs[0].data.validation)
                predicted = each.predictions if is_refit else each.first_predictions
                if predicted is not None and each.values:
                    found = bootstrap([predicted], targets, score)
                    lead = bootstrap(predictions, targets, score, predicted)
                    middle = float(np.mean([score(one, targets) for one in predictions]))
                    references.append(
                        {"title": each.title, "values": each.values, "fitted_rows": each.rows,
                         "test": score(predicted, targets), "low": found[0], "high": found[1],
                         "lead": [middle - score(predicted, targets), *lead]}
                    )  # fmt: skip
        fitted = {each["title"] for each in references}
        late = [each.title for each in self.references if each.title not in fitted]
        return {"test": test, "references": references, "late": late}


def _is_large(data: Any) -> bool:
    """Whether reading a file needs the time that workers take to start, and may leave none for them."""
    with suppress(OSError, ValueError):  # the question names what is wrong with a path
        return isinstance(data, str | Path) and expand_user(data).stat().st_size > _LARGE
    return False


def title(network: Network) -> str:
    train = network.config.train
    recipe = f" rate={train.learning_rate:g}" + (f" decay={train.weight_decay:.2g}" if train.weight_decay else "")
    recipe += f" epochs={train.epochs}" if network.factor > 1 else ""
    return model_title(network.config.model.model_dump()) + recipe


def _describe(race: Race, network: Network) -> dict[str, Any]:
    looks = race.looks(network)
    score = race.score(network, looks)
    runs = [race.run(network, look) for look in looks]
    return {
        "title": title(network),
        "model": runs[0].config.model.model_dump(mode="json"),
        "params": runs[0].cost.params,
        "looks": len(looks),
        "values": list(score.values) if score else [],
        "mean": score.mean if score else None,
        "runs": [run.id for run in runs],
    }


def sample_rows(predicted: np.ndarray, targets: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """What the page shows of the test rows: some of the values, or how often a class was taken for another."""
    if targets.ndim > 1:
        chosen = np.linspace(0, len(targets) - 1, min(_POINTS, len(targets))).astype(int)
        known = chosen[np.isfinite(predicted[chosen, 0]) & np.isfinite(targets[chosen, 0])]
        if not len(known):
            return {}
        pairs = {"true": targets[known, 0], "predicted": predicted[known, 0]}
        return {"points": {name: [float(f"{value:.6g}") for value in values] for name, values in pairs.items()}}
    labels, numbers = np.unique(np.concatenate([targets, predicted]), return_counts=True)
    shown = np.sort(labels[np.argsort(-numbers, kind="stable")[:_CLASSES]])
    counts = [[int(((targets == true) & (predicted == guess)).sum()) for guess in shown] for true in shown]
    names = [str(classes[label]) if label < len(classes) else str(label) for label in shown]
    return {"confusion": {"classes": names, "counts": counts, "omitted": len(labels) - len(shown)}}


def _time_row(run: Prepared) -> float:
    """The median time of a prediction for a single row, in milliseconds."""
    model, row, times = load_model(run.folder), run.data.test.inputs[:1], list[float]()
    with arithmetic(1), torch.no_grad():
        while len(times) < _REPEATS and sum(times) < _MOST_SECONDS:
            start = time.perf_counter()
            run.task.decode(model(run.task.encode(row)))
            times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[len(times) // 5 :])  # the first ones allocate memory


@torch.no_grad()
def _predict(run: Prepared, rows: Split) -> np.ndarray:
    """Predictions in the units of the targets: values, or labels."""
    model, parts = load_model(run.folder), np.array_split(rows.inputs, -(-len(rows) // 8192))
    return np.concatenate([run.task.decode(model(run.task.encode(part))) for part in parts])
