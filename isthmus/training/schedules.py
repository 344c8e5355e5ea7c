"""Optimisers by name, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from isthmus.core.train_config import TrainConfig


def learning_rate(step: int, steps: int, steps_per_epoch: int, config: TrainConfig) -> float:
    """The rate of step ``step`` (from 0) of ``steps``: a linear warm-up, the schedule, and its final value held."""
    peak, final, first = config.learning_rate, config.final_learning_rate, config.warmup_learning_rate
    warmup = round(config.warmup_epochs * steps_per_epoch)
    if config.rate_changes == "epoch":
        step -= step % steps_per_epoch
        if step < warmup:
            return first + (peak - first) * step / warmup  # as timm, whose first epoch has the first rate
    if step < warmup:
        return first + (peak - first) * (step + 1) / warmup
    if config.schedule == "constant":
        return peak
    start = warmup if config.schedule_start == "after_warmup" else 0
    falling = steps - start - round(config.cooldown_epochs * steps_per_epoch)
    done = min(1.0, (step - start) / max(1, falling))
    left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return final + (peak - final) * left


class BetaLasso(torch.optim.Optimizer):
    """β-LASSO (Neyshabur 2020, "Towards Learning Convolutions from Scratch").

    θ ← θ − η (∇f(θ) + λ sign θ), then every |θ| < β λ becomes 0. It has no momentum and no state.
    """

    def __init__(self, parameters: Any, lr: float, penalty: float, beta: float) -> None:
        super().__init__(parameters, {"lr": lr, "penalty": penalty, "beta": beta})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            rate, penalty = group["lr"], group["penalty"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                weight.sub_(rate * (weight.grad + penalty * weight.sign()))
                weight.masked_fill_(weight.abs() < group["beta"] * penalty, 0.0)
        return loss


def optimizer(parameters: Iterable[tuple[str, nn.Parameter]], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a config, with fused kernels, which save a fifth of a step at 38 M parameters."""
    named = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": [parameter for _, parameter in named]}]
    if config.decayed == "matrices":
        spared = [p.ndim <= 1 or name.endswith("bias") or getattr(p, "undecayed", False) for name, p in named]
        free = {"penalty": 0.0} if config.optimizer == "beta_lasso" else {"weight_decay": 0.0}
        groups = [
            {"params": [p for (_, p), spare in zip(named, spared, strict=True) if not spare]},
            {"params": [p for (_, p), spare in zip(named, spared, strict=True) if spare]} | free,
        ]
        groups = [group for group in groups if group["params"]]
    if config.optimizer == "beta_lasso":
        return BetaLasso(groups, config.learning_rate, config.lasso_lambda, config.lasso_beta)
    shared: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=config.momentum, nesterov=config.nesterov, **shared)
    adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return adam(groups, betas=config.betas, eps=config.epsilon, **shared)
