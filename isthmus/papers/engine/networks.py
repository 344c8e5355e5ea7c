"""A network with its size and quality, measured here or printed in a paper; the same tests apply to both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isthmus.studies.fronts import Candidate
from isthmus.studies.statistics import Interval, Noise, Sample, compare

SIZE_TOLERANCE = 1.02
"""A rival may have up to this many times the parameters, because two shapes rarely have exactly as many."""


@dataclass(frozen=True)
class Network:
    id: str
    """The id of its row, such as ``T8.12`` or ``extra.1``."""
    shape: str
    """The architecture, such as ``hourglass_mlp``."""
    model: Mapping[str, Any]
    params: float
    trainable: float
    chosen_by: float
    """The mean on validation data, by which it is selected; for a printed network, the printed mean."""
    quality: Sample
    """On test data; higher is better."""
    unit: str = "dB"
    """The unit of the quality. Accuracies are in percent, and their differences in points."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The printed row; empty for a measured network."""
    decimals: tuple[int, int] | None = None
    """Of the printed mean and of its standard deviation."""

    def has(self, settings: Mapping[str, Any]) -> bool:
        return all(self.model.get(name) == value for name, value in settings.items())


def shape_of(model: Mapping[str, Any]) -> str:
    """The architecture. A Mixer with random permutations in all blocks counts as one of its own."""
    name: str = model["name"]
    return f"rp_{name}" if model.get("permutation") == "random" and model.get("random_blocks") is None else name


def unit_of(objective: str) -> tuple[str, float]:
    """The unit in which papers print a metric, and the factor from our value to that unit."""
    shares = ("accuracy", "board_accuracy", "masked_accuracy")
    return ("points", 100.0) if objective in shares else ("dB" if objective == "psnr" else "", 1.0)


def measured_network(candidate: Candidate, identity: str, noise: Noise | None) -> Network:
    unit, factor = unit_of(candidate.objective)
    factor = factor if candidate.maximise else -factor
    return Network(
        id=identity,
        shape=shape_of(candidate.settings["model"]),
        model=candidate.settings["model"],
        params=candidate.params,
        trainable=candidate.trainable_params,
        chosen_by=factor * candidate.validation,
        quality=Sample.of([factor * value for value in candidate.test], candidate.seeds, noise),
        unit=unit,
    )


def printed_network(
    identity: str, columns: Mapping[str, Any], model: Mapping[str, Any], params: float, quality: Sample,
    decimals: tuple[int, int], unit: str = "points",
) -> Network:  # fmt: skip
    """A network of a paper. It is selected by its printed mean, because no validation result is printed."""
    settings = {name: value for name, value in model.items() if name != "name"}
    return Network(identity, model["name"], settings, params, params, quality.mean, quality, unit, columns, decimals)


def find_network(networks: Iterable[Network], shape: str, **settings: Any) -> Network | None:
    """The first network of an architecture with these settings."""
    return next((network for network in networks if network.shape == shape and network.has(settings)), None)


def best(networks: Iterable[Network]) -> Network:
    """The network that validation selects; of equals, the smallest."""
    return max(networks, key=lambda network: (network.chosen_by, -network.params, network.id))


def rival(network: Network, others: Iterable[Network], agreeing_in: Sequence[str] = ()) -> Network | None:
    """The best network of another shape that is at most 2 % larger and shares the named settings."""
    shared = {name: network.model.get(name) for name in agreeing_in}
    small = [
        other
        for other in others
        if other.shape != network.shape and other.params <= SIZE_TOLERANCE * network.params and other.has(shared)
    ]
    return best(small) if small else None


class Meeting(NamedTuple):
    """The best network of each of two groups within one budget, and the difference between them."""

    budget: float
    first: Network
    second: Network
    interval: Interval


def meetings(
    first: Sequence[Network], second: Sequence[Network], cost: Callable[[Network], float] = lambda item: item.params
) -> list[Meeting]:
    """The best networks of two groups at every budget, over the range of costs that both groups cover.

    Each pair is listed once, at the smallest budget.
    """
    if not first or not second:
        return []
    costs = [sorted(map(cost, group)) for group in (first, second)]
    low, high = max(costs[0][0], costs[1][0]), min(costs[0][-1], costs[1][-1])
    found: dict[tuple[str, str], Meeting] = {}
    for budget in sorted({value for values in costs for value in values if low <= value <= high}):
        one, other = (best(item for item in group if cost(item) <= budget) for group in (first, second))
        if (one.id, other.id) not in found:
            found[one.id, other.id] = Meeting(budget, one, other, compare(one.quality, other.quality))
    return list(found.values())


def count_parameters(model: Mapping[str, Any], input_shape: Sequence[int], output_shape: Sequence[int]) -> int:
    """The parameters of a printed network; papers print them in millions at best."""
    import torch

    from isthmus.core.registry import create_model

    with torch.device("meta"):
        network = create_model(**model, input_shape=input_shape, output_shape=output_shape)
    return sum(parameter.numel() for parameter in network.parameters())
