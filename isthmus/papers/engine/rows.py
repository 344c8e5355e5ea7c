"""Rows of a result: printed beside measured, and each proposed network beside its rival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from isthmus.papers.engine.claims import TOLERANCE, agreement
from isthmus.papers.engine.exhibit import MeasuredPart, Part
from isthmus.papers.engine.networks import Network, measured_network, rival, shape_of, unit_of
from isthmus.studies.fronts import Candidate
from isthmus.studies.statistics import compare, fit_noise

Row = dict[str, Any]


def identify(part: Part, candidates: list[Candidate], folders: Sequence[Path], extra: count[int]) -> MeasuredPart:
    """The candidates of a part under the ids of the rows they match; the others are ``extra.1`` and so on."""
    factor = unit_of(candidates[0].objective)[1] if candidates else 1.0
    noise = fit_noise(
        {seed: factor * value for seed, value in zip(candidate.seeds, candidate.test, strict=True)}
        for candidate in candidates
    )
    networks = []
    for candidate in candidates:
        model = candidate.settings["model"]
        rows = [row for row in part.printed.values() if row.shape == shape_of(model)]
        known = next((row.id for row in rows if all(model.get(k) == v for k, v in row.model.items())), None)
        networks.append(measured_network(candidate, known or f"extra.{next(extra)}", noise))
    return MeasuredPart(part, candidates, networks, folders)


def recall_candidate(row: Mapping[str, Any], maximise: bool) -> Candidate:
    """The candidate behind a stored row."""
    config, measured = row["config"], row["measured"]
    factor = unit_of(measured["metric"])[1]
    train = dict(config["train"])
    rate = train.pop("learning_rate")
    return Candidate(
        source=config["source"]["name"], task=config["task"]["name"], architecture=config["model"]["name"],
        settings={**config, "train": train}, learning_rate=rate, objective=measured["metric"], maximise=maximise,
        params=measured["params"], trainable_params=measured["trainable_params"], macs=0, seeds=tuple(row["seeds"]),
        run_ids=tuple(row["runs"]), metrics={name: tuple(values) for name, values in measured["metrics"].items()},
        validation=measured["validation"] / factor, wall_seconds=0.0, failed=measured["failed_runs"],
    )  # fmt: skip


def make_rows(parts: Iterable[MeasuredPart], analysed: Mapping[str, Any]) -> list[Row]:
    """Part by part: every printed row, trained or not, then the networks that match none."""
    result = []
    for item in parts:
        part, found = item.part, {n.id: (n, c) for n, c in zip(item.networks, item.candidates, strict=True)}
        for identity in dict.fromkeys([*part.printed, *found]):
            printed, (network, candidate) = part.printed.get(identity), found.get(identity, (None, None))
            row = _row(identity, part, printed, network)
            if network is not None and candidate is not None:
                row |= _measure(candidate)
                row["measured"] |= analysed.get(identity, {})
            # A proposed network against the best of another shape that is not larger, measured and printed.
            row["rival"] = {
                "measured": _against(network, item.networks, part),
                "published": _against(printed, list(part.printed.values()), part),
            }
            result.append(row)
    return result


def _row(identity: str, part: Part, printed: Network | None, network: Network | None) -> Row:
    known = network or printed
    assert known is not None
    published, verdict = Row(), Row(word="not in the paper", interval=None)
    if printed:
        quality = printed.quality
        decimals = list(printed.decimals) if printed.decimals else None
        published = {"mean": quality.mean, "std": quality.std, "runs": quality.runs, "decimals": decimals}
        published["printed"] = dict(printed.columns)
        verdict["word"] = "not run at this scale"
        if network:
            word, interval = agreement(network.quality, quality, part.same_setup, TOLERANCE[network.unit])
            verdict = {"word": word, "interval": interval and asdict(interval)}
    return {
        "id": identity,
        "part": part.title,
        "printed_in": part.printed_title if printed else None,
        "architecture": known.shape,
        "model": {name: known.model[name] for name in part.fields if name in known.model},
        "params": known.params,
        "unit": known.unit,
        "published": published or None,
        "measured": None,
        "config": None,
        "seeds": [],
        "runs": [],
        "verdict": verdict,
    }


def _measure(candidate: Candidate) -> Row:
    settings, (_, factor) = candidate.settings, unit_of(candidate.objective)
    return {
        "measured": {
            "metric": candidate.objective,
            "mean": factor * candidate.mean,
            "std": candidate.std and factor * candidate.std,
            "values": [factor * value for value in candidate.test],
            "validation": factor * candidate.validation,
            "params": candidate.params,
            "trainable_params": candidate.trainable_params,
            "failed_runs": candidate.failed,
            "metrics": {name: list(values) for name, values in candidate.metrics.items()},
        },
        "config": settings | {"train": settings["train"] | {"learning_rate": candidate.learning_rate}},
        "seeds": list(candidate.seeds),
        "runs": list(candidate.run_ids),
    }


def _against(network: Network | None, others: Sequence[Network], part: Part) -> Row | None:
    if network is None or network.shape != part.subject or {other.shape for other in others} == {network.shape}:
        return None
    if (other := rival(network, others, part.rival_agrees_in)) is None:
        return {"word": "no rival so small", "interval": None}
    interval = compare(network.quality, other.quality)
    numbers = {"id": other.id, "params": other.params, "mean": other.quality.mean}
    return numbers | {"word": interval.decision, "interval": asdict(interval)}
