"""Number formats and sentences, shared by the page, the figures and the terminal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from isthmus.core.costs import CostKind
from isthmus.core.record import CONFIG
from isthmus.core.registry import find
from isthmus.core.titles import split_architecture
from isthmus.reports.measures import Measures, measure
from isthmus.reports.sections import Section
from isthmus.studies.fronts import Candidate, Comparison, Stretch, best, compare, cost_of, noise_of, sample_std
from isthmus.studies.pathway_gaps import PathwayGap
from isthmus.studies.statistics import Interval
from isthmus.studies.volumes import Gap, Savings

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
_LEAST_SAVING = 0.02
"""Costs within 2 % of each other count as equal."""
_MOST_DECIMALS = 7


def cost_kind(name: str) -> CostKind:
    kind: CostKind = find("costs", name)
    return kind


def metric_title(name: str) -> str:
    return METRIC_TITLES.get(name, name.replace("_", " "))


def unit(metric: str) -> str:
    return "dB" if metric.startswith("psnr") else ""


def axis_title(split: str, metric: str) -> str:
    title = metric_title(metric)
    return f"{split} {title} ({unit(metric)})" if unit(metric) else f"{split} {title}"


def architecture_title(architecture: str) -> str:
    model, pathway = split_architecture(architecture)
    title = _TITLES.get(model, model)
    return f"{title} · {pathway}" if pathway else title


def magnitude(value: float) -> str:
    """Three significant digits with a suffix: 1.30 M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            # The factor rounds first, so that 9.996 reads 10.0 and not 10.00.
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
    """Which architecture leads at which cost, and the limits of that statement."""
    tried = section.finished_architectures
    older = _outdated_note(section)
    if not tried and section.refits:
        values, metric = [run.record.quality() or 0.0 for run in section.refits], section.objective
        reached = with_spread(statistics.fmean(values), sample_std(values), metric)
        what = f"{'These runs' if len(values) > 1 else 'This run'} had no validation rows, so nothing was selected"
        return f"{what}. {metric_title(metric)} on test data: {reached}{NO_BREAK}{unit(metric)}".rstrip() + ".", older
    if not tried:
        return older or "No run has finished, so there is nothing to compare.", ""
    if len(tried) == 1:
        best_of_one = _describe_single(section.candidates_of(tried[0], cost), cost)
        return best_of_one, f"A comparison needs a second architecture. {older}".strip()
    noise, gaps = noise_of(section.candidates), section.pathway_gaps
    compared = {gap.pathway for gap in gaps}  # with plain at equal shapes, which says more than at equal cost
    pairs = [
        pair
        for pair in section.pairs_at(cost)
        if not compared & {split_architecture(each[0].architecture)[1] for each in pair}
    ]
    comparisons = [compare(first, second, cost, noise) for first, second in pairs]
    limits = [limit for comparison in comparisons for limit in _describe_limits(comparison)] + [older] * bool(older)
    can_decide = [*(each.can_decide for each in comparisons), *(gap.mean.bounds is not None for gap in gaps)]
    if any(can_decide) and any(len(candidate.seeds) == 1 for candidate in section.candidates):
        limits.append("Some candidates have one seed only; their spread is assumed to equal that of the others.")
    verdicts = [*map(describe, comparisons), describe_pathways(gaps, section.objective)]
    return " ".join(filter(None, verdicts)), " ".join(limits)


def _outdated_note(section: Section) -> str:
    """Which runs are excluded because their metric is outdated, and the command that updates them."""
    if not section.outdated_runs:
        return ""
    number, config = len(section.outdated_runs), section.outdated_runs[0].folder / CONFIG
    runs = f"{number} older run{'s are' if number > 1 else ' is'} excluded"
    title = metric_title(section.objective)
    return f"{runs}: an earlier version computed {title} differently. `isthmus train {config}` evaluates again."


def describe(comparison: Comparison) -> str:
    """One sentence on which architecture leads at which cost."""
    kind = cost_kind(comparison.cost)
    first, second = map(_shape_name, comparison.architectures)
    if not comparison.stretches:
        return _sentence(f"{first} and {second} cannot be compared: their ranges of {kind.noun} do not overlap")
    stretches = comparison.stretches
    where = f"{span(stretches[0].start, stretches[-1].stop)} {kind.unit}"
    if not comparison.can_decide:
        return _sentence(f"with one seed per network, {first} and {second} cannot be ranked at {where}")
    leaders = dict.fromkeys(stretch.leader for stretch in stretches if stretch.leader)
    if not leaders:
        return _sentence(f"{first} and {second} do not differ significantly at {where}")
    if len(stretches) == 1:
        lead = f"by up to {_describe_amount(stretches[0], comparison)}"
        return _sentence(f"{_shape_name(*leaders)} leads wherever both were tried, {where}, {lead}")
    by = f"{kind.quantity} in {kind.unit}" if kind.quantity else kind.unit
    return _sentence(f"by {by}, " + "; ".join(_describe_lead(comparison, leader) for leader in leaders))


def summary(section: Section, cost: str = "params") -> list[str]:
    """Sentences on hypervolume, gap and savings."""
    measures = measure(section, cost)
    if not measures:
        return []
    sentences = [describe_areas(measures), *map(describe_gap, measures.gaps), *map(describe_savings, measures.savings)]
    return [sentence for sentence in sentences if sentence]


def describe_pathways(gaps: Sequence[PathwayGap], metric: str) -> str:
    """Which pathways are better than plain at equal shapes, and which are worse."""
    if not gaps:
        return ""
    if all(gap.mean.bounds is None for gap in gaps):
        return "With one seed per network, pathways cannot be ranked."
    parts = []
    for decision, word in (("ahead", "better"), ("behind", "worse")):
        chosen = sorted((gap for gap in gaps if gap.decision == decision), key=lambda gap: -abs(gap.mean.difference))
        if chosen:
            by = [f"{gap.pathway} (by {_round(abs(gap.mean.difference), gap.mean)})" for gap in chosen]
            parts.append(f"{_enumerate(by)} {'is' if len(by) == 1 else 'are'} {word}")
    if alike := [gap.pathway for gap in gaps if gap.decision == "undecided"]:
        parts.append(f"{_enumerate(alike)} {'does' if len(alike) == 1 else 'do'} not differ significantly")
    of = f"in {metric_noun(metric)}" + f" ({unit(metric)})" * bool(unit(metric))
    return _sentence(f"compared with the pathway plain at equal shapes, {of}, {'; '.join(parts)}")


def describe_pathway(gap: PathwayGap, metric: str) -> str:
    """Whether a pathway is better than plain at the same shape, and what it costs."""
    if gap.mean.bounds is None:
        return _sentence(f"with one seed per network, the pathways {gap.pathway} and plain cannot be ranked")
    where = "at the same shape" if len(gap.shapes) == 1 else f"on average over {len(gap.shapes)} shapes"
    better = gap.decision == "ahead"
    mean = gap.mean.swap() if gap.decision == "behind" else gap.mean
    amount, ends = interval_ends(mean)
    amount, known = with_unit(amount, metric), f"95{NO_BREAK}% interval {ends}, {mean.rule}"
    cost = f"{gap.ratio(lambda each: each.params):.2f} times the parameters and "
    cost += f"{gap.ratio(lambda each: each.wall_seconds):.2f} times the training time"
    if gap.decision == "undecided":
        verdict = f"the pathways {gap.pathway} and plain do not differ significantly {where}: {amount} ({known})"
    else:
        verdict = (
            f"the pathway {gap.pathway} is {'better' if better else 'worse'} than plain by {amount} {where} ({known})"
        )
    return _sentence(f"{verdict}, with {cost}")


def describe_areas(measures: Measures) -> str:
    """The hypervolume of each front, and the reference point."""
    metric, corner = measures.objective, measures.reference
    axes = f"ln({cost_kind(measures.cost).noun}) × {unit(metric) or metric_noun(metric)}"
    worst = f"{magnitude(corner.cost)} {cost_kind(measures.cost).unit} and {level(corner.quality, metric)}"
    areas = [f"{_shape_name(a.architecture)} {a.validation:.3g} ({a.test:.3g} on test data)" for a in measures.areas]
    unequal = len({item.start for item in measures.areas}) > 1
    limit = "; the ranges tried differ, and a wider range gives a larger area" if unequal else ""
    where = f"hypervolume of the front in {axes}, measured from the worst of the grid ({worst})"
    return _sentence(f"{where}: {_enumerate(areas)}{limit}")


def describe_gap(gap: Gap) -> str:
    """The mean difference over the shared range with its interval; empty if it is not significant."""
    if gap.mean is None or gap.mean.decision == "undecided":
        return ""
    ahead = gap.mean.decision == "ahead"
    difference = gap.mean if ahead else gap.mean.swap()
    better, worse = map(_shape_name, gap.architectures if ahead else gap.architectures[::-1])
    kind = cost_kind(gap.cost)
    where = f"at equal {kind.noun}, {span(gap.points[0].cost, gap.points[-1].cost)}"
    where += f"{NO_BREAK}{kind.unit}" if kind.quantity else ""
    amount, ends = interval_ends(difference)
    amount = with_unit(amount, gap.objective)
    what = f"{where}, {better} is better than {worse} by {amount}" + " on average" * (len(gap.points) > 1)
    return _sentence(f"{what} (95{NO_BREAK}% interval {ends}, {difference.rule})")


def describe_savings(savings: Savings) -> str:
    """The largest significant saving, and at how many quality levels there is one; empty if there is none."""
    sure = [saving for saving in savings.savings if (saving.sure_fraction or 0.0) >= _LEAST_SAVING]
    if not sure:
        return ""
    largest = max(sure, key=lambda saving: saving.sure_fraction or 0.0)
    first, noun = _shape_name(savings.architectures[0]), cost_kind(savings.cost).noun
    paid = f"{magnitude(largest.sure_cost or 0.0)} instead of {magnitude(largest.second_cost)}"
    saves = f"saves up to {percent(largest.sure_fraction or 0.0)} of the {noun}"
    at = level(largest.quality, savings.objective)
    count = f"the saving is significant at {len(sure)} of {len(savings.savings)} quality levels"
    return _sentence(f"at equal quality, {first} {saves}, {paid} for {at}; {count}")


def percent(fraction: float) -> str:
    return f"{100 * fraction:z.0f}{NO_BREAK}%".replace("-", "−")


def level(value: float, metric: str) -> str:
    """A quality with its unit, or with its name if it has no unit: 21.970 dB, accuracy 0.913."""
    shown = quantity(value, metric)
    return with_unit(shown, metric) if unit(metric) else f"{metric_noun(metric)} {shown}"


def difference_text(difference: Interval, metric: str) -> str:
    """A difference with its interval, for a hover text."""
    value = with_unit(_round(difference.difference, difference), metric)
    if difference.half_width is None:
        return f"{value}, one seed"
    return f"{value} ± {_round(difference.half_width, difference)} (95{NO_BREAK}%, {difference.rule})"


def interval_ends(difference: Interval) -> tuple[str, str]:
    """A difference and the ends of its interval, with the same decimals; the ends are empty if there is no spread."""
    ends = " to ".join(_round(end, difference) for end in difference.bounds or ())
    return _round(difference.difference, difference), ends


def _round(value: float, difference: Interval) -> str:
    """Rounded to two significant digits of the interval, so that both show the same decimals."""
    scale = difference.half_width or abs(difference.difference)
    decimals = 1 - math.floor(math.log10(scale)) if scale else 0
    if -_MOST_DECIMALS <= decimals <= _MOST_DECIMALS or not value:
        return f"{value:z.{max(0, decimals)}f}".replace("-", "−")
    digits = max(1, 1 + decimals + math.floor(math.log10(abs(value))))
    return f"{'−' * (value < 0)}{abs(value):.{digits}g}"


def with_unit(number: str, metric: str) -> str:
    return f"{number}{NO_BREAK}{unit(metric)}" if unit(metric) else f"{number} in {metric_noun(metric)}"


def metric_noun(metric: str) -> str:
    title = metric_title(metric)
    return title if title.isupper() else title.lower()


def _describe_single(candidates: Sequence[Candidate], cost: str) -> str:
    chosen = best(candidates, cost)
    metric = chosen.objective
    reached = f"{metric_title(metric)} {with_spread(chosen.mean, chosen.std, metric)} {unit(metric)}".strip()
    size = f"{magnitude(cost_of(chosen, cost))} {cost_kind(cost).unit}"
    subject = f"only {_shape_name(chosen.architecture)} was tried; its best network on validation data"
    return _sentence(f"{subject}, with {size}, reaches {reached} on test data")


def _describe_lead(comparison: Comparison, leader: str) -> str:
    """The cost ranges in which one architecture leads: the widest on a logarithmic axis, and how many others."""
    stretches = [stretch for stretch in comparison.stretches if stretch.leader == leader]
    widest = sorted(stretches, key=lambda item: item.start / item.stop)[:_RANGES_NAMED]
    ranges = [span(stretch.start, stretch.stop) for stretch in sorted(widest, key=lambda item: item.start)]
    if len(stretches) > len(ranges):
        ranges.append(f"{len(stretches) - len(ranges)} narrower ranges")
    largest = max(stretches, key=lambda stretch: stretch.lead)
    return f"{_shape_name(leader)} leads at {_enumerate(ranges)}, by up to {_describe_amount(largest, comparison)}"


def _describe_amount(stretch: Stretch, comparison: Comparison) -> str:
    return f"{with_unit(f'{stretch.lead:.2g}', comparison.objective)} at {magnitude(stretch.at)}"


def _describe_limits(comparison: Comparison) -> list[str]:
    """The cost ranges in which only one of the two was tried, so that neither leads."""
    sentences = []
    for architecture in comparison.architectures:
        ranges = [span(alone.start, alone.stop) for alone in comparison.alone if alone.architecture == architecture]
        if ranges:
            where = f"at {_enumerate(ranges)} {cost_kind(comparison.cost).unit}"
            sentences.append(_sentence(f"{where}, only {_shape_name(architecture)} was tried"))
    return sentences


def _shape_name(architecture: str) -> str:
    model, pathway = split_architecture(architecture)
    name = _SHAPES.get(model, model)
    return f"{name} with {pathway}" if pathway else name


def _enumerate(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sentence(text: str) -> str:
    # A registered name such as sw_mlp keeps its lower case.
    start = text if "_" in text.split()[0] else text[0].upper() + text[1:]
    return f"{start}."
