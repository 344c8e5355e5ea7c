"""What the tasks report against numpy, scikit-image and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from sklearn.metrics import accuracy_score, r2_score

from isthmus.core.protocols import Data, Split
from isthmus.core.registry import component, find


def learned(name, train, held_out=None, **fields):
    task = find("tasks", name)(component("tasks", {"name": name, **fields}))
    task.learn(Data(train, held_out or train, held_out or train, "f" * 64))
    return task


def measured(task, split, output, target):
    """The metrics of a split that is seen in three unequal parts."""
    metrics = task.metrics(split)
    for part in (slice(0, 3), slice(3, 10), slice(10, None)):
        task.measure(metrics, output[part], target[part])
    return {name: float(value) for name, value in metrics.compute().items()}


@pytest.fixture
def restored():
    """A denoising task, clean images and restored ones of very different quality."""
    generator = np.random.default_rng(0)
    clean = generator.random((16, 3, 16, 20), np.float32)
    errors = np.logspace(-3, 0, 16, dtype=np.float32)[:, None, None, None]
    output = clean + errors * generator.normal(size=clean.shape).astype(np.float32)
    return learned("denoise", Split(np.zeros((4, 3, 16, 20), np.uint8))), clean, output


def test_image_metrics(restored):
    task, clean, output = restored
    found = measured(task, "test", torch.from_numpy(output).flatten(1), torch.from_numpy(clean))
    squared = (output.astype(np.float64) - clean) ** 2
    each = squared.mean(axis=(1, 2, 3))
    assert found["mse"] == pytest.approx(squared.mean(), rel=1e-5)
    assert found["psnr"] == pytest.approx((-10 * np.log10(each)).mean(), abs=1e-4)
    assert found["psnr_pooled"] == pytest.approx(-10 * np.log10(squared.mean()), abs=1e-4)
    assert found["psnr"] - found["psnr_pooled"] > 10, "the two means of PSNR are different numbers"
    assert found["ssim"] == pytest.approx(np.mean(list(map(ssim, output, clean))), abs=1e-4)


def ssim(image, other):
    """scikit-image's leaves out a border of five pixels. Ours covers the whole image, mirrored at its edges."""
    mirrored = [np.pad(a.astype(np.float64), ((0, 0), (5, 5), (5, 5)), mode="reflect") for a in (image, other)]
    choices = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1}
    return structural_similarity(*mirrored, channel_axis=0, **choices)


def test_the_loss_of_images_is_their_mean_squared_error(restored):
    task, clean, output = restored
    loss = task.loss(torch.from_numpy(output).flatten(1), torch.from_numpy(clean))
    assert float(loss) == pytest.approx(((output.astype(np.float64) - clean) ** 2).mean(), rel=1e-5)


def test_validation_leaves_out_only_the_slow_metric(restored):
    task, _, _ = restored
    assert set(task.metrics("test")) - set(task.metrics("validation")) == {"ssim"}


@pytest.mark.parametrize(("side", "has_ssim"), [(5, False), (6, True)])
def test_ssim_is_left_out_where_an_image_is_too_small_to_be_mirrored(side, has_ssim):
    task = learned("denoise", Split(np.zeros((4, 1, side, 9), np.uint8)))
    found = measured(task, "test", torch.rand(16, side * 9), torch.rand(16, 1, side, 9))
    assert ("ssim" in found) == has_ssim
    assert all(np.isfinite(value) for value in found.values())


def test_accuracy_and_cross_entropy():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, 40)
    logits = generator.normal(size=(40, 5)).astype(np.float32) + 1.5 * np.eye(5, dtype=np.float32)[labels]
    smoothing = 0.1
    task = learned("classification", Split(np.zeros((40, 2), np.float32), labels), label_smoothing=smoothing)
    found = measured(task, "test", torch.from_numpy(logits), torch.from_numpy(labels))
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, logits.argmax(1)))
    logs = logits - np.log(np.exp(logits.astype(np.float64)).sum(1, keepdims=True))
    wanted = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    loss = float(task.loss(torch.from_numpy(logits), torch.from_numpy(labels)))
    assert loss == pytest.approx(-(wanted * logs).sum(1).mean(), rel=1e-5)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("offset", [0.0, 2000.0])
def test_r2_and_mean_squared_error_in_the_targets_own_units(standardise, offset):
    generator = np.random.default_rng(0)
    truth = (offset + generator.normal(size=(200, 2)) * [0.5, 3.0]).astype(np.float32)
    task = learned("regression", Split(np.zeros((200, 1), np.float32), truth), standardise_targets=standardise)
    target = task.evaluation_batch(torch.zeros(200, 1), torch.from_numpy(truth), "test", 0).target
    output = target + 0.3 * torch.randn(target.shape, generator=torch.Generator().manual_seed(0))
    found = measured(task, "test", output, target)
    predicted = task.decode(output)
    assert found["r2"] == pytest.approx(r2_score(truth, predicted), abs=1e-3)
    assert found["mse"] == pytest.approx(((predicted.astype(np.float64) - truth) ** 2).mean(), rel=1e-3)


def test_the_generated_class_is_the_nearest_prototype():
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (30, 1, 12, 12), np.uint8), np.arange(30) % 5
    task = learned("generative_classification", Split(images, labels))
    batch = task.evaluation_batch(torch.from_numpy(images), torch.from_numpy(labels), "test", 0)
    output = batch.target + 0.6 * torch.randn(batch.target.shape, generator=torch.Generator().manual_seed(0))
    drawn = output.double().numpy().reshape(30, 1, -1) - task.prototypes.double().numpy().reshape(1, 5, -1)
    answers = (drawn**2).sum(2).argmin(1)
    output[0] = task.prototypes[(labels[0] + 1) % 5]  # one certain mistake
    answers[0] = (labels[0] + 1) % 5
    found = measured(task, "test", output.flatten(1), batch.target)
    assert found["accuracy"] == pytest.approx((answers == labels).mean())


def test_one_perfect_image_does_not_make_the_mean_psnr_infinite(restored):
    task, clean, output = restored
    output[2] = clean[2]
    found = measured(task, "test", torch.from_numpy(output).flatten(1), torch.from_numpy(clean))
    errors = np.square(output.astype(np.float64) - clean).mean(axis=(1, 2, 3))
    errors[2] = 2.0**-48
    assert found["psnr"] == pytest.approx((-10 * np.log10(errors)).mean(), abs=1e-4)
    perfect = measured(task, "test", torch.from_numpy(clean).flatten(1), torch.from_numpy(clean))
    assert perfect["psnr"] == pytest.approx(perfect["psnr_pooled"]) == pytest.approx(144.49, abs=0.01)
