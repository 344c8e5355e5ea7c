"""Rows of a result: printed beside measured, and each proposed network beside its rival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from isthmus.papers.engine.claims import agreement
from isthmus.papers.engine.exhibit import MeasuredPart, Part, PrintedRow
from isthmus.papers.engine.networks import Network, measured_network, rival, shape_of, unit_of
from isthmus.studies.fronts import Candidate
from isthmus.studies.statistics import Sample, compare, fit_noise

Row = dict[str, Any]


def identify(part: Part, candidates: list[Candidate], folders: Sequence[Path], extra: count[int]) -> MeasuredPart:
    """The candidates of a part under the ids of the rows they match; the others are ``extra.1`` and so on."""
    factor = unit_of(candidates[0].objective)[1] if candidates else 1.0
    noise = fit_noise(
        {seed: factor * value for seed, value in zip(candidate.seeds, candidate.test, strict=True)}
        for candidate in candidates
    )
    ids = (_row_of(candidate, part) or f"extra.{next(extra)}" for candidate in candidates)
    networks = [measured_network(candidate, name, noise) for candidate, name in zip(candidates, ids, strict=True)]
    return MeasuredPart(part, candidates, networks, folders)


def recall_candidate(row: Mapping[str, Any], maximise: bool) -> Candidate:
    """The candidate behind a stored row. Older rows hold only the objective's metric."""
    config, measured = row["config"], row["measured"]
    factor = unit_of(measured["metric"])[1]
    train = dict(config["train"])
    rate = train.pop("learning_rate")
    metrics = {measured["metric"]: tuple(value / factor for value in measured["values"])}
    metrics |= {name: tuple(values) for name, values in measured.get("metrics", {}).items()}
    return Candidate(
        source=config["source"]["name"], task=config["task"]["name"], architecture=config["model"]["name"],
        settings={**config, "train": train}, learning_rate=rate, objective=measured["metric"], maximise=maximise,
        params=measured["params"], trainable_params=measured["trainable_params"], macs=0, seeds=tuple(row["seeds"]),
        run_ids=tuple(row["runs"]), metrics=metrics, validation=measured["validation"] / factor, wall_seconds=0.0,
        failed=measured["failed_runs"],
    )  # fmt: skip


def _row_of(candidate: Candidate, part: Part) -> str | None:
    for identity, row in part.printed.items():
        model = candidate.settings["model"]
        if row.network.shape == shape_of(model) and all(model.get(k) == v for k, v in row.network.model.items()):
            return identity
    return None


def make_rows(parts: Iterable[MeasuredPart], analysed: Mapping[str, Any]) -> list[Row]:
    """Part by part: every printed row, trained or not, then the networks that match none."""
    result = []
    for item in parts:
        found = dict(zip((network.id for network in item.networks), item.candidates, strict=True))
        networks = {network.id: network for network in item.networks}
        for identity in dict.fromkeys([*item.part.printed, *networks]):
            printed, network = item.part.printed.get(identity), networks.get(identity)
            row = _row(identity, item.part, printed, network)
            if network is not None:
                row |= _measurement(found[identity]) | _verdict(network, printed, item)
                row["measured"] |= analysed.get(identity, {})
            result.append(row | {"rival": _rival(network, printed, item)})
    return result


def _row(identity: str, part: Part, printed: PrintedRow | None, network: Network | None) -> Row:
    known = network or (printed.network if printed else None)
    assert known is not None
    return {
        "id": identity,
        "part": part.title,
        "printed_in": part.printed_title if printed else None,
        "architecture": known.shape,
        "model": {name: known.model[name] for name in part.fields if name in known.model},
        "params": known.params,
        "unit": known.unit,
        "published": _printed_sample(printed.network.quality) | {"printed": dict(printed.columns)} if printed else None,
        "measured": None,
        "config": None,
        "seeds": [],
        "runs": [],
        "verdict": {"word": "not run at this scale", "interval": None},
    }


def _printed_sample(quality: Sample) -> Row:
    return {"mean": quality.mean, "std": quality.std, "runs": quality.runs}


def _measurement(candidate: Candidate) -> Row:
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


def _verdict(network: Network, printed: PrintedRow | None, item: MeasuredPart) -> Row:
    if printed is None:
        return {"verdict": {"word": "not in the paper", "interval": None}}
    word, interval = agreement(network.quality, printed.network.quality, item.part.same_setup)
    return {"verdict": {"word": word, "interval": interval and asdict(interval)}}


def _rival(network: Network | None, printed: PrintedRow | None, item: MeasuredPart) -> Row:
    """A proposed network against the best of another shape that is not larger, measured and printed."""
    return {
        "measured": _against(network, item.networks, item.part),
        "published": _against(printed.network if printed else None, item.part.printed_networks, item.part),
    }


def _against(network: Network | None, others: Sequence[Network], part: Part) -> Row | None:
    if network is None or network.shape != part.subject or {other.shape for other in others} == {network.shape}:
        return None
    if (other := rival(network, others, part.rival_agrees_in)) is None:
        return {"word": "no rival so small", "interval": None}
    interval = compare(network.quality, other.quality)
    return {
        "id": other.id,
        "params": other.params,
        "mean": other.quality.mean,
        "word": interval.decision,
        "interval": asdict(interval),
    }
