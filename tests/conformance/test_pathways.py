"""What holds for every pathway in every model that takes it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.registry import catalogue, component, presets
from isthmus.training.loop import recompute_blocks
from tests.conformance.small_models import IMAGE, SMALL, TOKENS, build, inputs

MODELS: dict[str, dict[str, Any]] = {
    "hourglass_mlp": {**SMALL["hourglass_mlp"][0], "depth": 5, "init": "pytorch"},
    "vit": {**SMALL["vit"][1], "depth": 5},
    "mlp_mixer": {**SMALL["mlp_mixer"][0], "depth": 5},
    "recurrent_transformer": {**TOKENS, "layers": 2},
}
MORE: dict[str, dict[str, Any]] = {
    "conventional_mlp": {**SMALL["conventional_mlp"][1], "depth": 5},
    "mlp_mixer": {**SMALL["mlp_mixer"][1], "depth": 5},  # with other tokens inside, and batch last
    "s_mixer": {**SMALL["s_mixer"][1], "depth": 5},
    "imixer": {**SMALL["imixer"][4], "depth": 5},
    "sw_mlp": {**SMALL["sw_mlp"][1], "depth": 5},
    "recurrent_transformer": IMAGE,
    "hyper_set": SMALL["hyper_set"][1],
}
NAMES = list({component("pathways", name): name for name in [*presets(), *catalogue("pathways")]}.values())


def takes(model: str, fields: dict[str, Any], pathway: str) -> bool:
    try:
        build(model, {**fields, "pathway": pathway})
    except isthmus.core.errors.UserError:
        return False
    return True


def cases(models: dict[str, dict[str, Any]], slow: bool) -> list[Any]:
    marks = [pytest.mark.slow] if slow else []
    return [
        pytest.param(model, {**fields, "pathway": name}, id=f"{model}-{name}", marks=marks)
        for model, fields in models.items()
        for name in NAMES
        if takes(model, fields, name)
    ]


FAST = {"hourglass_mlp": MODELS["hourglass_mlp"]}
SLOW = {name: fields for name, fields in MODELS.items() if name not in FAST}
every_pair = pytest.mark.parametrize(("model", "fields"), [*cases(FAST, False), *cases(SLOW, True), *cases(MORE, True)])


def trained(model: str, fields: dict[str, Any]) -> Any:
    """After two steps, because two factors that both start at zero need two."""
    network = build(model, fields)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        network(inputs(network)).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    return network


def gradients(network: Any, x: torch.Tensor, recompute: bool = False, autocast: bool = False) -> list[torch.Tensor]:
    if recompute:
        recompute_blocks(network)
    network.zero_grad()
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = network(x)
    output.float().square().sum().backward()
    return [p.grad.clone() for p in network.parameters() if p.grad is not None]


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


@every_pair
def test_the_gradient_reaches_every_parameter(model: str, fields: dict[str, Any]) -> None:
    network = trained(model, fields)
    network(inputs(network)).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@every_pair
def test_rows_are_independent_and_precision_follows_the_weights(model: str, fields: dict[str, Any]) -> None:
    network = trained(model, fields).eval()
    x = inputs(network)
    with torch.no_grad():
        whole = network(x)
        torch.testing.assert_close(network(x[2:3]), whole[2:3], rtol=1e-4, atol=1e-5)
        assert torch.equal(network(x), whole)
        other = x.double() if x.is_floating_point() else x
        torch.testing.assert_close(copy.deepcopy(network).double()(other).float(), whole, rtol=1e-3, atol=1e-4)
        half = copy.deepcopy(network).bfloat16()(x.bfloat16() if x.is_floating_point() else x)
    assert half.dtype == torch.bfloat16
    assert half.isfinite().all()


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # of torch's own rms_norm
@every_pair
def test_autocast_keeps_the_streams_in_single_precision(model: str, fields: dict[str, Any]) -> None:
    network = trained(model, fields).eval()
    x = inputs(network)
    single, half = gradients(network, x), gradients(network, x, autocast=True)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        streams = [step.stream for step in network.steps(x)]
    assert fields["pathway"] == "plain" or {stream.dtype for stream in streams} == {torch.float32}
    assert torch.cosine_similarity(flat(single), flat(half), dim=0) > 0.9


@every_pair
def test_config_trajectory_cost_and_checkpointing(model: str, fields: dict[str, Any]) -> None:
    network = trained(model, fields).eval()
    config = network.config
    assert config == component("models", config.model_dump(mode="json"))
    x = inputs(network)
    *_, (name, output) = network.trajectory(x)
    assert name == "output"
    torch.testing.assert_close(output, network(x))
    with torch.device("meta"):
        planned = build(model, fields)
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    assert {name: tensor.shape for name, tensor in planned.state_dict().items()} == shapes
    cost = isthmus.cost(network)
    assert cost.trainable_params == sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert cost.macs >= isthmus.cost(config.replace(pathway="plain")).macs
    network.train()
    stored, recomputed = gradients(network, x), gradients(network, x, recompute=True)
    assert all(torch.equal(a, b) for a, b in zip(stored, recomputed, strict=True))
