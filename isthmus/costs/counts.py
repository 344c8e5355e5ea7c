"""Costs that are counted on the model's config: ``isthmus.cost`` says what each of them includes."""

from __future__ import annotations

from isthmus.core.costs import CostKind
from isthmus.core.protocols import ModelConfig

NAMES = {
    "params": "PARAMS",
    "trainable_params": "TRAINABLE_PARAMS",
    "macs": "MACS",
    "training_flops": "TRAINING_FLOPS",
}


def _count(field: str, title: str, unit: str) -> CostKind:
    def compute(config: ModelConfig, threads: int) -> float:
        from isthmus.training.counting import cost

        return float(getattr(cost(config), field))

    return CostKind(title, unit, compute)


PARAMS = _count("params", "Parameters", "parameters")
TRAINABLE_PARAMS = _count("trainable_params", "Trainable parameters", "trainable parameters")
MACS = _count("macs", "MACs per row", "MACs per row")
TRAINING_FLOPS = _count("training_flops", "Training FLOPs per row", "training FLOPs per row")
