"""What the trainings of a search say about every size, also where it has tried little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.core.config import RunConfig
from isthmus.studies.decisions import describe_settings, to_columns
from isthmus.studies.proposals import plain_settings
from isthmus.studies.surrogate import NOISE_OF_FOLDS, Observations, Surrogate, clip_worst

_FEWEST = 4
"""Networks without which there is no belief."""
_NORMAL = 1.96


class Tried(NamedTuple):
    """A network with the mean quality of its folds or seeds; without one it was not trained."""

    config: RunConfig
    params: int
    quality: float | None = None
    looks: int = 0


def believe(networks: Sequence[Tried], maximise: bool) -> list[dict[str, float]]:
    """By size, the quality that is expected of the best network up to that size, with a 95 % interval.

    Empty if too few networks were trained.
    """
    trained = [place for place, each in enumerate(networks) if each.quality is not None and each.looks]
    if len(trained) < _FEWEST:
        return []
    sign = 1 if maximise else -1
    features = to_columns([_describe(each) for each in networks])
    values = clip_worst(sign * np.array([networks[place].quality for place in trained], dtype=np.float64))
    lengths = np.log([each.config.train.epochs for each in networks])
    counts = np.array([networks[place].looks for place in trained], dtype=np.float64)
    surrogate = Surrogate(Observations(features[trained], lengths[trained], values, counts), NOISE_OF_FOLDS)
    mean, deviation = surrogate.predict(features, lengths)
    best, band = -math.inf, list[dict[str, float]]()
    for place in sorted(range(len(networks)), key=lambda each: networks[each].params):
        if mean[place] > best:
            best, half = float(mean[place]), _NORMAL * float(deviation[place])
            low, high = sorted([sign * (best - half), sign * (best + half)])
            band.append({"params": networks[place].params, "mean": sign * best, "low": low, "high": high})
    return band


def _describe(network: Tried) -> dict[str, Any]:
    train, model = network.config.train, network.config.model
    known = {"params": float(network.params), "name": model.name}
    recipe = {f"train.{name}": getattr(train, name) for name in ("learning_rate", "weight_decay")}
    return describe_settings(known, plain_settings(model) | recipe)
