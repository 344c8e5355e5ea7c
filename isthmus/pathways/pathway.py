"""What several pathways use: learned values, a norm without weights, and fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Layout, Pathway

Share = Literal["1/sqrt(places)", "1/places"]
"""A factor that depends on the number of places, the branches of the stack."""
Epsilon = Annotated[float, Field(gt=0, le=1)]
PlainNorm = Literal["layer", "rms"]
EVERY_STACK: frozenset[Literal["stacked", "recurrent", "energy", "proximal"]] = frozenset(
    {"stacked", "recurrent", "energy"}
)


def make_parameter(value: Tensor) -> nn.Parameter:
    """A parameter without weight decay: decay would pull a gate towards a meaning of its own."""
    parameter = nn.Parameter(value)
    parameter.undecayed = True  # type: ignore[attr-defined]
    return parameter


def factor(by: float | Share, layout: Layout) -> float:
    """The value of a factor; the updates of a recurrent model are those of all its iterations."""
    updates = max(1, layout.places * layout.iterations)
    if by == "1/sqrt(places)":
        return float(updates**-0.5)
    return 1 / updates if by == "1/places" else float(by)


def apply_scale(update: Tensor, scale: float) -> Tensor:
    return update if scale == 1.0 else scale * update


_GATES_HELD = ContextVar("gates held", default=False)


@contextmanager
def hold_gates() -> Iterator[None]:
    """Within it, derivatives treat gates and norms as constants, so that every pathway is linear in its updates."""
    token = _GATES_HELD.set(True)
    try:
        yield
    finally:
        _GATES_HELD.reset(token)


def are_gates_held() -> bool:
    # A compiler would trace the variable; compiled models are not differentiated for an analysis.
    return not torch.compiler.is_compiling() and _GATES_HELD.get()


def hold(x: Tensor) -> Tensor:
    """x, which a gate depends on: a constant while gates are held."""
    return x.detach() if are_gates_held() else x


def normalise(x: Tensor, name: PlainNorm, eps: float) -> Tensor:
    """LayerNorm or RMSNorm over the last axis, without weights."""
    if are_gates_held():
        centred = x - x.mean(-1, keepdim=True) if name == "layer" else x
        return centred * hold(centred).square().mean(-1, keepdim=True).add(eps).rsqrt()
    if name == "layer":
        return nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    return nn.functional.rms_norm(x, x.shape[-1:], eps=eps)


def at_least_single(x: Tensor) -> Tensor:
    """In float32 or finer, for sums and gates."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def map_streams(streams: Tensor, function: Callable[[Tensor], Tensor], dim: int) -> Tensor:
    """``function`` of each stream along an axis; the same tensor if it changes none."""
    before = streams.unbind(dim)
    after = [function(stream) for stream in before]
    unchanged = all(new is old for new, old in zip(after, before, strict=True))
    return streams if unchanged else torch.stack(after, dim)


def replay(pathway: Pathway, x: Tensor, updates: Sequence[Tensor], scale: float = 1.0) -> Iterator[Tensor]:
    """What each block of one branch reads if the updates are those given; at last, the output."""
    state = pathway.start(x)
    for place, update in enumerate(updates):
        state = pathway.enter_block(state, place)
        read, known = pathway.read(state, place)
        yield read
        state = pathway.write(state, place, known, update, scale)
    yield pathway.finish(state)


def replay_sources(pathway: Pathway, depth: int, scale: float = 1.0) -> Iterator[Tensor]:
    """The rows of A, for entries that are numbers or diagonals: (sources, 1 or width) for each place and the output."""
    x, *updates = torch.eye(depth + 1, dtype=torch.float64).unsqueeze(-1)
    return replay(pathway, x, updates, scale)
