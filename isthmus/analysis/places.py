"""The branches of a trained network, one by one: what each would read if the updates were others.

A recurrent model is unrolled: each of its branches has a place in every iteration.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus.layers.residual import Branch, Pass, Pathway, ResidualModel, Stack, keep
from isthmus.layers.sequences import RecurrentModel
from isthmus.training.counting import example_input

Update = Callable[[int, Tensor], Tensor]
"""The update of a place, given its position in the order of computation and what it reads."""


class Place(NamedTuple):
    """One branch of a network."""

    name: str
    branch: Branch
    number: int
    """By which the pathway knows the branch; iterations of a recurrent model share it."""
    opens_block: bool


class Unrolled(NamedTuple):
    """A stack in the order of computation."""

    pathway: Pathway
    places: list[Place]


class Walk(NamedTuple):
    reads: list[Tensor]
    """What the branch of every place read."""
    updates: list[Tensor]
    output: Tensor
    """The stream after the last place."""


def refuse(model: Any) -> str | None:
    """Why a model's branches cannot be taken one by one."""
    if not isinstance(model, ResidualModel | RecurrentModel):
        return "it has no residual branches"
    if getattr(model.config, "layout", None) is None:
        return "its config has no pathway"
    with torch.no_grad():
        places = unroll_model(model, embed(model, example_input(model))).places
    if not places:
        return "it has no blocks"
    if any(place.branch.carry is None for place in places):
        return "some of its branches replace the stream"
    if any(place.branch.carry is not keep for place in places):
        return "its skip connections have weights of their own"
    return None


def embed(model: ResidualModel | RecurrentModel, x: Tensor) -> Tensor:
    """The stream before the first block."""
    stream: Tensor = model.embedding(x) if isinstance(model, RecurrentModel) else model.embed(x)
    return stream


def read_out(model: ResidualModel | RecurrentModel, stream: Tensor) -> Tensor:
    output: Tensor = model.readout(stream) if isinstance(model, RecurrentModel) else model.read_out(stream)
    return output


def unroll_model(model: ResidualModel | RecurrentModel, stream: Tensor) -> Unrolled:
    """The places of a forward pass that begins with ``stream``."""
    if isinstance(model, RecurrentModel):
        return unroll(model.layers, model.passes(stream))
    return unroll(model.blocks)


def unroll(stack: Stack, passes: Iterable[Pass] | None = None) -> Unrolled:
    places, blocks = [], list(stack)
    for time, (block, given) in enumerate(passes or ((block, ()) for block in range(len(blocks))), start=1):
        first = sum(earlier.places for earlier in blocks[:block])
        branches = blocks[block].branches(*given)
        for number, branch in enumerate(branches, start=first):
            places.append(Place(f"{branch.name}_{time}", branch, number, number == first))
    return Unrolled(stack.pathway, places)


def walk(unrolled: Unrolled, x: Tensor, update: Update | None = None) -> Walk:
    """A pass through a network, with the updates of its own branches or with those of ``update``."""
    pathway, places = unrolled
    state, reads, updates = pathway.start(x), list[Tensor](), list[Tensor]()
    for position, place in enumerate(places):
        if place.opens_block:
            state = pathway.enter_block(state, place.number)
        read, known = pathway.read(state, place.number)
        new = place.branch.update(read) if update is None else update(position, read)
        state = pathway.write(state, place.number, known, new, place.branch.scale)
        reads.append(read)
        updates.append(new)
    return Walk(reads, updates, pathway.finish(state))


@contextmanager
def differentiate_forward() -> Iterator[None]:
    """For ``torch.func.jvp``, which compiles a few of its own rules with torch's deprecated ``torch.jit.script``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        yield
