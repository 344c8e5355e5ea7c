"""Numbers and comparisons in words: the same in the page, the figures and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from isthmus.fronts import Candidate, Comparison, Stretch, best, compare, cost_of
from isthmus.record import CONFIG
from isthmus.reports.measures import Measures, measure
from isthmus.reports.sections import Section
from isthmus.volumes import Difference, Gap, Saving, Savings

COST_TITLES = {
    "params": "Parameters",
    "trainable_params": "Trainable parameters",
    "macs": "MACs per row",
    "latency": "Latency (ms per batch)",
}
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
_UNITS = {"params": "parameters", "trainable_params": "trainable parameters", "macs": "MACs per row", "latency": "ms"}
_NOUNS = _UNITS | {"latency": "latency"}
_SHAPES = {
    "hourglass_mlp": "the Hourglass",
    "conventional_mlp": "the conventional shape",
    "hourglass_vit": "the Hourglass ViT",
    "conventional_vit": "the conventional ViT",
}
_TITLES = {
    "hourglass_mlp": "Hourglass",
    "conventional_mlp": "Conventional",
    "hourglass_vit": "Hourglass ViT",
    "conventional_vit": "Conventional ViT",
}
_RANGES_NAMED = 3
_MOST_DECIMALS = 7


def metric_title(name: str) -> str:
    return METRIC_TITLES.get(name, name.replace("_", " "))


def unit(metric: str) -> str:
    return "dB" if metric.startswith("psnr") else ""


def axis_title(split: str, metric: str) -> str:
    title = metric_title(metric)
    return f"{split} {title} ({unit(metric)})" if unit(metric) else f"{split} {title}"


def architecture_title(architecture: str) -> str:
    return _TITLES.get(architecture, architecture)


def magnitude(value: float) -> str:
    """Three digits and a letter: 1.30 M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            # After rounding, so that 9.996 reads 10.0 and not 10.00.
            return f"{scaled:.{max(0, 2 - math.floor(math.log10(abs(scaled) * 1.0005)))}f}{NO_BREAK}{letter}"
    return f"{value:.3g}"


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
    tried = section.tried
    older = _older(section)
    if not tried:
        return older or "No run has finished, so there is nothing to compare.", ""
    if len(tried) == 1:
        return _single(section.of(tried[0]), cost), f"A comparison needs a second shape. {older}".strip()
    comparisons = [compare(section.of(first), section.of(second), cost) for first, second in combinations(tried, 2)]
    limits = [limit for comparison in comparisons for limit in _limits(comparison)] + [older] * bool(older)
    judged = any(comparison.degrees_of_freedom for comparison in comparisons)
    if judged and any(len(candidate.seeds) == 1 for candidate in section.candidates):
        limits.append("Some candidates have one seed only: the others’ spread over seeds stands in for theirs.")
    return " ".join(map(describe, comparisons)), " ".join(limits)


def _older(section: Section) -> str:
    """That runs are left out, and how to bring them back."""
    if not section.outdated:
        return ""
    number, config = len(section.outdated), section.outdated[0].folder / CONFIG
    runs = f"{number} older run{'s are' if number > 1 else ' is'} left out"
    title = metric_title(section.objective)
    return f"{runs}: {title} was measured in another way. `isthmus train {config}` evaluates it again."


def describe(comparison: Comparison) -> str:
    """Who leads where, in one sentence."""
    noun = _NOUNS[comparison.cost]
    first, second = map(_shape, comparison.architectures)
    if not comparison.stretches:
        common = noun if comparison.cost == "latency" else f"number of {noun}"
        return _sentence(f"{first} and {second} were tried at no common {common}: there is nothing to compare")
    if len(comparison.stretches) > 1:
        parts = [_leads(comparison, leader) for leader in (*comparison.architectures, None)]
        by = f"{noun} in {_UNITS[comparison.cost]}" if comparison.cost == "latency" else noun
        return _sentence(f"by {by}, " + "; ".join(part for part in parts if part))
    (stretch,) = comparison.stretches
    where = f"{span(stretch.start, stretch.stop)} {_UNITS[comparison.cost]}"
    if stretch.leader is None:
        start = "undecided" if comparison.degrees_of_freedom else "one seed: undecided"
        return _sentence(f"{start} at {where}, {_difference(stretch, comparison)}")
    lead = f"by up to {_amount(stretch, comparison)}"
    return _sentence(f"{_shape(stretch.leader)} leads wherever both were tried, {where}, {lead}")


def summary(section: Section, cost: str = "params") -> list[str]:
    """What the fronts are worth, how far they are apart and what is saved: short sentences, also for a terminal."""
    measures = measure(section, cost)
    if not measures:
        return []
    sentences = [describe_areas(measures), *map(describe_gap, measures.gaps), *map(describe_savings, measures.savings)]
    return [sentence for sentence in sentences if sentence]


def describe_areas(measures: Measures) -> str:
    """Every area, and the corner from which all of them are measured."""
    metric, corner = measures.objective, measures.reference
    axes = f"ln({_NOUNS[measures.cost]}) × {unit(metric) or _metric_noun(metric)}"
    worst = f"{magnitude(corner.cost)} {_UNITS[measures.cost]} and {level(corner.quality, metric)}"
    areas = [
        f"{_shape(item.architecture)} {item.validation:.3g} ({item.test:.3g} on test data)" for item in measures.areas
    ]
    unequal = len({item.start for item in measures.areas}) > 1
    limit = "; it also grows with the range tried, which was not the same" if unequal else ""
    where = f"area that the front dominates, in {axes} from the worst of the grid ({worst})"
    return _sentence(f"{where}: {_joined(areas)}{limit}")


def describe_gap(gap: Gap) -> str:
    """The mean difference over the shared range with its interval; empty without a shared range."""
    if gap.mean is None:
        return ""
    difference = gap.mean if gap.mean.value >= 0 else replace(gap.mean, value=-gap.mean.value)
    better, worse = map(_shape, gap.architectures if gap.mean.value >= 0 else gap.architectures[::-1])
    where = f"at equal {_NOUNS[gap.cost]}, {span(gap.points[0].cost, gap.points[-1].cost)}"
    where += f"{NO_BREAK}ms" * (gap.cost == "latency")
    amount = _of_metric(_rounded(difference.value, difference), gap.objective)
    what = f"{where}, {better} is better than {worse} by {amount}" + " on average" * (len(gap.points) > 1)
    if difference.interval is None:
        return _sentence(f"{what}; one seed gives no interval")
    verdict = "" if difference.interval[0] > 0 else ", which the seeds can explain"
    ends = " to ".join(_rounded(end, difference) for end in difference.interval)
    return _sentence(f"{what}{verdict} (95{NO_BREAK}% interval {ends}, {_how(difference)})")


def describe_savings(savings: Savings) -> str:
    """The largest saving, whether seeds can explain it, and at how many qualities there is one."""
    first, second = map(_shape, savings.architectures)
    largest, noun = savings.largest, _NOUNS[savings.cost]
    if largest is None or largest.fraction is None:
        return _sentence(f"{first} reaches the quality of no member of the front of {second}: it saves no {noun}")
    paid = f"{magnitude(largest.first_cost or 0.0)} instead of {magnitude(largest.second_cost)}"
    at = level(largest.quality, savings.objective)
    if largest.fraction <= 0:
        more = f"at best it needs {percent(-largest.fraction)} more" if largest.fraction else "at best it needs as much"
        more += f", {paid} for {at}"
        return _sentence(f"at equal quality, {first} saves no {noun}: {more}; {_tally(savings)}")
    saves = f"at equal quality, {first} saves up to {percent(largest.fraction)} of the {noun}, {paid} for {at}"
    return _sentence(f"{saves} ({_certainty(largest)}); {_tally(savings)}")


def _tally(savings: Savings) -> str:
    """At how many qualities there is a saving: the largest alone would flatter."""
    counts = dict.fromkeys(("saves at", "needs as much at", "needs more at", "does not reach", "starts above"), 0)
    for saving in savings.savings:
        if saving.fraction is None:
            counts["does not reach"] += 1
        elif saving.fraction >= 0:
            counts["saves at" if saving.fraction else "needs as much at"] += 1
        else:
            # A smaller one than any that was tried might do.
            counts["starts above" if saving.smallest else "needs more at"] += 1
    parts = [f"{verb} {count}" for verb, count in counts.items() if count]
    whole = f"{len(savings.savings)} {'qualities' if len(savings.savings) > 1 else 'quality'}"
    return f"of the {whole} on the front of {_shape(savings.architectures[1])}, it {_joined(parts)}"


def _certainty(saving: Saving) -> str:
    """What remains of a saving once the first's quality is lowered by what seeds can explain."""
    if saving.decided:
        return "beyond the seeds’ noise"
    if saving.sure_fraction is None or saving.sure_fraction <= 0:
        return "within the seeds’ noise"
    return f"beyond the seeds’ noise {percent(saving.sure_fraction)}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:z.0f}{NO_BREAK}%".replace("-", "−")


def level(value: float, metric: str) -> str:
    """A quality with its unit, or with its name where it has none: 21.970 dB, accuracy 0.913."""
    return (
        _of_metric(quantity(value, metric), metric)
        if unit(metric)
        else f"{_metric_noun(metric)} {quantity(value, metric)}"
    )


def difference_text(difference: Difference, metric: str) -> str:
    """A difference with its interval, short."""
    value = _of_metric(_rounded(difference.value, difference), metric)
    if difference.margin is None:
        return f"{value}, one seed"
    return f"{value} ± {_rounded(difference.margin, difference)} (95{NO_BREAK}%, {_how(difference)})"


def _how(difference: Difference) -> str:
    return f"paired over {difference.seeds} seeds" if difference.paired else "from the spread of all seeds"


def _rounded(value: float, difference: Difference) -> str:
    """To two digits of the margin, so that value and interval have the same."""
    scale = difference.margin or abs(difference.value)
    decimals = 1 - math.floor(math.log10(scale)) if scale else 0
    if -_MOST_DECIMALS <= decimals <= _MOST_DECIMALS or not value:
        return f"{value:z.{max(0, decimals)}f}".replace("-", "−")
    digits = max(1, 1 + decimals + math.floor(math.log10(abs(value))))  # an error squared, in small or large units
    return f"{'−' * (value < 0)}{abs(value):.{digits}g}"


def _of_metric(number: str, metric: str) -> str:
    return f"{number}{NO_BREAK}{unit(metric)}" if unit(metric) else f"{number} in {_metric_noun(metric)}"


def _metric_noun(metric: str) -> str:
    title = metric_title(metric)
    return title if title.isupper() else title.lower()


def _single(candidates: Sequence[Candidate], cost: str) -> str:
    chosen = best(candidates, cost)
    metric = chosen.objective
    reached = f"{metric_title(metric)} {with_spread(chosen.mean, chosen.std, metric)} {unit(metric)}".strip()
    size = f"{magnitude(cost_of(chosen, cost))} {_UNITS[cost]}"
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
    return f"{_of_metric(f'{stretch.lead:.2g}', comparison.objective)} at {magnitude(stretch.at)}"


def _limits(comparison: Comparison) -> list[str]:
    """Where only one of the two was tried, which is no lead."""
    sentences = []
    for architecture, other in (comparison.architectures, comparison.architectures[::-1]):
        ranges = [span(alone.start, alone.stop) for alone in comparison.alone if alone.architecture == architecture]
        if ranges:
            where = f"at {_joined(ranges)} {_UNITS[comparison.cost]}"
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
