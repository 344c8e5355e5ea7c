"""Two streams, each updated from the other, so that the inputs of every branch follow from its outputs.

    (a, b) ← (b, a + f(b)),    inverse: a = b' − f(a'), b = a';    both start as x_0, the output is (a + b) / 2

Papers: The Reversible Residual Network (Gomez et al. 2017); Reversible Vision Transformers (Mangalam et al. 2022);
reversible mobile inverted bottlenecks (Pendse et al. 2021).

    paper                            here
    y_1 = x_1 + F(x_2)               one branch; F and G take turns, so y_2 = x_2 + G(y_1) is the next one
    x_1, x_2                         a, b

With ``recompute`` the backward pass rebuilds what every branch read instead of storing it: memory does not grow with
depth. The rebuilt numbers differ from the first ones by rounding.

Differs from the paper: the papers concatenate the two streams for the head, which doubles its input; the mean keeps the
parameter count. Written as one stream, x_{l+1} = x_{l−1} + f_l(x_l).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.core.errors import UserError
from isthmus.layers.autocast import same_autocast
from isthmus.layers.residual import Block, Entries, InFloat32, Layout, Pathway, PathwayConfig, Seen
from isthmus.pathways.pathway import apply_scale

NAMES = {"reversible": "Reversible"}
PRESETS = {
    "reversible/recomputed": {"name": "reversible", "recompute": True},
    "revnet": {"name": "reversible", "recompute": True},
    "revvit": {"name": "reversible", "recompute": True},
    "reversible_vit": "reversible/recomputed",
}
TITLE_FIELDS = {"reversible": ()}


class ReversibleConfig(PathwayConfig):
    recompute: bool = False
    """Rebuild inputs in the backward pass instead of storing them."""

    @property
    def entries(self) -> Entries:
        return "sums"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.recompute and (why := layout.changes_again or layout.skip_weights):
            raise ValueError(f"recompute goes back through every branch, which {why} prevents; use recompute=false")


class Tape:
    """The streams after the last block of a forward pass, from which the backward pass goes back."""

    def __init__(self) -> None:
        self.streams: tuple[Tensor, Tensor] | None = None
        self.blocks = 0


class Pair(NamedTuple):
    a: Tensor
    b: Tensor
    tape: Tape


class Reversible(Pathway):
    Config = ReversibleConfig
    formula = "(a, b) ← (b, a + f(b))"
    paper = "RevNet (2017); Reversible ViT (2022)"
    extra = "nothing; with recompute, one more forward pass"

    def __init__(self, config: ReversibleConfig, layout: Layout) -> None:
        super().__init__()
        self.recompute = config.recompute

    def start(self, x: Tensor) -> Pair:
        return Pair(x, x, Tape())

    def read(self, state: Pair, place: int) -> tuple[Tensor, Any]:
        return state.b, None

    def write(self, state: Pair, place: int, known: Any, update: Tensor, scale: float) -> Pair:
        return Pair(state.b, torch.add(state.a, update, alpha=scale), state.tape)

    def finish(self, state: Pair) -> Tensor:
        return (state.a + state.b) / 2

    def transform(self, state: Pair, function: Callable[[Tensor], Tensor]) -> Pair:
        return Pair(function(state.a), function(state.b), state.tape)

    def run_block(
        self, block: Block, state: Pair, place: int, given: tuple[Any, ...] = (), seen: list[Seen] | None = None,
        through: InFloat32 | None = None,
    ) -> Pair:  # fmt: skip
        stores = not self.recompute or seen is not None or torch.compiler.is_compiling()
        if stores or not torch.is_grad_enabled():
            return super().run_block(block, state, place, given, seen, through)  # type: ignore[no-any-return]
        weights = [weight for weight in block.parameters() if weight.requires_grad]
        a, b = RebuiltBlock.apply(self, block, place, given, state.tape, state.a, state.b, *weights)
        return Pair(a, b, state.tape)


class RebuiltBlock(torch.autograd.Function):
    """A block that stores nothing: its backward pass rebuilds what its branches read from what it returned."""

    @staticmethod
    def forward(
        ctx: Any, pathway: Reversible, block: Block, place: int, given: tuple[Any, ...], tape: Tape,
        a: Tensor, b: Tensor, *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        after = block(Pair(a, b, tape), pathway, place, given)
        tape.blocks += 1
        ctx.block, ctx.given, ctx.tape, ctx.number, ctx.weights = block, given, tape, tape.blocks, weights
        ctx.autocast = same_autocast(a.device)
        # An output may not be an input of the function, so a block of one branch returns a view of b.
        outputs = after.a.view_as(after.a), after.b.view_as(after.b)
        tape.streams = (outputs[0].detach(), outputs[1].detach())
        return outputs

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tape, (g_a, g_b) = ctx.tape, gradients
        if tape.streams is None or tape.blocks != ctx.number:
            raise UserError("recompute=true allows one backward pass; for more, use recompute=false")
        a, b = tape.streams
        found: list[Tensor | None] = [None] * len(ctx.weights)
        for branch in reversed(ctx.block.branches(*ctx.given)):
            with torch.enable_grad(), ctx.autocast:
                read = a.detach().requires_grad_()
                update = branch.update(read)
            wanted = torch.autograd.grad(
                update, [read, *ctx.weights], apply_scale(g_b, branch.scale).to(update.dtype), allow_unused=True
            )
            for number, gradient in enumerate(wanted[1:]):
                if gradient is not None:
                    earlier = found[number]
                    found[number] = gradient if earlier is None else earlier + gradient
            a, b = torch.sub(b, update.detach(), alpha=branch.scale), a
            g_a, g_b = g_b, g_a if wanted[0] is None else g_a + wanted[0]
        tape.streams, tape.blocks = (a, b), ctx.number - 1
        return (None, None, None, None, None, g_a, g_b, *found)
