"""Every pathway against its depth-mixing matrix written out, and against plain where its definition says so."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.registry import catalogue, component, presets
from isthmus.layers.attention import SelfAttention
from isthmus.layers.residual import Stack
from tests.conformance.small_models import SMALL, build, inputs
from tests.equivalence.pathway_stacks import BLOCKS, D, every_case, stack
from tests.equivalence.slow_pathways import SLOW, delta_channels


@every_case
def test_it_reads_what_its_matrix_says(case: Any) -> None:
    network = stack(case, move=0.3)
    config: Any = component("pathways", case)
    x = torch.randn(3, D, dtype=torch.float64)
    with torch.no_grad():
        steps = list(network.steps(x))
        output = network(x)
        slow = delta_channels if config.name == "delta" and config.channels > 1 else SLOW[config.name]
        for row in range(len(x)):
            u = [x[row], *(step.update[row] for step in steps)]
            reads = [step.read[row] for step in steps]
            A = slow(network.pathway, config, reads, u, BLOCKS)
            for place, wanted in enumerate([*reads, output[row]]):
                found = sum(operator @ u[i] for i, operator in enumerate(A[place]))
                assert len(A[place]) == place + 1
                torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@every_case
def test_the_gradient_is_that_of_finite_differences(case: Any) -> None:
    """Also through the functions that keep less than autograd would."""
    network = stack(case, move=0.3)
    x = torch.randn(2, D, dtype=torch.float64, requires_grad=True)
    tensors = [x, *network.parameters()]
    gradients = torch.autograd.grad(network(x).sin().sum(), tensors, allow_unused=True)
    directions = [torch.randn_like(tensor) for tensor in tensors]
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for tensor, direction in zip(tensors, directions, strict=True):
                tensor += step * direction
            values.append(network(x).sin().sum())
    found = sum((g * v).sum() for g, v in zip(gradients, directions, strict=True) if g is not None)
    torch.testing.assert_close(torch.as_tensor(found), (values[0] - values[1]) / 2e-6, rtol=1e-6, atol=1e-7)


EXACT = [
    {"name": "scaled", "by": 1.0}, "gained", {"name": "delayed", "lag": 0}, {"name": "delayed", "group": 1}, "attended",
    "attended/full", "weighted", {"name": "weighted", "dilation": 2}, "streams", "streams/static-2",
]  # fmt: skip


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_it_starts_as_plain(case: Any) -> None:
    x = torch.randn(4, D, dtype=torch.float64)
    torch.testing.assert_close(stack(case)(x), stack("plain")(x), rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["hourglass_mlp", "vit", "mlp_mixer", "s_mixer", "imixer", "sw_mlp"])
@pytest.mark.parametrize("case", EXACT, ids=str)
def test_a_model_starts_as_plain(model: str, case: Any) -> None:
    fields = SMALL[model][0]
    first = build(model, fields).double().eval()
    x = inputs(first).double()
    with torch.no_grad():
        wanted, found = first(x), build(model, {**fields, "pathway": case}).double().eval()(x)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_behind_norms_published_attention_and_constrained_streams_start_as_plain() -> None:
    fields = SMALL["vit"][1]
    plain = build("vit", fields).double()
    x = inputs(plain).double()
    for case, bound in (("attnres", 1e-3), ("mhc", 1e-3), ("mhc_lite", 1e-3)):  # the norms' ε is not scale-free
        assert float((build("vit", {**fields, "pathway": case}).double()(x) - plain(x)).detach().abs().max()) < bound


@pytest.mark.parametrize(
    ("name", "field", "values", "order"),
    [
        ("injected", "decay", (0.9, 0.99, 0.9999), 0.9),
        ("mobius", "curvature", (1e-2, 1e-4, 1e-6), 0.95),
        ("delta", "start", (1e-2, 1e-4, 1e-6), 0.95),
    ],
)
def test_it_approaches_plain(name: str, field: str, values: tuple[float, ...], order: float) -> None:
    x = torch.randn(4, D, dtype=torch.float64)
    wanted = stack("plain")(x)
    more = {"write": "update"} if name == "delta" else {}
    gaps = [float((stack({"name": name, field: value, **more})(x) - wanted).detach().abs().max()) for value in values]
    distances = [1 - value if name == "injected" else value for value in values]
    slope = math.log(gaps[0] / gaps[2]) / math.log(distances[0] / distances[2])
    assert gaps[0] > gaps[1] > gaps[2]
    assert slope > order


@pytest.mark.parametrize("model", ["hourglass_mlp", "vit", "mlp_mixer", "recurrent_transformer"])
def test_recomputed_states_have_the_same_gradients_as_stored_ones(model: str) -> None:
    fields = {k: v for k, v in SMALL[model][0].items() if k not in ("drop_path", "S")} | {"init": "pytorch"}
    fields = fields if model in ("hourglass_mlp", "mlp_mixer") else {k: v for k, v in fields.items() if k != "init"}
    found = []
    for recompute in (False, True):
        network = build(model, {**fields, "pathway": {"name": "reversible", "recompute": recompute}}).double()
        x = inputs(network)
        x = x.double() if x.is_floating_point() else x
        network(x).square().sum().backward()
        found.append([p.grad for p in network.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(*found, strict=True))


def test_a_rebuilt_forward_pass_is_used_once() -> None:
    network = stack("reversible/recomputed")
    loss = network(torch.randn(2, D, dtype=torch.float64)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(isthmus.core.errors.UserError, match="recompute=false"):
        loss.backward()


def moved_by_deepnorm(model: Any, key: str, tensor: torch.Tensor) -> torch.Tensor:
    """Matrices of branches shrink, but those of queries and keys."""
    block, _, _ = key.partition(".")
    if block not in ("blocks", "layers") or tensor.ndim < 2 or key.endswith((".u", ".v")):
        return tensor
    layout = model.config.layout
    factor = (8 * layout.places * layout.iterations / 2) ** -0.25
    owner, _, _ = key.rpartition(".qkv.weight")
    attention = model.get_submodule(owner) if owner else None
    kept = 2 * len(tensor) // 3 if isinstance(attention, SelfAttention) and attention.parts == 3 else 0
    return torch.cat([tensor[:kept], tensor[kept:] * factor])


RESIDUAL = [name for name in SMALL if any(isinstance(part, Stack) for part in build(name, SMALL[name][0]).modules())]


@pytest.mark.parametrize(("model", "fields"), [(name, fields) for name in RESIDUAL for fields in SMALL[name]])
def test_a_seed_draws_the_same_weights_under_every_pathway(model: str, fields: dict[str, Any]) -> None:
    fields = {**fields, "init": "pytorch"} if model in ("hourglass_mlp", "conventional_mlp") else fields
    plain = build(model, fields).state_dict()
    built = set()
    for name in [*catalogue("pathways"), *(name for name in presets() if "/" in name)]:
        try:
            network = build(model, {**fields, "pathway": name})
        except UserError:
            continue
        built.add(name)
        scales, state = presets().get(name, {}).get("beta") == "deepnorm", network.state_dict()
        for key, tensor in plain.items():
            if scales:
                torch.testing.assert_close(state[key], moved_by_deepnorm(network, key, tensor), msg=f"{name} {key}")
            else:
                assert torch.equal(state[key], tensor), f"{name} {key}"
    if fields.get("skip") != "none" and not model.startswith("crate"):  # these take plain alone
        assert len(built) > 4
        assert "post_norm/deepnorm" in built or model == "hyper_set"


COMPILED = """
import sys, torch, isthmus
fields = dict(d_in=12, d_out=5, d_z=24, d_h=8, depth=4, init="pytorch", pathway=sys.argv[1])
model, x = isthmus.create_model("hourglass_mlp", **fields), torch.randn(6, 12)
parameters = list(model.parameters())
compiled = torch.compile(model, backend=sys.argv[2], fullgraph=True)
torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
gradients = [torch.autograd.grad(run(x).sin().sum(), parameters) for run in (compiled, model)]
torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pathway", "backend"),
    [("layerscale", "aot_eager"), ("attended", "aot_eager"), ("mhc", "aot_eager"), ("layerscale", "inductor")],
)
def test_a_compiled_network_is_the_same_in_one_graph(pathway: str, backend: str) -> None:
    """In a process of its own, where shapes are not checked at run time."""
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    command = [sys.executable, "-c", COMPILED, pathway, backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
