"""Batched augmentations against their definitions: Pillow image by image, boxes pixel by pixel, and distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isthmus.sources.images import squeeze
from isthmus.tasks.augment import Augmentation, hide_and_mix, vary_images
from isthmus.tasks.augment.crops import draw_boxes, fit_size, flip, padded_crop, resized_crop
from isthmus.tasks.augment.mixup import cut_out, cutmix_box, erase, mix
from isthmus.tasks.augment.operations import GEOMETRIC, OPERATIONS, jitter_colours, transform, warp
from isthmus.tasks.augment.policies import CIFAR10, IMAGENET, RANDOM, auto_arguments, policy_table, rand_arguments

FILL = torch.tensor([124.0, 17.0, 200.0])
OUTSIDE = (124, 17, 200)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def photographs(rows=24, height=32, width=40, seed=0):
    """Smooth and rough ones, dark and bright ones, and one of a single colour."""
    generator = np.random.default_rng(seed)
    images = []
    for row in range(rows):
        small = Image.fromarray(generator.integers(0, 256, (4, 5, 3), np.uint8))
        smooth = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), float)
        rough = smooth + generator.normal(0, 25 * (row % 3), smooth.shape)
        images.append(np.clip(rough * (0.3 + 0.1 * (row % 8)) + 10 * (row % 4), 0, 255).astype(np.uint8))
    images[5][:] = (9, 200, 40)
    return torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())


def pillow(image, name, argument):
    """One image by Pillow's own functions; the argument is that of ``operations``."""
    picture = Image.fromarray(image.numpy().transpose(1, 2, 0).copy())
    bilinear = Image.Resampling.BILINEAR
    affine = {
        "shear_x": (1, argument, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, argument, 1, 0),
        "translate_x": (1, 0, argument * picture.width, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, argument * picture.height),
    }
    enhancers = {
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    if name in affine:
        changed = picture.transform(
            picture.size, Image.Transform.AFFINE, affine[name], resample=bilinear, fillcolor=OUTSIDE
        )
    elif name in enhancers:
        changed = enhancers[name](picture).enhance(argument)
    elif name == "solarize_add":
        changed = picture.point([min(255, level + int(argument)) if level < 128 else level for level in range(256)] * 3)
    else:
        changed = {
            "none": lambda: picture,
            "rotate": lambda: picture.rotate(argument, resample=bilinear, fillcolor=OUTSIDE),
            "auto_contrast": lambda: ImageOps.autocontrast(picture),
            "equalize": lambda: ImageOps.equalize(picture),
            "invert": lambda: ImageOps.invert(picture),
            # Pillow refuses to keep no bit at all, which is black
            "posterize": lambda: ImageOps.posterize(picture, int(argument)) if argument else picture.point([0] * 768),
            "solarize": lambda: ImageOps.solarize(picture, argument),
        }[name]()
    return torch.from_numpy(np.asarray(changed).transpose(2, 0, 1).copy())


ARGUMENTS = {
    "rotate": [-30.0, -27.3, 0.5, 12.0, 30.0],
    "shear_x": [-0.3, 0.07, 0.3],
    "shear_y": [-0.3, 0.11, 0.3],
    "translate_x": [-0.45, -0.1, 0.13, 0.45],
    "translate_y": [-0.45, -0.1, 0.13, 0.45],
    "posterize": [0.0, 1.0, 4.0, 8.0],
    "solarize": [0.0, 26.0, 128.5, 256.0],
    "solarize_add": [0.0, 33.0, 110.0],
} | {name: [0.0, 0.1, 0.19, 1.0, 1.81, 1.9] for name in ("color", "contrast", "brightness", "sharpness")}

SAME_TO_THE_LEVEL = {"none", "equalize", "invert", "posterize", "solarize", "solarize_add"}
"""The others are computed in floats here, and Pillow rounds the grey and the smoothed image on the way."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_pillows(name):
    images = photographs()
    for argument in ARGUMENTS.get(name, [0.0]):
        operation = torch.full((len(images),), OPERATIONS.index(name))
        found = transform(images, operation, torch.full((len(images),), argument, dtype=torch.float64), FILL)
        expected = torch.stack([pillow(image, name, argument) for image in images])
        difference = found.int() - expected.int()
        assert difference.abs().max() <= (0 if name in SAME_TO_THE_LEVEL else 1), f"{name} {argument}"
        if name in GEOMETRIC and argument:
            assert not torch.equal(found, images)


def test_every_image_receives_its_own_operation_in_one_call():
    images = photographs(rows=48, seed=1)
    generator = np.random.default_rng(2)
    names = [OPERATIONS[number] for number in generator.integers(len(OPERATIONS), size=len(images))]
    arguments = [float(generator.choice(ARGUMENTS.get(name, [0.0]))) for name in names]
    operation = torch.tensor([OPERATIONS.index(name) for name in names])
    kept = images.clone()
    found = transform(images, operation, torch.tensor(arguments, dtype=torch.float64), FILL)
    assert torch.equal(images, kept), "the rows of the data set are left alone"
    for row, (name, argument) in enumerate(zip(names, arguments, strict=True)):
        assert (found[row].int() - pillow(images[row], name, argument).int()).abs().max() <= 1, name
    assert len(set(names)) > 12


def test_grey_images_are_their_own_grey():
    images = photographs()[:, :1]
    for name in OPERATIONS:
        argument = torch.full((len(images),), ARGUMENTS.get(name, [0.0])[-1], dtype=torch.float64)
        found = transform(images, torch.full((len(images),), OPERATIONS.index(name)), argument, FILL[:1])
        assert found.shape == images.shape
        assert name not in ("none", "color") or torch.equal(found, images)


RAND_AT = {
    # magnitude 0, 5 and 10, as in rand-m…-inc1
    "rotate": (0, 15, 30),
    "shear_x": (0, 0.15, 0.3),
    "shear_y": (0, 0.15, 0.3),
    "translate_x": (0, 0.225, 0.45),
    "translate_y": (0, 0.225, 0.45),
    "posterize": (4, 2, 0),
    "solarize": (256, 128, 0),
    "solarize_add": (0, 55, 110),
    "color": (1, 1.45, 1.9),
    "contrast": (1, 1.45, 1.9),
    "brightness": (1, 1.45, 1.9),
    "sharpness": (1, 1.45, 1.9),
}


@pytest.mark.parametrize("name", RAND_AT)
def test_rand_augments_magnitudes(name):
    operation = torch.full((3,), OPERATIONS.index(name))
    level = torch.tensor([0.0, 5.0, 10.0], dtype=torch.float64)
    found = rand_arguments(operation, level, torch.ones(3, dtype=torch.float64))
    assert found.tolist() == pytest.approx(RAND_AT[name])
    mirrored = rand_arguments(operation, level, -torch.ones(3, dtype=torch.float64))
    signed = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}
    if name in signed:
        assert mirrored.tolist() == pytest.approx([-value for value in RAND_AT[name]])
    elif name in {"color", "contrast", "brightness", "sharpness"}:
        assert mirrored.tolist() == pytest.approx([1, 0.55, 0.1])
    else:
        assert torch.equal(mirrored, found)


def test_rand_augment_draws_operations_evenly_and_magnitudes_from_a_cut_normal_distribution(monkeypatch):
    calls = []

    def noted(images, operation, argument, fill):
        calls.append((operation, argument))
        return images

    monkeypatch.setattr("isthmus.tasks.augment.policies.transform", noted)
    settings = Augmentation(policy="rand_augment")
    for step in range(20):
        vary_images(torch.zeros(1000, 3, 1, 1, dtype=torch.uint8), settings, None, FILL, 0, step)
    assert len(calls) == 40, "two operations per image"
    operation = torch.cat([call[0] for call in calls])
    argument = torch.cat([call[1] for call in calls])
    none = OPERATIONS.index("none")
    assert (operation != none).double().mean() == pytest.approx(0.5, abs=0.01)
    counts = torch.bincount(operation[operation != none], minlength=len(OPERATIONS))
    assert {OPERATIONS[number] for number in counts.nonzero()} == set(RANDOM)
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-4
    degrees = argument[operation == OPERATIONS.index("rotate")]
    assert (degrees > 0).double().mean() == pytest.approx(0.5, abs=0.05)
    magnitude = degrees.abs() / 3
    assert magnitude.max() == pytest.approx(10)
    assert (magnitude == 10).double().mean() == pytest.approx(stats.norm.sf(2), abs=0.015)
    inside = magnitude[magnitude < 10].numpy()
    below = stats.truncnorm(-math.inf, 2, 9, 0.5)
    assert stats.kstest(inside, below.cdf).pvalue > 1e-4


def test_two_images_of_a_batch_receive_different_operations():
    images = photographs()[:1].expand(64, -1, -1, -1)
    found = vary_images(images, Augmentation(policy="rand_augment"), None, FILL, 0, 0)
    assert len({image.numpy().tobytes() for image in found}) > 30


def test_the_published_policies():
    lines = {
        CIFAR10: {
            0: [("invert", 0.1, 7), ("contrast", 0.2, 6)],
            14: [("solarize", 0.5, 2), ("invert", 0.0, 3)],
            24: [("translate_y", 0.7, 9), ("auto_contrast", 0.9, 1)],
        },
        IMAGENET: {
            0: [("posterize", 0.4, 8), ("rotate", 0.6, 9)],
            17: [("sharpness", 0.4, 7), ("invert", 0.6, 8)],
            24: [("equalize", 0.8, 8), ("equalize", 0.6, 3)],
        },
    }
    for policy, some in lines.items():
        operation, probability, level = policy_table(policy)
        assert operation.shape == probability.shape == level.shape == (25, 2)
        assert 0 <= probability.min() <= probability.max() <= 1
        assert 0 <= level.min() <= level.max() <= 9
        for row, pair in some.items():
            names = [OPERATIONS[number] for number in operation[row]]
            assert list(zip(names, probability[row].tolist(), level[row].tolist(), strict=True)) == pair


def test_auto_augments_magnitudes_are_ten_steps_of_the_papers_ranges():
    level = torch.arange(10, dtype=torch.float64)
    ends = {
        "rotate": (0, 30),
        "shear_x": (0, 0.3),
        "translate_y": (0, 150 / 331),
        "solarize": (256, 0),
        "posterize": (8, 4),
        "color": (1, 1.9),
    }
    for name, (first, last) in ends.items():
        found = auto_arguments(torch.full((10,), OPERATIONS.index(name)), level, torch.ones(10, dtype=torch.float64))
        even = np.linspace(first, last, 10)
        np.testing.assert_allclose(found, np.round(even) if name == "posterize" else even)


def test_auto_augment_carries_out_each_pair_with_its_probabilities(monkeypatch):
    calls = []

    def noted(images, operation, argument, fill):
        calls.append(operation)
        return images

    monkeypatch.setattr("isthmus.tasks.augment.policies.transform", noted)
    for step in range(25):
        settings = Augmentation(policy="auto_augment_cifar10")
        vary_images(torch.zeros(2000, 3, 1, 1, dtype=torch.uint8), settings, None, FILL, 0, step)
    operation, probability, _ = policy_table(CIFAR10)
    for place in (0, 1):
        seen = torch.cat(calls[place::2])
        for number in operation[:, place].unique():
            expected = float(probability[operation[:, place] == number, place].sum()) / 25
            assert (seen == number).double().mean() == pytest.approx(expected, abs=0.01)


def test_a_padded_crop_is_a_window_of_the_padded_image():
    images = photographs(rows=500, height=6, width=7)
    found = padded_crop(images, 2, drawn())
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    places = []
    for image, window in zip(padded, found.numpy(), strict=True):
        matching = [(y, x) for y in range(5) for x in range(5) if (image[:, y : y + 6, x : x + 7] == window).all()]
        assert matching
        places += matching if len(matching) == 1 else []
    assert len(set(places)) == 25
    counts = np.bincount([5 * y + x for y, x in places], minlength=25)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_half_of_the_images_are_flipped():
    images = photographs(rows=1000, height=4, width=5)
    found = flip(images, drawn())
    mirrored = (found == images.flip(-1)).all(dim=(1, 2, 3))
    assert (mirrored | (found == images).all(dim=(1, 2, 3))).all()
    assert mirrored.double().mean() == pytest.approx(0.5, abs=0.05)


def cut_by_pillow(image, box, side, smooth):
    top, left, tall, wide = box.tolist()
    picture = Image.fromarray(image.numpy().transpose(1, 2, 0).copy()).crop((left, top, left + wide, top + tall))
    return np.asarray(picture.resize((side, side), Image.Resampling[smooth.upper()])).transpose(2, 0, 1).astype(int)


def sides(number, height, width):
    return torch.tensor([height, width]).expand(number, 2)


@pytest.mark.parametrize("size", [None, 48])
def test_a_resized_crop_is_pillows_crop_and_resize(size):
    images = photographs(height=32, width=32)
    area = (0.08, 1.0)
    found = resized_crop(images, area, size, drawn(3))
    for image, result, box in zip(images, found, draw_boxes(sides(24, 32, 32), area, drawn(3)), strict=True):
        assert np.abs(result.numpy() - cut_by_pillow(image, box, size or 32, "bilinear")).max() <= 1


def test_a_bicubic_crop_is_nearly_pillows():
    """Torch's cubic has a = −3/4 where Pillow's has −1/2, so that edges overshoot a little more."""
    images = photographs(height=32, width=32)
    area = (0.08, 1.0)
    errors = {
        smooth: [
            np.abs(result.numpy() - cut_by_pillow(image, box, 48, "bicubic")).mean()
            for image, result, box in zip(
                images, resized_crop(images, area, 48, drawn(3), smooth), draw_boxes(sides(24, 32, 32), area, drawn(3)),
                strict=True,
            )
        ]
        for smooth in ("bilinear", "bicubic")
    }  # fmt: skip
    assert np.mean(errors["bicubic"]) < 0.6 * np.mean(errors["bilinear"])


def test_boxes_have_the_wanted_areas_and_aspects():
    found = draw_boxes(sides(20_000, 400, 400), (0.08, 1.0), drawn()).double()
    top, left, tall, wide = found.unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall <= 400).all()
    assert (left + wide <= 400).all()
    ratio = wide / tall
    assert ratio.min() > 0.74
    assert ratio.max() < 1.35
    area = tall * wide / 400**2
    assert area.min() > 0.079
    assert area.max() <= 1
    small = area[area < 0.7].numpy()  # all of these fit, whatever their aspect
    assert stats.kstest(small, stats.uniform(0.08, 0.62).cdf).pvalue > 1e-4
    narrow = draw_boxes(sides(50, 10, 400), (0.9, 1.0), drawn())
    assert (narrow[:, 2:] == torch.tensor([10, 13])).all(), "nothing fits: the largest central part of that aspect"
    assert (narrow[:, :2] == torch.tensor([0, 193])).all()


def test_a_crop_of_a_squeezed_photograph_is_cut_in_its_true_proportions():
    """A smooth photograph of 48 × 80 pixels loses little when it is squeezed into 64 × 64."""
    down, across = torch.meshgrid(torch.linspace(0, 1, 48), torch.linspace(0, 1, 80), indexing="ij")
    photograph = torch.stack([255 * down, 255 * across, 127 * (down + across)]).round().to(torch.uint8)
    squeezed = torch.from_numpy(squeeze(Image.fromarray(photograph.permute(1, 2, 0).numpy()), "", 64).copy())
    rows, extents = squeezed.expand(30, -1, -1, -1), sides(30, 48, 80)
    boxes = draw_boxes(extents, (0.08, 1.0), drawn(3))
    assert (boxes[:, 1] + boxes[:, 3]).max() > 64, "some parts lie beyond the central square"
    found = resized_crop(rows, (0.08, 1.0), 24, drawn(3), extents=extents)
    for box, result in zip(boxes, found, strict=True):
        assert np.abs(result.numpy() - cut_by_pillow(photograph, box, 24, "bilinear")).max() <= 5


def test_photographs_of_several_proportions_in_one_batch_are_each_cropped_in_their_own():
    extents = torch.tensor([[100, 400], [400, 100]]).repeat(500, 1)
    top, left, tall, wide = draw_boxes(extents, (0.08, 1.0), drawn()).unbind(1)
    assert (top + tall <= extents[:, 0]).all()
    assert (left + wide <= extents[:, 1]).all()
    assert left[::2].max() > 250
    assert top[1::2].max() > 250


def test_a_square_photograph_is_cropped_as_its_central_square():
    images = photographs(height=32, width=32)
    whole = resized_crop(images, (0.08, 1.0), 48, drawn(3), extents=sides(24, 32, 32))
    assert torch.equal(whole, resized_crop(images, (0.08, 1.0), 48, drawn(3)))


@pytest.mark.parametrize("smooth", ["bilinear", "bicubic"])
def test_evaluated_images_are_resized_and_cropped_as_by_pillow(smooth):
    images = photographs(height=60, width=40)
    found = fit_size(images, 28, ratio=0.875, interpolation=smooth)  # 32 × 48, then the centre
    for image, result in zip(images, found, strict=True):
        picture = Image.fromarray(image.numpy().transpose(1, 2, 0).copy())
        resized = picture.resize((32, 48), Image.Resampling[smooth.upper()]).crop((2, 10, 30, 38))
        assert np.abs(result.numpy().astype(int) - np.asarray(resized).transpose(2, 0, 1)).max() <= (
            8 if smooth == "bicubic" else 1  # Pillow rounds between its two passes
        )
    assert torch.equal(fit_size(images, 40), images[:, :, 10:50]), "nothing to resize"


def test_jitter_is_pillows_in_its_order():
    images = photographs()
    for place, enhancer in enumerate((ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)):
        strengths = (0.4 * (place == 0), 0.4 * (place == 1), 0.4 * (place == 2), 0.0)
        found = jitter_colours(images, strengths, drawn(1))
        factors = 0.6 + 0.8 * torch.rand((4, len(images)), generator=drawn(1))[place]
        assert factors.min() >= 0.6
        for image, result, factor in zip(images, found, factors.tolist(), strict=True):
            picture = enhancer(Image.fromarray(image.numpy().transpose(1, 2, 0).copy())).enhance(factor)
            expected = np.asarray(picture).transpose(2, 0, 1).astype(int)
            # Pillow cuts off twice and rounds the grey; kornia does neither.
            assert np.abs(result.numpy().astype(int) - expected).max() <= 2, enhancer
    turned = jitter_colours(images, (0.0, 0.0, 0.0, 0.5), drawn(2)).int()
    brightest, darkest = turned.amax(1) - images.int().amax(1), turned.amin(1) - images.int().amin(1)
    assert max(brightest.abs().max(), darkest.abs().max()) <= 1, "a turn of the hue keeps value and saturation"
    assert (turned - images.int()).abs().max() > 50
    assert torch.equal(jitter_colours(images[:, :1], (0.0, 0.0, 0.4, 0.4), drawn(2)), images[:, :1])


def test_erased_rectangles_have_the_wanted_areas_and_hold_noise():
    images = torch.full((4000, 2, 60, 50), 7.0)
    found = erase(images, 0.25, drawn(), drawn(1))
    changed = (found != 7).all(dim=1)
    assert torch.equal(changed, (found != 7).any(dim=1)), "all colours of a pixel"
    hit = changed.any(dim=(1, 2))
    assert hit.double().mean() == pytest.approx(0.25, abs=0.025)
    areas, aspects = [], []
    for mask in changed[hit].numpy():
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        tall, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert mask.sum() == tall * wide, "a rectangle"
        assert tall < 60
        assert wide < 50
        areas.append(tall * wide / 3000)
        aspects.append(tall / wide)
    assert min(areas) > 0.015
    assert max(areas) < 0.34
    assert stats.kstest(areas, stats.uniform(0.02, 1 / 3 - 0.02).cdf).pvalue > 1e-4
    assert 0.25 < min(aspects) < 0.4
    assert 2.5 < max(aspects) < 3.7
    assert np.median(np.log(aspects)) == pytest.approx(0, abs=0.15)
    noise = found[found != 7]
    assert stats.kstest(noise[:5000].numpy(), stats.norm.cdf).pvalue > 1e-4
    assert torch.equal(images, torch.full_like(images, 7.0))
    assert torch.equal(erase(images, 0.0, drawn(), drawn()), images)


def test_cutout_is_a_square_cut_off_at_the_border():
    images = torch.ones(3000, 1, 12, 10)
    hidden = (cut_out(images, 4, drawn()) == 0).squeeze(1)
    areas = hidden.sum(dim=(1, 2))
    assert areas.max() == 16
    assert areas.min() == 4
    # A centre anywhere: an inner column is hidden by 4 of 10 centres, the first by 3 and the last by 2.
    columns = hidden.any(dim=1).double().mean(0)
    assert columns[4] == pytest.approx(0.4, abs=0.03)
    assert columns[0] == pytest.approx(0.3, abs=0.03)
    assert columns[-1] == pytest.approx(0.2, abs=0.03)


def test_mixup_is_a_weighted_mean_of_images_and_of_targets():
    images, labels = torch.randn(6, 3, 4, 4), torch.tensor([0, 1, 2, 3, 4, 4])
    shares = []
    for seed in range(500):
        found, target = mix(images, labels, 5, 0.8, 0.0, 0.5, np.random.default_rng(seed))
        share = float(target[0, 0])
        shares.append(share)
        torch.testing.assert_close(found, share * images + (1 - share) * images.flip(0))
        expected = share * torch.eye(5)[labels] + (1 - share) * torch.eye(5)[labels.flip(0)]
        torch.testing.assert_close(target, expected)
    assert stats.kstest(shares, stats.beta(0.8, 0.8).cdf).pvalue > 1e-4


def test_cutmix_targets_are_the_areas():
    images, labels = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 1, 16, 12), torch.arange(6)
    shares = []
    for seed in range(300):
        found, target = mix(images, labels, 6, 0.0, 1.0, 0.5, np.random.default_rng(seed))
        for row in range(6):
            own = (found[row] == row).double().mean()
            assert float(target[row, row]) == pytest.approx(float(own), abs=1e-6)
            assert float(target[row, 5 - row]) == pytest.approx(1 - float(own), abs=1e-6)
        shares.append(float(target[0, 0]))
    assert np.mean(shares) > 0.55, "the border cuts boxes off, so more than half of an image stays its own"


def test_a_cutmix_box_has_the_side_ratio_of_its_share():
    generator = np.random.default_rng(0)
    found = [cutmix_box(100, 60, 0.64, generator) for _ in range(2000)]
    assert {bottom - top for top, _, bottom, _ in found if top >= 30 and bottom < 100} == {60}
    assert max(right - left for _, left, _, right in found) == 36
    assert min(top for top, _, _, _ in found) == 0
    assert max(bottom for _, _, bottom, _ in found) == 100


def test_mixing_and_cutting_take_turns():
    settings = Augmentation(mixup=0.8, cutmix=1.0, cutmix_share=0.3)
    images, labels = torch.eye(4)[:, None, None].repeat(1, 1, 4, 1), torch.arange(4)
    cut = []
    for step in range(1500):
        found, target = hide_and_mix(images, labels, 4, settings, 0, step)
        assert torch.allclose(target.sum(1), torch.ones(4))
        cut.append(bool(((found == 0) | (found == 1)).all()))
    assert np.mean(cut) == pytest.approx(0.3, abs=0.04)
    mean = torch.stack([hide_and_mix(images, labels, 4, settings, 0, step)[1] for step in range(50)]).mean((0, 1))
    assert torch.allclose(mean, torch.full((4,), 0.25), atol=1e-3), "every class keeps its weight"


ALL = Augmentation(
    crop_padding=4,
    flip=True,
    color_jitter=(0.2, 0.2, 0.2, 0.1),
    policy="rand_augment",
    erasing=0.25,
    cutout=4,
    mixup=0.8,
    cutmix=1.0,
)


def run_through(settings, seed, step):
    images = vary_images(photographs(height=16, width=16), settings, None, FILL, seed, step)
    return hide_and_mix(images.float() / 255, torch.arange(24) % 10, 10, settings, seed, step)


def test_seed_and_step_are_all_that_decides():
    first = run_through(ALL, 1, 2)
    torch.manual_seed(3)
    np.random.seed(3)
    again = run_through(ALL, 1, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], run_through(ALL, 1, 3)[0])
    assert not torch.equal(first[0], run_through(ALL, 2, 2)[0])


def test_switching_one_kind_off_changes_no_other_draw():
    plain = Augmentation(crop_padding=4)
    both = Augmentation(crop_padding=4, erasing=1.0, cutmix=1.0)
    images = photographs(height=16, width=16)
    assert torch.equal(vary_images(images, plain, None, FILL, 0, 5), vary_images(images, both, None, FILL, 0, 5))
    labels = torch.arange(24) % 10
    alone = hide_and_mix(images.float(), labels, 10, Augmentation(erasing=1.0), 0, 5)[0]
    hidden = hide_and_mix(images.float(), labels, 10, Augmentation(erasing=1.0, cutout=3), 0, 5)[0]
    assert torch.equal(alone[hidden != 0], hidden[hidden != 0])


def test_no_augmentation_changes_nothing():
    images = photographs()
    assert vary_images(images, Augmentation(), None, FILL, 0, 0) is images
    labels = torch.arange(24) % 10
    kept = images.float()
    found, target = hide_and_mix(kept, labels, 10, Augmentation(), 0, 0)
    assert found is kept
    assert target is labels


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (3, 2, 5), (4, 3, 2)])
@pytest.mark.parametrize("size", [None, 1, 7])
def test_the_smallest_images_are_augmented_too(shape, size):
    images = torch.randint(0, 256, (9, *shape), dtype=torch.uint8, generator=drawn())
    fill, labels = torch.full(shape[:1], 128.0), torch.arange(9) % 3
    height, width = (size, size) if size else shape[1:]
    for policy in ("rand_augment", "auto_augment_cifar10", "auto_augment_imagenet"):
        for crop in ({"crop_padding": 3}, {"resized_crop": (0.08, 1.0)}):
            settings = Augmentation.model_validate(
                {"policy": policy, "layers": 9, "flip": True, "erasing": 1, "cutout": 3, "cutmix": 1, **crop}
            )
            for step in range(3):
                found = vary_images(images, settings, size, fill, 0, step)
                assert found.shape == (9, shape[0], height, width)
                mixture, target = hide_and_mix(found.float(), labels, 3, settings, 0, step)
                assert mixture.isfinite().all()
                assert torch.allclose(target.sum(1), torch.ones(9))


class LargestOnTheHost(TorchDispatchMode):
    """The number of values of the largest tensor that is made where the images are not."""

    values = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **keywords or {})
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self.values = max(self.values, tensor.numel())
        return result


def test_what_is_as_large_as_the_images_is_made_where_they_are():
    """Only draws, a few per image, come from the host; ``meta`` stands for any other device."""
    images = torch.empty(4, 3, 64, 64, dtype=torch.uint8, device="meta")
    matrices = torch.eye(2, 3, dtype=torch.float64).repeat(4, 1, 1)
    with LargestOnTheHost() as host:
        found = [
            resized_crop(images, (0.08, 1.0), 48, drawn()),
            warp(images, matrices, FILL),
            cut_out(images.float(), 9, drawn()),
            erase(images.float(), 1.0, drawn(), drawn()),
        ]
    assert {result.device.type for result in found} == {"meta"}
    assert host.values <= 4 * 10 * 2  # ten attempts at a height and a width
