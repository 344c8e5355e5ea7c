"""Networks, parts and records for tests, without any training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from isthmus.cli.complete import complete_study
from isthmus.core.config import RunConfig, StudyConfig
from isthmus.core.protocols import Component, ModelConfig, Signature
from isthmus.core.record import RunRecord
from isthmus.core.registry import find
from isthmus.papers.engine.exhibit import Findings, MeasuredPart, Part
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.reproduce import find_exhibit, reproduce
from isthmus.studies.statistics import Sample
from isthmus.training.prepare import Options


def network(
    shape: str, d_z: int, d_h: int, depth: int, values: Sequence[float], params: float = 1e6, **more: Any
) -> Network:
    """Selected by the mean of its values, unless ``chosen_by`` says otherwise."""
    quality = Sample.of(values)
    model = {"d_z": d_z, "d_h": d_h, "depth": depth, "w_in": "trainable"}
    model |= {name: more.pop(name) for name in ("w_in", "norm", "activation", "init") if name in more}
    made = Network(
        id=f"{shape} {' '.join(map(str, model.values()))} {params:g}", shape=f"{shape}_mlp", model=model, params=params,
        trainable=params, chosen_by=quality.mean, quality=quality,
    )  # fmt: skip
    return replace(made, **more)


def findings(part: Part, networks: Iterable[Network], **analysis: Any) -> Findings:
    return Findings([MeasuredPart(part, [], list(networks), [])], analysis)


def size(model: dict[str, Any], d_in: int, d_out: int) -> int:
    """Parameters by the closed formula, which `tests/papers` compares with real models."""
    return int(model["d_z"] * (d_in + d_out + 2 * model["depth"] * model["d_h"]))


def around(mean: float, spread: float = 0.001) -> list[float]:
    """Three runs."""
    return [mean - spread, mean, mean + spread]


Quality = Callable[[dict[str, Any], float, int], float]


class Fabricated:
    """What a study would leave: records of all its runs, with the qualities given and no folder behind them."""

    def __init__(self, config: StudyConfig, quality: Quality, shapes: tuple[int, int] = (3072, 3072)) -> None:
        self.config, self.quality, self.shapes = config, quality, shapes
        self.folders: list[Path] = []

    def records(self) -> list[RunRecord]:
        config = self.config
        found = []
        for model in config.candidates:
            tried = [self._record(config.run(model, rate, config.seeds[0])) for rate in config.rates]
            best = max(tried, key=lambda record: record.metrics["validation"]["psnr"])
            rate = best.config["train"]["learning_rate"]
            found += [*tried, *(self._record(config.run(model, rate, seed)) for seed in config.seeds[1:])]
        return found

    def _record(self, config: RunConfig) -> RunRecord:
        sizes = dict(zip(("d_in", "d_out"), self.shapes, strict=True))
        complete = config.model_copy(update={"model": config.model.model_copy(update=sizes)})
        value = self.quality(complete.model.model_dump(), config.train.learning_rate, config.seed)
        return RunRecord(
            id=complete.run_id("data"), status="finished", config=complete.model_dump(mode="json"), seed=config.seed,
            fingerprint="data", objective="psnr", maximise=True, code={}, machine={}, versions={},
            cost=dict.fromkeys(("params", "trainable_params", "macs"), size(complete.model.model_dump(), *self.shapes)),
            metrics={"validation": {"psnr": value - 0.01}, "test": {"psnr": value}},
        )  # fmt: skip


def fabricating(quality: Quality, shapes: tuple[int, int] = (3072, 3072)) -> Callable[..., Fabricated]:
    """A stand-in for carrying a study out."""

    def carry_out(config: StudyConfig, options: Options, workers: int) -> Fabricated:
        return Fabricated(config, quality, shapes)

    return carry_out


def classifier(shape: str, values: Sequence[float], params: float = 1e6, **model: Any) -> Network:
    """A network judged by accuracy in percent, named by its settings."""
    quality = Sample.of(values)
    name = f"{shape} {' '.join(f'{key}={value}' for key, value in model.items())}"
    return Network(name, shape, model, params, params, quality.mean, quality, "points")


def completed(part: Part) -> list[ModelConfig]:
    """Every network of a part as its data would complete it: one that does not fit them is an error."""
    shapes = {"digits": (1, 8, 8), "mnist": (1, 28, 28)}
    signature = Signature(shapes.get(part.study.base.source.name, (3, 32, 32)), (10,))
    return [candidate.complete(signature, seed=0) for candidate in part.study.candidates]


class Parts(dict[tuple[str, str], Sequence[Part]]):
    """The parts of every exhibit by name and scale, made where a test asks for them: some count large networks."""

    def __init__(self, makers: Mapping[str, Callable[[str], Sequence[Part]]]) -> None:
        self.makers = makers

    def __missing__(self, key: tuple[str, str]) -> Sequence[Part]:
        name, scale = key
        return self.setdefault(key, self.makers[name](scale))


def parameters(config: Component) -> int:
    """Without the FLOPs that ``cost`` counts too."""
    with torch.device("meta"):
        model = find("models", config.name)(config)
    return sum(parameter.numel() for parameter in model.parameters())


def run_ids(parts: Iterable[Part]) -> set[str]:
    """Of every run that the parts need; equal ids are one run."""
    return {
        part.study.run(candidate, rate, seed).run_id("data")
        for part in parts
        for candidate in part.study.candidates
        for rate in part.study.rates
        for seed in part.study.seeds
    }


def models(part: Part) -> list[dict[str, Any]]:
    return [candidate.model_dump() for candidate in part.study.candidates]


def as_printed(parts: Sequence[Part]) -> Findings:
    """As if what was trained had come out as printed."""
    return Findings([MeasuredPart(part, [], list(part.printed.values()), []) for part in parts])


def smoke(paper: str, table: str, out: Path) -> dict[str, Any]:
    """A table at the smoke scale, where everything is real, with what holds of every result."""
    result = reproduce(paper, table, "smoke", out, carry_out=complete_study)
    assert {claim["id"] for claim in result["claims"]} == set(find_exhibit(paper, table).tests)
    assert {claim["measured"] for claim in result["claims"]} <= {"yes", "no", "undecided", "not addressed"}
    assert result["differences"]
    assert result["rows"] or result["quantities"]
    trained = [row for row in result["rows"] if row["measured"]]
    for name in ("result.json", "rows.csv", "table.md", "figure.png", *(["index.html"] if trained else [])):
        assert (out / name).stat().st_size > 100
    assert all(len(row["seeds"]) == 2 for row in trained), "seeds of a random permutation or mask are one network"
    return result
