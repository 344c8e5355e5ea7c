"""The measures of reconstructions against slow float64 code; LPIPS and FID with weights that are made here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.linalg import sqrtm
from scipy.ndimage import correlate1d

from isthmus.analysis.inception import FEATURES, Inception
from isthmus.analysis.perceptual import FILES, Fid, Lpips, explain_missing, frechet, moments
from isthmus.analysis.reconstruction import Quality
from isthmus.analysis.trained_run import CPU
from isthmus.core.errors import UserError


def pictures(side, rows=2, seed=0):
    """Smooth originals, and the same with errors of several sizes."""
    generator = np.random.default_rng(seed)
    smooth = generator.random((rows, 3, side // 8, side // 8)).repeat(8, axis=2).repeat(8, axis=3)
    noisy = smooth + 0.1 * generator.normal(size=smooth.shape)
    return tuple((255 * np.clip(images, 0, 1)).astype(np.uint8) for images in (smooth, noisy))


def gaussian(image):
    window = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    window /= window.sum()
    for axis in (0, 1):
        image = correlate1d(image, window, axis, mode="mirror")
    return image


def similarities(one, other):
    """Of two grey images, window 11, σ 1.5: mean SSIM with mirrored borders, mean contrast–structure term without."""
    mean, other_mean = gaussian(one), gaussian(other)
    variances = gaussian(one * one) - mean**2 + gaussian(other * other) - other_mean**2
    covariance = gaussian(one * other) - mean * other_mean
    contrast = (2 * covariance + 0.03**2) / (variances + 0.03**2)
    light = (2 * mean * other_mean + 0.01**2) / (mean**2 + other_mean**2 + 0.01**2)
    return (contrast * light).mean(), contrast[5:-5, 5:-5].mean()


def slow_ms_ssim(one, other):
    """Wang, Simoncelli, Bovik 2003: five scales, halved by means of four pixels; of an image of several colours."""
    result = 1.0
    for scale, weight in enumerate([0.0448, 0.2856, 0.3001, 0.2363, 0.1333]):
        pairs = [similarities(a, b) for a, b in zip(one, other, strict=True)]
        result *= np.mean([pair[0 if scale == 4 else 1] for pair in pairs]) ** weight
        one, other = (
            x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2].reshape(3, x.shape[1] // 2, 2, x.shape[2] // 2, 2)
            .mean(axis=(2, 4))
            for x in (one, other)
        )  # fmt: skip
    return result


def test_psnr_ssim_and_ms_ssim_are_those_of_slow_code(tmp_path):
    originals, ours = pictures(176)
    found = Quality(originals, tmp_path, CPU)(ours)
    a, b = ours / 255.0, originals / 255.0
    errors = ((a - b) ** 2).mean(axis=(1, 2, 3))
    assert found["psnr"] == pytest.approx(np.mean(-10 * np.log10(errors)), rel=1e-5)
    slow = [np.mean([similarities(x, y)[0] for x, y in zip(*pair, strict=True)]) for pair in zip(a, b, strict=True)]
    assert found["ssim"] == pytest.approx(np.mean(slow), rel=1e-4)
    multi = [slow_ms_ssim(*pair) for pair in zip(a, b, strict=True)]
    assert found["ms_ssim"] == pytest.approx(np.mean(multi), rel=1e-3)


def test_the_colours_of_pictures_are_stretched_one_by_one_where_asked(tmp_path):
    originals, ours = pictures(32)
    originals = originals // 2 + 20
    ours[0, 1] = 7  # a colour of one value has no range
    found = Quality(originals, tmp_path, CPU, "min_max")(ours)
    errors = []
    for pair in zip(ours.astype(float), originals.astype(float), strict=True):
        stretched = [
            [np.zeros_like(c) if c.max() == c.min() else (c - c.min()) / (c.max() - c.min()) for c in picture]
            for picture in pair
        ]
        errors.append(np.mean((np.array(stretched[0]) - np.array(stretched[1])) ** 2))
    assert found["psnr"] == pytest.approx(np.mean(-10 * np.log10(errors)), rel=1e-5)
    assert found["psnr"] != pytest.approx(Quality(originals, tmp_path, CPU)(ours)["psnr"], rel=1e-3)


def test_thousands_of_images_go_piece_by_piece(tmp_path, monkeypatch):
    originals, ours = pictures(32, rows=7)
    at_once = Quality(originals, tmp_path, CPU)(ours)
    monkeypatch.setattr("isthmus.analysis.reconstruction._PIECE", 3)
    assert Quality(originals, tmp_path, CPU)(ours) == pytest.approx(at_once, rel=1e-6)


def test_what_cannot_be_measured_is_said(tmp_path):
    quality = Quality(pictures(32)[0], tmp_path, CPU)
    assert quality.missing == [
        explain_missing("lpips"), explain_missing("fid"), "MS-SSIM needs images of 161 pixels; these have 32×32",
    ]  # fmt: skip
    assert set(quality(pictures(32)[1])) == {"psnr", "ssim"}
    assert "lpips/alex.safetensors" in explain_missing("lpips")


def written(model, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


def slow_lpips(tensors, ours, theirs):
    shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    x, y = (
        torch.from_numpy(((2 * image - 1) - shift[:, None, None]) / scale[:, None, None]) for image in (ours, theirs)
    )
    total = 0.0
    how = {0: (4, 2), 3: (1, 2), 6: (1, 1), 8: (1, 1), 10: (1, 1)}
    for place, (layer, (stride, padding)) in enumerate(how.items()):
        if layer in (3, 6):
            x, y = (torch.nn.functional.max_pool2d(z, 3, 2) for z in (x, y))
        weight, bias = (tensors[f"features.{layer}.{part}"].double() for part in ("weight", "bias"))
        x, y = (
            torch.nn.functional.conv2d(z[None], weight, bias, stride, padding)[0].clamp(min=0) for z in (x, y)
        )  # fmt: skip
        head = tensors[f"lin{place}.model.1.weight"].double().flatten().numpy()
        for down in range(x.shape[1]):
            for across in range(x.shape[2]):
                one, other = x[:, down, across].numpy(), y[:, down, across].numpy()
                difference = one / (np.linalg.norm(one) + 1e-10) - other / (np.linalg.norm(other) + 1e-10)
                total += (head * difference**2).sum() / (x.shape[1] * x.shape[2])
    return total


def test_lpips_is_that_of_slow_code(tmp_path):
    torch.manual_seed(0)
    model = Lpips()
    keys = {f"features.{place}.{part}" for place in (0, 3, 6, 8, 10) for part in ("weight", "bias")}
    assert set(model.state_dict()) == keys | {f"lin{place}.model.1.weight" for place in range(5)}
    written(model, tmp_path / FILES["lpips"])
    found = Lpips.load(tmp_path, CPU)
    assert found is not None
    ours, theirs = (images / 255.0 for images in pictures(64))
    expected = np.mean([slow_lpips(model.state_dict(), *pair) for pair in zip(ours, theirs, strict=True)])
    assert abs(expected) > 1e-4
    measured = found(torch.from_numpy(ours).float(), torch.from_numpy(theirs).float())
    assert measured == pytest.approx(expected, rel=1e-4)
    assert found(torch.from_numpy(ours).float(), torch.from_numpy(ours).float()) == 0


def test_a_file_of_another_network_is_refused(tmp_path):
    (tmp_path / "lpips").mkdir()
    save_file({"features.0.weight": torch.zeros(1)}, tmp_path / FILES["lpips"])
    with pytest.raises(UserError, match=r"is no network for LPIPS: features.0.weight is \(1,\), not \(64, 3, 11, 11\)"):
        Lpips.load(tmp_path, CPU)


def test_the_frechet_distance_is_that_of_its_formula():
    generator = torch.Generator().manual_seed(0)
    for rows in (40, 4):
        one, other = (torch.randn(rows, 5, generator=generator).double() @ torch.randn(5, 5).double() for _ in range(2))
        covariances = [np.cov(features.numpy().T) for features in (one, other + 1)]
        root = sqrtm(covariances[0] @ covariances[1])
        slow = float((one.mean(dim=0) - other.mean(dim=0) - 1).square().sum())
        slow += np.trace(covariances[0] + covariances[1] - 2 * root.real)
        assert frechet(moments(one), moments(other + 1)) == pytest.approx(slow, rel=1e-6)
        assert frechet(moments(one), moments(one)) == pytest.approx(0, abs=1e-8)


def test_inception_has_the_weights_of_the_published_network(tmp_path):
    """Torchvision's has 23,834,568 parameters without its side output, 2,049,000 of them in the classifier."""
    with torch.device("meta"):
        planned = Inception()
    assert sum(parameter.numel() for parameter in planned.parameters()) == 23_834_568 - 2_049_000
    names = planned.state_dict()
    assert names["Mixed_6e.branch7x7dbl_5.conv.weight"].shape == (192, 192, 1, 7)
    assert names["Mixed_7c.branch3x3dbl_3b.bn.running_var"].shape == (384,)
    assert names["Mixed_5b.branch_pool.conv.weight"].shape == (32, 192, 1, 1)


@pytest.mark.slow
def test_fid_is_measured_where_its_weights_are(tmp_path):
    torch.manual_seed(0)
    written(Inception(), tmp_path / FILES["fid"])
    fid = Fid.load(tmp_path, CPU)
    assert fid is not None
    theirs, ours = (torch.from_numpy(images).float() / 255 for images in pictures(32, rows=3))
    assert fid.network(theirs).shape == (3, FEATURES)
    expected = frechet(moments(fid.network(ours).detach()), moments(fid.network(theirs).detach()))
    assert fid(ours.split(2), theirs.split(1)) == pytest.approx(expected)
    assert fid([theirs], [theirs]) == pytest.approx(0, abs=1e-6 * expected + 1e-9)
