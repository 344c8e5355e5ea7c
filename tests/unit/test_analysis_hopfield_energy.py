"""The energy and the Lipschitz constant of an iMixer's hidden network: against slow code, and where theory holds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.analysis import hopfield_energy as analysis
from isthmus.core.config import run_config
from isthmus.core.registry import create_model
from isthmus.layers import pointwise
from isthmus.layers.dynamics import Solver, fixed_point
from isthmus.training.run import run
from tests.properties.hopfield_network import Hopfield

SHAPES: dict[str, Any] = {"input_shape": (1, 8, 8), "output_shape": (3,), "patch": 2, "C": 12, "depth": 2}


def make(**fields: Any) -> Any:
    torch.manual_seed(0)
    return create_model("imixer", **SHAPES | fields).eval()


def network(seed: int, activation: str = "relu", tied: bool = True, scale: float = 1.0) -> analysis.HiddenNetwork:
    model = make(norm="none", e=activation, f=activation)
    found = analysis.HiddenNetwork(model.mixers[0], model.config)
    generator = torch.Generator().manual_seed(seed)
    for name in ("down", "up", "b_h", "b_x"):
        shape = getattr(found, name).shape
        setattr(found, name, scale * torch.randn(shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5)
    if tied:
        found.up = found.down.mT
    return found


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", analysis.LAGRANGIANS)
def test_an_activation_is_the_gradient_of_its_lagrangian(name: Any) -> None:
    x = (2 * draw(0, 50)).requires_grad_()
    (gradient,) = torch.autograd.grad(analysis.LAGRANGIANS[name](x).sum(), x)
    torch.testing.assert_close(pointwise.activation(name)(x), gradient)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.1, 3))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "softmax"])
def test_tied_weights_and_convex_lagrangians_never_raise_the_energy(activation: Any, seed: int, scale: float) -> None:
    hidden = network(seed, activation, scale=scale)
    x0 = draw(seed, 4, 6)
    path = fixed_point(hidden.apply, x0, Solver(12), keep=True).trajectory
    energies = torch.stack([hidden.energy(x, x0) for x in path])
    assert (energies.diff(dim=0) <= 1e-9 * (1 + energies.abs().amax())).all()
    assert hidden.asymmetry() == 0


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_energy_is_that_of_the_whole_network_less_what_v_adds_alone(activation: str) -> None:
    """Eq. (6) of three layers, without biases and with h at rest."""
    hidden = network(1, activation)
    hidden.b_h, hidden.b_x = torch.zeros_like(hidden.b_h), torch.zeros_like(hidden.b_x)
    xi, v, x = draw(2, 6, 5), draw(3, 4, 5), draw(4, 4, 6)
    whole = Hopfield(["layer_norm", activation, activation], [xi, hidden.down])
    g = whole.layers[0].activation(v)
    h = whole.layers[1].activation(x) @ hidden.down.mT
    own = (v * g).sum(-1) - whole.layers[0].value(v)
    torch.testing.assert_close(hidden.energy(x, g @ xi.mT), whole.energy([v, x, h]) - own)


@pytest.mark.parametrize("fields", [{}, {"norm": "none"}, {"tied": True, "e": "tanh", "f": "softmax"}])
def test_f_is_the_models_own(fields: dict[str, Any]) -> None:
    model = make(**fields)
    block = model.blocks[0]
    iterates = block.solve(torch.randn(3, 16, 12), keep=True, solver=Solver(3)).trajectory
    hidden = analysis.HiddenNetwork(block.token, model.config)
    for before, after in pairwise(iterates):
        torch.testing.assert_close(iterates[0] + hidden.apply(before.double()).float(), after)


@pytest.mark.parametrize("activation", ["relu", "gelu", "softmax"])
def test_the_stretch_is_the_largest_singular_value_of_the_jacobian_and_below_its_bound(activation: str) -> None:
    hidden = network(5, activation, tied=False)
    x = draw(6, 7, 6)
    exact = max(float(torch.linalg.matrix_norm(torch.func.jacrev(hidden.apply)(row), 2)) for row in x)
    assert hidden.largest_stretch(x) == pytest.approx(exact, rel=0.01)
    assert exact <= hidden.stretch_bound()
    assert 0.5 < hidden.asymmetry() < 2


def test_a_run_is_measured_once_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"name": "imixer", "patch": 2, "C": 12, "depth": 2}
    given: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1}
    record = run(run_config(given | {"model": model, "train": {"epochs": 1, "batch_size": 300}}))
    found = analysis.of_run(record.id)
    assert [len(block["energies"]) for block in found["blocks"]] == [9, 9]
    assert all(0 < block["at_least"] <= block["at_most"] < 1.04 for block in found["blocks"]), "0.9² · 1.1289² = 1.032"
    assert [path.name for path in analysis.draw(found, tmp_path)] == ["hopfield_energy.png"]
    assert analysis.summary(found)["Lipschitz constant of F, at most"] == max(b["at_most"] for b in found["blocks"])
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert analysis.of_run(record.id) == found


def test_it_says_what_it_does_not_apply_to() -> None:
    assert analysis.applies(make(), "") is None
    assert "three layers" in str(analysis.applies(make(hierarchy=3), ""))
    assert "batch norm" in str(analysis.applies(make(norm="batch"), ""))
    assert "gelu, relu, tanh" in str(analysis.applies(make(e="silu"), ""))
