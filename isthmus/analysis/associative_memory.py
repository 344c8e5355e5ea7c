"""Hopfield networks that store patterns: their energies and the updates that go down them.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, section 3: where its own energies come from. States are
rows here, (batch, N); patterns are the rows of ``patterns``, (P, N).

    classical (Hopfield 1982)                E = −½ xᵀ W x,  W = Σ ξ ξᵀ         x ← sign(W x)
    dense (Krotov and Hopfield 2016)         E = −½ Σ f(ξᵀ x)                   x ← tanh(Σ ξ f'(ξᵀ x))
    modern continuous (Ramsauer et al. 2021) E = −log Σ exp(ξᵀ x) + ½ xᵀ x      x ← Σ ξ softmax(ξᵀ x)

Where the paper leaves something open: sign(0) keeps the neuron as it is, and the classical network updates its neurons
one after another, because all at once the energy may rise. Its diagonal counts as printed; it is a constant on ±1.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

States = Float[Tensor, "batch N"]
Patterns = Float[Tensor, "P N"]
Interaction = Literal["square", "cube", "exponential"]


def classical_energy(states: States, patterns: Patterns) -> Float[Tensor, " batch"]:
    """−½ xᵀ W x, without forming W."""
    return -0.5 * (states @ patterns.mT).square().sum(dim=1)


def classical_update(states: States, patterns: Patterns) -> States:
    """sign(W x) of all neurons at once, as printed."""
    field = states @ patterns.mT @ patterns
    return torch.where(field == 0, states, field.sign())


def classical_sweep(states: States, patterns: Patterns) -> States:
    """One neuron after another, each without its own vote: no step raises the energy."""
    states = states.clone()
    overlap = states @ patterns.mT
    for neuron in range(states.shape[1]):
        column = patterns[:, neuron]
        field = overlap @ column - states[:, neuron] * column.square().sum()
        changed = torch.where(field == 0, states[:, neuron], field.sign())
        overlap = overlap + (changed - states[:, neuron])[:, None] * column
        states[:, neuron] = changed
    return states


def dense_energy(states: States, patterns: Patterns, interaction: Interaction = "cube") -> Float[Tensor, " batch"]:
    """−½ Σ f(ξᵀ x); f(x) = x² is the classical one."""
    overlap = states @ patterns.mT
    powers = {"square": overlap.square, "cube": lambda: overlap**3, "exponential": overlap.exp}
    return -0.5 * powers[interaction]().sum(dim=1)


def dense_update(states: States, patterns: Patterns, interaction: Interaction = "cube") -> States:
    """tanh(Σ ξ f'(ξᵀ x))."""
    overlap = states @ patterns.mT
    slopes = {"square": lambda: 2 * overlap, "cube": lambda: 3 * overlap.square(), "exponential": overlap.exp}
    return (slopes[interaction]() @ patterns).tanh()


def modern_energy(states: States, patterns: Patterns) -> Float[Tensor, " batch"]:
    """−log Σ exp(ξᵀ x) + ½ xᵀ x."""
    return -(states @ patterns.mT).logsumexp(dim=1) + 0.5 * states.square().sum(dim=1)


def modern_update(states: States, patterns: Patterns) -> States:
    """Ξ softmax(Ξᵀ x): the minimum of the energy's convex part against its linearised concave part."""
    return (states @ patterns.mT).softmax(dim=1) @ patterns
