"""The mixers against a loop over images in numpy's float64 that multiplies with explicit Kronecker matrices."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from torch.autograd import gradcheck

import isthmus
from benchmarks.mixers import PlainMixer
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.layers import permuted_kronecker
from isthmus.layers.permuted_kronecker import ChannelNorm, arrange_randomly, arrange_tokens
from isthmus.training.checkpoint import write_model
from isthmus.training.timm_weights import convert_timm

IMAGE = {"input_shape": (2, 4, 6), "patch": 2, "C": 5, "depth": 2}
MODELS = {
    "mlp": {"name": "mlp_mixer", "gamma": 2, **IMAGE},
    "mlp hidden": {"name": "mlp_mixer", "token_hidden": 3, "channel_hidden": 7, "bias": False, **IMAGE},
    "mlp other S": {"name": "mlp_mixer", "gamma": 1.5, "S": 4, "activation": "relu", **IMAGE},
    "single": {"name": "s_mixer", "norm_eps": 1e-3, **IMAGE},
    "single linear": {"name": "s_mixer", "norm": "none", "skip": "none", "activation": "none", "bias": False, **IMAGE},
    "single without norm": {"name": "s_mixer", "norm": "none", "S": 4, "activation": "relu", **IMAGE},
    "single without skip": {"name": "s_mixer", "skip": "none", "S": 4, **IMAGE},
    "single same S": {"name": "s_mixer", "S": 6, "init": "pytorch", **IMAGE},
}
PERMUTATIONS = {
    "normal": {},
    "random": {"permutation": "random", "permutation_seed": 3},
    "first random": {"permutation": "random", "permutation_seed": 3, "random_blocks": (1,)},
    "last random": {"permutation": "random", "permutation_seed": 3, "random_blocks": (2,)},
}
OUTPUTS = {"classes": (3,), "image": (2, 4, 6), "larger image": (1, 8, 12)}
ACTIVATIONS = {
    "gelu": lambda h: h * (1 + scipy.special.erf(h / np.sqrt(2))) / 2,
    "relu": lambda h: np.maximum(h, 0),
    "none": lambda h: h,
}


def create(*name, **fields):
    return isthmus.create_model(*name, **fields)


def built(model, permutation="normal", output="classes"):
    torch.manual_seed(1)
    fields: dict[str, Any] = MODELS[model] | PERMUTATIONS[permutation] | {"output_shape": OUTPUTS[output]}
    made = create(**fields).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim == 1:  # norms start at 1 and 0, biases at 0: errors would hide there
                parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.3)
            assert parameter.abs().sum() > 0, name
    return made


def array(tensor):
    return tensor.detach().numpy()


def norm(x, layer):
    if isinstance(layer, torch.nn.Identity):
        return x
    rows = [(row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + layer.eps) for row in x]
    return np.stack(rows) * array(layer.weight) + array(layer.bias)


def kronecker(x, layer, rows):
    """mat(J2 ((I ⊗ W) J1 vec(X) + 1 ⊗ b)) with every matrix written out."""
    before, after = layer.before.sigma().numpy(), layer.after.sigma().numpy()
    J1, J2 = np.eye(len(before))[before], np.eye(len(after))[after]
    wide = np.kron(np.eye(layer.copies), array(layer.weight))
    bias = 0 if layer.bias is None else np.tile(array(layer.bias), layer.copies)
    y = J2 @ (wide @ J1 @ x.flatten(order="F") + bias)
    return y.reshape(rows, -1, order="F")


def mixed(x, mixing, phi, rows):
    if hasattr(mixing, "fc"):
        return phi(kronecker(x, mixing.fc, rows))
    hidden = phi(kronecker(x, mixing.fc1, len(mixing.fc1.weight)))  # laid out as mat(J1 vec X)
    return kronecker(hidden, mixing.fc2, rows)


def slow(model, image):
    """(name, value) of every intermediate of one image."""
    config, phi = model.config, ACTIVATIONS[model.config.activation]
    height, width = image.shape[1:]
    p = config.patch
    patches = [image[:, r : r + p, c : c + p].flatten() for r in range(0, height, p) for c in range(0, width, p)]

    def linear(x, layer):
        return x @ array(layer.weight).T + (0 if layer.bias is None else array(layer.bias))

    x = linear(np.stack(patches), model.stem.linear)
    yield "x_0", x
    S = config.inner_tokens
    for i, block in enumerate(model.blocks, start=1):
        update = mixed(norm(x, block.norm1), block.token_mixing, phi, S)
        yield f"token_{i}", update
        if block.skip is not None:
            x = norm(array(block.skip.tokens.weight) @ x, block.skip.norm)
        x = update if config.skip == "none" else x + update
        yield f"x_token_{i}", x
        update = mixed(norm(x, block.norm2), block.channel_mixing, phi, S)
        yield f"channel_{i}", update
        x = update if config.skip == "none" else x + update
        yield f"x_{i}", x
    x = norm(x, model.norm)
    if len(config.output_shape) == 1:
        yield "output", linear(x.mean(0), model.head.linear)
        return
    if model.head.to_patches is not None:
        x = linear(x.T, model.head.to_patches).T
    out = np.zeros(config.output_shape)
    side = p * config.output_shape[1] // height
    for number, values in enumerate(linear(x, model.head.linear)):
        r, c = divmod(number, width // p)
        block = values.reshape(config.output_shape[0], side, side)
        out[:, r * side : (r + 1) * side, c * side : (c + 1) * side] = block
    yield "output", out


@pytest.mark.parametrize("permutation", PERMUTATIONS)
@pytest.mark.parametrize("model", MODELS)
def test_every_intermediate_is_that_of_the_loop(model, permutation):
    made = built(model, permutation)
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 6))
    with torch.no_grad():
        trajectory = dict(made.trajectory(torch.from_numpy(x)))
        assert torch.equal(trajectory["output"], made(torch.from_numpy(x)))
    for row, image in enumerate(x):
        expected = dict(slow(made, image))
        assert list(trajectory) == list(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(trajectory[name][row].numpy(), value, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("more", [{}, {"S": 4, "random_blocks": (1,)}])
def test_a_hidden_layer_is_permuted_between_its_two_matrices(more):
    """The loop multiplies with the permutation matrix of every layer, written out."""
    fields: dict[str, Any] = MODELS["mlp"] | PERMUTATIONS["random"] | {"output_shape": (3,)} | more
    torch.manual_seed(1)
    made: Any = create(**fields, hidden_permutation="random").double()
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 6))
    expected = [dict(slow(made, image))["output"] for image in x]
    with torch.no_grad():
        np.testing.assert_allclose(made(torch.from_numpy(x)).numpy(), expected, rtol=1e-9, atol=1e-11)
    plain: Any = create(**fields).double()
    plain.load_state_dict(made.state_dict())
    assert not np.allclose(plain(torch.from_numpy(x)).detach().numpy(), expected)
    for block in made.blocks:
        for mixing in (block.token_mixing, block.channel_mixing):
            moved = mixing.fc2.before.sigma().tolist()
            if block.random:
                assert sorted(moved) == list(range(len(moved))) != moved
            assert mixing.fc1.after.sigma().tolist() == list(range(len(moved))) or not block.random


@pytest.mark.parametrize("output", ["image", "larger image"])
@pytest.mark.parametrize(("model", "permutation"), [("mlp other S", "random"), ("single", "normal"), ("mlp", "random")])
def test_images_come_out_where_their_patches_were(model, permutation, output):
    made = built(model, permutation, output)
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 6))
    expected = [dict(slow(made, image))["output"] for image in x]
    with torch.no_grad():
        np.testing.assert_allclose(made(torch.from_numpy(x)).numpy(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("permutation", PERMUTATIONS)
@pytest.mark.parametrize("model", ["mlp", "mlp hidden", "single same S"])
def test_gradients_are_those_of_torchs_own_operations(model, permutation, monkeypatch):
    made = built(model, permutation)
    x = torch.randn(3, 2, 4, 6, dtype=torch.float64, requires_grad=True)

    def gradients():
        return torch.autograd.grad(made(x).square().sum(), [x, *made.parameters()])

    fast = gradients()
    monkeypatch.setattr(permuted_kronecker, "_is_exporting", lambda: True)
    for ours, theirs in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_theorys_mixer_is_equation_5_and_6():
    """H = φ(φ(W X) V), and vec(H) = (Vᵀ ⊗ W) vec(X) without φ; Proposition 3.3's regularisers are in their order."""
    theory = {"norm": "none", "skip": "none", "bias": False, "depth": 1, "input_shape": (2, 4, 6), "patch": 2, "C": 5}
    for phi in ("relu", "none"):
        torch.manual_seed(0)
        made: Any = create("s_mixer", activation=phi, output_shape=(3,), **theory).double()
        block = made.blocks[0]
        W, VT = array(block.token_mixing.fc.weight), array(block.channel_mixing.fc.weight)
        with torch.no_grad():
            stream = dict(made.trajectory(torch.randn(1, 2, 4, 6, dtype=torch.float64)))
        X, H = array(stream["x_0"][0]), array(stream["x_1"][0])
        f = ACTIVATIONS[phi]
        np.testing.assert_allclose(H, f(f(W @ X) @ VT.T), rtol=1e-9, atol=1e-12)
        B = np.kron(VT, W)
        if phi == "none":
            np.testing.assert_allclose(H.flatten(order="F"), B @ X.flatten(order="F"), rtol=1e-9, atol=1e-12)
        assert np.abs(B).sum() / (5 * 6) <= ((VT**2).sum() + (W**2).sum()) / 2  # Eq. (11)


def test_our_own_gradients_are_those_of_differences():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    norm_of_columns = ChannelNorm(4, 1e-3, batch_last=True).double()
    torch.nn.init.normal_(norm_of_columns.weight)
    affine = (norm_of_columns.weight, norm_of_columns.bias)

    assert gradcheck(lambda x, *affine: permuted_kronecker._NormOfColumns.apply(x, *affine, 1e-3), (x, *affine))
    for arrangement in (arrange_tokens(3, 5, 4), arrange_randomly(4, 6, 3, 6, 0, "any")):
        (layer,) = (made.double() for made in arrangement.layers(bias=True))
        assert gradcheck(lambda x, *_, layer=layer: layer(x), (x, *layer.parameters()))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_one_channel_one_token_and_any_batch_are_no_special_cases(rows):
    for fields in ({"C": 1}, {"S": 1}, {"C": 1, "S": 1}):
        for permutation in ("commutation", "random"):
            size = {"input_shape": (1, 2, 2), "output_shape": (3,), "patch": 2, "C": 4, "depth": 1} | fields
            made = create("s_mixer", permutation=permutation, permutation_seed=0, **size).double()
            x = torch.randn(rows, 1, 2, 2, dtype=torch.float64)
            expected = [dict(slow(made, image))["output"] for image in x.numpy()]
            with torch.no_grad():
                np.testing.assert_allclose(made(x).numpy(), expected, rtol=1e-9, atol=1e-11)


def test_the_mixer_everybody_writes_gives_the_same_numbers_for_the_same_weights():
    """Also the map from timm's names, which the plain mixer has."""
    sizes = {"C": 12, "depth": 2, "token_hidden": 7, "channel_hidden": 9}
    plain = PlainMixer(image=8, patch=4, classes=3, **sizes).double()
    ours = create("mlp_mixer", input_shape=(3, 8, 8), output_shape=(3,), patch=4, norm_eps=1e-6, **sizes).double()
    ours.load_state_dict(convert_timm(plain.state_dict()))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(ours(x), plain(x))


def test_permutations_differ_by_place_and_seed_and_a_run_draws_its_own():
    fields = {"input_shape": (3, 8, 8), "output_shape": (3,), "C": 6, "depth": 2, "permutation": "random"}

    def drawn(**more):
        buffers = create("mlp_mixer", **fields, **more).named_buffers()
        return [tuple(buffer.tolist()) for name, buffer in buffers if name.endswith("index")]

    assert len(drawn(permutation_seed=1)) == len(set(drawn(permutation_seed=1))) == 8
    assert drawn(permutation_seed=1) == drawn(permutation_seed=1)
    assert not set(drawn(permutation_seed=1)) & set(drawn(permutation_seed=2))
    config: Any = create("mlp_mixer", **fields).config
    signature = Signature((3, 8, 8), (3,))
    assert config.complete(signature, 0).permutation_seed != config.complete(signature, 1).permutation_seed
    normal: Any = create("mlp_mixer", **fields | {"permutation": "commutation"}).config
    assert normal.complete(signature, 0).permutation_seed is None


def test_a_permutation_that_was_rebuilt_differently_is_noticed(tmp_path):
    made = built("mlp", "random").float()
    config = made.config.model_dump(mode="json")
    write_model(tmp_path / "same.safetensors", made, made.state_dict(), config)
    write_model(tmp_path / "other.safetensors", made, made.state_dict(), config | {"permutation_seed": 4})
    isthmus.load(tmp_path / "same.safetensors")
    with pytest.raises(UserError, match=r"frozen blocks\.0\.token_mixing\.fc1\.before was rebuilt differently"):
        isthmus.load(tmp_path / "other.safetensors")


EXPORT = """
import torch, isthmus
fields = dict(input_shape=(3, 8, 8), output_shape=(5,), C=6, depth=2, S=9)
x, more = torch.randn(3, 3, 8, 8), torch.randn(7, 3, 8, 8)
for permuted in ({}, dict(permutation="random", permutation_seed=0), dict(permutation="random", random_blocks=(2,))):
    model = isthmus.create_model("mlp_mixer", **fields, **permuted).eval()
    exported = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    torch.testing.assert_close(exported.module()(more), model(more))
    calls = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert all(type(target).__module__ == "torch._ops" for target in calls), calls
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(run(x).square().sum(), parameters) for run in (compiled, model)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
"""


@pytest.mark.slow
def test_mixers_are_exported_and_compiled_whole():
    """In a process of its own, where shapes are not checked at run time: the exporter would trace the checks."""
    done = subprocess.run([sys.executable, "-c", EXPORT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("model", ["mlp", "single"])
def test_initial_weights_have_the_papers_variance(model):
    torch.manual_seed(0)
    fields: dict[str, Any] = MODELS[model] | {"C": 80, "patch": 1, "output_shape": (3,), "input_shape": (1, 8, 8)}
    for name, parameter in create(**fields).named_parameters():
        if parameter.ndim == 2 and parameter.numel() > 1000:
            assert float(parameter.detach().std() * parameter.shape[1] ** 0.5) == pytest.approx(1, rel=0.08), name
        if name.endswith("bias"):
            assert parameter.abs().max() == 0
    xavier: Any = create(**fields | {"init": "xavier"})
    weight = xavier.blocks[0].token_mixing.get_parameter("fc.weight" if model == "single" else "fc1.weight")
    assert weight.abs().max() <= (6 / sum(weight.shape)) ** 0.5
    assert xavier.head.linear.weight.abs().max() == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"C": 0}, "C=0: input should be greater than or equal to 1"),
        ({"S": -3}, "S=-3: input should be greater than or equal to 1"),
        ({"gamma": 0}, "gamma=0: input should be greater than 0"),
        ({"patch": 5}, "patch=5 does not divide an image of 4×6 pixels"),
        ({"drop_path": 1}, "drop_path=1: input should be less than 1"),
        ({"skip": "none", "drop_path": 0.1}, "drop_path=0.1 needs skip=identity"),
        ({"skip": "none", "pathway": "ladder"}, "pathway=.* needs skip=identity"),
        ({"hidden_permutation": "random"}, "hidden_permutation=random needs permutation=random"),
        ({"random_blocks": [1]}, "needs permutation=random"),
        ({"permutation": "random", "random_blocks": [3]}, r"random_blocks=\(3,\) are not different blocks of 1 … 2"),
        ({"permutation": "random", "random_blocks": [1, 1]}, r"random_blocks=\(1, 1\) are not different blocks"),
        ({"permutation": "randon"}, "permutation='randon': input should be 'commutation' or 'random'"),
        ({"gama": 3}, "unknown field 'gama'; did you mean 'gamma'"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(fields, said):
    with pytest.raises(UserError, match=said) as error:
        create(**MODELS["mlp"] | {"output_shape": (3,)} | fields)
    assert "\n" not in str(error.value)
