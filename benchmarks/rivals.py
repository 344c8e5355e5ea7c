"""Optuna's samplers on a recorded grid, straight from their package and with its default settings.

A sampler asks for one network after the other and sees the quality and the logarithm of the cost of every earlier one,
which is the most that its interface takes: no costs before training, no learning curves (Optuna prunes studies of one
objective only). Rising numbers are given as their places, so that a sampler knows which are neighbours. A field that
all families share is one parameter. A network that was trained before is told again at no cost.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler

from benchmarks.grids import Grid, settings_of
from isthmus.studies.plan import Plan

OPTUNA: Mapping[str, type[BaseSampler]] = {
    "optuna-tpe": TPESampler, "optuna-nsga2": NSGAIISampler, "optuna-gp": GPSampler
}  # fmt: skip
_REPEATS = 20
"""Networks in a row that a sampler may repeat; a random new one follows."""

Choices = dict[str, Sequence[Any]]


def ask_optuna(name: str, plan: Plan, known: Grid, number: int, seed: int) -> list[str]:
    """The keys of the first ``number`` networks that a sampler trains."""
    settings = {proposal.key: settings_of(plan, proposal) for proposal in plan.candidates}
    keys = {_identify(values): key for key, values in settings.items()}
    families = list_choices(list(settings.values()))
    sign, trained, repeats = 1 if known.maximise else -1, list[str](), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some samplers warn that they are experimental
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=OPTUNA[name](seed=seed))  # type: ignore[call-arg]
        order = random.Random(seed)
        while len(trained) < number:
            if repeats >= _REPEATS:
                new = order.choice([key for key in settings if key not in trained])
                study.enqueue_trial(name_parameters(settings[new], families))
            trial = study.ask()
            key = keys[_identify(suggest(trial, families))]
            study.tell(trial, [sign * known.quality[key], math.log(known.cost[key])])
            repeats = repeats + 1 if key in trained else 0
            if not repeats:
                trained.append(key)
    return trained


def _identify(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))


def list_choices(settings: Sequence[Mapping[str, Any]]) -> dict[str, Choices]:
    """The values of every field, for each family (the empty text where there is one)."""
    found: dict[str, Choices] = {}
    for values in settings:
        fields = found.setdefault(values.get("name", ""), {})
        for name in values.keys() - {"name"}:
            fields[name] = list(dict.fromkeys([*fields.get(name, ()), values[name]]))
    return {
        family: {
            name: values if isinstance(values[0], str) else sorted(values) for name, values in sorted(fields.items())
        }
        for family, fields in found.items()
    }


def _name_parameter(field: str, family: str, families: Mapping[str, Choices]) -> str:
    is_shared = all(fields.get(field) == families[family][field] for fields in families.values())
    return field if is_shared else f"{family}.{field}"


def suggest(trial: optuna.Trial, families: Mapping[str, Choices]) -> dict[str, Any]:
    """The fields of the network that a trial describes."""
    family = trial.suggest_categorical("name", list(families)) if len(families) > 1 else ""
    values: dict[str, Any] = {"name": family} if family else {}
    for field, choices in families[family].items():
        name = _name_parameter(field, family, families)
        if isinstance(choices[0], str):
            values[field] = trial.suggest_categorical(name, choices)
        else:
            values[field] = choices[trial.suggest_int(name, 0, len(choices) - 1)]
    return values


def name_parameters(values: Mapping[str, Any], families: Mapping[str, Choices]) -> dict[str, Any]:
    """The parameters with which Optuna describes a network."""
    family = values.get("name", "")
    found = {"name": family} if family else {}
    for field, choices in families[family].items():
        value = values[field]
        found[_name_parameter(field, family, families)] = value if isinstance(value, str) else choices.index(value)
    return found
