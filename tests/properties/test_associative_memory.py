"""Updates of Hopfield networks go down their energies, and stored patterns stay where they are."""

from __future__ import annotations

import pytest
import torch

from isthmus.analysis import associative_memory as memory


def signs(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sign()


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_classical_energy_is_the_quadratic_form():
    patterns, states = signs(3, 20), signs(5, 20, seed=1)
    weights = patterns.mT @ patterns
    expected = torch.stack([-0.5 * x @ weights @ x for x in states])
    torch.testing.assert_close(memory.classical_energy(states, patterns), expected)
    torch.testing.assert_close(memory.dense_energy(states, patterns, "square"), expected)
    field = states @ weights
    assert (field == 0).any()
    assert torch.equal(memory.classical_update(states, patterns), torch.where(field == 0, states, field.sign()))


def test_a_sweep_never_raises_the_classical_energy_and_retrieves():
    patterns = signs(3, 60)
    states = patterns.clone()
    states[:, :9] *= -1
    for _ in range(5):
        before = memory.classical_energy(states, patterns)
        states = memory.classical_sweep(states, patterns)
        assert (memory.classical_energy(states, patterns) <= before + 1e-9).all()
    assert torch.equal(states, patterns)


@pytest.mark.parametrize("interaction", ["square", "cube", "exponential"])
def test_the_dense_update_follows_the_gradient(interaction):
    patterns, states = 0.3 * signs(4, 10), (0.5 * normal(6, 10, seed=1)).requires_grad_()
    (slope,) = torch.autograd.grad(memory.dense_energy(states, patterns, interaction).sum(), states)
    torch.testing.assert_close(memory.dense_update(states, patterns, interaction), (-2 * slope).tanh())


def test_the_modern_update_is_a_gradient_step_and_lowers_the_energy():
    patterns, states = normal(7, 10), normal(6, 10, seed=1).requires_grad_()
    (slope,) = torch.autograd.grad(memory.modern_energy(states, patterns).sum(), states)
    torch.testing.assert_close(memory.modern_update(states, patterns), states - slope)
    states = states.detach()
    for _ in range(20):
        after = memory.modern_update(states, patterns)
        assert (memory.modern_energy(after, patterns) <= memory.modern_energy(states, patterns) + 1e-12).all()
        states = after
    torch.testing.assert_close(memory.modern_update(states, patterns), states, rtol=1e-3, atol=1e-3)


def test_far_patterns_are_retrieved_in_one_modern_step():
    patterns = 4 * signs(8, 64)
    torch.testing.assert_close(memory.modern_update(patterns + 0.1, patterns), patterns)
