"""The name of a run: every choice is in it, no default is, and it does not matter how the choices were written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.config import RunConfig, run_config
from isthmus.core.registry import find
from isthmus.core.train_config import TrainConfig

BASE = {
    "source": {"name": "digits"},
    "task": {"name": "denoise"},
    "model": {"name": "hourglass_mlp", "d_z": 80, "d_h": 8, "depth": 2},
}
DATA = "f" * 64
REQUIRED = object()
# Every field with its default in schema 1 and another value. A default that changes needs another schema version:
# a default is not part of a run's name, so the old runs would pass for new ones.
FIELDS = {
    "source.validation": (297, 100),
    "source.test": (300, 100),
    "source.split_seed": (0, 1),
    "task.flips": (False, True),
    "task.evaluation_seed": (0, 1),
    "task.noise_std": (0.25, 0.5),
    "task.noise": ("fresh", "once"),
    "model.d_in": (None, 64),
    "model.d_out": (None, 64),
    "model.d_z": (REQUIRED, 81),
    "model.d_h": (REQUIRED, 9),
    "model.depth": (REQUIRED, 3),
    "model.norm": ("layer", "rms"),
    "model.activation": ("gelu", "relu"),
    "model.w_in": ("trainable", "hadamard"),
    "model.w_in_seed": (None, 0),
    "model.init": ("zero_w2", "pytorch"),
    "model.pathway": ("plain", "ladder"),
    "model.residual_scale": (1.0, 0.5),
    "model.allow_any_shape": (False, True),
    "train.epochs": (20, 21),
    "train.stop_epoch": (None, 10),
    "train.stack": (None, 8),
    "train.batch_size": (128, 64),
    "train.accumulate": (1, 2),
    "train.optimizer": ("adamw", "sgd"),
    "train.learning_rate": (1e-3, 2e-3),
    "train.weight_decay": (0.0, 0.1),
    "train.decayed": ("all", "matrices"),
    "train.betas": ([0.9, 0.999], [0.9, 0.95]),
    "train.momentum": (0.9, 0.8),
    "train.nesterov": (False, True),
    "train.epsilon": (1e-8, 1e-6),
    "train.lasso_lambda": (0.0, 1e-5),
    "train.lasso_beta": (50.0, 20.0),
    "train.schedule": ("linear", "cosine"),
    "train.warmup_epochs": (0, 1),
    "train.warmup_learning_rate": (0.0, 1e-6),
    "train.schedule_start": ("after_warmup", "with_warmup"),
    "train.rate_changes": ("step", "epoch"),
    "train.cooldown_epochs": (0.0, 2.0),
    "train.final_learning_rate": (0.0, 1e-5),
    "train.clip_norm": (None, 1.0),
    "train.average": (None, 0.9),
    "train.precision": ("float32", "bfloat16"),
    "train.recompute": (False, True),
    "train.compile": (False, True),
    "train.device": ("cpu", "cuda"),
    "train.devices": (1, 2),
    "train.strategy": ("ddp", "fsdp"),
    "train.evaluate_every": (1, 2),
    "train.select": ("best", "last"),
    "seed": (0, 1),
    "threads": (2, 1),
    "init": (None, "0123456789abcdef"),
}
OTHER = {path: other for path, (_, other) in FIELDS.items()}
# Likewise for the other tasks, each with the fields that denoising does not have.
TASKS: dict[str, dict[str, tuple[Any, Any]]] = {
    "classification": {
        "ones": (False, True),
        "standardise": (True, False),
        "scaling": ("data", "half"),
        "label_smoothing": (0.0, 0.1),
        "resize": (None, 224),
        "interpolation": ("bilinear", "bicubic"),
        "crop_ratio": (1.0, 0.875),
        "augment.crop_padding": (0, 4),
        "augment.resized_crop": (None, [0.08, 1.0]),
        "augment.flip": (False, True),
        "augment.color_jitter": ([0.0, 0.0, 0.0, 0.0], [0.4, 0.4, 0.4, 0.0]),
        "augment.policy": ("none", "rand_augment"),
        "augment.magnitude": (9.0, 7.0),
        "augment.magnitude_std": (0.5, 0.0),
        "augment.layers": (2, 3),
        "augment.erasing": (0.0, 0.25),
        "augment.cutout": (0, 16),
        "augment.mixup": (0.0, 0.8),
        "augment.cutmix": (0.0, 1.0),
        "augment.cutmix_share": (0.5, 0.25),
    }
}
NEEDED: dict[str, dict[str, Any]] = {  # what a choice cannot be without
    "train.lasso_lambda": {"train": {"optimizer": "beta_lasso"}},
    "train.strategy": {"train": {"devices": 2}},
    "crop_ratio": {"resize": 224},
}


def parts():
    """The settings' classes and where they stand."""
    return {
        "source": find("sources", "digits").Config,
        "task": find("tasks", "denoise").Config,
        "model": find("models", "hourglass_mlp").Config,
        "train": TrainConfig,
        "": RunConfig,
    }


def fields():
    """Where every field of a run stands."""
    for place, config in parts().items():
        for name in config.model_fields:
            if name not in ("name", "schema_version", *parts()):
                yield f"{place}.{name}".lstrip(".")


def put(settings, path, value):
    result = json.loads(json.dumps(settings))
    *places, name = path.split(".")
    inner = result
    for place in places:
        inner = inner.setdefault(place, {})
    inner[name] = value
    return result


def chosen(settings, path, value):
    """Likewise, with what this choice needs; a default needs nothing."""
    result = put(settings, path, value)
    if value != FIELDS[path][0]:
        for place, needed in NEEDED.get(path, {}).items():
            for name, other in needed.items():
                result = put(result, f"{place}.{name}", other)
    return result


def run_id(settings):
    return run_config(settings).run_id(DATA)


def test_every_field_is_tried():
    assert set(fields()) == set(FIELDS)


@pytest.mark.parametrize("path", OTHER)
def test_another_value_is_another_run(path):
    assert run_id(chosen(BASE, path, OTHER[path])) != run_id(BASE)


def test_no_two_choices_share_a_name():
    assert len({run_id(chosen(BASE, path, value)) for path, value in OTHER.items()}) == len(OTHER)


@pytest.mark.parametrize("path", [path for path, (default, _) in FIELDS.items() if default is not REQUIRED])
def test_a_default_that_is_written_down_is_no_other_run(path):
    assert run_id(put(BASE, path, FIELDS[path][0])) == run_id(BASE)


@pytest.mark.parametrize("name", TASKS)
def test_fields_of_other_tasks(name):
    config = find("tasks", name).Config
    nested = {f"augment.{field}" for field in config.model_fields["augment"].annotation.model_fields}
    assert {*config.model_fields, *nested} - {"name", "flips", "augment"} == TASKS[name].keys()
    base = {**BASE, "task": {"name": name}}
    plain = run_id(base)
    others = set()
    for path, (default, other) in TASKS[name].items():
        assert run_id(put(base, f"task.{path}", default)) == plain, f"{path} at its default names no other run"
        changed = put(base, f"task.{path}", other)
        for needed, value in NEEDED.get(path, {}).items():
            changed = put(changed, f"task.{needed}", value)
        others.add(run_id(changed))
    assert plain not in others
    assert len(others) == len(TASKS[name])


def test_the_name_of_a_classification_is_what_it_was():
    assert run_id({**BASE, "task": {"name": "classification", "label_smoothing": 0.1}}) == "480d53e91ca75931"


def test_other_data_are_another_run():
    config = run_config(BASE)
    assert config.run_id(DATA) != config.run_id("e" * 64)


def test_the_name_is_what_it_was():
    assert run_id(BASE) == "bd90e80260bd3f69"


@st.composite
def reordered(draw, value):
    if not isinstance(value, dict):
        return value
    return {name: draw(reordered(value[name])) for name in draw(st.permutations(list(value)))}


@given(data=st.data())
def test_the_order_of_the_keys_does_not_matter(data):
    free = sorted(OTHER.keys() - NEEDED.keys() - {"train.optimizer", "train.stack"})  # these refuse some of the others
    paths = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=6))
    written = BASE
    for path in paths:
        written = put(written, path, OTHER[path])
    assert run_id(data.draw(reordered(written))) == run_id(written)


@given(rate=st.floats(1e-6, 10), seed=st.integers(0, 2**63 - 1))
def test_a_config_that_went_through_json_is_the_same_run(rate, seed):
    config = run_config(BASE | {"train": {"learning_rate": rate}, "seed": seed})
    again = run_config(json.loads(config.model_dump_json()))
    assert again == config
    assert again.run_id(DATA) == config.run_id(DATA)
    assert (run_id(BASE) == config.run_id(DATA)) == (rate == 1e-3 and seed == 0)
