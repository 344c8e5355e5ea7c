"""What holds for every registered model, found through the registry: a new architecture adds its entry to SMALL."""

from __future__ import annotations

import copy

import pytest
import torch

import isthmus
from isthmus.core import registry
from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.training import counting
from isthmus.training.checkpoint import write_model
from tests.conformance.small_models import CASES, SMALL, build, inputs, stepped

NAMES = sorted(name for name, home in registry.catalogue("models").items() if home.startswith("isthmus."))
every_model = pytest.mark.parametrize(("name", "fields"), CASES)


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
    loaded = isthmus.load(tmp_path / "model.safetensors").model
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
def test_costs_are_those_of_a_count_that_remembers_no_operator(name, fields, monkeypatch):
    config = registry.component("models", {"name": name, **fields})
    cost = counting._cost.__wrapped__
    remembered = [cost(config), cost(config)]  # the second one finds every operator of the first
    monkeypatch.setattr(counting, "_makes_new_tensors", lambda func: False)
    assert remembered == 2 * [cost(config)]


def test_a_remembered_operator_has_the_types_of_its_arguments():
    numbers = torch.ones(2, dtype=torch.int64, device="meta")
    with counting._Flops():
        kinds = [(numbers * factor).dtype for factor in (1, 1.0, True, 1)]
    assert kinds == [torch.int64, torch.float32, torch.int64, torch.int64]


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


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # of torch's own rms_norm
@every_model
def test_gradients_under_autocast_are_close_to_those_in_single_precision(name, fields):
    model = stepped(name, fields).eval()
    x, found = inputs(model), []
    for is_half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            output = model(x)
        output.float().square().mean().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.cosine_similarity(found[0], found[1], dim=0) > 0.9


@pytest.mark.parametrize("name", isthmus.list_models())
def test_published_networks_are_made_by_name(name):
    for variant, fields in registry.variants(name).items():
        assert registry.component("models", {"name": f"{name}/{variant}"}) == registry.component("models", fields)
    with pytest.raises(UserError, match=f"{name} has no variant 'no-such'"):
        registry.component("models", {"name": f"{name}/no-such"})


def test_a_published_network_can_be_changed():
    assert registry.component("models", {"name": "vit/tiny-hourglass", "depth": 2}).model_dump()["depth"] == 2
    assert isthmus.cost(isthmus.create_model("mlp_mixer/s", depth=1)).params < 4e6
