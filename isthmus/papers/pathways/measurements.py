"""Measurements on trained runs beyond their records: costs, contributions, depth mixing, and curves over iterations."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isthmus.analysis.contributions import variation
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, store_results
from isthmus.papers.engine.exhibit import AnalysisInput, MeasuredPart, Quantity
from isthmus.papers.pathways.studies import FORMS, LONGER_BY_SHAPE, READ, TWICE_UP_TO, label, of_pathway

UNIFORM = ("plain", *FORMS, *FORMS.values())
ROUNDS = 5
CURVE = "isthmus.analysis.many_iterations/1"


def on_tower(given: AnalysisInput) -> dict[str, Any]:
    """E2: costs, the share of the data beyond first order, and how uniform depth is used."""
    orders = {item.part.title: _share_beyond_first_order(item) for item in given.parts}
    quantities = [
        Quantity(title, "share of the targets beyond first order", None, value) for title, value in orders.items()
    ]
    uniform, more = _measure_uniformity(given, given.parts)
    costs = measure_costs(given.parts)
    return {
        "orders": orders, "costs": costs, "uniformity": uniform,
        "quantities": [*quantities, *more, *_cost_quantities(given.parts, costs)],
    }  # fmt: skip


def by_shape(given: AnalysisInput) -> dict[str, Any]:
    """E3: costs."""
    costs = measure_costs(given.parts)
    return {"costs": costs, "quantities": _cost_quantities(given.parts, costs)}


def at_equal_seconds(given: AnalysisInput) -> dict[str, Any]:
    """E7: the costs of E3's parts, from the configs of their networks, and what the design leaves out."""
    several = [item for item in given.parts if len(item.part.study.candidates) > 1]
    costs = measure_costs(several)
    once, twice = LONGER_BY_SHAPE
    said = ["time is that of a forward and a backward pass; the step of the optimiser is not timed",
            "the trainings of E3 were known when plain was trained for longer"]  # fmt: skip
    if given.scale == "cpu":
        said.append(
            f"beyond {TWICE_UP_TO} blocks plain is trained for {once:g} times the steps only: {twice:g} times, which "
            "some pathways would allow, would add two thirds to the cost of the experiment"
        )
    return {"costs": costs, "quantities": _cost_quantities(several, costs), "differences": said}


def in_tokens(given: AnalysisInput) -> dict[str, Any]:
    """E5: how uniform depth is used, and |A| of the first ViT of every pathway, of the first seed."""
    from isthmus.analysis.depth_mixing import of_run

    uniform, quantities = _measure_uniformity(given, given.parts)
    mixing = {}
    for network, folders in given.parts[0].runs():
        found = of_run(folders[0], given.data_dir)
        mixing[label(network.model)] = {name: found[name] for name in ("mixing", "entropy", "reach", "input_share")}
        for name, words in (("entropy", "entropy of the output's row of |A|"), ("reach", "mean reach of the output")):
            quantities.append(
                Quantity(f"{label(network.model)}, {name}", f"{words}, first seed", None, found[name][-1])
            )
    return {"uniformity": uniform, "mixing": mixing, "quantities": quantities}


def _share_beyond_first_order(item: MeasuredPart) -> float:
    from isthmus.core.draws import numpy_generator
    from isthmus.sources.tower import climb, share_beyond_first_order

    config: Any = item.part.study.base.source
    rows = numpy_generator(config.seed, "rows of the tower").standard_normal((config.train, config.d))
    return share_beyond_first_order(*climb(config, rows))


def measure_costs(parts: Iterable[MeasuredPart]) -> dict[str, dict[str, float]]:
    """``costs[network]``: multiply–adds, and the CPU time of a step over that of the part's plain network."""
    import torch

    from isthmus.core.registry import create_model
    from isthmus.papers.pathways.untrained import compare_steps, drawn
    from isthmus.training.counting import cost

    found = {}
    for item in parts:
        if (plain := of_pathway(item.networks, "plain")) is None:
            continue
        with drawn(0):
            models: dict[str, Any] = {network.id: create_model(**network.model) for network in item.networks}
            rows = torch.randn(item.part.study.base.train.batch_size, *models[plain.id].input_shape)
        ratios = compare_steps(models, rows, ROUNDS, plain.id)
        for name, model in models.items():
            found[name] = {"macs": float(cost(model).macs), "seconds": ratios[name]}
    return found


def _cost_quantities(parts: Iterable[MeasuredPart], costs: Mapping[str, Mapping[str, float]]) -> list[Quantity]:
    return [
        Quantity(
            f"{network.id}, time", f"CPU time of a step over plain's: {label(network.model)}, {item.part.title}", None,
            costs[network.id]["seconds"], note=f"{costs[network.id]['macs']:,.0f} multiply–adds",
        )
        for item in parts
        for network in item.networks
        if network.id in costs
    ]  # fmt: skip


def _measure_uniformity(given: AnalysisInput, parts: Iterable[MeasuredPart]) -> tuple[dict[str, Any], list[Quantity]]:
    """``uniformity[network]``: standard deviation / mean over depth of ‖u‖ and of the gradient, run by run."""
    from isthmus.analysis.contributions import of_run

    found: dict[str, Any] = {}
    quantities = []
    for item in parts:
        for network, folders in item.runs():
            if (name := label(network.model)) not in UNIFORM:
                continue
            runs = [of_run(folder, given.data_dir) for folder in folders]
            found[network.id] = {key: [variation(run[key]) for run in runs] for key in ("update", "gradient")}
            for key, words in (("update", "‖u‖"), ("gradient", "‖∂loss/∂u‖")):
                what = f"variation over depth of {words}, {name}, {item.part.title}"
                values = found[network.id][key]
                quantities.append(Quantity(f"{network.id}, {key}", what, None, statistics.fmean(values)))
    return found, quantities


# E6


def _applies(model: Any, task: str) -> str | None:
    return None if hasattr(model, "states") and hasattr(model, "readout") else "it has no iterations"


@store_results(CURVE, _applies)
def of_run(trained: TrainedRun) -> Answer:
    """Test loss, accuracy and mean length of a token after iterations 1 to ``READ``."""
    import torch

    loss, correct, length = (torch.zeros(READ, dtype=torch.float64, device=trained.device) for _ in range(3))
    rows = 0
    with torch.no_grad():
        for batch in trained.test_batches():
            _, *states = trained.model.states(batch.input, READ)
            for place, tokens in enumerate(states):
                output = trained.model.readout(tokens)
                loss[place] += len(batch.input) * trained.task.loss(output, batch.target).double()
                correct[place] += (output.argmax(-1) == batch.target).sum()
                length[place] += tokens.double().norm(dim=-1).mean(-1).sum()
            rows += len(batch.input)
    return {
        "trained_iterations": trained.model.config.iterations,
        "loss": finite_values(loss / rows),
        "accuracy": finite_values(correct / rows),
        "length": finite_values(length / rows),
    }


def over_iterations(given: AnalysisInput) -> dict[str, Any]:
    """``curves[pathway]``: loss, accuracy and length by run and iteration, fits, and how many runs diverged."""
    (item,) = given.parts
    found: dict[str, Any] = {}
    quantities = []
    study = item.part.study
    tried = len(study.seeds) * len(study.rates)
    for (network, folders), candidate in zip(item.runs(), item.candidates, strict=True):
        name = label(network.model)
        runs = [of_run(folder, given.data_dir) for folder in folders]
        curves: dict[str, Any] = {key: [run[key] for run in runs] for key in ("loss", "accuracy", "length")}
        fits = [fit_saturation(curve) for curve in curves["loss"]]
        growth = [_ratio(run["length"], runs[0]["trained_iterations"]) for run in runs]
        found[name] = {
            "trained": runs[0]["trained_iterations"], **curves, "fits": fits, "growth": growth,
            "diverged": candidate.failed, "tried": tried, "rate": candidate.learning_rate,
        }  # fmt: skip
        what = "share of the variance of the loss over iterations that a + b·exp(−cT) explains, the least of all seeds"
        quantities += [
            Quantity(f"{name}, fit", what, None, min(fit["explained"] for fit in fits)),
            Quantity(f"{name}, growth", "length of a token after 24 iterations over that after 6", None, _mean(growth)),
            Quantity(f"{name}, diverged", f"trainings that diverged, of {tried}", None, candidate.failed),
        ]
        for place in (1, 3, 6, 12, 24):
            value = _mean([curve[place - 1] for curve in curves["accuracy"]])
            what = f"test accuracy (%) after {place} iterations"
            quantities.append(Quantity(f"{name}, {place}", what, None, None if value is None else 100 * value))
    return {"curves": found, "quantities": quantities}


def _ratio(length: Sequence[float | None], trained: int) -> float | None:
    """None where the state is no longer finite."""
    first, last = length[trained - 1], length[-1]
    return None if first is None or last is None else last / first


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def fit_saturation(curve: Sequence[float | None]) -> dict[str, float]:
    """Least squares of a + b·exp(−cT) for T = 1, 2, …, and the share of the variance that it explains.

    A curve with values that are not finite is not explained at all.
    """
    import numpy as np

    if any(value is None for value in curve):
        return {"a": 0.0, "b": 0.0, "c": 0.0, "explained": 0.0}
    y = np.array(curve, dtype=float)
    total = float(np.square(y - y.mean()).sum())
    best: tuple[float, dict[str, float]] | None = None
    for c in np.geomspace(0.01, 5, 200):
        design = np.stack([np.ones_like(y), np.exp(-c * np.arange(1, len(y) + 1))], axis=1)
        (a, b), *_ = np.linalg.lstsq(design, y, rcond=None)
        rest = float(np.square(y - design @ [a, b]).sum())
        if best is None or rest < best[0]:
            best = rest, {"a": float(a), "b": float(b), "c": float(c)}
    assert best is not None
    return best[1] | {"explained": 1 - best[0] / total if total > 0 else 0.0}
