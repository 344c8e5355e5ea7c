"""How a model is trained. Everything here can change the bits of a run, so everything here is part of its name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from isthmus.core.protocols import Settings


class TrainConfig(Settings):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """Rows per optimiser step, over all devices and accumulated parts together."""
    accumulate: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Parts in which a batch is processed; the gradient is that of the whole batch."""
    optimizer: Literal["adamw", "sgd", "beta_lasso"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=1_000)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    decayed: Literal["all", "matrices"] = "all"
    """Which parameters decay or, with β-LASSO, are penalised: ``matrices`` spares biases, all of one dimension, and
    what a model marks as ``undecayed``, such as learned positions."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's. Runs of a few thousand steps do better with a second one of 0.99 (EXPERIMENTS.md)."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of SGD, with ``nesterov`` as its variant."""
    nesterov: bool = False
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """AdamW's, added to the root of the second moment."""
    lasso_lambda: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of β-LASSO: the weight of the sum of absolute values. A weight smaller than ``lasso_beta`` times it becomes 0."""
    lasso_beta: Annotated[float, Field(ge=0, le=1e6)] = 50.0
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls from its peak to ``final_learning_rate``."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs of a linear rise from ``warmup_learning_rate`` to the peak."""
    warmup_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    cooldown_epochs: Annotated[float, Field(ge=0)] = 0.0
    """The last of ``epochs``, all at the final rate; recipes that count them on top of the epochs add them there."""
    final_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights, which is then what is evaluated and kept."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """``bfloat16`` is mixed precision: weights and optimiser stay in float32."""
    compile: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    devices: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes of one device each; more than one needs ``isthmus[devices]``."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How several devices hold a model: each the whole of it, or each a part of every weight and of its moments."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two validations; the last epoch is always validated."""
    select: Literal["best", "last"] = "best"
    """Which weights are kept: those with the lowest validation loss, or the last ones."""

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs={self.warmup_epochs:g} leaves nothing of epochs={self.epochs}; 0 would do")
        if self.warmup_epochs + self.cooldown_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs={self.warmup_epochs:g} and cooldown_epochs={self.cooldown_epochs:g} "
                f"leave nothing of epochs={self.epochs}"
            )
        if self.warmup_learning_rate > self.learning_rate:
            raise ValueError(
                f"warmup_learning_rate={self.warmup_learning_rate:g} is above learning_rate={self.learning_rate:g}"
            )
        if (self.lasso_lambda > 0) != (self.optimizer == "beta_lasso"):
            raise ValueError(
                "optimizer=beta_lasso needs a lasso_lambda above 0"
                if self.optimizer == "beta_lasso"
                else f"lasso_lambda={self.lasso_lambda:g} belongs to optimizer=beta_lasso"
            )
        if self.optimizer == "beta_lasso" and self.weight_decay:
            raise ValueError(f"optimizer=beta_lasso has its own penalty and no weight_decay={self.weight_decay:g}")
        if self.final_learning_rate > self.learning_rate:
            raise ValueError(
                f"final_learning_rate={self.final_learning_rate:g} is above learning_rate={self.learning_rate:g}"
            )
        if self.strategy == "fsdp" and (self.devices == 1 or self.average or self.optimizer == "beta_lasso"):
            raise ValueError("strategy=fsdp needs devices above 1, AdamW or SGD, and no average")
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov=true needs a momentum above 0")
        if self.batch_size < self.accumulate * self.devices:
            raise ValueError(
                f"batch_size={self.batch_size} has no accumulate={self.accumulate} × devices={self.devices} parts"
            )
        return self
