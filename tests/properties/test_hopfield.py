"""The energy falls where the paper says so; and one step of the network is a Mixer's or an iMixer's block."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.layers.dynamics import Solver
from isthmus.models.imixer import IMixerBlock, IMixerConfig, InvertibleMLP
from tests.properties.hopfield_network import LAGRANGIANS, Hopfield, lagrangian, rises, rising_fraction

seeds = st.integers(0, 2**32 - 1)
CONVEX = sorted(name for name, each in LAGRANGIANS.items() if each.convex)
PLAIN = Solver(0)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(activations: list[str], widths: list[int], seed: int, scale: float = 1.0, **settings) -> Hopfield:
    pairs = enumerate(pairwise(widths))
    xi = [drawn(seed + place, above, below) * scale / math.sqrt(below) for place, (below, above) in pairs]
    return Hopfield(activations, xi, **settings)


def states(widths: list[int], seed: int, rows: int = 4) -> list[Tensor]:
    return [drawn(seed + 100 + place, rows, width) for place, width in enumerate(widths)]


@pytest.mark.parametrize("name", LAGRANGIANS)
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_an_activation_is_the_gradient_of_its_lagrangian(name: str, seed: int) -> None:
    x = (2 * drawn(seed, 3, 5)).requires_grad_()
    (gradient,) = torch.autograd.grad(lagrangian(name).value(x).sum(), x)
    torch.testing.assert_close(lagrangian(name).activation(x), gradient)


@pytest.mark.parametrize("name", LAGRANGIANS)
def test_a_lagrangian_is_convex_where_it_says_so(name: str) -> None:
    least = min(float(torch.linalg.eigvalsh(lagrangian(name).hessian(2 * drawn(seed, 5))).min()) for seed in range(40))
    assert (least > -1e-12) == LAGRANGIANS[name].convex


@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_the_layer_norms_hessian_has_a_zero_mode(seed: int) -> None:
    """Eq. (13)."""
    v = drawn(seed, 7)
    hessian = lagrangian("layer_norm").hessian(v)
    torch.testing.assert_close(hessian @ (v - v.mean()), torch.zeros_like(v), rtol=0, atol=1e-12)
    assert torch.linalg.matrix_rank(hessian, tol=1e-9) == 5  # v − v̄ and the constant vector are lost, nothing else
    assert lagrangian("gelu").hessian(v).det().abs() > 0


@given(seed=seeds, alpha=st.floats(0, 5))
@settings(max_examples=15, deadline=None)
def test_the_energy_does_not_feel_the_visible_decay(seed: int, alpha: float) -> None:
    """The freedom of α in Eq. (12): it changes how v moves and not how the energy does. A hidden layer has none."""
    widths, names = [6, 8, 5], ["layer_norm", "relu", "sigmoid"]
    start = states(widths, seed)
    usual, other = (network(names, widths, seed, alpha=[value, 1, 1]) for value in (1.0, alpha))
    torch.testing.assert_close(usual.energy_rate(start), other.energy_rate(start))
    hidden = network(names, widths, seed, alpha=[1, 6.0, 1])
    assert not torch.allclose(usual.energy_rate(start), hidden.energy_rate(start))
    if abs(alpha - 1) > 0.1:
        assert not torch.allclose(usual.velocity(start)[0], other.velocity(start)[0])


@given(names=st.lists(st.sampled_from(CONVEX), min_size=2, max_size=4), seed=seeds, scale=st.floats(0.1, 2))
@settings(max_examples=20, deadline=None)
def test_the_energy_never_rises_for_convex_lagrangians(names: list[str], seed: int, scale: float) -> None:
    widths = [5, 7, 4, 6][: len(names)]
    tau = [2.0, 1.0, 0.5, 0.2][: len(names)]
    assert not rises(network(names, widths, seed, scale, tau=tau), states(widths, seed), 0.05, 10).any()


def test_the_energy_falls_along_the_integrated_path() -> None:
    """The rate is that of the energy itself, not only its formula's."""
    names, widths = ["layer_norm", "sigmoid", "tanh"], [6, 8, 5]  # ReLU's rate jumps where a neuron crosses 0
    memory = network(names, widths, seed=3)
    path = memory.evolve(states(widths, 3), 0.01, 200)
    energies = torch.stack([memory.energy(each) for each in path])
    assert (energies.diff(dim=0) < 0).all()
    middle = (energies[2:] - energies[:-2]) / 0.02
    rates = torch.stack([memory.energy_rate(each) for each in path[1:-1]])
    torch.testing.assert_close(rates, middle, rtol=1e-3, atol=1e-4)


def test_the_rate_is_minus_the_hessian_of_the_velocity() -> None:
    names, widths, tau = ["gelu", "softmax", "gelu"], [6, 8, 5], [3.0, 2.0, 1.0]
    memory, start = network(names, widths, 5, tau=tau), states(widths, 5)
    expected = torch.zeros(4, dtype=torch.float64)
    for row in range(4):
        for name, t, x, speed in zip(names, tau, start, memory.velocity(start), strict=True):
            expected[row] -= t * speed[row] @ lagrangian(name).hessian(x[row]) @ speed[row]
    torch.testing.assert_close(memory.energy_rate(start), expected)


def test_gelus_energy_rises_at_times() -> None:
    """Narrow networks show it most: there a few neurons below −0.75 outweigh the others."""
    narrow = rising_fraction(["layer_norm", "gelu"], [4, 4], trials=300, steps=40)
    wide = rising_fraction(["layer_norm", "gelu"], [32, 32], trials=300, steps=40)
    assert 0.08 < narrow < 0.25
    assert wide < narrow / 3
    assert rising_fraction(["layer_norm", "relu"], [4, 4], trials=300, steps=40) == 0


def test_hidden_layers_come_to_rest() -> None:
    """Eq. (34), (35), for a hierarchy that contracts: the hidden velocities vanish."""
    widths, names = [6, 8, 7, 5], ["layer_norm", "gelu", "relu", "tanh"]
    memory = network(names, widths, 1)
    memory.xi = [memory.xi[0], *(0.5 * xi / torch.linalg.matrix_norm(xi, 2) for xi in memory.xi[1:])]
    found = memory.adiabatic(drawn(2, 3, 6), Solver(500, tolerance=1e-14))
    for speed in memory.velocity(found)[1:]:
        torch.testing.assert_close(speed, torch.zeros_like(speed), rtol=0, atol=1e-11)


def tied(layer: nn.Module, weight: Tensor) -> None:
    assert isinstance(layer, nn.Linear)
    layer.weight.data = weight.clone()
    layer.bias.data.zero_()


def config(**fields) -> IMixerConfig:
    shapes = {"input_shape": (1, 6, 4), "output_shape": (2,), "patch": 2}
    return IMixerConfig(name="imixer", **{**shapes, "C": 8, "depth": 1, "norm": "none", "norm_eps": 1e-300, **fields})


def test_the_mixers_channel_block_is_the_discretised_dynamics() -> None:
    """Eq. (14): tied ξ, no bias, eps 0, and 1/√N_v in the scale of the norm, which here is along the mixed axis."""
    block = IMixerBlock(config(channel_hidden=12)).double()
    xi = drawn(1, 12, 8)
    tied(block.channel[0], xi)
    tied(block.channel[2], xi.T)
    block.channel_norm.weight.data.fill_(1 / math.sqrt(8))
    v = drawn(2, 3, 6, 8)
    memory = Hopfield(["layer_norm", "gelu"], [xi])
    torch.testing.assert_close(v + block.channel(block.channel_norm(v)), memory.discretised(v, PLAIN))


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
@pytest.mark.parametrize("hierarchy", [1, 2, 3])
def test_the_imixers_token_mixing_is_the_discretised_dynamics(hierarchy: int, iterations: int) -> None:
    """Eq. (14), (30), (42) with the norm along the tokens, as the derivation has it and the architecture does not."""
    settings = config(hierarchy=hierarchy, iterations=iterations, h_r=1.5, e="relu")
    module = InvertibleMLP(settings).double()
    xi = [drawn(place, above, below) / 4 for place, (below, above) in enumerate(pairwise(settings.layers))]
    for place, weight in enumerate(xi):
        tied(module.down[place], weight)
        tied(module.up[place], weight.T)
    tokens = settings.tokens
    norm = nn.LayerNorm(tokens, eps=1e-300, dtype=torch.float64)
    norm.weight.data.fill_(1 / math.sqrt(tokens))
    memory = Hopfield(["layer_norm", "relu", *["gelu"] * (hierarchy - 1)], xi)
    v = drawn(9, 3, 8, tokens)
    torch.testing.assert_close(v + module(norm(v)), memory.discretised(v, Solver(iterations)))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softmax"])
def test_a_tied_imixer_of_any_widths_is_the_discretised_dynamics(activation: str) -> None:
    """Eq. (30), (42) with one matrix between two layers, as the network has it."""
    settings = config(hierarchy=3, hidden_widths=(5, 9), tied=True, iterations=4, e=activation, f=activation)
    assert settings.layers == [6, 4, 5, 9]
    module = InvertibleMLP(settings).double()
    for name, parameter in module.named_parameters():
        parameter.data.mul_(not name.endswith("bias"))
    xi = [parameter.detach() for name, parameter in module.named_parameters() if name.endswith("weight")]
    memory = Hopfield(["layer_norm", *[activation] * 3], xi)
    norm = nn.LayerNorm(6, eps=1e-300, dtype=torch.float64)
    norm.weight.data.fill_(1 / math.sqrt(6))
    v = drawn(9, 3, 8, 6)
    torch.testing.assert_close(v + module(norm(v)), memory.discretised(v, Solver(4)))


def test_the_discretised_step_is_an_euler_step_of_the_adiabatic_limit() -> None:
    """Eq. (12) with α = 0 and Δt = τ_v: v moves by τ_v dv/dt while the hidden layers are at rest."""
    xi = [drawn(1, 7, 6), 0.4 * torch.linalg.qr(drawn(2, 7, 7)).Q]
    memory = Hopfield(["layer_norm", "gelu", "gelu"], xi, tau=[2.5, 1, 1], alpha=[0, 1, 1])
    v, solver = drawn(3, 4, 6), Solver(300, tolerance=1e-15)
    speed = memory.velocity(memory.adiabatic(v, solver))[0]
    torch.testing.assert_close(memory.discretised(v, solver), v + 2.5 * speed)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown Lagrangian 'gelus'; did you mean 'gelu'\?"):
        Hopfield(["gelus", "gelu"], [torch.ones(2, 2)])
    with pytest.raises(UserError, match="3 layers have 2 interactions, not 1"):
        Hopfield(["gelu"] * 3, [torch.ones(2, 2)])
    with pytest.raises(UserError, match=r"\(3, 2\) and \(4, 2\) share no layer"):
        Hopfield(["gelu"] * 3, [torch.ones(3, 2), torch.ones(4, 2)])
    with pytest.raises(UserError, match="2 activations need as many widths, not 3"):
        rising_fraction(["gelu", "gelu"], [2, 2, 2])
