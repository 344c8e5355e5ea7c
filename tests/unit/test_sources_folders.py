"""Folders of images, and data sets in the Hugging Face layout (from local folders: no network)."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from isthmus.core.errors import UserError
from isthmus.sources.images import channels_first, open_as_shown
from isthmus.sources.pictures import walk_images
from tests.unit.source_data import load_source as load


def write_image(path, colour, size=(10, 8), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path)


@pytest.fixture
def zoo(tmp_path):
    """Cats are red, dogs are green; one is a grey image, one is a palette image."""
    for number in range(10):
        write_image(tmp_path / "zoo" / "cats" / f"{number}.png", (200 + number, 0, 0), (10 + number, 8))
        write_image(tmp_path / "zoo" / "dogs" / f"{number}.bmp", (0, 200 + number, 0), (8, 10 + number))
    (tmp_path / "zoo" / "cats" / "notes.txt").write_text("not an image")
    return tmp_path


def test_class_folders(zoo):
    data = load("image_folder", zoo, path="zoo", size=6, validation=0.2, test=0.2)
    assert data.classes == ("cats", "dogs")
    assert [len(data.train), len(data.validation), len(data.test)] == [12, 4, 4]
    assert data.train.inputs.shape[1:] == (3, 6, 6)
    for split in (data.train, data.validation, data.test):
        red = split.inputs[:, 0].mean((1, 2)) > 100
        assert (red == (split.targets == 0)).all()
        assert np.bincount(split.targets).tolist() == [len(split) // 2] * 2
    again = load("image_folder", zoo, path=str(zoo / "zoo"), size=6, validation=0.2, test=0.2)
    assert again.fingerprint == data.fingerprint
    assert load("image_folder", zoo, path="zoo", size=6, channels=1).train.inputs.shape[1:] == (1, 6, 6)


def test_a_refit_has_no_validation_images(zoo):
    for _ in range(2):  # also where the others are cached
        data = load("image_folder", zoo, path="zoo", size=6, validation=0, test=0.2)
        assert [len(data.train), len(data.validation), len(data.test)] == [16, 0, 4]


def test_a_changed_image_is_read_again(zoo):
    before = load("image_folder", zoo, path="zoo", size=6).fingerprint
    write_image(zoo / "zoo" / "cats" / "0.png", (1, 2, 3), (50, 50))
    assert load("image_folder", zoo, path="zoo", size=6).fingerprint != before


def test_flat_folder_has_no_targets(zoo):
    data = load("image_folder", zoo, path="zoo/cats", size=4)
    assert data.train.targets is None
    assert data.classes == ()
    assert len(data.train) == 8


def test_splits_of_its_own_are_kept(zoo):
    for split, number in (("train", 10), ("val", 3), ("test", 2)):
        for index in range(number):
            write_image(zoo / "own" / split / "cats" / f"{index}.png", (255, 0, 0))
            write_image(zoo / "own" / split / "dogs" / f"{index}.png", (0, 255, 0))
    data = load("image_folder", zoo, path="own", size=4)
    assert [len(data.train), len(data.validation), len(data.test)] == [20, 6, 4]
    (zoo / "own" / "train").rename(zoo / "kept")
    with pytest.raises(UserError, match="has a folder val but no folder train"):
        load("image_folder", zoo, path="own", size=4)
    (zoo / "kept").rename(zoo / "own" / "train")
    (zoo / "own" / "test").rename(zoo / "aside")
    data = load("image_folder", zoo, path="own", size=4)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 6, 2]
    write_image(zoo / "own" / "val" / "birds" / "0.png", (0, 0, 255))
    with pytest.raises(UserError, match="birds is a class without training images"):
        load("image_folder", zoo, path="own", size=4)


def test_resize_and_centre_crop(tmp_path):
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 255
    for number in range(5):
        (tmp_path / "wide").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "wide" / f"{number}.png")
    assert (load("image_folder", tmp_path, path="wide", size=8).train.inputs == 255).all()


def test_wrong_folders_and_images_are_named(zoo):
    with pytest.raises(UserError, match=r"cannot find .*nowhere"):
        load("image_folder", zoo, path="nowhere")
    with pytest.raises(UserError, match=r"is a file; give as source\.path a folder"):
        load("image_folder", zoo, path="zoo/cats/notes.txt")
    (zoo / "zoo" / "birds").mkdir()
    with pytest.raises(UserError, match=r"no images in the class folder .*birds"):
        load("image_folder", zoo, path="zoo")
    (zoo / "zoo" / "birds").rmdir()
    write_image(zoo / "zoo" / "loose.png", (1, 1, 1))
    with pytest.raises(UserError, match=r"loose.png"):
        load("image_folder", zoo, path="zoo")
    (zoo / "zoo" / "loose.png").unlink()
    whole = (zoo / "zoo" / "cats" / "3.png").read_bytes()
    for damaged in (b"", b"no image", whole[:40], whole[:-30]):
        (zoo / "zoo" / "cats" / "3.png").write_bytes(damaged)
        with pytest.raises(UserError, match=r"cannot read .*cats/3.png as an image"):
            load("image_folder", zoo, path="zoo")
    (zoo / "zoo" / "cats" / "3.png").unlink()
    Image.fromarray(np.full((9, 9), 300, np.float32)).save(zoo / "zoo" / "cats" / "3.tif")
    with pytest.raises(UserError, match=r"3.tif has pixels from 300 to 300; .* \(source\.unreadable=skip leaves"):
        load("image_folder", zoo, path="zoo")
    (zoo / "empty").mkdir()
    with pytest.raises(UserError, match="no images in"):
        load("image_folder", zoo, path="empty")


@pytest.fixture
def photos(tmp_path):
    """Seven photographs of many sizes in folders of any depth; every pixel says of which photograph it is."""
    for number in range(7):
        folder = tmp_path / "photos" / ("" if number % 2 else "trip/day one")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((5 + 7 * number, 33, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path


def photographs(split):
    return set((split.inputs[:, 0, 0, 0] // 10).tolist())


@pytest.mark.parametrize("fields", [{}, {"folds": 5, "fold": 3}, {"validation": 0}, {"folds": 5, "fold": 11}])
def test_patches_of_a_photograph_are_in_one_split(photos, fields):
    data = load("image_folder", photos, path="photos", patch=8, **fields)
    assert data.train.inputs.shape[1:] == (3, 8, 8)
    assert data.train.targets is None
    by_split = [photographs(split) for split in (data.train, data.validation, data.test)]
    assert sorted(number for numbers in by_split for number in numbers) == list(range(7)), "none is missing or twice"
    assert sum(map(len, (data.train, data.validation, data.test))) == 4 * (1 + 1 + 2 + 3 + 4 + 5 + 5)
    assert bool(by_split[1]) == (fields != {"validation": 0})


def test_patches_are_shared_evenly_and_those_of_an_image_stay_when_others_come(photos):
    data = load("image_folder", photos, path="photos", patch=8, patches=21)
    assert sum(map(len, (data.train, data.validation, data.test))) == 7 * 3
    some = load("image_folder", photos, path="photos", patch=8, patches=7, split_seed=1)
    assert some.train.inputs.shape[0] == 5


def test_few_photographs_are_enough_for_folds_and_too_few_are_one_line(photos):
    for number in range(4):
        next((photos / "photos").rglob(f"{number}.png")).unlink()
    folds = [load("image_folder", photos, path="photos", patch=8, folds=5, fold=fold) for fold in range(3)]
    assert {frozenset(photographs(each.test)) for each in folds} == {frozenset(photographs(folds[0].test))}
    assert photographs(folds[0].validation) != photographs(folds[1].validation)
    next((photos / "photos").rglob("6.png")).unlink()
    with pytest.raises(UserError, match="has 2 readable images; training, validation and test need at least 3"):
        load("image_folder", photos, path="photos", patch=8)


def test_all_rows_can_be_trained_on(zoo):
    data = load("image_folder", zoo, path="zoo", size=4, validation=0)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 0, 2]


def test_unreadable_images_are_counted_and_named(zoo):
    (zoo / "zoo" / "cats" / "cut.jpg").write_bytes(b"")
    (zoo / "zoo" / "dogs" / "text.png").write_text("hello")
    (zoo / "zoo" / "dogs" / "lost.png").symlink_to("nowhere.png")
    for name in (".DS_Store", "Thumbs.db", "._1.png"):
        (zoo / "zoo" / "dogs" / name).write_bytes(b"no image")
    for fields in ({"size": 4}, {"patch": 4}):
        data = load("image_folder", zoo, path="zoo", unreadable="skip", **fields)
        (finding,) = data.findings
        assert finding.startswith("3 images cannot be read and were skipped: ")
        assert all(f"`{name}`" in finding for name in ("cats/cut.jpg", "dogs/text.png", "dogs/lost.png"))
        with pytest.raises(UserError, match=r"source\.unreadable=skip"):
            load("image_folder", zoo, path="zoo", **fields)
    assert (
        sum(map(len, (data.train, data.validation, data.test))) == 20 * 4 + sum(n // 4 - 2 for n in range(10, 20)) * 4
    )


def test_images_are_read_as_a_viewer_shows_them(tmp_path):
    left_half = np.zeros((8, 8, 4), np.uint8)
    left_half[:, :4] = (200, 0, 0, 255)
    picture = Image.fromarray(left_half)
    upright = Image.fromarray(np.ascontiguousarray(left_half[..., :3]))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter to the right
    (tmp_path / "some").mkdir()
    picture.save(tmp_path / "some" / "1.png")
    picture.quantize(4).save(tmp_path / "some" / "2.gif", transparency=0)
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "some" / "3.png", exif=exif)
    deep = np.full((8, 8), 200 * 257, np.uint16)
    Image.fromarray(deep).save(tmp_path / "some" / "4.png")
    Image.fromarray((deep / 65535).astype(np.float32)).save(tmp_path / "some" / "5.tif")
    Image.fromarray(np.full((8, 8), 200, np.uint8)).save(tmp_path / "some" / "6.jpg")

    def opened(name):
        return channels_first(open_as_shown(tmp_path / "some" / name, name))

    assert opened("1.png")[:, 0, [0, 7]].T.tolist() == [[200, 0, 0], [255, 255, 255]]
    assert (opened("2.gif")[:, 0, 0] != opened("2.gif")[:, 0, 7]).any()
    assert (opened("3.png") == channels_first(upright)).all()
    for name in ("4.png", "5.tif", "6.jpg"):
        assert (opened(name) == 200).all(), name
    assert load("image_folder", tmp_path, path="some", size=8, channels=1).train.inputs.shape[1:] == (1, 8, 8)


def test_classes_may_be_nested_linked_and_have_any_name(tmp_path):
    names = ("<script>", "a b", "été")
    for place, name in enumerate(names):
        for number in range(4):
            folder = "deeper/still" if number % 2 else ""
            write_image(tmp_path / "kept" / name / folder / f"{number}.png", (100 * place, 0, 0), (8, 8))
    (tmp_path / "classes").mkdir()
    for name in names:
        (tmp_path / "classes" / name).symlink_to(tmp_path / "kept" / name)
    (tmp_path / "kept" / "a b" / "loop").symlink_to(tmp_path / "kept")
    data = load("image_folder", tmp_path, path="classes", size=8)
    assert data.classes == tuple(sorted(names))
    assert len(data.train) + len(data.validation) + len(data.test) >= 12
    assert len(walk_images(tmp_path / "classes" / "été")) == 4


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A function that writes a data set of parquet files, which ``datasets`` then reads without a network."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)

    def write(columns, features=None, name="data", split="train"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        made = datasets.Dataset.from_dict(columns, features=features and datasets.Features(features))
        made.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
        return tmp_path

    datasets.disable_progress_bars()
    return write


def png(colour, size=(8, 8)):
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def picture_columns(rows):
    import datasets

    columns = {"picture": [png((row, 0, 0)) for row in range(rows)], "animal": [row % 2 for row in range(rows)]}
    return columns, {"picture": datasets.Image(), "animal": datasets.ClassLabel(names=["cat", "dog"])}


def test_hub_images_with_the_data_sets_own_test(hub):
    columns, features = picture_columns(20)
    folder = hub(columns, features)
    hub(*picture_columns(5), split="test")
    fields = {"repo": "data", "image": "picture", "label": "animal", "test_split": "test"}
    data = load("hub", folder, **fields)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 2, 5]
    assert data.train.inputs.shape[1:] == (3, 8, 8)
    assert data.classes == ("cat", "dog")
    assert (data.train.inputs[:, 0, 0, 0] % 2 == data.train.targets).all()
    assert data.test.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert load("hub", folder, **fields).fingerprint == data.fingerprint
    assert load("hub", folder, **fields, size=4, channels=1).train.inputs.shape[1:] == (1, 4, 4)


def test_hub_features_and_targets(hub):
    rows = range(30)
    columns = {"x": [row / 2 for row in rows], "vector": [[row, 1.0] for row in rows], "word": list("abc") * 10}
    folder = hub({**columns, "value": [row * 3.0 for row in rows]})
    data = load("hub", folder, repo="data", features=["x", "vector"], label="word")
    assert data.train.inputs.shape == (24, 3)
    assert data.columns == ("x", "vector")
    assert data.classes == ("a", "b", "c")
    data = load("hub", folder, repo=str(folder / "data"), features=["x"], label="value")
    np.testing.assert_allclose(data.train.targets, data.train.inputs * 6)
    assert load("hub", folder, repo="data", features=["x"]).train.targets is None


def test_imagenet224_from_a_data_set(hub):
    import datasets

    for split, rows in (("train", 2), ("validation", 4)):
        columns = {"image": [png((40 * row, 0, 0), (300, 260)) for row in range(rows)]}
        folder = hub(columns, {"image": datasets.Image()}, name="pictures", split=split)
    data = load("imagenet224", folder, hub="pictures")
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 18, 18]


def test_wrong_hub_data_are_named(hub):
    folder = hub(*picture_columns(10))
    with pytest.raises(UserError, match="no column 'pictures'; did you mean 'picture'"):
        load("hub", folder, repo="data", image="pictures")
    with pytest.raises(UserError, match="column 'animal' of data does not hold images"):
        load("hub", folder, repo="data", image="animal")
    with pytest.raises(UserError, match="no column 'label'"):
        load("hub", folder, repo="data", image="picture", label="label")
    with pytest.raises(UserError, match=r"is not a number|cannot") as error:
        load("hub", folder, repo="data", features=["picture"])
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="cannot read the split 'exam' of 'data'"):
        load("hub", folder, repo="data", image="picture", test_split="exam")
    columns, features = picture_columns(10)
    columns["picture"][3] = png((0, 0, 0), (9, 8))
    with pytest.raises(UserError, match=r"set source\.size to resize them all"):
        load("hub", hub(columns, features, name="uneven"), repo="uneven", image="picture")
    columns["picture"][3] = {"bytes": b"no image", "path": None}
    with pytest.raises(UserError, match="row 3 as an image"):
        load("hub", hub(columns, features, name="damaged"), repo="damaged", image="picture")
    with pytest.raises(UserError, match=r"either source\.image .* or source\.features"):
        load("hub", folder, repo="data")


def test_an_unknown_name_without_a_network_is_one_line(hub, tmp_path):
    with pytest.raises(UserError, match="cannot read the split 'train' of 'nobody/nothing'") as error:
        load("hub", tmp_path, repo="nobody/nothing", image="image")
    assert "\n" not in str(error.value)


def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'isthmus\[hub\]'"):
        load("hub", tmp_path, repo="someone/something", image="image")
