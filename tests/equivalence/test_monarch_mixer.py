"""The Monarch mixer against explicit Monarch matrices, and against the S-Mixer where all blocks are one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import isthmus
from isthmus.core.errors import UserError
from isthmus.layers.permuted_kronecker import vec

IMAGE: dict[str, Any] = {"input_shape": (2, 4, 6), "output_shape": (3,), "patch": 2, "C": 5, "depth": 2}
LINEAR = {"norm": "none", "skip": "none", "activation": "none", "bias": False}


def make(name: str, **fields: Any) -> Any:
    torch.manual_seed(1)
    model = isthmus.create_model(name, **IMAGE | fields).double()
    for parameter in model.parameters():  # biases and norms that do something
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def images() -> Tensor:
    return torch.randn(4, 2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_linear_block_is_a_monarch_matrix() -> None:
    """J_cᵀ L J_c R of eq. (12), with every matrix written out; the tokens change from 6 to 4."""
    model = make("monarch_mixer", S=4, **LINEAR)
    C, S = 5, 4
    states = dict(model.trajectory(images()))
    block = model.blocks[0]
    R = torch.block_diag(*block.token_mixing.weight)  # a block for each column of X, which vec stacks
    L = torch.block_diag(*block.channel_mixing.weight)  # a block for each row
    J = torch.zeros(S * C, S * C, dtype=torch.float64)
    for i in range(S):
        for j in range(C):
            J[i * C + j, j * S + i] = 1  # J_c vec(X) = vec(Xᵀ)
    assert R.shape == (C * S, C * 6)
    torch.testing.assert_close(vec(states["x_1"]), vec(states["x_0"]) @ (J.T @ L @ J @ R).T)


@pytest.mark.parametrize("fields", [{}, {"S": 4, "activation": "relu"}, LINEAR, {"norm": "none", "init": "pytorch"}])
def test_with_equal_blocks_it_is_the_s_mixer(fields: dict[str, Any]) -> None:
    shared, own = make("s_mixer", **fields), make("monarch_mixer", **fields)
    weights = shared.state_dict()
    for name, parameter in own.named_parameters():
        value = weights[name.replace("mixing.", "mixing.fc.")]
        parameter.data = (value if value.shape == parameter.shape else value.expand(parameter.shape)).clone()
    torch.testing.assert_close(own(images()), shared(images()))
    assert own.connections() == shared.connections()


def test_it_has_the_weights_of_every_copy() -> None:
    """S C² + C S² for each block instead of C² + S², and biases likewise, at the same multiplications."""
    shared, own = (isthmus.cost(make(name)) for name in ("s_mixer", "monarch_mixer"))
    S, C = 6, 5
    assert own.params - shared.params == 2 * (S * C**2 + C * S**2 - C**2 - S**2 + 2 * S * C - S - C)
    assert own.macs == shared.macs


def test_other_permutations_are_refused() -> None:
    with pytest.raises(UserError, match="permutation"):
        make("monarch_mixer", permutation="random")
