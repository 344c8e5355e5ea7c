"""The branches of a trained stack, one by one: what each would read if the updates were others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from isthmus.layers.residual import Branch, ResidualModel, Stack, keep

Update = Callable[[int, Tensor], Tensor]
"""The update of a place, given its number and what it reads."""


class Place(NamedTuple):
    """One branch of a stack."""

    name: str
    branch: Branch
    opens_block: bool


class Walk(NamedTuple):
    reads: list[Tensor]
    """What the branch of every place read."""
    updates: list[Tensor]
    output: Tensor
    """The stream after the last place."""


def refuse(model: Any) -> str | None:
    """Why a model's branches cannot be taken one by one."""
    if not isinstance(model, ResidualModel):
        return "it has no residual branches"
    layout = getattr(model.config, "layout", None)
    if layout is None:
        return "its config has no pathway"
    if layout.kind != "stacked":
        return "its branches are not a stack of independent ones"
    places = list_places(model.blocks)
    if not places:
        return "it has no blocks"
    if any(place.branch.carry is not keep for place in places):
        return "its skip connections have weights of their own"
    return None


def list_places(stack: Stack) -> list[Place]:
    found = []
    for number, block in enumerate(stack, start=1):
        branches = block.branches()
        found += [Place(f"{branch.name}_{number}", branch, branch is branches[0]) for branch in branches]
    return found


def walk(stack: Stack, x: Tensor, update: Update | None = None) -> Walk:
    """A pass through a stack, with the updates of its own branches or with those of ``update``."""
    pathway, places = stack.pathway, list_places(stack)
    state, reads, updates = pathway.start(x), list[Tensor](), list[Tensor]()
    for number, place in enumerate(places):
        if place.opens_block:
            state = pathway.enter_block(state, number)
        read, known = pathway.read(state, number)
        new = place.branch.update(read) if update is None else update(number, read)
        state = pathway.write(state, number, known, new, place.branch.scale)
        reads.append(read)
        updates.append(new)
    return Walk(reads, updates, pathway.finish(state))


@contextmanager
def differentiate_forward() -> Iterator[None]:
    """For ``torch.func.jvp``, which compiles a few of its own rules with torch's deprecated ``torch.jit.script``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        yield
