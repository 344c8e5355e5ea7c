"""Numbers and comparisons in words: the same in the page, the figures and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from isthmus.fronts import Candidate, Comparison, Stretch, best, compare
from isthmus.reports.sections import Section

COST_TITLES = {"params": "Parameters", "trainable_params": "Trainable parameters", "macs": "MACs per row"}
METRIC_TITLES = {
    "psnr": "PSNR",
    "psnr_pooled": "PSNR, pooled",
    "ssim": "SSIM",
    "mse": "MSE",
    "rmse": "RMSE",
    "mae": "MAE",
    "loss": "Loss",
    "accuracy": "Accuracy",
    "r2": "R²",
}
NO_BREAK = "\N{NO-BREAK SPACE}"
_NOUNS = {"params": "parameters", "trainable_params": "trainable parameters", "macs": "MACs per row"}
_SHAPES = {"hourglass_mlp": "the Hourglass", "conventional_mlp": "the conventional shape"}
_RANGES_NAMED = 3


def metric_title(name: str) -> str:
    return METRIC_TITLES.get(name, name.replace("_", " "))


def unit(metric: str) -> str:
    return "dB" if metric.startswith("psnr") else ""


def axis_title(split: str, metric: str) -> str:
    title = metric_title(metric)
    return f"{split} {title} ({unit(metric)})" if unit(metric) else f"{split} {title}"


def architecture_title(architecture: str) -> str:
    return {"hourglass_mlp": "Hourglass", "conventional_mlp": "Conventional"}.get(architecture, architecture)


def magnitude(value: float) -> str:
    """Three digits and a letter: 1.30 M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            # After rounding, so that 9.996 reads 10.0 and not 10.00.
            return f"{scaled:.{max(0, 2 - math.floor(math.log10(abs(scaled) * 1.0005)))}f}{NO_BREAK}{letter}"
    return f"{value:g}"


def quantity(value: float, metric: str) -> str:
    return f"{value:.3f}" if unit(metric) == "dB" else f"{value:.4g}"


def with_spread(mean: float, std: float | None, metric: str) -> str:
    if std is None:
        return quantity(mean, metric)
    return f"{quantity(mean, metric)} ± {std:.3f}" if unit(metric) == "dB" else f"{quantity(mean, metric)} ± {std:.2g}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g}{NO_BREAK}s"
    return f"{seconds / 60:.3g}{NO_BREAK}min" if seconds < 6000 else f"{seconds / 3600:.3g}{NO_BREAK}h"


def span(start: float, stop: float) -> str:
    """A range of costs: 1.27–1.45 M."""
    first, last = magnitude(start), magnitude(stop)
    if first == last:
        return first
    (number, _, letter), ending = first.partition(NO_BREAK), last.partition(NO_BREAK)[2]
    return f"{number if letter == ending else first}–{last}"


def answer(section: Section, cost: str = "params") -> tuple[str, str]:
    """Which architecture wins where, and what limits that answer; undecided where seeds can explain it."""
    tried = [architecture for architecture in section.architectures if section.of(architecture)]
    if not tried:
        return "No run has finished, so there is nothing to compare.", ""
    if len(tried) == 1:
        return _single(section.of(tried[0]), cost), "A comparison needs a second shape."
    comparisons = [compare(section.of(first), section.of(second), cost) for first, second in combinations(tried, 2)]
    limits = [limit for comparison in comparisons for limit in _limits(comparison)]
    judged = any(comparison.degrees_of_freedom for comparison in comparisons)
    if judged and any(len(candidate.seeds) == 1 for candidate in section.candidates):
        limits.append("Some candidates have one seed only: the others’ spread over seeds stands in for theirs.")
    return " ".join(map(describe, comparisons)), " ".join(limits)


def describe(comparison: Comparison) -> str:
    """Who leads where, in one sentence."""
    noun = _NOUNS[comparison.cost]
    first, second = map(_shape, comparison.architectures)
    if not comparison.stretches:
        return _sentence(f"{first} and {second} were tried at no common number of {noun}: there is nothing to compare")
    if len(comparison.stretches) > 1:
        parts = [_leads(comparison, leader) for leader in (*comparison.architectures, None)]
        return _sentence(f"by {noun}, " + "; ".join(part for part in parts if part))
    (stretch,) = comparison.stretches
    where = f"{span(stretch.start, stretch.stop)} {noun}"
    if stretch.leader is None:
        start = "undecided" if comparison.degrees_of_freedom else "one seed: undecided"
        return _sentence(f"{start} at {where}, {_difference(stretch, comparison)}")
    lead = f"by up to {_amount(stretch, comparison)}"
    return _sentence(f"{_shape(stretch.leader)} leads wherever both were tried, {where}, {lead}")


def _single(candidates: Sequence[Candidate], cost: str) -> str:
    chosen = best(candidates, cost)
    metric = chosen.objective
    reached = f"{metric_title(metric)} {with_spread(chosen.mean, chosen.std, metric)} {unit(metric)}".strip()
    size = f"{magnitude(getattr(chosen, cost))} {_NOUNS[cost]}"
    subject = f"only {_shape(chosen.architecture)} was tried; its best on validation data"
    return _sentence(f"{subject}, with {size}, reaches {reached} on test data")


def _leads(comparison: Comparison, leader: str | None) -> str:
    """All stretches of one leader; of many, the widest on the logarithmic axis that the plot has."""
    stretches = [stretch for stretch in comparison.stretches if stretch.leader == leader]
    if not stretches:
        return ""
    widest = sorted(stretches, key=lambda item: item.start / item.stop)[:_RANGES_NAMED]
    ranges = [span(stretch.start, stretch.stop) for stretch in sorted(widest, key=lambda item: item.start)]
    if len(stretches) > len(ranges):
        ranges.append(f"{len(stretches) - len(ranges)} narrower ranges")
    largest = max(stretches, key=lambda stretch: stretch.lead)
    if leader is None:
        return f"undecided at {_joined(ranges)}, {_difference(largest, comparison)}"
    return f"{_shape(leader)} leads at {_joined(ranges)}, by up to {_amount(largest, comparison)}"


def _difference(stretch: Stretch, comparison: Comparison) -> str:
    """Of what is undecided: stated, and not called a lead."""
    side = f" for {_shape(stretch.ahead)}" if stretch.ahead else ""
    verdict = "is within the seeds’ noise" if comparison.degrees_of_freedom else "may be noise"
    return f"where the largest difference, {_amount(stretch, comparison)}{side}, {verdict}"


def _amount(stretch: Stretch, comparison: Comparison) -> str:
    metric, title = comparison.objective, metric_title(comparison.objective)
    name = title if title.isupper() else title.lower()
    amount = f"{stretch.lead:.2g}{NO_BREAK}{unit(metric)}" if unit(metric) else f"{stretch.lead:.2g} in {name}"
    return f"{amount} at {magnitude(stretch.at)}"


def _limits(comparison: Comparison) -> list[str]:
    """Where only one of the two was tried, which is no lead."""
    sentences = []
    for architecture, other in (comparison.architectures, comparison.architectures[::-1]):
        ranges = [span(alone.start, alone.stop) for alone in comparison.alone if alone.architecture == architecture]
        if ranges:
            where = f"at {_joined(ranges)} {_NOUNS[comparison.cost]}"
            sentences.append(_sentence(f"{where}, {_shape(architecture)} was tried and {_shape(other)} was not"))
    return sentences


def _shape(architecture: str) -> str:
    return _SHAPES.get(architecture, architecture)


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sentence(text: str) -> str:
    # A name such as sw_mlp is written as it is, also at the beginning.
    start = text if "_" in text.split()[0] else text[0].upper() + text[1:]
    return f"{start}."
