"""Small networks of one shape that train together: one computation makes a step of all of them.

A stack has a fixed number of places (``train.stack``). The runs in it share the model's shape, the optimiser and the
rows of a batch; seeds, learning rates, weight decays, folds and the numbers of epochs may differ, and so may the steps
at which the runs resume. The bits of a run depend on the number of places, but neither on its own place nor on the
other runs (see ``graphs``); an empty place computes zeros.

A member is an ordinary ``Training``. Its weights and moments are views of the stack's buffers, so that it is logged,
saved and restored like any other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from isthmus.core.config import RunConfig
from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.protocols import Batch
from isthmus.training.graphs import ELEMENTS, FLOATS, CannotStack, trace
from isthmus.training.listener import Listener
from isthmus.training.loop import EVALUATION_BLOCK, NoJournal, Outcome, Training, measure_outputs
from isthmus.training.schedules import learning_rate

_MOST_VALUES = 2**27
"""Input values of all members, which a stack holds in memory."""
_MOST_GRAPHS = 64
_graphs: dict[str, Callable[..., Any]] = {}
_SIZES = {3e6: 8, 1e7: 4, 7e7: 2}
"""By the floating-point operations of a member's step, the places of a stack that pays: `isthmus bench stacks`, stored
in results/bench/stacks.json. Beyond, matrix products take the time, and a stack leaves the cache."""


def choose_stack(config: RunConfig, flops: float, rows: int) -> int | None:
    """The places of the stack in which a run should train, by the operations of a row; None: alone.

    Planning decides it, because it is part of the run's config.
    """
    step = flops * min(config.train.batch_size, rows)
    if config.threads != 1 or config.train.unstackable:
        return None
    return next((size for most, size in sorted(_SIZES.items()) if step <= most), None)


def pad_rows(rows: int) -> int:
    return -(-rows // ELEMENTS) * ELEMENTS


def stack_key(config: RunConfig, rows: int) -> str | None:
    """What the runs of a stack have in common; None without ``train.stack``."""
    train = config.train
    if train.stack is None:
        return None
    shared = {name: getattr(train, name) for name in ("stack", "optimizer", "betas", "epsilon", "decayed")}
    shared |= {"steps": -(-rows // train.batch_size), "rows": pad_rows(min(train.batch_size, rows))}
    shared |= {"model": _drop_seeds(config.model.model_dump(mode="json")), "threads": config.threads}
    return digest(shared | {"task": config.task.model_dump(mode="json")})


@dataclass
class Member:
    """One run of a stack, with where it is logged and who receives its progress."""

    training: Training
    journal: NoJournal
    listener: Listener
    began: float = 0.0
    """When it would have begun if it had never stopped, by ``time.perf_counter``."""


Ending = Callable[[Member, Outcome | Exception], None]


def train_together(members: Sequence[Member], end: Ending) -> None:
    """Train all members. ``end`` is called as soon as one ends, with its outcome or the error that stopped it."""
    stack = NetworkStack([member.training for member in members])
    places = dict(enumerate(members))
    for member in members:
        member.began = time.perf_counter() - member.training.position.seconds
    for place in [place for place, member in places.items() if member.training.is_over]:
        _leave(places, place, stack, end)

    def is_due(training: Training) -> bool:
        return training.is_validated_at(training.position.step + 1)

    while places:
        stack.step(list(places))
        due = [place for place, member in places.items() if is_due(member.training)]
        values = stack.evaluate(due) if due else {}
        for place, member in list(places.items()):
            try:
                seconds = time.perf_counter() - member.began
                member.training.end_step(seconds, member.journal, member.listener, partial(values.__getitem__, place))
            except Exception as error:  # the others continue
                _leave(places, place, stack, end, error)
            else:
                if member.training.is_over:
                    _leave(places, place, stack, end)


def _leave(
    places: dict[int, Member], place: int, stack: NetworkStack, end: Ending, error: Exception | None = None
) -> None:
    member = places.pop(place)
    outcome = member.training.conclude() if error is None else error
    end(member, outcome)
    stack.clear(place)


def lay_out(shapes: Mapping[str, torch.Size], size: int, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """Zeros for ``size`` members, and the part of each tensor. Every tensor starts at a multiple of 64 bytes."""
    starts, end = {}, 0
    for name, shape in shapes.items():
        starts[name] = end
        end += -(-shape.numel() // FLOATS) * FLOATS
    buffer = torch.zeros(size, -(-end // 64) * 64, dtype=dtype)
    parts = {
        name: buffer[:, starts[name] : starts[name] + shape.numel()].view(size, *shape)
        for name, shape in shapes.items()
    }
    return buffer, parts


class NetworkStack:
    """The weights, the optimiser and the rows of all members."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        first = trainings[0]
        self.trainings, self.config = trainings, first.config
        self.size = first.config.stack or len(trainings)
        self.template, self.task = first.model, first.task
        self._check(first.model)
        weights = dict(first.model.named_parameters())
        self.dtype = next(iter(weights.values())).dtype
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        self.weights, self.parameters = lay_out(shapes, self.size, self.dtype)
        self.gradients, gradients = lay_out(shapes, self.size, self.dtype)
        self.firsts, firsts = lay_out(shapes, self.size, self.dtype)
        self.seconds, seconds = lay_out(shapes, self.size, self.dtype)
        self.gradient_parts = list(gradients.values())
        self.fixed = {name: self._lay_out_fixed(name) for name, _ in first.model.named_buffers()}
        for place, training in enumerate(trainings):
            self._take(place, training, {"exp_avg": firsts, "exp_avg_sq": seconds})
        self.decays = self._lay_out_decays(shapes)
        self._lay_out_rows()
        self._held_out: dict[int, list[Tensor]] = {}
        self._targets: dict[int, list[Tensor]] = {}
        self._lay_out_held_out()
        self._compute_gradients = self._trace_step()

    def _check(self, model: nn.Module) -> None:
        if any(not weight.requires_grad for weight in model.parameters()):
            raise self._refuse("it has frozen parameters")
        if kept := model.state_dict().keys() - dict(model.named_parameters()).keys():
            raise self._refuse(f"its state {min(kept)!r} changes while it trains")

    def _refuse(self, reason: str) -> UserError:
        name = getattr(getattr(self.template, "config", None), "name", type(self.template).__name__)
        return UserError(f"train.stack={self.size}: {name} cannot be stacked: {reason}; leave train.stack out")

    def _lay_out_fixed(self, name: str) -> Tensor:
        """A buffer of the model, such as a frozen projection, of all members; of the first one in empty places."""
        each = [dict(training.model.named_buffers())[name] for training in self.trainings]
        _, parts = lay_out({name: each[0].shape}, self.size, each[0].dtype)
        for place in range(self.size):
            parts[name][place] = each[place if place < len(each) else 0]
        return parts[name]

    @torch.no_grad()
    def _take(self, place: int, training: Training, moments: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Move a training's weights and moments, which may have been restored, into their place."""
        for name, weight in training.model.named_parameters():
            self.parameters[name][place] = weight
            weight.data = self.parameters[name][place]
            memory = training.optimizer.state[weight]
            memory.setdefault("step", torch.zeros(()))
            for kind, parts in moments.items():
                if kind in memory:
                    parts[name][place] = memory[kind]
                memory[kind] = parts[name][place]

    def clear(self, place: int) -> None:
        """Empty a place, so that it computes zeros."""
        for buffer in (self.weights, self.firsts, self.seconds):
            buffer[place] = 0.0

    def _lay_out_decays(self, shapes: Mapping[str, torch.Size]) -> Tensor:
        """The weight decay of each member, or of each of its weights if some are spared."""
        buffer, parts = lay_out(shapes, self.size, self.dtype)
        for place, training in enumerate(self.trainings):
            names = {weight: name for name, weight in training.model.named_parameters()}
            for group in training.optimizer.param_groups:
                for weight in group["params"]:
                    parts[names[weight]][place] = group["weight_decay"]
        return buffer[:, :1].contiguous() if self.config.decayed == "all" else buffer

    def _lay_out_rows(self) -> None:
        """The training rows of all members, and of every batch which rows it has and how much each counts."""
        batches = []
        for training in self.trainings:
            batch = training.task.fixed_batch(training.train.inputs, training.train.targets)
            if batch is None or training.examples != len(training.train):
                raise UserError(f"train.stack={self.size} needs batches that draw nothing, of rows of features")
            batches.append(batch)
        first, rows = self.trainings[0], max(len(batch.input) for batch in batches)
        self.per_epoch = first.steps_per_epoch
        self.rows = pad_rows(min(first.config.batch_size, len(first.train)))
        rows = max(rows, self.rows)
        if self.size * rows * batches[0].input[0].numel() > _MOST_VALUES:
            raise UserError(f"train.stack={self.size} holds the rows of all its runs, and these are too many")
        self.inputs = _pad_all({place: batch.input for place, batch in enumerate(batches)}, self.size, rows)
        self.targets = _pad_all({place: batch.target for place, batch in enumerate(batches)}, self.size, rows)
        self.shares = torch.zeros(self.size, self.per_epoch, self.rows, dtype=self.dtype)
        self.orders = torch.zeros(self.size, self.per_epoch, self.rows, dtype=torch.int64)
        self.orders += torch.arange(self.size)[:, None, None] * rows
        for place, training in enumerate(self.trainings):
            for number in range(self.per_epoch):
                start = number * training.config.batch_size
                here = min(training.config.batch_size, len(training.train) - start)
                self.shares[place, number, :here] = 1 / here
        self._drawn = [-1] * self.size
        self._places = torch.arange(self.size)

    def _batch(self, places: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        if self.per_epoch == 1:  # the order of the rows does not matter
            return self.inputs, self.targets, self.shares[:, 0]
        numbers = [0] * self.size
        for place in places:
            epoch, numbers[place] = divmod(self.trainings[place].position.step, self.per_epoch)
            if self._drawn[place] != epoch:
                self._draw(place, epoch)
        is_same = len({numbers[place] for place in places}) == 1
        chosen: Any = (slice(None), numbers[places[0]]) if is_same else (self._places, torch.tensor(numbers))
        index = self.orders[chosen].flatten()
        inputs, targets = (
            rows.flatten(0, 1).index_select(0, index).unflatten(0, (self.size, self.rows))
            for rows in (self.inputs, self.targets)
        )
        return inputs, targets, self.shares[chosen]

    def _draw(self, place: int, epoch: int) -> None:
        training = self.trainings[place]
        order = training.draw_order(epoch) + place * self.inputs.shape[1]
        for number, chosen in enumerate(order.split(training.config.batch_size)):
            self.orders[place, number, : len(chosen)] = chosen
        self._drawn[place] = epoch

    def _trace_step(self) -> Callable[..., Any]:
        names, fixed, task = list(self.parameters), list(self.fixed), self.task

        def loss(
            weights: list[Tensor], others: Sequence[Tensor], rows: Tensor, target: Tensor, share: Tensor
        ) -> Tensor:
            given = dict(zip(names, weights, strict=True)) | dict(zip(fixed, others, strict=True))
            output = functional_call(self.template, given, (rows,))
            return (task.row_losses(output, target) * share).sum()

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            weights, others = list(tensors[: len(names)]), tensors[len(names) : len(names) + len(fixed)]
            gradients, value = grad_and_value(loss)(weights, others, *tensors[len(names) + len(fixed) :])
            return (*gradients, value)

        self.template.train()
        return self._trace("step", step, *self._batch(()))

    def _trace(self, kind: str, function: Callable[..., Any], *rows: Tensor) -> Callable[..., Any]:
        """The traced function of the parameters, the buffers and these rows; once for each shape."""
        tensors = [*self.parameters.values(), *self.fixed.values(), *rows]
        model, task = getattr(self.template, "config", None), self.task.config  # type: ignore[attr-defined]
        settings = None if model is None else _drop_seeds(model.model_dump(mode="json"))
        shapes = [[list(tensor.shape), list(tensor.stride()), str(tensor.dtype)] for tensor in tensors]
        key = digest([kind, settings, type(task).__name__, task.model_dump(mode="json"), shapes])
        if settings is None or key not in _graphs:
            try:
                traced = trace(function, tensors)
            except CannotStack as error:
                raise self._refuse(str(error)) from None
            if len(_graphs) >= _MOST_GRAPHS:
                _graphs.clear()
            _graphs[key] = traced
        return _graphs[key]

    @torch.no_grad()
    def step(self, places: Sequence[int]) -> None:
        """One step of the members at these places."""
        rates, steps = [0.0] * self.size, [1] * self.size
        for place in places:
            training = self.trainings[place]
            number = training.position.step
            rates[place] = learning_rate(number, training.horizon, training.steps_per_epoch, training.config)
            steps[place] = number + 1
            for group in training.optimizer.param_groups:
                group["lr"] = rates[place]
        found = self._compute_gradients(*self.parameters.values(), *self.fixed.values(), *self._batch(places))
        torch._foreach_copy_(self.gradient_parts, list(found[:-1]))
        self._update(rates, steps)
        losses = found[-1].tolist()
        for place in places:
            position = self.trainings[place].position
            position.loss_sum += losses[place]
            position.loss_count += 1

    def _update(self, rates: Sequence[float], steps: Sequence[int]) -> None:
        """Adam or AdamW, with a learning rate and a number of steps for each member."""
        one, two = self.config.betas
        sizes = [rate / (1 - one**number) for rate, number in zip(rates, steps, strict=True)]
        roots = [math.sqrt(1 - two**number) for number in steps]
        rate, size, root = torch.tensor([rates, sizes, roots], dtype=self.dtype).unsqueeze(2)
        if self.config.optimizer == "adam":
            self.gradients.addcmul_(self.decays, self.weights)
        else:
            self.weights.mul_(1 - rate * self.decays)
        self.firsts.lerp_(self.gradients, 1 - one)
        self.seconds.mul_(two).addcmul_(self.gradients, self.gradients, value=1 - two)
        denominator = self.seconds.sqrt().div_(root).add_(self.config.epsilon)
        self.weights.sub_(self.firsts.mul(size).div_(denominator))

    def _lay_out_held_out(self) -> None:
        """The validation rows of all members in blocks, by the height of a block."""
        heights = [pad_rows(min(EVALUATION_BLOCK, len(training.validation))) for training in self.trainings]
        for height in sorted(set(heights)):
            places = [place for place, each in enumerate(heights) if each == height]
            blocks = {place: _held_out_blocks(self.trainings[place]) for place in places}
            for number in range(max(map(len, blocks.values()))):
                rows = {place: each[number][0] for place, each in blocks.items() if number < len(each)}
                self._held_out.setdefault(height, []).append(_pad_all(rows, self.size, height))
            for place in places:
                self._targets[place] = [target for _, target in blocks[place]]
        self._heights = heights

    @torch.no_grad()
    def evaluate(self, places: Sequence[int]) -> dict[int, dict[str, float]]:
        """The validation metrics of the members at these places."""
        found = {}
        for height in sorted({self._heights[place] for place in places}):
            forward = self._trace_forward(height)
            given = *self.parameters.values(), *self.fixed.values()
            outputs = [forward(*given, block) for block in self._held_out[height]]
            for place in (place for place in places if self._heights[place] == height):
                found[place] = self._measure(place, [output[place] for output in outputs])
        return found

    def _trace_forward(self, height: int) -> Callable[..., Any]:
        names = [*self.parameters, *self.fixed]

        def forward(*tensors: Tensor) -> Any:
            return functional_call(self.template, dict(zip(names, tensors[:-1], strict=True)), (tensors[-1],))

        self.template.eval()
        return self._trace("forward", forward, self._held_out[height][0])

    def _measure(self, place: int, outputs: Sequence[Tensor]) -> dict[str, float]:
        training, targets = self.trainings[place], self._targets[place]
        pairs = [(output[: len(target)], target) for output, target in zip(outputs, targets, strict=False)]
        values = measure_outputs(training.task, pairs, "validation", torch.device("cpu"))
        values |= training.task.inspect(training.model, training.validation.inputs, "validation")
        return {name: value for name, value in values.items() if math.isfinite(value)}


def _held_out_blocks(training: Training) -> list[Batch]:
    rows, cpu = training.validation, torch.device("cpu")
    starts = range(0, len(rows), EVALUATION_BLOCK)
    return [
        training.task.evaluation_batch(*rows.block(start, cpu), "validation", number)
        for number, start in enumerate(starts)
    ]


def _pad_all(each: Mapping[int, Tensor], size: int, rows: int) -> Tensor:
    """Rows of the members by their places in one tensor, filled up with zeros."""
    some = next(iter(each.values()))
    padded = some.new_zeros(size, rows, *some.shape[1:])
    for place, own in each.items():
        padded[place, : len(own)] = own
    return padded


def _drop_seeds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A model's settings without those that only draw its fixed tensors."""
    return {name: value for name, value in settings.items() if not name.endswith("seed")}
