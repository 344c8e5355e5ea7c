"""The training loop. It receives built objects and knows no concrete model or task."""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from isthmus.core.draws import key, torch_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Split, SplitName, Task
from isthmus.core.train_config import TrainConfig
from isthmus.layers.residual import Stack
from isthmus.training.checkpoint import optimizer_tensors, restore_optimizer
from isthmus.training.devices import Devices
from isthmus.training.listener import Listener
from isthmus.training.schedules import learning_rate, optimizer

EVALUATION_BLOCK = 1000
"""Rows per block of an evaluation. Fixed, because the noise of test images is drawn per block."""
EVALUATION_VALUES = 2**25
"""Input values per forward pass; a block of 1000 images of 224 pixels is split."""
LOG_EVERY = 50


class Diverged(Exception):
    """The loss is not finite."""


class Stopped(Exception):
    """The listener stopped the run; its state is saved."""


class NoJournal:
    """A journal that keeps nothing: training starts at the first step and leaves nothing behind."""

    def resume(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        return None

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        pass

    def log(self, line: Mapping[str, Any]) -> None:
        pass

    def save_is_due(self) -> bool:
        return False


@dataclass
class Rows:
    """A split as tensors on the device. A memory-mapped split stays on disk, and only its batches are copied."""

    inputs: Tensor
    targets: Tensor | None

    @classmethod
    def of(cls, split: Split, device: torch.device) -> Rows:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read it
            inputs = torch.from_numpy(split.inputs)
            targets = None if split.targets is None else torch.from_numpy(split.targets)
        if device.type == "cpu" or isinstance(split.inputs, np.memmap):
            return cls(inputs, targets)
        return cls(inputs.to(device), None if targets is None else targets.to(device))

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, index: Tensor, device: torch.device) -> tuple[Tensor, Tensor | None]:
        index = index.to(self.inputs.device)
        targets = None if self.targets is None else self.targets[index].to(device)
        return self.inputs.index_select(0, index).to(device), targets

    def block(self, start: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
        part = slice(start, start + EVALUATION_BLOCK)
        return self.inputs[part].to(device), None if self.targets is None else self.targets[part].to(device)


@dataclass
class Position:
    """The training state without its tensors."""

    step: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    best_step: int = 0
    loss_sum: float = 0.0  # since the last line of the log, of this process
    loss_count: int = 0

    def values(self) -> dict[str, Any]:
        return vars(self) | {"best_loss": self.best_loss if math.isfinite(self.best_loss) else None}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Position:
        return cls(**dict(values) | {"best_loss": math.inf if values["best_loss"] is None else values["best_loss"]})


@dataclass
class Outcome:
    """The selected weights, and their step."""

    weights: dict[str, Tensor]
    step: int
    epoch: float


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, rows: Rows, split: SplitName, device: torch.device) -> dict[str, float]:
    """The mean loss and the task's metrics over a split, in float32 and fixed blocks; only finite values."""
    model.eval()

    def outputs() -> Iterator[tuple[Tensor, Tensor]]:
        for block, start in enumerate(range(0, len(rows), EVALUATION_BLOCK)):
            batch = task.evaluation_batch(*rows.block(start, device), split, block)
            part = max(1, EVALUATION_VALUES // batch.input[0].numel())
            for inputs, target in zip(batch.input.split(part), batch.target.split(part), strict=True):
                yield model(inputs), target

    values = measure_outputs(task, outputs(), split, device)
    values |= task.inspect(model, rows.inputs, split)
    return {name: value for name, value in values.items() if math.isfinite(value)}


_made: WeakKeyDictionary[Task, dict[tuple[SplitName, torch.device], MetricCollection]] = WeakKeyDictionary()
"""The metrics of each task, because making them takes longer than an evaluation of a small table."""


def _clear_metrics(task: Task, split: SplitName, device: torch.device) -> MetricCollection:
    made = _made.setdefault(task, {})
    if (split, device) not in made:
        made[split, device] = task.metrics(split).to(device)
        for metric in made[split, device].values():
            metric.distributed_available_fn = lambda: False  # one process evaluates, and must not wait for others
    made[split, device].reset()
    return made[split, device]


def measure_outputs(
    task: Task, outputs: Iterable[tuple[Tensor, Tensor]], split: SplitName, device: torch.device
) -> dict[str, float]:
    """The mean loss and the metrics of a split, whose outputs come in blocks with their targets."""
    metrics, loss, rows = _clear_metrics(task, split, device), 0.0, 0
    for output, target in outputs:
        loss += float(task.loss(output, target)) * len(target)
        rows += len(target)
        task.measure(metrics, output, target)
    return {"loss": loss / rows} | {name: float(value) for name, value in metrics.compute().items()}


def recompute_blocks(model: nn.Module) -> None:
    """Set ``train.recompute``; a UserError if the model has no blocks that can be computed again."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        name = getattr(getattr(model, "config", None), "name", type(model).__name__)
        raise UserError(f"train.recompute=true needs a residual network; {name} has no blocks: leave recompute out")
    for stack in stacks:
        stack.set_recompute()


class Training:
    """One run of the loop over a model."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        train: Rows,
        validation: Rows,
        config: TrainConfig,
        seed: int,
        devices: Devices,
    ) -> None:
        self.task, self.train, self.validation = task, train, validation
        self.config, self.seed, self.devices = config, seed, devices
        self.model = model.to(devices.device)
        if config.recompute:
            recompute_blocks(self.model)
        self.averaged = copy.deepcopy(self.model) if config.average else None
        self.optimizer = optimizer(self.model.named_parameters(), config)
        self.position = Position()
        self.best: dict[str, Tensor] = {}
        self.examples = len(train) * task.views()
        self.steps_per_epoch = math.ceil(self.examples / config.batch_size)
        self.steps = self.steps_per_epoch * config.last_epoch
        self.horizon = self.steps_per_epoch * config.epochs  # of the learning rate

    def run(self, journal: NoJournal, listener: Listener) -> Outcome:
        """Train to the end, from where the journal says that the run stopped."""
        self.restore(journal)
        prepared, prepared_optimizer = self.devices.setup(self.model, self.optimizer)
        prepared.train()
        forward = torch.compile(prepared) if self.config.compile else prepared
        began = time.perf_counter() - self.position.seconds
        for index, view in self._batches():
            self._step(forward, prepared, prepared_optimizer, index, view)
            self.end_step(time.perf_counter() - began, journal, listener, self._evaluate)
        return self.conclude()

    def end_step(
        self, seconds: float, journal: NoJournal, listener: Listener, evaluate: Callable[[], dict[str, float]]
    ) -> None:
        """Count a step and write down what is due; ``seconds`` have passed since the first."""
        self.position.step += 1
        self.position.seconds = seconds
        self._write_down(journal, listener, evaluate)
        listener.step(self.position.step, self.steps)

    def conclude(self) -> Outcome:
        if self.config.select == "last":
            self._keep(self.position.step, math.inf)
        return Outcome(self.best, self.position.best_step, self.position.best_step / self.steps_per_epoch)

    @property
    def is_over(self) -> bool:
        return self.position.step >= self.steps

    @property
    def samples_seen(self) -> int:
        epochs, within = divmod(self.position.step, self.steps_per_epoch)
        return epochs * self.examples + within * self.config.batch_size

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Row indices and views of every remaining step. The order of an epoch is drawn by its number."""
        size = self.config.batch_size
        while self.position.step < self.steps:
            epoch, start = divmod(self.position.step, self.steps_per_epoch)
            for chosen in self.draw_order(epoch).split(size)[start:]:
                yield chosen % len(self.train), chosen // len(self.train)

    def draw_order(self, epoch: int) -> Tensor:
        """The order of an epoch's examples: its rows, each in all its views."""
        return torch.randperm(self.examples, generator=torch_generator(self.seed, "order", epoch))

    def _step(
        self,
        forward: Callable[[Tensor], Tensor],
        model: nn.Module,
        opt: torch.optim.Optimizer,
        index: Tensor,
        view: Tensor,
    ) -> None:
        self.devices.seed(key(self.seed, "model", self.position.step))  # for dropout and drop path
        rate = learning_rate(self.position.step, self.horizon, self.steps_per_epoch, self.config)
        for group in opt.param_groups:
            group["lr"] = rate
        self.compute_gradients(forward, model, self.draw_batch(index, view))
        self.position.loss_count += 1
        if self.config.clip_norm is not None:
            self.devices.clip(model, opt, self.config.clip_norm)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if self.averaged is not None:
            self._average(self.averaged, self.config.average or 0.0)

    def draw_batch(self, index: Tensor, view: Tensor) -> Batch:
        """The examples of this step, with its noise and augmentation."""
        step, device = self.position.step, self.devices.device
        rows, targets = self.train.take(index, device)
        return self.task.training_batch(rows, targets, index.to(device), view.to(device), self.seed, step)

    def compute_gradients(self, forward: Callable[[Tensor], Tensor], model: nn.Module, whole: Batch) -> None:
        """Add the gradients of a batch, and its loss to the sum since the last line of the log."""
        parts = self._parts(whole)
        for part in parts:
            with self.devices.gather_gradients(model, part is not parts[-1]):
                with self._precision():
                    output = forward(part.input)
                    # The last batch of an epoch can have fewer rows than parts, and the mean loss of no rows is NaN.
                    loss = self.task.loss(output, part.target) if len(part.input) else output.sum()
                share = len(part.input) / len(whole.input)
                self.devices.backward(loss * (share * self.devices.world))
            self.position.loss_sum += float(loss.detach()) * share

    def _parts(self, whole: Batch) -> list[Batch]:
        """This process's share of the batch, split for gradient accumulation."""
        inputs = whole.input.tensor_split(self.config.accumulate * self.devices.world)
        targets = whole.target.tensor_split(self.config.accumulate * self.devices.world)
        return [Batch(*pair) for pair in zip(inputs, targets, strict=True)][self.devices.rank :: self.devices.world]

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "bfloat16":
            return torch.autocast(self.devices.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    @torch.no_grad()
    def _average(self, averaged: nn.Module, decay: float) -> None:
        torch._foreach_lerp_(list(averaged.parameters()), list(self.model.parameters()), 1 - decay)
        kept = averaged.state_dict().keys()  # without frozen projections, which do not change
        theirs = dict(self.model.named_buffers())
        for name, buffer in averaged.named_buffers():
            if name in kept:
                buffer.copy_(theirs[name])  # not averaged: counts and signs have no mean

    def is_validated_at(self, step: int) -> bool:
        """Whether a validation follows this step: at the end of some epochs."""
        epoch, within = divmod(step, self.steps_per_epoch)
        is_due = epoch % self.config.evaluate_every == 0 or epoch == self.config.last_epoch
        return within == 0 and is_due and len(self.validation) > 0

    def _write_down(self, journal: NoJournal, listener: Listener, evaluate: Callable[[], dict[str, float]]) -> None:
        """After a step: write the log, validate at the end of an epoch, and save the state where it is due."""
        position = self.position
        if position.step % self.steps_per_epoch == 0 or position.step % LOG_EVERY == 0:
            self._log_loss(journal)
        if self.is_validated_at(position.step):
            self._validate(journal, position.step // self.steps_per_epoch, evaluate)
        mine = listener.should_stop(), self.devices.rank == 0 and journal.save_is_due(), position.loss_sum
        stops, dues, sums = zip(*self.devices.each(*mine), strict=True)  # one that should stop stops them all
        healthy = all(map(math.isfinite, sums))  # a diverged state is not saved; the next log ends the run
        if healthy and (any(stops) or any(dues)):
            tensors = self._tensors()  # in all processes, because each may hold a part
            if self.devices.rank == 0:
                journal.save(tensors, {**position.values(), "loss_sums": list(sums)})
        if any(stops):
            raise Stopped

    def _log_loss(self, journal: NoJournal) -> None:
        position = self.position
        loss = self.devices.total(position.loss_sum) / position.loss_count
        if not math.isfinite(loss):
            rate = self.optimizer.param_groups[0]["lr"]
            raise Diverged(f"the training loss is not finite at step {position.step} (learning rate {rate:.3g})")
        journal.log(
            {
                "step": position.step,
                "epoch": position.step / self.steps_per_epoch,
                "split": "train",
                "loss": loss,
                "learning_rate": self.optimizer.param_groups[0]["lr"],
                "seconds": round(position.seconds, 3),
            }
        )
        position.loss_sum, position.loss_count = 0.0, 0

    def _evaluate(self) -> dict[str, float]:
        model = self.averaged or self.model
        values = evaluate(model, self.task, self.validation, "validation", self.devices.device)
        model.train()
        return values

    def _validate(self, journal: NoJournal, epoch: int, evaluate: Callable[[], dict[str, float]]) -> None:
        values: dict[str, float] = {}
        if self.devices.rank == 0 or self.devices.sharded:  # a sharded model needs all processes
            values = evaluate()
        if not self.devices.total("loss" in values):  # only the first process knows it
            raise Diverged(f"the validation loss is not finite after epoch {epoch}")
        if values:
            line = {"step": self.position.step, "epoch": epoch, "split": "validation"}
            line |= values | {"seconds": round(self.position.seconds, 3)}
            versions = {"metric_versions": dict(self.task.metric_versions)} if self.task.metric_versions else {}
            journal.log(line | versions)
            if values["loss"] < self.position.best_loss and self.config.select == "best":
                self._keep(self.position.step, values["loss"])

    def _keep(self, step: int, loss: float) -> None:
        model = self.averaged or self.model
        weights = self.devices.whole(model.state_dict())
        self.best = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.position.best_step, self.position.best_loss = step, loss

    def _tensors(self) -> dict[str, Tensor]:
        for memory in self.optimizer.state.values():
            if "step" in memory:
                memory["step"].fill_(self.position.step)  # the step of a stack does not count itself
        weights = self.devices.whole(self.model.state_dict())
        tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        if self.averaged is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.averaged.state_dict().items()}
        return tensors | self.devices.whole(optimizer_tensors(self.optimizer))

    def restore(self, journal: NoJournal) -> None:
        saved = journal.resume()
        if saved is None:
            return
        tensors, values = saved

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

        self.model.load_state_dict(under("model."))
        if self.averaged is not None:
            self.averaged.load_state_dict(under("average."))
        self.best = {name: tensor.to(self.devices.device) for name, tensor in under("best.").items()}
        restore_optimizer(self.optimizer, tensors)
        sums = values.get("loss_sums", [values["loss_sum"]] * self.devices.world)  # an older state has one
        own = {"loss_sum": sums[self.devices.rank]}
        self.position = Position.of({name: value for name, value in values.items() if name != "loss_sums"} | own)
