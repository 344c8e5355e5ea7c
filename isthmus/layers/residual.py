"""A residual network: a stack of branches, and the pathway by which each branch's update joins the stream.

A branch f is norm, computation and drop path, without the skip. A block holds the branches whose weights are stored,
sharded and recomputed together. The pathway decides what a branch reads and how its update is joined::

    state = pathway.start(x_0)
    for every branch f:
        r = pathway.read(state)
        state = pathway.write(state, f(r))
    output = pathway.finish(state)

``Plain`` is x + f(x). The state of another pathway may be several streams, or all earlier updates; ``isthmus/pathways``
has them. A ``ResidualConfig`` names a model's pathway and the ``Layout`` of its stack, which together build it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, ModelConfig
from isthmus.core.registry import component, find
from isthmus.layers.autocast import is_autocast, without_autocast

State = Any
"""What a pathway passes from branch to branch: for ``Plain``, the stream itself."""
StackKind = Literal["stacked", "recurrent", "energy", "proximal"]
Entries = Literal["sums", "numbers", "maps", "by row"]
"""Of the matrix A with which branches read earlier updates (``docs/pathways.md``), from simple to general.

    sums       a branch reads a sum of some updates, each with a factor of its own, and later branches add to that sum
    numbers    fixed numbers
    maps       fixed linear maps, such as a decay per channel
    by row     other numbers or maps for every row
"""
_REFUSALS: dict[str, str] = {
    "recurrent": "applies its layers several times, and {name} has weights for a fixed number of updates; use attended",
    "energy": "descends an energy, which {name} would replace; scaled, gained and injected keep it",
    "proximal": "replaces its stream in every second branch; it takes the pathway plain only",
}


@dataclass(frozen=True)
class Layout:
    """The stack that a pathway joins, as far as the model's config determines it."""

    width: int
    """Of the stream: the size of its last axis."""
    blocks: tuple[int, ...]
    """The number of branches of each block."""
    kind: StackKind = "stacked"
    iterations: int = 1
    """How often each block is applied, unless a forward pass says otherwise."""
    starts_at_zero: str = ""
    """The setting that starts every update at zero, and what to type instead: "init=zero_w2; use init=pytorch"."""
    skip_weights: str = ""
    """The setting that gives the first skip weights of its own, such as "S=9"."""
    changes_again: str = ""
    """The setting with which a second pass computes other updates, such as "drop_path=0.1"."""

    @property
    def places(self) -> int:
        return sum(self.blocks)

    @property
    def first_places(self) -> list[int]:
        return list(accumulate(self.blocks, initial=0))[:-1]

    @property
    def last_places(self) -> list[int]:
        return [end - 1 for end in accumulate(self.blocks)]


class PathwayConfig(Component):
    """Settings of a pathway; ``isthmus pathways`` lists the names."""

    fits: ClassVar[frozenset[StackKind]] = frozenset({"stacked", "recurrent"})
    needs_direction: ClassVar[bool] = False
    """Whether an update of zero leaves nothing to read, or no direction to follow."""

    @property
    def entries(self) -> Entries:
        return "sums" if self.name == "plain" else "by row"

    def check(self, layout: Layout) -> None:
        """A ValueError that says what to take, if the pathway has no meaning in this stack."""
        if self.name != "plain" and layout.kind not in self.fits:
            raise ValueError(f"the model {_REFUSALS[layout.kind].format(name=self.name)}")
        if self.needs_direction and layout.starts_at_zero:
            raise ValueError(
                f"{self.name} needs updates that are not zero; they start at zero with {layout.starts_at_zero}"
            )


PathwayField = Annotated[
    SerializeAsAny[PathwayConfig],
    BeforeValidator(lambda value: component("pathways", value)),
    # A plain pathway is left out, so that records, run ids and study keys are those of before there were others.
    Field(exclude_if=lambda value: value.name == "plain"),
]


class ResidualConfig(ModelConfig, ABC):
    """Settings of a model whose branches a pathway joins."""

    pathway: PathwayField = PathwayConfig(name="plain")
    """How updates join the stream: a name such as ``streams/mhc-4``, or ``{name: streams, count: 2}``."""

    @property
    @abstractmethod
    def layout(self) -> Layout: ...

    @model_validator(mode="before")
    @classmethod
    def _join_dotted_fields(cls, given: Any) -> Any:
        """``pathway.count``, as a search space names it, is a field of the pathway."""
        if not isinstance(given, dict) or not any(str(name).startswith("pathway.") for name in given):
            return given
        pathway = given.get("pathway", {})
        joined = dict(pathway) if isinstance(pathway, dict) else {"name": pathway}
        joined |= {name.partition(".")[2]: value for name, value in given.items() if name.startswith("pathway.")}
        return {name: value for name, value in given.items() if not name.startswith("pathway.")} | {"pathway": joined}

    @model_validator(mode="after")
    def _check_pathway(self) -> Self:
        if self.pathway.name != "plain":
            self.pathway.check(self.layout)
        return self

    def make_pathway(self) -> Pathway:
        made: Pathway = find("pathways", self.pathway.name)(self.pathway, self.layout)
        return made


class Pathway(nn.Module, ABC):
    """How updates join the stream. ``place`` counts the branches of a stack from 0.

    A pathway draws no random numbers, so that a seed gives the blocks the same weights under all of them.
    """

    Config: ClassVar[type[PathwayConfig]] = PathwayConfig
    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    """What it adds to a branch: multiply–adds and parameters."""

    def __init__(self, config: Any = None, layout: Layout | None = None) -> None:
        super().__init__()

    @abstractmethod
    def start(self, x: Tensor) -> State: ...

    def enter_block(self, state: State, place: int) -> State:
        """Called before the first branch of a block, whose number is ``place``."""
        return state

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

    def run_block(
        self, block: Block, state: State, place: int, given: tuple[Any, ...] = (), seen: list[Seen] | None = None,
        through: InFloat32 | None = None,
    ) -> State:  # fmt: skip
        """The state after a block. Its branches are joined ``through`` another object, if one is given."""
        after: State = block(state, through or self, place, given, seen)
        return after

    def prepare(self, blocks: Iterable[Block]) -> None:
        """Change the initial weights of the blocks; called once, when a model is built."""
        return


class OneStream(Pathway):
    """A pathway whose state is the stream, of which every branch reads all."""

    def start(self, x: Tensor) -> Tensor:
        return x

    def read(self, state: Tensor, place: int) -> tuple[Tensor, Any]:
        return state, None

    def finish(self, state: Tensor) -> Tensor:
        return state

    def transform(self, state: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(state)


class Plain(OneStream):
    """x + f(x)."""

    formula = "x ← x + u"
    paper = "Deep Residual Learning (He et al. 2015)"
    extra = "nothing"

    def write(self, state: Tensor, place: int, known: None, update: Tensor, scale: float) -> Tensor:
        return state - update if scale == -1.0 else torch.add(state, update, alpha=scale)


class InFloat32:
    """A pathway under autocast: its streams, gates and inner products stay in float32, its branches do not."""

    def __init__(self, pathway: Pathway, device: torch.device) -> None:
        self.pathway, self.device = pathway, device

    def start(self, x: Tensor) -> State:
        with without_autocast(self.device):
            return self.pathway.start(x.float())

    def enter_block(self, state: State, place: int) -> State:
        with without_autocast(self.device):
            return self.pathway.enter_block(state, place)

    def read(self, state: State, place: int) -> tuple[Tensor, Any]:
        with without_autocast(self.device):
            return self.pathway.read(state, place)

    def write(self, state: State, place: int, known: Any, update: Tensor, scale: float) -> State:
        with without_autocast(self.device):
            return self.pathway.write(state, place, known, update.float(), scale)

    def finish(self, state: State) -> Tensor:
        with without_autocast(self.device):
            return self.pathway.finish(state)

    def transform(self, state: State, function: Callable[[Tensor], Tensor]) -> State:
        return self.pathway.transform(state, lambda stream: function(stream).float())

    def run_block(
        self, block: Block, state: State, place: int, given: tuple[Any, ...] = (), seen: list[Seen] | None = None
    ) -> State:
        return self.pathway.run_block(block, state, place, given, seen, self)


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
        self,
        state: State,
        pathway: Pathway | InFloat32,
        place: int,
        given: tuple[Any, ...] = (),
        seen: list[Seen] | None = None,
    ) -> State:
        """The state after all branches; ``place`` is the number of the first. ``seen`` collects their tensors."""
        state = pathway.enter_block(state, place)
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
        self.recompute = False
        """Whether every pass with gradients uses activation checkpointing; set by ``set_recompute``."""
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
        pathway = self._choose_precision(x)
        for state in self._states(pathway, pathway.start(x), passes, recompute):
            yield pathway.finish(state)

    def forward(self, x: Tensor) -> Tensor:
        pathway = self._choose_precision(x)
        last = start = pathway.start(x)
        for last in self._states(pathway, start):  # noqa: B007 (only the last one is wanted)
            pass
        return pathway.finish(last)

    def _choose_precision(self, x: Tensor) -> Pathway | InFloat32:
        if isinstance(self.pathway, Plain) or not is_autocast(x.device):
            return self.pathway
        return InFloat32(self.pathway, x.device)

    def steps(self, x: Tensor, passes: Iterable[Pass] | None = None) -> Iterator[Step]:
        """The steps of all branches, computed lazily."""
        seen: list[Seen] = []
        pathway = self._choose_precision(x)
        for number, _ in enumerate(self._states(pathway, pathway.start(x), passes, seen=seen), start=1):
            for place, (name, *happened) in enumerate(seen, start=1):
                yield Step(number, name, place == len(seen), *happened)
            seen.clear()

    def _states(
        self,
        pathway: Pathway | InFloat32,
        state: State,
        passes: Iterable[Pass] | None = None,
        recompute: bool = False,
        seen: list[Seen] | None = None,
    ) -> Iterator[State]:
        """The pathway's state after each block: the one loop over a network."""
        blocks = list(self)
        for number, given in passes or ((number, ()) for number in range(len(blocks))):
            arguments = (blocks[number], state, self._first_places[number], given, seen)
            if (recompute or self.recompute) and seen is None and torch.is_grad_enabled():
                state = checkpoint(pathway.run_block, *arguments, use_reentrant=False)
            else:
                state = pathway.run_block(*arguments)
            yield state

    def set_recompute(self) -> None:
        """Store only the streams between blocks for the gradient, and compute each block again in the backward pass."""
        if state := self.state_dict().keys() - dict(self.named_parameters()).keys():
            raise UserError(
                f"{min(state)!r} changes with every pass, so no block can be computed again; leave recompute out"
            )
        self.recompute = True

    def prepare(self) -> None:
        """Let the pathway change initial weights, after the model has drawn them."""
        self.pathway.prepare(self)


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
        """The output of the model from the stream after the last block."""

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
