"""ImageNet at 32×32 and the patches of ImageNet at 224×224, on small stand-ins of the same layout."""

import numpy as np
import pytest
from PIL import Image

from isthmus.core.errors import UserError
from isthmus.sources.imagenet224 import cut_nine
from tests.unit.source_data import load_source as load


@pytest.fixture
def imagenet32(tmp_path):
    generator = np.random.default_rng(0)
    folder = tmp_path / "imagenet32"
    folder.mkdir()
    for name in [*(f"train_data_batch_{batch}" for batch in range(1, 11)), "val_data"]:
        data = generator.integers(0, 256, (6, 3072), np.uint8)
        np.savez(folder / f"{name}.npz", data=data, labels=np.arange(1, 7) * 160, mean=data.mean(0))
    return tmp_path


def test_imagenet32_maps_the_training_files_in_order(imagenet32):
    data = load("imagenet32", imagenet32)
    assert [len(data.train), len(data.validation), len(data.test)] == [60, 3, 3]
    second = np.load(imagenet32 / "imagenet32" / "train_data_batch_2.npz")
    assert (data.train.inputs[6:12] == second["data"].reshape(6, 3, 32, 32)).all()
    assert data.train.targets[6:12].tolist() == [159, 319, 479, 639, 799, 959]
    assert isinstance(data.train.inputs, np.memmap)
    halves = np.concatenate([data.validation.targets, data.test.targets])
    assert sorted(halves.tolist()) == [159, 319, 479, 639, 799, 959]
    assert load("imagenet32", imagenet32).fingerprint == data.fingerprint
    assert load("imagenet32", imagenet32, split_seed=1).fingerprint != data.fingerprint


def test_imagenet32_changed_files_are_read_again(imagenet32):
    before = load("imagenet32", imagenet32).fingerprint
    path = imagenet32 / "imagenet32" / "train_data_batch_3.npz"
    np.savez(path, data=np.zeros((6, 3072), np.uint8), labels=np.ones(6, int))
    assert load("imagenet32", imagenet32).fingerprint != before


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"data": np.zeros((6, 3072), np.uint8), "labels": np.zeros(6, int)}, "has the label -1"),
        (
            {"data": np.zeros((6, 3072), np.uint8), "labels": np.full(6, 1001)},
            "has the label 1000, but there are 1000 classes",
        ),
        ({"data": np.zeros((5, 3072), np.uint8), "labels": np.ones(6, int)}, "should be uint8"),
        ({"data": np.zeros((6, 3072)), "labels": np.ones(6, int)}, "data is float64"),
        ({"data": np.zeros((6, 3072), np.uint8)}, "labels"),
        ({"data": np.zeros((6, 3072), np.uint8), "labels": np.array([{}] * 6)}, "contains Python objects"),
        ({"data": np.zeros((0, 3072), np.uint8), "labels": np.ones(0, int)}, "holds no rows"),
    ],
)
def test_imagenet32_wrong_content_is_named(imagenet32, arrays, message):
    np.savez(imagenet32 / "imagenet32" / "val_data.npz", **arrays)
    with pytest.raises(UserError, match=message):
        load("imagenet32", imagenet32)


def test_imagenet32_damaged_and_missing_files_are_named(imagenet32):
    path = imagenet32 / "imagenet32" / "val_data.npz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"cannot read .*val_data.npz as an npz file"):
        load("imagenet32", imagenet32)
    path.unlink()
    with pytest.raises(UserError, match=r"cannot find val_data.npz in .*imagenet32.*image-net.org"):
        load("imagenet32", imagenet32)


def gradient(width, height, shift=0):
    """An image whose red is its column and whose green is its row."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack([x % 256, y % 256, np.full_like(x, shift)], -1).astype(np.uint8))


def test_nine_patches_are_the_centre_row_by_row():
    patches = cut_nine(gradient(256, 256), "it", "short_side")
    assert patches.shape == (9, 3, 32, 32)
    corners = [(int(patch[1, 0, 0]), int(patch[0, 0, 0])) for patch in patches]
    assert corners == [(80 + 32 * row, 80 + 32 * column) for row in range(3) for column in range(3)]
    assert (patches[4, 0] == np.arange(112, 144)).all()


def test_the_two_readings_of_resize():
    wide = gradient(512, 256)
    kept = cut_nine(wide, "it", "short_side")
    assert int(kept[0, 0, 0, 0]) == (512 - 224) // 2 + 64
    squeezed = cut_nine(wide.resize((256, 256), Image.Resampling.BILINEAR), "it", "short_side")
    assert (cut_nine(wide, "it", "square") == squeezed).all()


@pytest.fixture
def imagenet(tmp_path):
    for name, count in (("train/n01", 2), ("train/n02", 1), ("val", 4)):
        folder = tmp_path / "imagenet" / name
        folder.mkdir(parents=True)
        for number in range(count):
            gradient(280, 260, shift=60 * number).save(folder / f"{number}.JPEG", quality=95)
    return tmp_path


def test_imagenet224_is_cut_once_and_halved_by_image(imagenet):
    data = load("imagenet224", imagenet)
    assert [len(data.train), len(data.validation), len(data.test)] == [27, 18, 18]
    assert data.train.targets is None
    blues = [{round(patch[2].mean() / 60) for patch in split.inputs} for split in (data.validation, data.test)]
    assert blues[0] | blues[1] == {0, 1, 2, 3}
    assert not blues[0] & blues[1], "no image is in two splits"
    cache = imagenet / "isthmus-home" / "cache" / "imagenet224"
    before = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.npy")}
    assert load("imagenet224", imagenet).fingerprint == data.fingerprint
    assert {path.name: path.stat().st_mtime_ns for path in cache.glob("*.npy")} == before
    assert load("imagenet224", imagenet, resize="square").fingerprint != data.fingerprint


def test_imagenet224_damaged_and_missing_images_are_named(imagenet):
    (imagenet / "imagenet" / "val" / "1.JPEG").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"cannot read .*val/1.JPEG as an image"):
        load("imagenet224", imagenet)
    assert not list((imagenet / "isthmus-home").rglob(".*.npy")), "no half-written cache stays"
    with pytest.raises(UserError, match=r"elsewhere.*train/CLASS"):
        load("imagenet224", imagenet, folder="elsewhere")
    with pytest.raises(UserError, match="no images in"):
        load("imagenet224", imagenet, folder="imagenet/train")
