"""STL-10, Food-101, Cars, Flowers-102 and ImageNet as photographs, on small stand-ins in their real layouts."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from isthmus.core import registry
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.sources.cache import decode_all
from isthmus.sources.imagenet1k import CMC, ImageNet1k, ImageNet100
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, learn_task
from isthmus.training.run import run
from tests.listeners import stop_after
from tests.unit.source_data import load_source as load


def colour(label, number=0):
    """What a picture of this class looks like."""
    return (10 + 20 * label, 5 * number, 200)


def write(path, label, number=0, size=(40, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour(label, number)).save(path, quality=95)


def labels_fit(data):
    """Every picture has the red of its class."""
    for split in (data.train, data.validation, data.test):
        red = split.inputs[:, 0].reshape(len(split), -1).mean(1)
        np.testing.assert_allclose(red, 10 + 20 * split.targets, atol=3)


def rows(data):
    return [len(data.train), len(data.validation), len(data.test)]


@pytest.fixture
def stl10(tmp_path):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for split, number in (("train", 30), ("test", 20)):
        generator.integers(0, 256, (number, 3, 96, 96), np.uint8).tofile(folder / f"{split}_X.bin")
        (np.arange(number) % 10 + 1).astype(np.uint8).tofile(folder / f"{split}_y.bin")
    return tmp_path


def test_stl10_is_stored_column_by_column(stl10):
    data = load("stl10", stl10, validation=10)
    assert rows(data) == [20, 10, 20]
    raw = np.fromfile(stl10 / "stl10_binary" / "test_X.bin", np.uint8).reshape(20, 3, 96, 96)
    assert (data.test.inputs == raw.transpose(0, 1, 3, 2)).all()
    assert data.test.targets.tolist() == list(range(10)) * 2
    assert data.classes[7] == "monkey"
    assert np.bincount(data.validation.targets).tolist() == [1] * 10, "drawn by class"
    assert load("stl10", stl10, validation=10).fingerprint == data.fingerprint
    assert load("stl10", stl10, validation=10, split_seed=1).fingerprint != data.fingerprint


@pytest.mark.parametrize("size", [32, 90])
def test_stl10_is_resized_as_by_pillow(stl10, size):
    data = load("stl10", stl10, size=size, validation=1)
    raw = np.fromfile(stl10 / "stl10_binary" / "test_X.bin", np.uint8).reshape(20, 3, 96, 96)
    picture = Image.fromarray(np.ascontiguousarray(raw[3].transpose(2, 1, 0)))
    expected = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert (data.test.inputs[3] == expected).all()


def test_stl10_wrong_files_are_named(stl10):
    path = stl10 / "stl10_binary" / "train_X.bin"
    whole = path.read_bytes()
    for damaged in (whole[:-5], whole[:-27648]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"train_X.bin holds .* bytes, which is not 30 images"):
            load("stl10", stl10)
    path.write_bytes(whole)
    (np.arange(30) % 11 + 1).astype(np.uint8).tofile(stl10 / "stl10_binary" / "train_y.bin")
    with pytest.raises(UserError, match="stl10, train: row 10 has the label 10, but there are 10 classes"):
        load("stl10", stl10)
    path.unlink()
    with pytest.raises(UserError, match=r"cannot find train_X.bin in .*stl10_binary.*acoates"):
        load("stl10", stl10)


@pytest.fixture
def food(tmp_path):
    root = tmp_path / "food-101"
    names: dict[str, list[str]] = {"train": [], "test": []}
    for label, name in enumerate(["apple_pie", "ramen", "tacos"]):
        for number in range(9):
            write(root / "images" / name / f"{number}.jpg", label, number, (40 + number, 30))
            names["train" if number < 6 else "test"].append(f"{name}/{number}")
    (root / "meta").mkdir()
    (root / "meta" / "classes.txt").write_text("apple_pie\nramen\ntacos\n")
    for split, listing in names.items():
        (root / "meta" / f"{split}.txt").write_text("\n".join(listing) + "\n")
    return tmp_path


def test_food101(food):
    data = load("food101", food, size=20, validation=3)
    assert rows(data) == [15, 3, 9]
    assert data.classes == ("apple_pie", "ramen", "tacos")
    assert data.train.inputs.shape[1:] == (3, 20, 20)
    assert isinstance(data.train.inputs, np.memmap)
    labels_fit(data)
    cache = food / "isthmus-home" / "cache" / "food101"
    before = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.npy")}
    assert load("food101", food, size=20, validation=3).fingerprint == data.fingerprint
    assert {path.name: path.stat().st_mtime_ns for path in cache.glob("*.npy")} == before


def test_food101_wrong_lists_are_named(food):
    meta = food / "food-101" / "meta"
    (meta / "test.txt").write_text("pizza/1\n")
    with pytest.raises(UserError, match=r"test.txt: pizza/1 is of no class"):
        load("food101", food, size=20, validation=3)
    (meta / "test.txt").write_text("tacos/77\n")
    with pytest.raises(UserError, match=r"cannot find 77.jpg in .*tacos"):
        load("food101", food, size=20, validation=3)
    (meta / "test.txt").unlink()
    with pytest.raises(UserError, match=r"cannot find test.txt in .*meta; unpack https://"):
        load("food101", food)
    (meta / "test.txt").write_text("tacos/7\n")
    with pytest.raises(UserError, match="1000 of 18 rows are held out"):
        load("food101", food)


def test_an_unreadable_picture_ends_the_run_or_is_named_and_skipped(food, capsys):
    for path in ("ramen/2", "tacos/7"):
        (food / "food-101" / "images" / f"{path}.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"cannot read .*(ramen/2|tacos/7).jpg as an image"):
        load("food101", food, size=20, validation=3)
    data = load("food101", food, size=20, validation=3, unreadable="skip")
    said = capsys.readouterr().err
    assert said.count("skipped: cannot read") == 2
    assert "ramen/2.jpg" in said
    assert sum(rows(data)) == 25
    assert len(data.test) == 8
    labels_fit(data)
    assert (data.test.inputs.reshape(8, -1).max(1) > 0).all(), "no blank row is left"
    again = load("food101", food, size=20, validation=3, unreadable="skip")
    assert again.fingerprint == data.fingerprint
    assert np.array_equal(again.test.targets, data.test.targets)
    assert "skipped" not in capsys.readouterr().err, "known from the cache"
    with pytest.raises(UserError, match="as an image"):
        load("food101", food, size=20, validation=3)


@pytest.mark.parametrize("left_out", [[], [0], [9], [3, 4], [0, 2, 5, 9], list(range(10))])
def test_what_is_skipped_leaves_no_gap(left_out):
    def decode(item):
        if item in left_out:
            raise UserError(f"cannot read {item}")
        return np.full((1, 2, 2), item + 1, np.uint8)

    array = np.full((10, 1, 2, 2), 99, np.uint8)
    assert decode_all(array, range(10), decode, "decoding", skip=True) == left_out
    kept = [item + 1 for item in range(10) if item not in left_out]
    assert array[:, 0, 0, 0].tolist() == kept + [0] * len(left_out)


def test_folders_and_hubs_of_ones_own_skip_too(food, capsys):
    (food / "food-101" / "images" / "ramen" / "2.jpg").write_bytes(b"")
    path = {"path": "food-101/images", "size": 8, "validation": 0.2, "test": 0.2}
    with pytest.raises(UserError, match="as an image"):
        load("image_folder", food, **path)
    data = load("image_folder", food, **path, unreadable="skip")
    assert sum(rows(data)) == 26
    labels_fit(data)
    assert "ramen/2.jpg" in capsys.readouterr().err


def cars_root(tmp_path, labelled="."):
    root = tmp_path / "stanford_cars"
    kinds = [("fname", object), ("class", object)]
    for split, number in (("train", 8), ("test", 6)):
        entries = np.zeros(number, kinds)
        for row in range(number):
            write(root / f"cars_{split}" / f"{row + 1:05d}.jpg", row % 4, row)
            entries[row] = (f"{row + 1:05d}.jpg", row % 4 + 1)
        name = "cars_train_annos.mat" if split == "train" else "cars_test_annos_withlabels.mat"
        folder = root / ("devkit" if split == "train" else labelled)
        folder.mkdir(parents=True, exist_ok=True)
        savemat(folder / name, {"annotations": entries})
    names = np.array(["Audi", "BMW", "Fiat", "Opel"], object)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    return tmp_path


@pytest.mark.parametrize("labelled", [".", "devkit"])
def test_cars(tmp_path, labelled):
    data = load("cars", cars_root(tmp_path, labelled), size=16, validation=4)
    assert rows(data) == [4, 4, 6]
    assert data.classes == ("Audi", "BMW", "Fiat", "Opel")
    labels_fit(data)


def test_training_photographs_may_be_kept_whole(tmp_path):
    """All of a training photograph, squeezed, with its size; the other splits keep their central squares."""
    root = cars_root(tmp_path)
    sizes = [(20 + 4 * row, 20) for row in range(8)]
    for row, size in enumerate(sizes):
        Image.effect_noise(size, 80).convert("RGB").save(root / "stanford_cars" / "cars_train" / f"{row + 1:05d}.jpg")
    square = load("cars", root, size=16, validation=4)
    whole = load("cars", root, size=16, validation=4, extent="whole")
    assert whole.fingerprint != square.fingerprint
    assert np.array_equal(whole.validation.inputs, square.validation.inputs)
    assert np.array_equal(whole.test.inputs, square.test.inputs)
    assert np.array_equal(whole.train.targets, square.train.targets)
    assert square.train.extents is None
    assert (whole.train.extents[:, 0] == 20).all()
    assert set(whole.train.extents[:, 1].tolist()) < {width for width, _ in sizes}
    for pixels, (height, width) in zip(whole.train.inputs, whole.train.extents.tolist(), strict=True):
        picture = Image.open(root / "stanford_cars" / "cars_train" / f"{sizes.index((width, height)) + 1:05d}.jpg")
        squeezed = np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.array_equal(pixels, squeezed)
    again = load("cars", root, size=16, validation=4, extent="whole")  # from the cache
    assert again.fingerprint == whole.fingerprint
    assert np.array_equal(again.train.extents, whole.train.extents)
    cubic = load("cars", root, size=16, validation=4, resampling="bicubic")
    assert not np.array_equal(cubic.train.inputs, square.train.inputs)


def photograph_task(data, **fields):
    settings = {"name": "classification", "resize": 16, "augment": {"resized_crop": [0.08, 1.0]}, **fields}
    return learn_task(registry.component("tasks", settings), data)


def test_batches_of_whole_photographs_depend_on_the_seed_and_the_step_alone(tmp_path):
    root = cars_root(tmp_path)
    for row in range(8):
        path = root / "stanford_cars" / "cars_train" / f"{row + 1:05d}.jpg"
        Image.effect_noise((60, 20), 80).convert("RGB").save(path)
    data = load("cars", root, size=16, validation=4, extent="whole")
    index = torch.tensor([3, 0, 2])
    rows, targets = torch.from_numpy(data.train.inputs[index]), torch.from_numpy(data.train.targets[index])

    def batch(task, seed, step):
        return task.training_batch(rows, targets, index, torch.zeros(3), seed, step).input

    task = photograph_task(data)
    assert torch.equal(batch(task, 0, 5), batch(task, 0, 5))
    assert torch.equal(batch(photograph_task(data), 0, 5), batch(task, 0, 5)), "as after a resume"
    assert not torch.equal(batch(task, 0, 5), batch(task, 0, 6))
    assert not torch.equal(batch(task, 0, 5), batch(task, 1, 5))
    for name in ("classification", "denoise"):
        with pytest.raises(UserError, match=r"source.extent=whole squeezes training photographs into squares"):
            learn_task(registry.component("tasks", {"name": name}), data)


def test_a_run_on_whole_photographs_resumes_exactly(tmp_path, monkeypatch):
    cars = {"name": "cars", "folder": str(cars_root(tmp_path) / "stanford_cars"), "size": 16, "validation": 4}
    config = run_config(
        {
            "source": cars | {"extent": "whole", "resampling": "bicubic"},
            "task": {"name": "classification", "resize": 16, "augment": {"resized_crop": [0.08, 1.0]}},
            "model": {"name": "vit", "patch": 8, "d_z": 12, "d_h": 6, "num_heads": 2, "depth": 1},
            "train": {"epochs": 3, "batch_size": 2},
            "threads": 1,
        }
    )
    whole = run(config)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    for steps in (1, 3):
        with pytest.raises(Stopped):
            run(config, Options(save_every=1e9), stop_after(steps))
    parts = run(config)
    assert parts.files["model.safetensors"] == whole.files["model.safetensors"]
    assert parts.metrics == whole.metrics


def test_square_photographs_give_the_same_batches_whole(tmp_path):
    root = cars_root(tmp_path)
    for split, number in (("train", 8), ("test", 6)):
        for row in range(number):
            path = root / "stanford_cars" / f"cars_{split}" / f"{row + 1:05d}.jpg"
            Image.effect_noise((16, 16), 80).convert("RGB").save(path)
    index, found = torch.arange(4), []
    for extent in ("square", "whole"):
        data = load("cars", root, size=16, validation=4, extent=extent)
        rows, targets = torch.from_numpy(data.train.inputs), torch.from_numpy(data.train.targets)
        found.append(photograph_task(data).training_batch(rows, targets, index, torch.zeros(4), 0, 3).input)
    assert torch.equal(*found)


def test_cars_wrong_files_are_named(tmp_path):
    cars_root(tmp_path)
    kit = tmp_path / "stanford_cars" / "devkit"
    savemat(kit / "cars_meta.mat", {"class_names": np.array(["Audi", "BMW", "Fiat"], object)})
    with pytest.raises(UserError, match="cars, train: row 3 has the label 3, but there are 3 classes"):
        load("cars", tmp_path, validation=4)
    (kit / "cars_train_annos.mat").write_bytes(b"no matrix")
    with pytest.raises(UserError, match=r"cannot read .*cars_train_annos.mat as a MATLAB file"):
        load("cars", tmp_path)
    (kit / "cars_train_annos.mat").unlink()
    with pytest.raises(UserError, match=r"cannot find cars_train_annos.mat .*source.hub=tanganke/stanford_cars"):
        load("cars", tmp_path)


@pytest.fixture
def flowers(tmp_path):
    root = tmp_path / "flowers-102"
    labels = np.arange(24) % 4 + 1
    for row, label in enumerate(labels):
        write(root / "jpg" / f"image_{row + 1:05d}.jpg", label - 1, row % 10)
    savemat(root / "imagelabels.mat", {"labels": labels})
    sets = {"trnid": np.arange(1, 5), "valid": np.arange(5, 9), "tstid": np.arange(9, 25)}
    savemat(root / "setid.mat", sets)
    return tmp_path


def test_flowers_has_two_named_splits(flowers):
    official = load("flowers102", flowers, size=16)
    assert rows(official) == [4, 4, 16]
    assert len(official.classes) == 102
    swapped = load("flowers102", flowers, size=16, split="swapped")
    assert rows(swapped) == [16, 4, 4]
    for data in (official, swapped):
        labels_fit(data)
    assert (swapped.train.inputs == official.test.inputs).all()
    assert (swapped.test.inputs == official.train.inputs).all()
    savemat(flowers / "flowers-102" / "setid.mat", {"trnid": [1, 99], "valid": [2], "tstid": [3]})
    with pytest.raises(UserError, match=r"setid.mat: trnid names images beyond the 24"):
        load("flowers102", flowers)


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageNet1k, "classes", 3)
    for label, name in enumerate(["n01", "n02", "n03"]):
        for number in range(5):
            write(tmp_path / "imagenet" / "train" / name / f"{name}_{number}.JPEG", label, number)
        for number in range(2):
            write(tmp_path / "imagenet" / "val" / name / f"{number}.JPEG", label, number)
    return tmp_path


def test_imagenet1k(imagenet):
    data = load("imagenet1k", imagenet, size=16, validation=3)
    assert rows(data) == [12, 3, 6]
    assert data.classes == ("n01", "n02", "n03")
    assert sorted(data.validation.targets.tolist()) == [0, 1, 2]
    labels_fit(data)


def test_imagenet_wrong_folders_are_named(imagenet):
    with pytest.raises(UserError, match="holds 3 class folders, not 100"):
        load("imagenet100", imagenet, folder="imagenet")
    write(imagenet / "imagenet" / "val" / "n04" / "1.JPEG", 3)
    with pytest.raises(UserError, match="differ in their class folders, first in n04"):
        load("imagenet1k", imagenet)
    with pytest.raises(UserError, match=r"cannot find .*imagenet100.*train/CLASS"):
        load("imagenet100", imagenet)


def test_the_cmc_list_picks_its_hundred_from_all_classes(tmp_path, monkeypatch):
    assert len(CMC) == 100
    first, second = "n01558993", "n13040303"
    assert {first, second} < CMC
    monkeypatch.setattr(ImageNet100, "classes", 2)
    for label, name in enumerate([first, "n02000000", second]):
        for number in range(5):
            write(tmp_path / "imagenet" / "train" / name / f"{number}.JPEG", label, number)
            write(tmp_path / "imagenet" / "val" / name / f"{number}.JPEG", label, number)
    data = load("imagenet100", tmp_path, folder="imagenet", listed="cmc", size=16, validation=2)
    assert data.classes == (first, second)
    assert rows(data) == [8, 2, 10]
    with pytest.raises(UserError, match="holds 3 class folders, not 2"):
        load("imagenet100", tmp_path, folder="imagenet")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()

    def make(name, splits, names=None, column="label", damaged=()):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for split, number in splits.items():
            pictures = []
            for row in range(number):
                file = io.BytesIO()
                Image.new("RGB", (40, 30), colour(row % 3, row % 9)).save(file, "PNG")
                pictures.append({"bytes": b"?" if row in damaged else file.getvalue(), "path": None})
            label = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
            features = datasets.Features({"image": datasets.Image(), column: label})
            made = datasets.Dataset.from_dict(
                {"image": pictures, column: [row % 3 for row in range(number)]}, features=features
            )
            made.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
        return tmp_path

    return make


def test_the_same_sources_from_the_hub(hub):
    data_dir = hub("food", {"train": 12, "validation": 6}, names=["a", "b", "c"])
    data = load("food101", data_dir, hub="food", size=16, validation=3)
    assert rows(data) == [9, 3, 6]
    assert data.classes == ("a", "b", "c")
    labels_fit(data)
    hub("flowers", {"train": 6, "validation": 3, "test": 9})
    data = load("flowers102", data_dir, hub="flowers", size=16, split="swapped")
    assert rows(data) == [9, 3, 6]
    assert data.classes == ("0", "1", "2")
    labels_fit(data)
    hub("cars", {"train": 12, "test": 3}, damaged=[4])
    with pytest.raises(UserError, match="cars, train, row 4 as an image: the format is unknown"):
        load("cars", data_dir, hub="cars", size=16, validation=3)
    data = load("cars", data_dir, hub="cars", size=16, validation=3, unreadable="skip")
    assert sum(rows(data)) == 14
    labels_fit(data)
    fields = {"repo": "cars", "image": "image", "label": "label", "validation": 0.25, "test": 0.25}
    assert sum(rows(load("hub", data_dir, **fields, unreadable="skip"))) == 11


def test_a_missing_hub_is_one_line(hub, tmp_path):
    hub("odd", {"train": 6, "test": 3}, column="kind")
    with pytest.raises(UserError, match="odd has no column 'label'"):
        load("cars", tmp_path, hub="odd")
    with pytest.raises(UserError, match="cannot read the split 'train' of 'nobody/nothing'") as error:
        load("stl10", tmp_path, hub="nobody/nothing")
    assert "\n" not in str(error.value)


def test_labels_outside_the_classes_are_named_before_anything_is_decoded(hub):
    import pyarrow.parquet as parquet

    data_dir = hub("two", {"train": 12, "test": 3}, names=["a", "b", "c"], damaged=range(12))
    for file in (data_dir / "two").iterdir():  # datasets itself writes no such label
        table = parquet.read_table(file)
        told = table.schema.metadata[b"huggingface"].replace(b'"a", "b", "c"', b'"a", "b"')
        parquet.write_table(table.replace_schema_metadata({b"huggingface": told}), file)
    with pytest.raises(UserError, match="two, train: row 2 has the label 2, but there are 2 classes"):
        load("hub", data_dir, repo="two", image="image", label="label", test_split="test")
