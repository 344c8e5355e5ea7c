"""The residual stack: every model's branches, joined by the pathway, against the sum written out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isthmus.layers.residual import Block, Branch, Pathway, Plain, ResidualModel, Stack, State
from tests.conformance.small_models import SMALL, build, inputs

RESIDUAL = [
    pytest.param(name, fields, id=f"{name}-{n}")
    for name in SMALL
    for n, fields in enumerate(SMALL[name])
    if hasattr(build(name, fields), "steps")
]
every_residual_model = pytest.mark.parametrize(("name", "fields"), RESIDUAL)


def test_all_eight_residual_architectures_are_here() -> None:
    names = {str(case.values[0]) for case in RESIDUAL}
    assert {"hourglass_mlp", "vit", "mlp_mixer", "s_mixer", "imixer", "sw_mlp", "recurrent_transformer", "hyper_set",
            "crate"} <= names  # fmt: skip


@every_residual_model
def test_the_stream_is_the_sum_of_what_joined_it(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields).double().eval()
    x = inputs(model)
    x = x if getattr(model, "vocabulary", 0) else x.double()
    before = None
    with torch.no_grad():
        for number, step in enumerate(model.steps(x)):
            assert before is None or torch.equal(step.read, before)
            before = step.stream
            if step.branch == "sparsity" or fields.get("skip") == "none":
                # CRATE's proximal step and the mixing steps of a network without skips take the stream's place.
                assert torch.equal(step.stream, step.update)
            elif number > 0 or "S" not in fields:  # there a matrix stands in the first skip
                scale = -1 if (name, step.branch) == ("hyper_set", "attention") else fields.get("residual_scale", 1)
                torch.testing.assert_close(step.stream, step.read + scale * step.update, rtol=0, atol=1e-12)


@every_residual_model
def test_a_block_counts_its_branches(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields)
    blocks = model.blocks if isinstance(model, ResidualModel) else model.layers
    given = () if isinstance(model, ResidualModel) else (model.embedding(inputs(model)), 1)
    assert all(block.places == len(block.branches(*given)) for block in blocks)


# iMixer's norms move on with every pass, so a block computed again would be another.
@pytest.mark.parametrize("name", ["hourglass_mlp", "vit", "mlp_mixer", "s_mixer", "sw_mlp"])
def test_recomputed_blocks_have_the_same_gradients(name: str) -> None:
    model: Any = build(name, SMALL[name][0])
    x, found = inputs(model), []
    for recompute in (False, True):
        model.zero_grad()
        torch.manual_seed(0)
        *_, stream = model.blocks.streams(model.embed(x), recompute=recompute)
        model.read_out(stream).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


class Doubling(Block):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("double", lambda x: self.weight * x),)


class Twin(Pathway):
    """Two copies, of which the second receives the updates: what a pathway with several streams needs to work."""

    def start(self, x: Tensor) -> State:
        return x, x

    def read(self, state: State, place: int) -> tuple[Tensor, Any]:
        return state[0], place

    def write(self, state: State, place: int, known: Any, update: Tensor, scale: float) -> State:
        assert known == place
        return state[1], state[0] + scale * update

    def finish(self, state: State) -> Tensor:
        return (state[0] + state[1]) / 2

    def transform(self, state: State, function: Any) -> State:
        return tuple(map(function, state))


def test_a_pathway_alone_decides_how_updates_join() -> None:
    x = torch.tensor([[1.0]])
    assert Stack([Doubling(), Doubling()])(x).item() == 9  # 1 + 2, then 3 + 6
    twin = Stack([Doubling(), Doubling()], Twin())
    assert twin(x).item() == 3  # (1, 1), then (1, 1 + 2), then (3, 1 + 2)
    assert [step.stream.item() for step in twin.steps(x)] == [2, 3]
    assert [stream.item() for stream in twin.streams(x, recompute=True)] == [2, 3]


def test_a_stack_is_a_list_of_blocks() -> None:
    blocks = [Doubling() for _ in range(3)]
    stack = Stack(blocks)
    assert [*stack] == blocks
    assert len(stack) == 3
    assert stack[-1] is blocks[2]
    assert [*stack[:2]] == blocks[:2]
    stack[-1] = other = Doubling()
    assert [*stack] == [*blocks[:2], other]
    assert list(stack.state_dict()) == ["0.weight", "1.weight", "2.weight"]
    assert isinstance(copy.deepcopy(stack).pathway, Plain)
    assert torch.equal(Stack([])(torch.ones(2)), torch.ones(2)), "no blocks: the stream as it came"
