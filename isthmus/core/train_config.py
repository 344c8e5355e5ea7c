"""Training settings. Each can change the bits of a run, so each is part of the run's id."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from isthmus.core.protocols import Settings


class TrainConfig(Settings):
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Passes over the training rows."""
    stop_epoch: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """End after this epoch, with the learning rates that ``epochs`` would give (default: train all of them)."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """Rows per optimiser step, over all devices and accumulation steps."""
    accumulate: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Gradient accumulation: the parts that a batch is split into."""
    optimizer: Literal["adamw", "adam", "sgd", "beta_lasso"] = "adamw"
    """``adam`` adds ``weight_decay`` to the gradient, as an L2 penalty does; ``adamw`` shrinks the weights."""
    learning_rate: Annotated[float, Field(gt=0, le=1_000)] = 1e-3
    """The peak of the schedule."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How fast weights shrink towards 0, relative to the learning rate; see ``decayed``."""
    decayed: Literal["all", "matrices"] = "all"
    """Which parameters decay or, with β-LASSO, are penalised: ``matrices`` excludes one-dimensional ones and
    those that a model marks as ``undecayed``, such as learned positions."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """For Adam and AdamW. A second beta of 0.99 is better for runs of a few thousand steps (EXPERIMENTS.md)."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """For SGD: the share of the last update that is kept."""
    nesterov: bool = False
    """For SGD: take the gradient ahead of the momentum."""
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8
    """For Adam and AdamW: added to the root of the second moment."""
    lasso_lambda: Annotated[float, Field(ge=0, le=1)] = 0.0
    """For β-LASSO: the L1 penalty. A weight below ``lasso_beta`` times the penalty becomes 0."""
    lasso_beta: Annotated[float, Field(ge=0, le=1e6)] = 50.0
    """For β-LASSO: the threshold, in units of the penalty, below which a weight becomes 0."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate decreases from its peak to ``final_learning_rate``."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs of a linear rise from ``warmup_learning_rate`` to the peak."""
    warmup_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    """The learning rate of the first step of a warm-up."""
    schedule_start: Literal["after_warmup", "with_warmup"] = "after_warmup"
    """Where the decrease begins. ``with_warmup``: at the first step, as timm counts it, so that the rate is below its
    peak when the warm-up ends."""
    rate_changes: Literal["step", "epoch"] = "step"
    """How often the learning rate changes. ``epoch``: all steps of an epoch have the rate of its first one."""
    cooldown_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs at the final rate, included in ``epochs``."""
    final_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    """The learning rate at the end of the schedule."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """The largest norm of the gradient; longer gradients are scaled down (default: no limit)."""
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights; if set, the average is evaluated and saved."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """``bfloat16`` is mixed precision: weights and optimiser stay in float32."""
    # Left out while it is false, so that the configs of other runs are written as before.
    recompute: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Activation checkpointing: store only the streams between the blocks of a residual network for the gradient, and
    compute each block again in the backward pass. It saves memory, costs a forward pass and changes no result."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to train: ``cuda`` needs a GPU."""
    devices: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes of one device each; more than one needs ``isthmus[devices]``."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """``ddp`` replicates the model on each device; ``fsdp`` shards weights and optimiser states."""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between validations; the last epoch is always validated."""
    select: Literal["best", "last"] = "best"
    """Which weights are kept: those with the lowest validation loss, or the last ones."""

    # Left out while it is None, so that the configs of other runs are written as before.
    stack: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Field(exclude_if=lambda value: value is None)] = None
    """Places of a stack, in which small networks of one shape train together (default: the run trains alone)."""

    @property
    def last_epoch(self) -> int:
        return self.stop_epoch or self.epochs

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if self.last_epoch > self.epochs:
            raise ValueError(f"stop_epoch={self.stop_epoch} is beyond epochs={self.epochs}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs={self.warmup_epochs:g} must be less than epochs={self.epochs}")
        if self.warmup_epochs + self.cooldown_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs={self.warmup_epochs:g} plus cooldown_epochs={self.cooldown_epochs:g} "
                f"must be less than epochs={self.epochs}"
            )
        for name in ("warmup_learning_rate", "final_learning_rate"):
            if getattr(self, name) > self.learning_rate:
                raise ValueError(f"{name}={getattr(self, name):g} is above learning_rate={self.learning_rate:g}")
        if self.optimizer == "beta_lasso" and not self.lasso_lambda:
            raise ValueError("optimizer=beta_lasso needs a lasso_lambda above 0")
        if self.optimizer != "beta_lasso" and self.lasso_lambda:
            raise ValueError(f"lasso_lambda={self.lasso_lambda:g} belongs to optimizer=beta_lasso")
        if self.optimizer == "beta_lasso" and self.weight_decay:
            raise ValueError(f"optimizer=beta_lasso takes no weight_decay={self.weight_decay:g}; set lasso_lambda")
        if self.strategy == "fsdp" and (self.devices == 1 or self.average or self.optimizer == "beta_lasso"):
            raise ValueError("strategy=fsdp needs devices above 1, AdamW or SGD, and no average")
        if self.stack is not None and (other := self.unstackable):
            raise ValueError(f"stack={self.stack} does not work with {other}; leave stack out")
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov=true needs a momentum above 0")
        if self.batch_size < self.accumulate * self.devices:
            parts = f"accumulate={self.accumulate} × devices={self.devices}"
            raise ValueError(f"batch_size={self.batch_size} is less than {parts}")
        return self

    @property
    def unstackable(self) -> str:
        """The settings with which a run cannot be part of a stack."""
        known: dict[str, tuple[object, ...]] = {
            "optimizer": ("adam", "adamw"), "accumulate": (1,), "clip_norm": (None,), "average": (None,),
            "precision": ("float32",), "recompute": (False,), "compile": (False,), "device": ("cpu",), "devices": (1,),
        }  # fmt: skip
        given = {name: getattr(self, name) for name in known}
        return " ".join(f"{name}={value}" for name, value in given.items() if value not in known[name])
