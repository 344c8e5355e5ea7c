"""Optimisers by name, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from isthmus.training.settings import TrainConfig


def learning_rate(step: int, steps: int, steps_per_epoch: int, config: TrainConfig) -> float:
    """The rate of step ``step`` (from 0) of ``steps``: a linear warm-up, then the schedule to its final value."""
    peak, final = config.learning_rate, config.final_learning_rate
    warmup = round(config.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.schedule == "constant":
        return peak
    done = (step - warmup) / max(1, steps - warmup)
    left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return final + (peak - final) * left


def optimizer(parameters: Iterable[torch.nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Fused kernels: one pass over the memory per step instead of several, a fifth of a step at 38 M parameters."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            trained,
            lr=config.learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            weight_decay=config.weight_decay,
            fused=True,
        )
    return torch.optim.AdamW(
        trained, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
