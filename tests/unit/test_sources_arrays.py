"""A user's own npy, npz, csv and parquet files, right and wrong."""

import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import UserError
from isthmus.core.protocols import Data
from tests.unit.source_data import load_source
from tests.unit.tables import write_csv, write_parquet

GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.normal(size=(40, 3))
LABELS = np.arange(40) % 4


def load(data_dir, path, **fields):
    return load_source("arrays", data_dir, path=str(path), **fields)


def named(**extra):
    return {"a": FEATURES[:, 0], "b": FEATURES[:, 1], "c": FEATURES[:, 2], **extra}


def all_rows(data):
    parts = [data.train, data.validation, data.test]
    return np.concatenate([part.inputs for part in parts]), np.concatenate([part.targets for part in parts])


def assert_same_rows(data, targets):
    inputs, found = all_rows(data)
    order = [int(np.flatnonzero((np.float32(FEATURES) == row).all(1))[0]) for row in inputs]
    assert sorted(order) == list(range(40))
    assert (found == np.asarray(targets)[order]).all()


def test_every_format_gives_the_same_data(tmp_path):
    np.savez(tmp_path / "x.npz", features=FEATURES, y=LABELS)
    np.save(tmp_path / "x.npy", np.column_stack([FEATURES, LABELS]))
    write_csv(tmp_path / "x.csv", named(y=LABELS))
    write_csv(tmp_path / "bare.csv", named(y=LABELS), header=False)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    write_parquet(tmp_path / "x.parquet", named(y=LABELS))
    data = [load(tmp_path, name, targets="y") for name in ("x.npz", "x.csv", "x.csv.gz", "x.parquet")]
    data += [load(tmp_path, "bare.csv", targets=3), load(tmp_path, "x.npy", targets="3", kind="classification")]
    assert len({each.fingerprint for each in data}) == 1
    assert data[0].classes == ("0", "1", "2", "3")
    assert [len(data[0].train), len(data[0].validation), len(data[0].test)] == [32, 4, 4]
    assert np.bincount(data[0].test.targets).tolist() == [1, 1, 1, 1]
    assert_same_rows(data[0], LABELS)


def test_the_order_in_memory_does_not_matter(tmp_path):
    np.savez(tmp_path / "rows.npz", x=FEATURES, y=LABELS)
    np.savez(tmp_path / "columns.npz", x=np.asfortranarray(FEATURES), y=LABELS)
    rows, columns = (load(tmp_path, name, targets="y") for name in ("rows.npz", "columns.npz"))
    assert rows.fingerprint == columns.fingerprint
    assert columns.train.inputs.flags.c_contiguous


def test_names_of_classes_and_values_of_a_regression(tmp_path):
    animals = np.array(["cat", "dog"])[LABELS % 2]
    write_csv(tmp_path / "x.csv", named(animal=animals, y=FEATURES[:, 0] * 2, whole=LABELS))
    data = load(tmp_path, "x.csv", targets="animal", inputs=["a", "b", "c"])
    assert data.classes == ("cat", "dog")
    assert_same_rows(data, LABELS % 2)
    data = load(tmp_path, "x.csv", targets="y", inputs=["a", "b", "c"])
    assert data.train.targets.dtype == np.float32
    assert data.train.targets.shape == (32, 1)
    np.testing.assert_allclose(data.train.targets[:, 0], data.train.inputs[:, 0] * 2, rtol=1e-6)
    data = load(tmp_path, "x.csv", targets=["y", "whole"], inputs=["a"])
    assert data.train.targets.shape == (32, 2)
    data = load(tmp_path, "x.csv", targets="whole", inputs=["a"], kind="regression")
    assert data.train.targets.dtype == np.float32
    assert load(tmp_path, "x.csv", inputs="a", targets=None).train.targets is None


def test_a_header_is_recognised_or_said(tmp_path):
    (tmp_path / "iris.csv").write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.8,versicolor\n" * 4)
    data = load(tmp_path, "iris.csv", targets="2")
    assert len(data.train) + len(data.validation) + len(data.test) == 12
    (tmp_path / "years.csv").write_text("2010,2011\n" + "1,2\n" * 12)
    assert len(load(tmp_path, "years.csv", header=True, targets="2011", kind="regression").train) == 10


def test_a_column_that_turns_from_whole_to_broken_numbers_late_is_read(tmp_path):
    lines = ["x,y"] + [f"{row},{row % 3}" for row in range(200_000)] + ["0.5,1"]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    assert load(tmp_path, "x.csv", targets="y").train.inputs.dtype == np.float32


def test_images_in_either_layout(tmp_path):
    pictures = GENERATOR.integers(0, 256, (20, 3, 6, 5), np.uint8)
    np.savez(tmp_path / "first.npz", x=pictures, y=np.arange(20) % 2)
    np.savez(tmp_path / "last.npz", x=pictures.transpose(0, 2, 3, 1), y=np.arange(20) % 2)
    np.save(tmp_path / "grey.npy", pictures[:, 0])
    np.save(tmp_path / "unclear.npy", np.zeros((20, 3, 6, 3), np.uint8))
    first, last = load(tmp_path, "first.npz", targets="y"), load(tmp_path, "last.npz", targets="y")
    assert first.fingerprint == last.fingerprint
    assert first.train.inputs.shape == (16, 3, 6, 5)
    assert load(tmp_path, "grey.npy").train.inputs.shape == (16, 1, 6, 5)
    with pytest.raises(UserError, match=r"source\.layout=channels_first or source\.layout=channels_last"):
        load(tmp_path, "unclear.npy")
    assert load(tmp_path, "unclear.npy", layout="channels_last").train.inputs.shape[1:] == (3, 3, 6)


def test_a_test_file_of_its_own(tmp_path):
    np.savez(tmp_path / "train.npz", x=FEATURES, y=np.array(["a", "b"])[LABELS % 2])
    np.savez(tmp_path / "test.npz", x=FEATURES[:5] + 1, y=np.array(["b"] * 5))
    data = load(tmp_path, "train.npz", test_path="test.npz", targets="y")
    assert [len(data.train), len(data.validation), len(data.test)] == [36, 4, 5]
    assert (data.test.inputs == np.float32(FEATURES[:5] + 1)).all()
    assert data.test.targets.tolist() == [1] * 5
    np.savez(tmp_path / "narrow.npz", x=FEATURES[:5, :2], y=np.array(["b"] * 5))
    with pytest.raises(UserError, match=r"has the shape \(3,\), of .*narrow.npz \(2,\)"):
        load(tmp_path, "train.npz", test_path="narrow.npz", targets="y")


def test_the_columns_of_a_table_are_known_by_name(tmp_path):
    write_csv(tmp_path / "x.csv", {"y": LABELS, **named()})
    write_csv(tmp_path / "bare.csv", named(y=LABELS), header=False)
    write_parquet(tmp_path / "x.parquet", named(y=LABELS))
    np.savez(tmp_path / "x.npz", x=FEATURES, y=LABELS)
    assert load(tmp_path, "x.csv", targets="y").columns == ("a", "b", "c")
    assert load(tmp_path, "x.parquet", targets="y", inputs=["c", "a"]).columns == ("c", "a")
    for name, targets in (("bare.csv", "3"), ("x.npz", "y")):
        assert load(tmp_path, name, targets=targets).columns == ()


def test_the_columns_of_a_test_file_are_found_by_name(tmp_path):
    write_csv(tmp_path / "train.csv", named(y=LABELS))
    write_csv(tmp_path / "test.csv", {"c": FEATURES[:, 2], "y": LABELS, "b": FEATURES[:, 1], "a": FEATURES[:, 0]})
    data = load(tmp_path, "train.csv", test_path="test.csv", targets="y")
    assert (data.test.inputs == np.float32(FEATURES)).all()


def lists(length):
    return [[float(row)] * length for row in range(40)]


def test_a_parquet_column_of_lists_is_a_block_of_features(tmp_path):
    write_parquet(tmp_path / "x.parquet", {"embedding": lists(6), "y": LABELS})
    assert load(tmp_path, "x.parquet", targets="y").train.inputs.shape == (32, 6)
    write_parquet(tmp_path / "x.parquet", {"embedding": [*lists(6)[:-1], [1.0]], "y": LABELS})
    with pytest.raises(UserError, match="lists of the column 'embedding' differ in length"):
        load(tmp_path, "x.parquet", targets="y")


BROKEN = np.where(np.arange(120).reshape(40, 3) == 7, np.nan, FEATURES)


@pytest.mark.parametrize(
    ("arrays", "fields", "message"),
    [
        ({"x": BROKEN}, {}, "NaN, infinity or a number beyond float32, first in row 2"),
        ({"x": FEATURES * 1e300}, {}, "beyond float32"),
        ({"x": FEATURES * [1, 1, 1e-40]}, {}, "e-40, which float32 rounds to zero"),
        ({"x": FEATURES, "y": FEATURES[:, 0] * 1e-60}, {"targets": "y"}, "targets: .* float32 rounds to zero"),
        ({"x": np.zeros((0, 3))}, {}, "has no rows"),
        ({"x": np.array(5.0)}, {}, "has no rows"),
        ({"x": FEATURES, "y": LABELS[:39]}, {"targets": "y"}, "40 inputs but 39 targets"),
        ({"x": FEATURES, "y": np.array(5)}, {"targets": "y"}, "40 inputs but 1 targets"),
        ({"x": np.array([{}] * 40)}, {}, "contains Python objects, which are never loaded"),
        ({"x": FEATURES, "y": np.array([None] * 40)}, {"targets": "y"}, "contains Python objects"),
        ({"x": np.array(["a"] * 40)}, {}, "is not a number"),
        ({"x": FEATURES, "y": LABELS}, {"targets": "z"}, "has no array 'z'"),
        ({"x": FEATURES, "y": LABELS}, {}, r"set source\.inputs"),
        ({"x": np.zeros((40, 3, 4, 4))}, {}, "uint8 images in three or four dimensions, not float64"),
        ({"x": FEATURES, "y": np.arange(40)}, {"targets": "y"}, r"set source\.kind=regression"),
        ({"x": FEATURES, "y": FEATURES}, {"targets": "y", "kind": "classification"}, "one target per row"),
        (
            {"x": FEATURES, "y": FEATURES[:, 0]},
            {"targets": "y", "kind": "classification"},
            r"not whole .* source\.kind=regr",
        ),
        ({"x": FEATURES, "y": BROKEN}, {"targets": "y"}, "the targets: NaN"),
        ({"x": FEATURES[:2]}, {}, "none is left to train on"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, fields, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message):
        load(tmp_path, "x.npz", **fields)


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("", {}, "has no rows"),
        ("a,b\n", {}, "has no rows"),
        ("a,b\n1,x\n2,y\n", {}, "column 'b': .* such as 'x'"),
        ("a,b\n1,\n2,3\n", {}, "column 'b' has 1 missing values, first in row 0"),
        ("a,b\n1,inf\n2,3\n", {}, "column 'b': NaN, infinity"),
        ("a,b\n1,2\n3\n", {}, "as a csv table: .*Expected 2 columns"),
        ("a,a\n1,2\n", {}, "two columns of the same name"),
        ("a,b\n1,2\n", {"targets": "bb"}, "no column 'bb'; did you mean 'b'"),
        ("a\n1\n", {"targets": "a"}, r"no column besides source\.targets"),
        ("\xff\xfe", {}, "as a csv table"),
        # A first line with a number is taken for a row.
        ("2019,2020,y\n1,2,3\n", {"targets": "y"}, r"no column 'y'; .*; .* set source\.header=true"),
        ("2019,2020,y\n1,2,3\n", {}, r"column '2': .*'y'.*; .* set source\.header=true"),
        ("2019,y\n1,2.5\n", {"targets": 1, "kind": "regression"}, r"such as 'y' .*; .* set source\.header=true"),
    ],
)
def test_wrong_tables_are_named(tmp_path, text, fields, message):
    (tmp_path / "x.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        load(tmp_path, "x.csv", **fields)


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot find .*absent.csv or absent.csv; give a .npy.* file as source\.path"):
        load(tmp_path, "absent.csv")
    for name in ("x.npy", "x.npz", "x.parquet", "x.csv.gz"):
        (tmp_path / name).write_bytes(b"neither this nor that")
        with pytest.raises(UserError, match=f"cannot read .*{name}"):
            load(tmp_path, name)
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(UserError, match="unsupported format"):
        load(tmp_path, "x.txt")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        load(tmp_path, "objects.npy")


def test_fractions_that_leave_nothing_are_refused():
    with pytest.raises(UserError, match=r"source\.validation=0.6 and source\.test=0.5 must add up to less than 1"):
        load(Path(), "x.csv", validation=0.6, test=0.5)


def archive(compressed):
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, x=np.float32(FEATURES[:12]), y=LABELS[:12])
    return file.getvalue()


ARCHIVES = {compressed: archive(compressed) for compressed in (False, True)}


@settings(max_examples=200)
@given(compressed=st.booleans(), at=st.integers(0, 2000), value=st.integers(0, 255), cut=st.booleans())
def test_damaged_archives_give_data_or_one_line(compressed, at, value, cut):
    content = ARCHIVES[compressed]
    at %= len(content)
    content = content[:at] if cut else content[:at] + bytes([value]) + content[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.npz").write_bytes(content)
        try:
            outcome = load(Path(folder), "x.npz", targets="y")
        except UserError as error:
            outcome = error
    assert isinstance(outcome, Data) or "\n" not in str(outcome)
