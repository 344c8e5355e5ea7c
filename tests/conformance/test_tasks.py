"""What holds for every registered task, found through the registry: a new task adds its entry to CASES."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.core import registry
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Data, Split, Task
from isthmus.sources.puzzles.generation import generate
from isthmus.tasks.augment import ORIENTATIONS
from isthmus.tasks.scaling import Scaling
from isthmus.training.checkpoint import read_tensors, write_tensors

NAMES = sorted(name for name, home in registry.catalogue("tasks").items() if home.startswith("isthmus."))
DRAW = np.random.default_rng(0)
ROWS = 20


def splits(inputs, targets):
    """Three splits with different rows."""
    train, validation, test = (Split(inputs(), targets()) for _ in SPLITS)
    return Data(train, validation, test, "f" * 64)


def pictures():
    return DRAW.integers(0, 256, (ROWS, 3, 12, 16), np.uint8)


def features():
    return (DRAW.normal(size=(ROWS, 7)) * 4 + 10).astype(np.float32)


def labels():
    return np.arange(ROWS) % 4


def puzzles():
    _, solved = generate(np.full(ROWS, 80), DRAW)
    return np.where(DRAW.random(solved.shape) < 0.5, 0, solved).astype(np.int16), solved.astype(np.int16)


def values():
    return (DRAW.normal(size=(ROWS, 2)) * [1, 50] + [0, 1000]).astype(np.float32)


IMAGES = splits(pictures, labels)
SUDOKU = Data(Split(*puzzles()), Split(*puzzles()), Split(*puzzles()), "f" * 64)
TOKENS = replace(splits(lambda: DRAW.integers(0, 300, (ROWS, 12)).astype(np.int16), lambda: None), vocabulary=300)
LABELLED, VALUED = splits(features, labels), splits(features, values)
CASES: dict[str, list[tuple[Data, dict]]] = {
    "classification": [
        (LABELLED, {}),
        (IMAGES, {"flips": True, "label_smoothing": 0.1}),
        (LABELLED, {"standardise": False}),
        (IMAGES, {"resize": 14, "crop_ratio": 0.875}),
        (IMAGES, {"augment": {"crop_padding": 2, "flip": True, "color_jitter": [0.4, 0.4, 0.4, 0.1], "cutout": 4}}),
        (
            IMAGES,
            {
                "resize": 10,
                "label_smoothing": 0.1,
                "augment": {
                    "resized_crop": [0.08, 1.0],
                    "policy": "rand_augment",
                    "erasing": 0.25,
                    "mixup": 0.8,
                    "cutmix": 1.0,
                },
            },
        ),
        (IMAGES, {"flips": True, "augment": {"policy": "auto_augment_imagenet"}}),
    ],
    "denoise": [(IMAGES, {}), (IMAGES, {"flips": True}), (IMAGES, {"noise": "once", "flips": True})],
    "generative_classification": [(IMAGES, {}), (IMAGES, {"flips": True, "prototype_seed": 3})],
    "masked_tokens": [(TOKENS, {}), (TOKENS, {"schedule": "arccos", "most_masked": 1, "label_smoothing": 0})],
    "regression": [(VALUED, {}), (VALUED, {"standardise_inputs": False, "standardise_targets": False})],
    "sudoku": [(SUDOKU, {}), (SUDOKU, {"symmetries": True}), (SUDOKU, {"reveal": (30, 60), "symmetries": True})],
    "super_resolution": [(IMAGES, {}), (IMAGES, {"factor": 4, "flips": True})],
    "tokenization": [(IMAGES, {}), (IMAGES, {"flips": True})],
}
every_task = pytest.mark.parametrize(
    ("name", "data", "fields"),
    [pytest.param(name, *case, id=f"{name}-{number}") for name in CASES for number, case in enumerate(CASES[name])],
)


def build(name, fields, data=None):
    task = registry.find("tasks", name)(registry.component("tasks", {"name": name, **fields}))
    if data is not None:
        task.learn(data)
    return task


def tensors(split):
    return torch.from_numpy(split.inputs), None if split.targets is None else torch.from_numpy(split.targets)


def training_batch(task, data, seed=0, step=0, view=0):
    index = torch.arange(ROWS)
    return task.training_batch(*tensors(data.train), index, torch.full((ROWS,), view), seed, step)


def evaluation_batch(task, data, split="test", block=0):
    return task.evaluation_batch(*tensors(data.split(split)), split, block)


def outputs(task, rows=ROWS):
    """What an untrained model might give."""
    return torch.randn(rows, math.prod(task.signature.output_shape), generator=torch.Generator().manual_seed(3))


def one_hot(target, task):
    """The output of a model that is sure of the target; what does not count is class 0."""
    return torch.nn.functional.one_hot(target.clamp(min=0), task.signature.output_shape[-1]).float()


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_registered_task_is_tried():
    assert set(CASES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_objective_is_known_without_importing_the_task(name):
    assert registry.task_objective(name) == registry.find("tasks", name).objective


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_a_task_and_refuses_an_unknown_field(name):
    task = registry.find("tasks", name)
    assert issubclass(task, Task)
    assert issubclass(task.Config, Component)
    with pytest.raises(UserError, match="unknown field 'flps'"):
        build(name, {"flps": True})
    config = build(name, {}).config
    assert registry.component("tasks", config.model_dump(mode="json")) == config


@every_task
def test_batches_have_the_shapes_of_the_signature(name, data, fields):
    task = build(name, fields, data)
    for batch in (training_batch(task, data), evaluation_batch(task, data)):
        assert batch.input.shape == (ROWS, *task.signature.input_shape)
        if task.signature.vocabulary:
            assert batch.input.dtype == batch.target.dtype == torch.int64
            assert 0 <= batch.input.min() <= batch.input.max() < task.signature.vocabulary
            assert batch.target.shape == (ROWS, *task.signature.output_shape[:-1])
            assert batch.target.max() < task.signature.output_shape[-1]
            continue
        assert batch.input.dtype == torch.float32
        assert batch.input.isfinite().all()
        assert batch.target.dtype in (torch.float32, torch.int64)
        if batch.target.dtype == torch.float32:
            assert batch.target.shape == (ROWS, *task.signature.output_shape)
        else:
            assert 0 <= batch.target.min() <= batch.target.max() < task.signature.output_shape[0]


@every_task
def test_the_loss_is_a_mean_over_rows_with_a_gradient(name, data, fields):
    task = build(name, fields, data)
    output, target = outputs(task).requires_grad_(), training_batch(task, data).target
    loss = task.loss(output, target)
    assert loss.shape == ()
    with torch.no_grad():
        parts = [task.loss(output[part], target[part]) for part in (slice(0, 5), slice(5, None))]
        torch.testing.assert_close(loss, (parts[0] * 5 + parts[1] * (ROWS - 5)) / ROWS)
    loss.backward()
    assert output.grad is not None
    assert output.grad.abs().max() > 0


@every_task
@pytest.mark.parametrize("split", ["validation", "test"])
def test_metrics_are_finite_and_hold_the_objective(name, data, fields, split):
    task = build(name, fields, data)
    metrics = task.metrics(split)
    task.measure(metrics, outputs(task), evaluation_batch(task, data, split).target)
    found = {key: float(value) for key, value in metrics.compute().items()}
    assert task.objective in found
    assert all(math.isfinite(value) for value in found.values()), found
    assert set(found) <= task.directions().keys(), "a metric says whether more is better"


@every_task
def test_the_objective_prefers_the_target_to_a_guess(name, data, fields):
    task = build(name, fields, data)
    target = evaluation_batch(task, data).target
    perfect = one_hot(target, task) if target.dtype == torch.int64 else target.flatten(1)
    scores = []
    for output in (outputs(task), perfect + 1e-3):
        metrics = task.metrics("test")
        task.measure(metrics, output, target)
        scores.append(float(metrics.compute()[task.objective]))
    assert (scores[1] > scores[0]) == task.maximise


@every_task
def test_seed_and_step_decide_a_training_batch(name, data, fields):
    task, again = build(name, fields, data), build(name, fields, data)
    first = training_batch(task, data, seed=1, step=2)
    torch.manual_seed(5)  # the global generator does not
    training_batch(task, data, seed=3, step=4)  # nor does what was asked before
    assert equal(first, training_batch(task, data, seed=1, step=2))
    assert equal(first, training_batch(again, data, seed=1, step=2))
    assert equal(training_batch(task, data, seed=3), training_batch(again, data, seed=3))


@pytest.mark.parametrize("noise", ["fresh", "once"])
def test_noise_differs_by_seed_and_where_it_is_fresh_by_step(noise):
    task = build("denoise", {"noise": noise}, IMAGES)
    first = training_batch(task, IMAGES, seed=1, step=2).input
    assert not torch.equal(first, training_batch(task, IMAGES, seed=2, step=2).input)
    assert torch.equal(first, training_batch(task, IMAGES, seed=1, step=3).input) == (noise == "once")


@every_task
def test_an_evaluation_batch_is_the_same_for_every_run(name, data, fields):
    task, again = build(name, fields, data), build(name, fields, data)
    torch.manual_seed(1)
    training_batch(task, data, seed=1)
    first = evaluation_batch(task, data, "validation")
    torch.manual_seed(2)
    training_batch(again, data, seed=2)
    assert equal(first, evaluation_batch(again, data, "validation"))


@every_task
def test_views_are_the_four_orientations_or_one(name, data, fields):
    task = build(name, fields, data)
    assert task.views() == (ORIENTATIONS if fields.get("flips") else 1)
    first = training_batch(task, data, view=0)
    for view, axes in ((1, [-1]), (2, [-2]), (3, [-2, -1])):
        batch = training_batch(task, data, view=view)
        if task.views() == 1:
            assert equal(batch, first)
        elif first.target.shape == (ROWS, *IMAGES.train.inputs.shape[1:]) and name != "generative_classification":
            assert torch.equal(batch.target, first.target.flip(axes))
        else:
            assert torch.equal(batch.target, first.target), "a class has no orientation"
            assert torch.equal(batch.input, first.input.flip(axes))


@every_task
def test_what_a_task_remembers_is_enough_to_predict(name, data, fields, tmp_path):
    task, recalled = build(name, fields, data), build(name, fields)
    write_tensors(tmp_path / "task.safetensors", task.memory())
    recalled.recall(read_tensors(tmp_path / "task.safetensors")[0])
    assert recalled.signature == task.signature
    rows = np.zeros((3, *task.signature.input_shape), data.train.inputs.dtype) + data.train.inputs.dtype.type(9)
    assert torch.equal(recalled.encode(rows), task.encode(rows))
    assert np.array_equal(recalled.decode(outputs(task)), task.decode(outputs(task)))
    assert equal(evaluation_batch(recalled, data), evaluation_batch(task, data))


@every_task
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_encoding_gives_float32_and_leaves_the_users_rows_alone(name, data, fields, dtype):
    task = build(name, fields, data)
    rows = DRAW.integers(0, 256, (5, *task.signature.input_shape)).astype(dtype)
    kept = rows.copy()
    rows.flags.writeable = dtype == np.float32  # pandas and memory maps give arrays that cannot be written to
    encoded = task.encode(rows)
    assert encoded.shape == rows.shape
    assert encoded.dtype == (torch.int64 if task.signature.vocabulary else torch.float32)
    assert np.array_equal(rows, kept)
    assert torch.equal(encoded, task.encode(rows[::-1])[torch.arange(4, -1, -1)])


@pytest.mark.parametrize("name", ["classification", "regression", "generative_classification"])
def test_rows_to_predict_are_scaled_as_in_training(name):
    data, fields = CASES[name][0]
    task = build(name, fields, data)
    assert torch.equal(task.encode(data.test.inputs), evaluation_batch(task, data).input)


@every_task
def test_decoding_gives_the_users_units_back(name, data, fields):
    task = build(name, fields, data)
    target = evaluation_batch(task, data).target
    if name == "sudoku":
        empty = data.test.inputs == 0
        decoded, expected = task.decode(one_hot(target, task)) * empty, data.test.targets * empty
        assert np.array_equal(task.decode(target), decoded)
    elif name == "masked_tokens":
        hidden = (target >= 0).numpy()
        decoded, expected = task.decode(one_hot(target, task)) * hidden, data.test.inputs * hidden
    elif target.dtype == torch.int64:
        decoded, expected = task.decode(one_hot(target, task)), data.test.targets
    elif len(task.signature.output_shape) == 3:
        decoded = task.decode(target.flatten(1))
        expected = data.test.inputs if name != "generative_classification" else task.decode(target)
        assert decoded.dtype == np.uint8
        for outside, clipped in ((-0.5, 0), (1.5, 255)):
            assert (task.decode(torch.full_like(target, outside)) == clipped).all()
    else:
        decoded, expected = task.decode(target), data.test.targets
    assert expected is not None
    np.testing.assert_allclose(decoded, expected, rtol=1e-5, atol=1e-5)


@every_task
def test_only_the_training_rows_are_learned_from(name, data, fields):
    other = replace(data, validation=data.test, test=data.validation)
    memories = [build(name, fields, rows).memory() for rows in (data, other)]
    assert memories[0].keys() == memories[1].keys()
    assert all(torch.equal(memories[0][key], memories[1][key]) for key in memories[0])


def test_standardised_training_rows_have_mean_zero_and_deviation_one():
    task = build("regression", {}, VALUED)
    for scaled in training_batch(task, VALUED):
        assert torch.allclose(scaled.mean(0), torch.zeros(1), atol=1e-5)
        assert torch.allclose(scaled.std(0, correction=0), torch.ones(1), atol=1e-5)


def test_standardisation_samples_all_rows_even_if_they_are_sorted(monkeypatch):
    monkeypatch.setattr("isthmus.tasks.scaling._MOST_ROWS_READ", 100)
    scaling = Scaling()
    scaling.learn(np.arange(1001, dtype=np.float32)[:, None])
    assert scaling.mean.item() == pytest.approx(500, abs=10)
    assert scaling.std.item() == pytest.approx(289, abs=10)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("absent", [3, 1])
def test_a_class_without_a_training_image_has_no_prototype(absent, named):
    pruned = np.where(labels() == absent, 0, labels())
    train, test = Split(IMAGES.train.inputs, pruned), Split(IMAGES.test.inputs, labels())
    names = ("ant", "bee", "cat", "dog") if named else ()
    with pytest.raises(UserError, match=f"class {names[absent] if named else absent} has none$"):
        build("generative_classification", {}, Data(train, train, test, "f" * 64, names))


def test_a_prototype_is_a_training_image_of_its_class():
    task = build("generative_classification", {}, IMAGES)
    for label, prototype in enumerate(task.decode(task.prototypes)):
        members = IMAGES.train.inputs[IMAGES.train.targets == label]
        assert any(np.array_equal(prototype, member) for member in members)
    others = build("generative_classification", {"prototype_seed": 1}, IMAGES)
    assert not torch.equal(task.prototypes, others.prototypes)
