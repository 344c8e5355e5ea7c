"""A residual network: a stack of branches, and the pathway by which each branch's update joins the stream.

A branch f is norm, computation and drop path, without the skip. A block holds the branches whose weights are stored,
sharded and recomputed together. The pathway decides what a branch reads and how its update is joined::

    state = pathway.start(x_0)
    for every branch f:
        r = pathway.read(state)
        state = pathway.write(state, f(r))
    output = pathway.finish(state)

``Plain`` is x + f(x). The state of another pathway may be several streams, or all earlier updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

State = Any
"""What a pathway passes from branch to branch: for ``Plain``, the stream itself."""


class Pathway(nn.Module, ABC):
    """How updates join the stream. ``place`` counts the branches of a stack from 0."""

    @abstractmethod
    def start(self, x: Tensor) -> State: ...

    @abstractmethod
    def read(self, state: State, place: int) -> tuple[Tensor, Any]:
        """The input of the branch, and a value that is passed to ``write``."""

    @abstractmethod
    def write(self, state: State, place: int, known: Any, update: Tensor, scale: float) -> State: ...

    @abstractmethod
    def finish(self, state: State) -> Tensor:
        """The stream that a head reads."""

    @abstractmethod
    def transform(self, state: State, function: Callable[[Tensor], Tensor]) -> State:
        """The state with ``function`` applied to each of its streams."""


class Plain(Pathway):
    """x + f(x)."""

    def start(self, x: Tensor) -> Tensor:
        return x

    def read(self, state: Tensor, place: int) -> tuple[Tensor, None]:
        return state, None

    def write(self, state: Tensor, place: int, known: None, update: Tensor, scale: float) -> Tensor:
        return state - update if scale == -1.0 else torch.add(state, update, alpha=scale)

    def finish(self, state: Tensor) -> Tensor:
        return state

    def transform(self, state: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(state)


def keep(x: Tensor) -> Tensor:
    return x


class Branch(NamedTuple):
    """The computation that a skip connection bypasses."""

    name: str
    update: Callable[[Tensor], Tensor]
    scale: float = 1.0
    """Factor of the update; −1 for a descent step on an energy."""
    carry: Callable[[Tensor], Tensor] | None = keep
    """Applied to the stream as it bypasses the branch; None: the update replaces the stream."""


@dataclass(frozen=True)
class Step:
    """The computation of one branch: what it read and returned, and the stream after it."""

    block: int
    """The number of the block, or of a recurrent model's iteration, from 1."""
    branch: str
    closes_block: bool
    read: Tensor
    update: Tensor
    stream: Tensor
    """After the update was joined."""

    @property
    def name(self) -> str:
        return f"{self.branch}_{self.block}"


Seen = tuple[str, Tensor, Tensor, Tensor]
"""A branch's name, what it read and returned, and the stream after it."""
Pass = tuple[int, tuple[Any, ...]]
"""One application of a block: its number and arguments."""


class Block(nn.Module, ABC):
    """Branches that are stored, sharded and recomputed together."""

    places: int = 1
    """The number of branches."""

    @abstractmethod
    def branches(self, *given: Any) -> tuple[Branch, ...]:
        """In the order of computation; ``given`` are the arguments of an iteration of a recurrent model."""

    def forward(
        self, state: State, pathway: Pathway, place: int, given: tuple[Any, ...] = (), seen: list[Seen] | None = None
    ) -> State:
        """The state after all branches; ``place`` is the number of the first. ``seen`` collects their tensors."""
        for number, branch in enumerate(self.branches(*given), start=place):
            read, known = pathway.read(state, number)
            update = branch.update(read)
            if branch.carry is None:
                state = pathway.start(update)
            else:
                if branch.carry is not keep:
                    state = pathway.transform(state, branch.carry)
                state = pathway.write(state, number, known, update, branch.scale)
            if seen is not None:
                seen.append((branch.name, read, update, pathway.finish(state)))
        return state


class Stack(nn.Module):
    """Blocks, by number as in a list, and the pathway that joins their branches."""

    def __init__(self, blocks: Iterable[Block], pathway: Pathway | None = None) -> None:
        super().__init__()
        for number, block in enumerate(blocks):
            self.add_module(str(number), block)
        self.pathway = pathway or Plain()
        self._first_places = list(accumulate((block.places for block in self), initial=0))

    def __len__(self) -> int:
        return len(self._modules) - 1

    def __iter__(self) -> Iterator[Any]:
        return iter([module for name, module in self._modules.items() if name != "pathway"])

    def __getitem__(self, number: int | slice) -> Any:
        blocks = list(self)
        return Stack(blocks[number], self.pathway) if isinstance(number, slice) else blocks[number]

    def __setitem__(self, number: int, block: Block) -> None:
        self.add_module(str(range(len(self))[number]), block)

    def streams(self, x: Tensor, passes: Iterable[Pass] | None = None, recompute: bool = False) -> Iterator[Tensor]:
        """The stream after each block. ``recompute`` uses activation checkpointing."""
        for state in self._states(self.pathway.start(x), passes, recompute):
            yield self.pathway.finish(state)

    def forward(self, x: Tensor) -> Tensor:
        last = start = self.pathway.start(x)
        for last in self._states(start):  # noqa: B007 (only the last one is wanted)
            pass
        return self.pathway.finish(last)

    def steps(self, x: Tensor, passes: Iterable[Pass] | None = None) -> Iterator[Step]:
        """The steps of all branches, computed lazily."""
        seen: list[Seen] = []
        for number, _ in enumerate(self._states(self.pathway.start(x), passes, seen=seen), start=1):
            for place, (name, *happened) in enumerate(seen, start=1):
                yield Step(number, name, place == len(seen), *happened)
            seen.clear()

    def _states(
        self,
        state: State,
        passes: Iterable[Pass] | None = None,
        recompute: bool = False,
        seen: list[Seen] | None = None,
    ) -> Iterator[State]:
        """The pathway's state after each block: the one loop over a network."""
        blocks = list(self)
        for number, given in passes or ((number, ()) for number in range(len(blocks))):
            arguments = (state, self.pathway, self._first_places[number], given, seen)
            if recompute and torch.is_grad_enabled():
                state = checkpoint(blocks[number], *arguments, use_reentrant=False)
            else:
                state = blocks[number](*arguments)
            yield state


class ResidualModel(nn.Module, ABC):
    """An embedding, a stack of blocks and a readout."""

    blocks: Stack
    symbol: ClassVar[str] = "x"
    """Name of the stream in a trajectory."""

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """The stream before the first block."""

    @abstractmethod
    def read_out(self, stream: Tensor) -> Tensor:
        """The output."""

    def look_inside(self, step: Step) -> Iterator[tuple[str, Tensor]]:
        """Named intermediates of a branch, recomputed from its input."""
        return iter(())

    def forward(self, x: Tensor) -> Tensor:
        return self.read_out(self.blocks(self.embed(x)))

    def steps(self, x: Tensor) -> Iterator[Step]:
        """The steps of all branches."""
        return self.blocks.steps(self.embed(x))

    def trajectory(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Every named intermediate: ``x_0``, then the update and the stream of each branch, and the output."""
        stream = self.embed(x)
        yield f"{self.symbol}_0", stream
        for step in self.blocks.steps(stream):
            yield from self.look_inside(step)
            yield step.name, step.update
            stream = step.stream
            yield f"{self.symbol}_{step.block if step.closes_block else step.name}", stream
        yield "output", self.read_out(stream)
