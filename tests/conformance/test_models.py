"""What holds for every registered model, found through the registry: a new architecture adds its entry to SMALL."""

from __future__ import annotations

import copy

import pytest
import torch

import isthmus
from isthmus.core import registry
from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.training.checkpoint import write_model

NAMES = sorted(name for name, home in registry.catalogue("models").items() if home.startswith("isthmus."))
MLP = {"d_in": 12, "d_out": 5, "depth": 3}
MIXER = {"input_shape": (2, 8, 12), "patch": 4, "C": 10, "depth": 2}
# A head that starts at zero would give every seed the same output and keep the gradient from everything before it.
IMIXER = {"input_shape": (3, 8, 8), "output_shape": (5,), "patch": 4, "C": 10, "depth": 2, "head_init": "xavier"}
SOLVED = {"contraction": 0.5, "gradient": "implicit"}
VIT = {"input_shape": (2, 8, 12), "output_shape": (5,), "patch": 4, "depth": 2, "num_heads": 2}
SPARSE = {"input_shape": (2, 8, 12), "patch": 4, "depth": 2, "mask_seed": 1}
SMALL: dict[str, list[dict]] = {
    "hourglass_mlp": [
        {**MLP, "d_z": 24, "d_h": 8},
        {**MLP, "d_z": 24, "d_h": 8, "w_in": "hadamard", "w_in_seed": 1, "norm": "rms", "init": "pytorch"},
        {**MLP, "d_z": 24, "d_h": 8, "w_in": "orthogonal", "w_in_seed": 1, "norm": "none", "activation": "silu"},
        {**MLP, "d_z": 24, "d_h": 8, "residual_scale": 0.3, "init": "depth_scaled_w2"},
    ],
    "conventional_mlp": [
        {**MLP, "d_z": 8, "d_h": 24},
        {**MLP, "d_z": 8, "d_h": 24, "w_in": "gaussian", "w_in_seed": 1, "activation": "relu", "init": "xavier"},
    ],
    "mlp_mixer": [
        {**MIXER, "output_shape": (5,), "gamma": 2},
        {**MIXER, "output_shape": (5,), "permutation": "random", "permutation_seed": 1, "S": 9, "init": "pytorch"},
        {**MIXER, "output_shape": (3, 16, 24), "S": 9, "token_hidden": 7, "bias": False},
    ],
    "s_mixer": [
        {**MIXER, "output_shape": (5,), "S": 6, "drop_path": 0.1},
        {**MIXER, "output_shape": (2, 8, 12), "permutation": "random", "random_blocks": (2,), "permutation_seed": 1},
    ],
    "imixer": [
        {**IMIXER, "h_r": 1.5},
        {**IMIXER, "output_shape": (3, 16, 16), "hierarchy": 3, "e": "silu", "f": "relu", "drop_path": 0.2},
        {**IMIXER, "norm": "batch", "batch_statistics": "per_iteration", "token_hidden": 7, "channel_hidden": 9},
        {**IMIXER, "norm": "batch"},
        {**IMIXER, "norm": "none", "hierarchy": 1},
        {**IMIXER, **SOLVED, "iterations": 6, "solver": "anderson"},
        {**IMIXER, **SOLVED, "iterations": 4, "tolerance": 0.1, "hierarchy": 3, "depth": 1},
    ],
    "sw_mlp": [
        {**SPARSE, "output_shape": (5,), "m": 60, "p": 0.1},
        {**SPARSE, "output_shape": (5,), "m": 36, "p": 0.4, "block": "mlp", "gamma": 1.5, "pool": True, "bias": False},
        {**SPARSE, "output_shape": (5,), "m": 50, "p": 0.2, "compute": "sparse", "mask_scale": "one"},
        {**SPARSE, "output_shape": (3, 16, 24), "m": 48, "p": 0.1, "S": 12},
        {**SPARSE, "output_shape": (2, 8, 12), "m": 40, "p": 1.0, "per_patch": False, "activation": "relu"},
    ],
    "vit": [
        {**VIT, "d_z": 12, "d_h": 12, "fused": False, "drop_path": 0.2},
        {**VIT, "d_z": 12, "d_h": 6, "ffn_blocks": 2, "pool": "mean", "activation": "silu"},
        {**VIT, "d_z": 12, "d_h": 6, "ffn_blocks": 3, "tied_ffn": True, "attention_width": 8},
        {**VIT, "d_z": 13, "d_h": 6, "attention_width": 8, "latent_width": 5},
        {**VIT, "d_z": 12, "d_h": 24, "output_shape": (3, 16, 24)},
    ],
    "hourglass_vit": [{**VIT, "d_z": 12, "d_h": 6}],
    "conventional_vit": [{**VIT, "d_z": 8, "d_h": 16}],
    "monarch_mlp": [{"d_in": 12, "d_out": 5}, {"d_in": 12, "d_out": 5, "S": 5, "bias": True}],
    "kronecker_mlp": [{"d_in": 12, "d_out": 5}, {"d_in": 12, "d_out": 5, "size": 18, "S": 6, "bias": True}],
    "narrow_mlp": [
        {**MLP, "d_z": 24, "d_h": 4},
        {**MLP, "d_z": 24, "d_h": 4, "norm": "layer", "start": "isometric", "activation": "silu"},
        {**MLP, "d_z": 24, "d_h": 4, "norm": "none", "activation": "relu"},
    ],
}
IMAGE = {"input_shape": (3, 8, 12), "output_shape": (5,), "patch": 4, "d": 16, "num_heads": 2, "iterations": 3}
TOKENS = {
    "input_shape": (9,), "output_shape": (9, 4), "vocabulary": 6, "d": 16, "num_heads": 4, "iterations": 2,
    "positions": "learned", "head_bias": False,
}  # fmt: skip
SMALL |= {
    "hyper_set": [
        {**IMAGE, "time_frequencies": 10},
        {**IMAGE, "layers": 2, "step_sizes": "time", "activation": "gelu", "positions": "learned"},
        {**TOKENS, "layers": 2, "step_sizes": "X_0", "ff_ratio": 2.5, "embedding_dropout": 0.1},
        {**TOKENS, "step_sizes": "X_0", "time_mlp": False},
        {**TOKENS, "step_sizes": "fixed", "fixed_step": 0.2},
    ],
    "recurrent_transformer": [IMAGE, {**TOKENS, "layers": 2, "qkv": "shared"}],
    "crate": [IMAGE, {**TOKENS, "layers": 2}],
    "crate_t": [IMAGE, {**TOKENS, "back": "same", "step": 0.2}],
    "vq_tokenizer": [
        {"input_shape": (3, 8, 12), "codes": 20, "width": 8},
        {"input_shape": (1, 8, 16), "codes": 5, "width": 4, "stride": 8, "d_code": 3, "blocks": 0, "revive_below": 0},
    ],
}
CASES = [pytest.param(name, fields, id=f"{name}-{n}") for name in SMALL for n, fields in enumerate(SMALL[name])]
every_model = pytest.mark.parametrize(("name", "fields"), CASES)


def build(name, fields, seed=0):
    torch.manual_seed(seed)
    return isthmus.create_model(name, **fields)


def inputs(model, rows=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    if vocabulary := getattr(model, "vocabulary", 0):
        return torch.randint(vocabulary, (rows, *model.input_shape), generator=generator)
    return torch.randn(rows, *model.input_shape, generator=generator)


def stepped(name, fields):
    """A model after one optimiser step: a weight that starts at zero holds back the gradient of those before it."""
    model = build(name, fields)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(inputs(model)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model


def test_every_registered_model_is_tried():
    assert set(SMALL) == set(NAMES)
    assert set(NAMES) <= set(isthmus.list_models())


@every_model
def test_one_row_in_is_one_row_out(name, fields):
    model = build(name, fields)
    shapes = [model(inputs(model, rows)).shape for rows in (1, 3)]
    assert [shape[0] for shape in shapes] == [1, 3]
    assert shapes[0][1:] == shapes[1][1:]
    assert model(inputs(model)).dtype == torch.float32


@every_model
def test_the_trajectory_ends_with_the_output_and_repeats_no_name(name, fields):
    model = stepped(name, fields).eval()
    steps = list(model.trajectory(inputs(model)))
    names = [step for step, _ in steps]
    assert len(names) == len(set(names)) > 1
    assert torch.equal(steps[-1][1], model(inputs(model)))


@every_model
def test_the_gradient_reaches_every_trainable_parameter(name, fields):
    model = stepped(name, fields)
    model(inputs(model)).square().mean().backward()
    for parameter_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
            assert parameter.grad.abs().max() > 0, parameter_name


@every_model
def test_a_seed_decides_the_weights(name, fields):
    one, same, other = build(name, fields), build(name, fields), build(name, fields, seed=1)
    x = inputs(one)
    assert torch.equal(one.eval()(x), same.eval()(x))
    assert torch.equal(one(x), one(x))
    assert not torch.equal(one(x), other.eval()(x))


@every_model
def test_a_row_does_not_depend_on_the_others(name, fields):
    model = stepped(name, fields).eval()
    x = inputs(model)
    with torch.no_grad():
        whole = model(x)
        torch.testing.assert_close(model(x[2:3]), whole[2:3])
        torch.testing.assert_close(model(x.flip(0)), whole.flip(0))
        spoilt = torch.full_like(x, torch.nan) if x.is_floating_point() else inputs(model, seed=2)
        spoilt[2] = x[2]
        torch.testing.assert_close(model(spoilt)[2], whole[2])


@every_model
def test_the_config_goes_through_json_and_builds_the_same_model(name, fields):
    model = build(name, fields)
    config = model.config
    assert isinstance(config, ModelConfig)
    again = type(config).model_validate_json(config.model_dump_json())
    assert again == config == registry.component("models", config.model_dump(mode="json"))
    rebuilt = build(name, {field: value for field, value in again.model_dump().items() if field != "name"})
    assert torch.equal(rebuilt.eval()(inputs(model)), model.eval()(inputs(model)))


@every_model
def test_a_task_completes_what_the_config_leaves_out(name, fields):
    model = build(name, fields)
    with torch.no_grad():
        output_shape = tuple(model(inputs(model)).shape[1:])
    signature = Signature(tuple(model.input_shape), output_shape, getattr(model, "vocabulary", 0))
    completed = model.config.complete(signature, seed=0)
    assert completed == completed.complete(signature, seed=1), "what is complete stays as it is"
    assert isthmus.cost(completed) == isthmus.cost(model)


@every_model
def test_a_saved_model_is_loaded_with_the_same_outputs(name, fields, tmp_path):
    model = stepped(name, fields).eval()
    write_model(tmp_path / "model.safetensors", model, model.state_dict(), model.config.model_dump(mode="json"))
    torch.manual_seed(99)
    loaded = isthmus.load(tmp_path / "model.safetensors")
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(loaded(inputs(model)), model(inputs(model)))


@every_model
def test_the_meta_device_gives_the_same_names_and_shapes(name, fields):
    model = build(name, fields)
    with torch.device("meta"):
        planned = build(name, fields)
    assert all(tensor.is_meta for tensor in [*planned.parameters(), *planned.buffers()])
    assert described(planned.state_dict()) == described(model.state_dict())
    assert described(dict(planned.named_buffers())) == described(dict(model.named_buffers()))


def described(tensors):
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


@every_model
def test_the_cost_is_that_of_the_real_model_and_of_its_real_file(name, fields, tmp_path):
    model = build(name, fields)
    cost = isthmus.cost(model)
    assert cost == isthmus.cost({"name": name, **fields}) == isthmus.cost(model.config)
    assert cost.trainable_params == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert cost.trainable_params <= cost.params
    assert cost.macs > 0
    assert 2 * cost.macs < cost.training_flops <= 6 * cost.macs
    path = tmp_path / "model.safetensors"
    write_model(path, model, model.state_dict(), model.config.model_dump(mode="json"))
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")  # safetensors: its header's length, its header, the tensors
    assert cost.checkpoint_bytes == len(content) - header


@every_model
def test_counting_does_not_touch_the_model(name, fields):
    model = build(name, fields)
    before = copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    isthmus.cost(model)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(generator, torch.get_rng_state())


@every_model
def test_half_and_double_precision_follow_the_weights(name, fields):
    model = stepped(name, fields).eval()
    with torch.no_grad():
        single = model(inputs(model))
        x = inputs(model)  # tokens stay what they are
        double = copy.deepcopy(model).double()(x.double() if x.is_floating_point() else x)
        half = copy.deepcopy(model).bfloat16()(x.bfloat16() if x.is_floating_point() else x)
    assert (double.dtype, half.dtype) == (torch.float64, torch.bfloat16)
    torch.testing.assert_close(single, double.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(half.float(), single, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", isthmus.list_models())
def test_published_networks_are_made_by_name(name):
    for variant, fields in registry.variants(name).items():
        assert registry.component("models", {"name": f"{name}/{variant}"}) == registry.component("models", fields)
    with pytest.raises(UserError, match=f"{name} has no variant 'no-such'"):
        registry.component("models", {"name": f"{name}/no-such"})


def test_a_published_network_can_be_changed():
    assert registry.component("models", {"name": "vit/tiny-hourglass", "depth": 2}).model_dump()["depth"] == 2
    assert isthmus.cost(isthmus.create_model("mlp_mixer/s", depth=1)).params < 4e6
