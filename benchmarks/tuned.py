"""Optuna's TPE over small MLPs: what people write themselves instead of calling `isthmus find`.

Two processes share one study with the sampler's and the pruner's default settings, until the best network has just the
time to be trained once more, on all rows but the test rows. Data of fewer than 2,000 rows are cross-validated, as in
`find`, and a trial may be pruned after any fold; of others a tenth of the rows validates. Networks beyond the budget
are rejected before training. Every training has the 200 epochs that are the default of both, or stops early.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import BaseTrial
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from isthmus.search.race import FOLDS, SMALL
from isthmus.search.scores import accuracy, score_values
from isthmus.sklearn import HourglassClassifier, HourglassRegressor

_HELD_OUT = 0.1
_POLL = 0.5  # seconds
_REFIT = 1.5
"""How many times as long as its slowest fold the last training of the best network may take."""


class Problem(NamedTuple):
    """The training rows, what counts, and a seed."""

    x: np.ndarray
    """Features (rows, columns), or uint8 images (rows, height, width)."""
    y: np.ndarray
    """Labels (rows,), or values (rows, outputs)."""
    budget: int
    seed: int

    @property
    def classes(self) -> bool:
        return self.y.ndim == 1

    @property
    def outputs(self) -> int:
        return len(np.unique(self.y)) if self.classes else self.y.shape[1]

    def score(self, predicted: np.ndarray, targets: np.ndarray) -> float:
        if self.classes:
            return accuracy(predicted, targets)
        return score_values(predicted.reshape(targets.shape), targets)


Make = Callable[[BaseTrial, Problem], Any]


def make_scikit_mlp(trial: BaseTrial, problem: Problem) -> Any:
    """scikit-learn's MLP of one to three hidden layers."""
    columns, outputs = problem.x[0].size, 1 if problem.outputs == 2 and problem.classes else problem.outputs
    widest = max(8, min(512, problem.budget // (columns + outputs + 1)))
    layers = [
        trial.suggest_int(f"width {layer}", 4, widest, log=True) for layer in range(trial.suggest_int("layers", 1, 3))
    ]
    sizes = [columns, *layers, outputs]
    if sum((before + 1) * after for before, after in itertools.pairwise(sizes)) > problem.budget:
        raise optuna.TrialPruned
    network = (MLPClassifier if problem.classes else MLPRegressor)(
        hidden_layer_sizes=tuple(layers),
        activation=trial.suggest_categorical("activation", ["relu", "tanh"]),
        alpha=trial.suggest_float("alpha", 1e-6, 10.0, log=True),
        learning_rate_init=trial.suggest_float("learning rate", 1e-4, 3e-2, log=True),
        batch_size=min(trial.suggest_categorical("batch", [32, 128, 512]), len(problem.y) // 2),
        early_stopping=trial.suggest_categorical("early stopping", [False, True]),
        random_state=problem.seed,
    )
    # Pixels keep their scale among themselves: many are almost constant.
    scaler = StandardScaler() if problem.x.ndim == 2 else FunctionTransformer(_scale_pixels)
    whole = make_pipeline(scaler, network)
    return whole if problem.classes else TransformedTargetRegressor(whole, transformer=StandardScaler())


def _scale_pixels(rows: np.ndarray) -> np.ndarray:
    return rows / 255


def make_conventional_mlp(trial: BaseTrial, problem: Problem) -> Any:
    """Our conventional residual MLP with the training of our estimators."""
    columns, outputs = problem.x[0].size + 1, problem.outputs  # our networks have a column of ones and no biases
    widest = max(8, min(256, problem.budget // (columns + outputs)))
    d_z, depth = trial.suggest_int("d_z", 4, widest, log=True), trial.suggest_int("depth", 1, 3)
    d_h = round(d_z * trial.suggest_float("d_h / d_z", 1.0, 4.0, log=True))
    if d_z * (columns + outputs + 2 * depth * d_h) > problem.budget:
        raise optuna.TrialPruned
    batch: Any = trial.suggest_categorical("batch", [128, 512, "auto"])
    return (HourglassClassifier if problem.classes else HourglassRegressor)(
        d_z, d_h, depth,
        learning_rate=trial.suggest_float("learning rate", 1e-4, 3e-2, log=True),
        alpha=trial.suggest_float("alpha", 1e-2, 1e3, log=True),
        batch_size=batch,
        early_stopping=trial.suggest_categorical("early stopping", [False, True]),
        random_state=problem.seed,
    )  # fmt: skip


def tune(problem: Problem, make: Make, ends: float, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The best network, trained on all rows, and facts about the search.

    ``ends`` is by ``time.monotonic``, ``folder`` takes the study's file.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name="tuned", storage=_storage(folder), direction="maximize", sampler=_sampler(problem, 0)
    )
    processes = [
        multiprocessing.get_context("fork").Process(target=_work, args=(problem, make, folder, worker))
        for worker in range(2)
    ]
    for process in processes:
        process.start()
    while (seconds := _fit_seconds(study)) is None or time.monotonic() + _REFIT * seconds + 2 * _POLL < ends:
        time.sleep(_POLL)
    for process in processes:
        process.kill()
        process.join()
    best = study.best_trial
    model = _fit(make(optuna.trial.FixedTrial(best.params), problem), problem, np.arange(len(problem.y)))
    states = [trial.state.name.lower() for trial in study.trials]
    counts = {state: states.count(state) for state in ("complete", "pruned", "fail")}
    return model, {"network": best.params, "validation": round(study.best_value, 4), "trials": counts}


def _storage(folder: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(folder / "study.log")))


def _sampler(problem: Problem, worker: int) -> optuna.samplers.TPESampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the option that Optuna advises for several processes is experimental
        return optuna.samplers.TPESampler(seed=2 * problem.seed + worker, constant_liar=True)


def _fit_seconds(study: optuna.Study) -> float | None:
    """How long the slowest fold of the best network took; None while no network has ended."""
    done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    return float(max(done, key=lambda trial: trial.value or 0.0).user_attrs["seconds"]) if done else None


def _work(problem: Problem, make: Make, folder: Path, worker: int) -> None:
    warnings.simplefilter("ignore")  # iterations that end before convergence
    study = optuna.load_study(study_name="tuned", storage=_storage(folder), sampler=_sampler(problem, worker))
    study.optimize(lambda trial: _validate(trial, problem, make), catch=(ValueError,))  # until it is killed


def _validate(trial: optuna.Trial, problem: Problem, make: Make) -> float:
    model, values, seconds = make(trial, problem), list[float](), list[float]()
    for fold, (train, held_out) in enumerate(_folds(problem)):
        began = time.monotonic()
        fitted = _fit(clone(model), problem, train)
        seconds.append(time.monotonic() - began)
        values.append(problem.score(predict(fitted, problem.x[held_out]), problem.y[held_out]))
        trial.report(statistics.fmean(values), fold)
        if trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr("seconds", max(seconds))
    return statistics.fmean(values)


def _folds(problem: Problem) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    splitter: Any
    if len(problem.y) < SMALL:
        splitter = (StratifiedKFold if problem.classes else KFold)(FOLDS, shuffle=True, random_state=problem.seed)
    else:
        splitter = (StratifiedShuffleSplit if problem.classes else ShuffleSplit)(
            1, test_size=_HELD_OUT, random_state=problem.seed
        )
    yield from splitter.split(problem.x, problem.y)


def _fit(model: Any, problem: Problem, rows: Sequence[int] | np.ndarray) -> Any:
    y = problem.y[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(_flatten(problem.x[rows]), y.ravel() if not problem.classes and y.shape[1] == 1 else y)


def predict(model: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(_flatten(x)))


def _flatten(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).astype(np.float32, copy=False)
