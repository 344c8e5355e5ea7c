"""iMixer against the paper's listing in float64; its norms, its solvers, and runs that go on where they stopped."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

import isthmus
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import MODEL
from isthmus.layers.spectral_norm import SpectralLinear
from isthmus.models.imixer import BatchNormLinear, IMixer, IMixerConfig, InvertibleMLP
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, prepare
from isthmus.training.run import run
from tests.listeners import stop_after

FIELDS: dict[str, Any] = {
    "input_shape": (3, 8, 12),
    "output_shape": (5,),
    "patch": 4,
    "C": 10,
    "depth": 2,
    "head_init": "xavier",
}


def model(seed: int = 0, **fields: Any) -> IMixer:
    torch.manual_seed(seed)
    made = isthmus.create_model("imixer", **FIELDS | fields)
    assert isinstance(made, IMixer)
    for parameter in made.parameters():  # biases and norms that do something
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made.double().eval()


def images(rows: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(rows, 3, 8, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_weight(layer: nn.Module, c: float = 0.9) -> Tensor:
    assert isinstance(layer, nn.Linear)
    weight = layer.weight.detach()
    if isinstance(layer, SpectralLinear):
        weight = weight / max(1.0, float(layer.u @ weight @ layer.v) / c)
    return weight


def listing(made: IMixer, x: Tensor, n: int) -> Tensor:
    """Algorithm 2 and the Mixer around it, with transposed tokens."""
    config, (rows, columns) = made.config, (2, 3)
    patches = torch.stack([
        x[:, :, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].flatten(1) for i in range(rows) for j in range(columns)
    ], dim=1)  # fmt: skip
    v = patches @ made.stem.linear.weight.T + made.stem.linear.bias
    for block in made.blocks:
        first, second = block.token_norm, block.channel_norm  # type: ignore[union-attr]
        fc1, sn1 = block.token.down  # type: ignore[union-attr,misc]
        fc2, sn2 = block.token.up  # type: ignore[union-attr,misc]
        y = layer_norm(v, (config.C,), first.weight, first.bias, config.norm_eps).transpose(1, 2)  # type: ignore[arg-type,union-attr]
        x0 = y @ fc1.weight.T + fc1.bias
        iterate = x0
        for _ in range(n):
            hidden = gelu(iterate) @ plain_weight(sn1).T + sn1.bias
            iterate = gelu(hidden) @ plain_weight(sn2).T + sn2.bias + x0
        v = v + (gelu(iterate) @ fc2.weight.T + fc2.bias).transpose(1, 2)
        y = layer_norm(v, (config.C,), second.weight, second.bias, config.norm_eps)  # type: ignore[arg-type,union-attr]
        wide, _, narrow = block.channel  # type: ignore[union-attr,misc]
        v = v + gelu(y @ wide.weight.T + wide.bias) @ narrow.weight.T + narrow.bias
    v = layer_norm(v, (config.C,), made.norm.weight, made.norm.bias, config.norm_eps)
    return v.mean(1) @ made.head.linear.weight.T + made.head.linear.bias


@pytest.mark.parametrize("norm", ["spectral", "none"])
@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_the_model_is_the_papers_listing(norm: str, n: int) -> None:
    made = model(norm=norm, iterations=n)
    torch.testing.assert_close(made(images()), listing(made, images(), n))


def test_iterations_may_change_after_training() -> None:
    made = model(iterations=2)
    made.iterations = 5
    torch.testing.assert_close(made(images()), listing(made, images(), 5))
    with pytest.raises(UserError, match="iterations=-1: must be at least 0"):
        made.iterations = -1


def test_a_deeper_hierarchy_is_the_general_formulation() -> None:
    """Eq. (38)–(42) with L = 4, written out."""
    made = model(hierarchy=3, iterations=3, e="silu", f="relu", norm="none", depth=1)
    module, z = made.mixers[0], torch.randn(2, 10, 6, dtype=torch.float64)
    (G1, G2, G3), (H2, H3, H4) = module.down, module.up
    silu, relu = nn.functional.silu, torch.relu

    def F3(x: Tensor) -> Tensor:  # noqa: N802
        return H4(relu(G3(relu(x))))

    def inverse(F: Any, x0: Tensor) -> Tensor:
        x = x0
        for _ in range(3):
            x = x0 + F(x)
        return x

    def F2(x: Tensor) -> Tensor:  # noqa: N802
        return H3(relu(inverse(F3, G2(silu(x)))))

    torch.testing.assert_close(module(z), H2(silu(inverse(F2, G1(z)))))
    assert made.config.layers == [6, 5, 10, 10]


@pytest.mark.parametrize("norm", ["spectral", "none"])
def test_tied_matrices_are_copies_of_each_other(norm: str) -> None:
    """The same numbers as an untied model with the transposed weights, also folded, at about half of the weights."""
    tied = model(norm=norm, tied=True, hierarchy=3, hidden_widths=(7, 3))
    untied = model(norm=norm, hierarchy=3, hidden_widths=(7, 3))
    state = tied.state_dict()
    for name in untied.state_dict():
        if ".up." in name and name.endswith(".weight"):
            state[name] = state[name.replace(".up.", ".down.")].T
        elif ".up." in name and name.endswith((".u", ".v")):
            state[name] = state[name.replace(".up.", ".down.")[:-1] + ("v" if name.endswith("u") else "u")]
    untied.load_state_dict(state)
    torch.testing.assert_close(tied(images()), untied(images()), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tied.fold()(images()), tied(images()), rtol=1e-12, atol=1e-12)
    saved = 2 * (6 * 5 + 5 * 7 + 7 * 3)
    assert isthmus.cost(untied).params - isthmus.cost(tied).params == saved


def test_the_inverse_of_a_guaranteed_contraction_inverts() -> None:
    """(1 − F)(x) = G(v), where c and the activations promise it, in a trained layer's own code."""
    made = model(contraction=0.85, tolerance=1e-13, iterations=2000)
    assert made.config.is_contraction
    module, z = made.mixers[0], torch.randn(2, 10, 6, dtype=torch.float64)
    for layer in (*module.down[1:], *module.up[1:]):
        assert isinstance(layer, SpectralLinear)
        layer.follow(500)
    x = module.solve(z).point
    sn1, sn2 = module.down[1], module.up[1]
    torch.testing.assert_close(x - sn2(gelu(sn1(gelu(x)))), module.down[0](z), rtol=1e-9, atol=1e-9)


def test_the_spectral_norm_is_computed_once_per_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SpectralLinear] = []
    real = SpectralLinear.effective_weight

    def counted(layer: SpectralLinear) -> Tensor:
        asked.append(layer)
        return real(layer)

    monkeypatch.setattr(SpectralLinear, "effective_weight", counted)
    made = model(iterations=7)
    made(images())
    assert len(asked) == len(set(asked)) == 2 * 2  # two maps in each of two blocks


def test_a_folded_model_is_plain_and_says_the_same() -> None:
    made = model(hierarchy=3)
    folded = made.fold()
    assert not any(isinstance(module, SpectralLinear) for module in folded.modules())
    assert folded.config.norm == "none"
    torch.testing.assert_close(folded(images()), made(images()), rtol=1e-12, atol=1e-12)
    assert any(isinstance(module, SpectralLinear) for module in made.modules())
    with pytest.raises(UserError, match="a batch norm within the iteration cannot be folded"):
        model(norm="batch").fold()


def test_gradients_agree_where_the_iteration_converges() -> None:
    found = []
    for fields in ({}, {"gradient": "implicit"}, {"gradient": "implicit", "solver": "anderson", "tolerance": 1e-12}):
        made = model(contraction=0.6, iterations=60, **fields)
        made(images()).square().sum().backward()
        found.append([parameter.grad for parameter in made.parameters()])
    for one, other, third in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(one, third, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("statistics", "averages"), [("shared", 1), ("per_iteration", 3)])
def test_batch_norm_follows_both_maps_of_F(statistics: str, averages: int) -> None:  # noqa: N802
    made = model(norm="batch", batch_statistics=statistics, iterations=3, depth=1).train()
    module, z = made.mixers[0], torch.randn(4, 10, 6, dtype=torch.float64)
    down, up = module.down[1], module.up[1]
    assert isinstance(down, BatchNormLinear)
    assert isinstance(up, BatchNormLinear)
    assert len(down.statistics) == len(up.statistics) == averages

    def normalised(x: Tensor, layer: BatchNormLinear) -> Tensor:
        y = x @ layer.linear.weight.T
        mean, variance = y.mean((0, 1)), y.var((0, 1), correction=0)
        seen.append((layer, mean, y.var((0, 1))))
        return (y - mean) / (variance + 1e-5).sqrt() * layer.scale + layer.shift

    seen: list[tuple[BatchNormLinear, Tensor, Tensor]] = []
    before = copy.deepcopy(module)
    x0 = module.down[0](z)
    x = x0
    for _ in range(3):
        x = x0 + normalised(gelu(normalised(gelu(x), down)), up)
    torch.testing.assert_close(module(z), module.up[0](gelu(x)))
    for layer, start in ((down, before.down[1]), (up, before.up[1])):
        assert isinstance(start, BatchNormLinear)
        running = [each.running_mean.clone() for each in start.statistics]  # type: ignore[union-attr,operator]
        for a, (_, mean, _) in enumerate(entry for entry in seen if entry[0] is layer):
            place = min(a, averages - 1)
            running[place] = 0.9 * running[place] + 0.1 * mean
        for expected, each in zip(running, layer.statistics, strict=True):
            torch.testing.assert_close(each.running_mean, expected)


def test_more_iterations_than_trained_use_the_last_statistics() -> None:
    made = model(norm="batch", batch_statistics="per_iteration", iterations=2)
    made.train()(images())
    made.eval().iterations = 4
    assert made(images()).isfinite().all()


@torch.no_grad()
def test_the_start_is_that_of_the_authors() -> None:
    torch.manual_seed(0)
    made = isthmus.create_model("imixer", **FIELDS | {"C": 64, "head_init": "zero", "patch": 4})
    assert isinstance(made, IMixer)
    assert torch.equal(made(torch.randn(2, 3, 8, 12)), torch.zeros(2, 5))
    stem = made.stem.linear
    assert float(stem.weight.std()) == pytest.approx((1 / 48) ** 0.5, rel=0.05)
    assert float(stem.weight.abs().max()) <= 2 * (1 / 48) ** 0.5 / 0.8796
    assert not stem.bias.any()
    wide: Any = made.blocks[0].channel[0]  # type: ignore[index,union-attr]
    bound = (6 / (64 + 256)) ** 0.5
    assert 0.99 * bound < float(wide.weight.abs().max()) <= bound
    assert 0 < float(wide.bias.abs().max()) < 6e-6
    assert {block.drop_path.rate for block in made.blocks} == {0.0}  # type: ignore[union-attr]


def test_drop_path_is_constant_over_depth() -> None:
    made = model(drop_path=0.3, depth=5)
    assert [block.drop_path.rate for block in made.blocks] == [0.3] * 5  # type: ignore[union-attr]


def test_the_trajectory_names_the_iterates_and_what_the_blocks_add() -> None:
    made = model(iterations=2, depth=3)
    steps = dict(made.trajectory(images()))
    expected = ["v_0"]
    for i in (1, 2, 3):
        expected += [f"x_{i}_0", f"x_{i}_1", f"x_{i}_2", f"token_{i}", f"v_token_{i}", f"channel_{i}", f"v_{i}"]
    assert list(steps) == [*expected, "output"]
    assert steps["x_3_2"].shape == (3, 10, 5)
    torch.testing.assert_close(steps["v_1"] + steps["token_2"] + steps["channel_2"], steps["v_2"])
    torch.testing.assert_close(made.mixers[2].visible(steps["x_3_2"]).mT, steps["token_3"])


def settings(**fields: Any) -> IMixerConfig:
    return IMixerConfig(name="imixer", **FIELDS | fields)


def test_what_c_guarantees() -> None:
    assert settings(contraction=0.8858).is_contraction
    assert not settings(contraction=0.8859).is_contraction
    assert settings().lipschitz == pytest.approx([1.0323], abs=1e-4)
    assert settings(e="relu", f="relu", contraction=0.999).is_contraction
    assert settings().largest_contraction() == pytest.approx(0.8858, abs=1e-4)
    deeper = settings(hierarchy=3, contraction=0.6)
    inner, outer = 0.36 * 1.1289042**2, 0.36 * 1.1289042**2 / (1 - 0.36 * 1.1289042**2)
    assert deeper.lipschitz == pytest.approx([outer, inner])
    assert not settings(norm="none").is_contraction
    assert settings(norm="none", hierarchy=1).is_contraction


def test_the_bound_is_attained() -> None:
    """F of one neuron each, at GELU's steepest point: 0.9² · 1.1289² = 1.0323 > 1 is no estimate."""
    module = InvertibleMLP(settings(token_hidden=1, h_r=1)).double()
    sn1, sn2 = module.down[1], module.up[1]
    for layer, bias in ((sn1, 2**0.5 - 0.9 * float(gelu(torch.tensor(2**0.5)))), (sn2, 0.0)):
        assert isinstance(layer, SpectralLinear)
        layer.weight.data.fill_(5.0)
        layer.bias.data.fill_(bias)
        layer.follow()
    x = torch.tensor([[[2**0.5]]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(sn2(gelu(sn1(gelu(x)))), x)
    assert float(slope) == pytest.approx(1.0323, abs=1e-4)


@pytest.mark.parametrize("fields", [{"tolerance": 1e-4}, {"gradient": "implicit"}, {"tolerance": 0.1, "norm": "none"}])
def test_a_solver_that_needs_a_contraction_warns_where_there_need_be_none(fields: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=r"does not guarantee.*contraction below 0\.8858 does"):
        model(**fields)
    model(**fields | {"contraction": 0.88, "norm": "spectral"})  # a warning would be an error here
    model()  # and the paper's fixed number of iterations needs none


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"contraction": 1.0}, "imixer: contraction=1.0: input should be less than 1"),
        ({"contraction": 0.0}, "imixer: contraction=0.0: input should be greater than 0"),
        ({"iterations": -1}, "imixer: iterations=-1: input should be greater than or equal to 0"),
        ({"norm": "batch", "gradient": "implicit"}, "norm=batch changes F from one iteration to the next"),
        ({"patch": 5}, "patch=5 does not divide an image of 8×12 pixels"),
        ({"hierarchy": 0}, "hierarchy=0: input should be greater than or equal to 1"),
        ({"hidden_widths": (4, 4)}, "hidden_widths=[4, 4] must have 1 numbers with hierarchy=2"),
        ({"tied": True, "norm": "batch"}, "tied=true needs norm=spectral or norm=none"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        isthmus.create_model("imixer", **FIELDS | fields)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


RUN: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "classification"},
    "train": {"epochs": 2, "batch_size": 256},
    "threads": 1,
}


def weights(config: Any) -> str:
    return hashlib.sha256((prepare(config).folder / MODEL).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm": "batch", "batch_statistics": "per_iteration", "drop_path": 0.2},
        {"norm": "batch"},
        {"norm": "none", "hierarchy": 3},
        {"contraction": 0.6, "gradient": "implicit", "iterations": 6, "tolerance": 1e-3, "solver": "anderson"},
    ],
    ids=["spectral", "batch-per-iteration", "batch", "none", "implicit"],
)
def test_a_stopped_run_goes_on_to_the_same_bits(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(RUN | {"model": {"name": "imixer", "patch": 2, "C": 12, "depth": 1, **fields}})
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "whole"))
    record = run(config)
    whole = weights(config)
    assert record.metrics["test"]["accuracy"] > 0.15
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    with pytest.raises(Stopped):
        run(config, Options(save_every=1e9), stop_after(3))
    assert run(config).metrics == record.metrics
    assert weights(config) == whole


@pytest.mark.parametrize("task", ["denoise", "super_resolution"])
def test_images_come_out_of_patches(task: str) -> None:
    config = RUN | {"task": {"name": task}, "train": {"epochs": 1, "batch_size": 512}}
    record = run(run_config(config | {"model": {"name": "imixer", "patch": 2, "C": 12, "depth": 1}}))
    assert record.status == "finished"
    assert record.metrics["test"]["psnr"] > 5
