"""Tables as people have them: dialects, headers, targets, tables in memory, and files that are no tables."""

import csv
import datetime
import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.core.errors import UserError
from isthmus.sources.dialects import find_delimiter, read_frame
from isthmus.sources.tables import table_of
from isthmus.sources.targets import describe_target, guess_target
from isthmus.tasks.table_prediction import EncodedRows
from tests.unit.source_data import load_source
from tests.unit.tables import write_parquet

ROWS = 50
COLUMNS = {
    "area": [f"{1000 + 12.25 * row:.2f}" for row in range(ROWS)],
    "town": [("Zürich", "Genève", "Bern; Köniz")[row % 3] for row in range(ROWS)],
    "sold": [f"2021-{1 + row % 12:02d}-{1 + row % 28:02d}" for row in range(ROWS)],
    "rooms": [str(row % 6 + 1) if row % 9 else "" for row in range(ROWS)],
    "price": [f"{row * 2.5:.1f}" for row in range(ROWS)],
}


PRICES = [(850 + 37 * row, 5 + row) for row in range(40)]


def load(path, **fields):
    return load_source("table", path.parent, path=str(path), **fields)


def write(path, delimiter=",", comma=False, encoding="utf-8", end="\n", quoting=csv.QUOTE_MINIMAL, columns=COLUMNS):
    def cell(text):
        return text.replace(".", ",") if comma and text.replace(".", "").isdigit() else text

    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([list(columns), *([cell(text) for text in row] for row in zip(*columns.values(), strict=True))])
    raw = text.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def test_the_same_table_in_any_dialect_gives_the_same_arrays(tmp_path):
    numeric = {name: np.array(COLUMNS[name], float) for name in ("area", "price")}
    rooms = pyarrow.array([int(cell) if cell else None for cell in COLUMNS["rooms"]])
    sold = [datetime.date.fromisoformat(cell) for cell in COLUMNS["sold"]]
    write_parquet(tmp_path / "typed.parquet", {**COLUMNS, **numeric, "rooms": rooms, "sold": sold})
    write_parquet(tmp_path / "text.parquet", COLUMNS)
    paths = [
        write(tmp_path / "plain.csv"),
        write(tmp_path / "european.csv", ";", comma=True),
        write(tmp_path / "quoted.csv", quoting=csv.QUOTE_ALL, end="\r\n"),
        write(tmp_path / "comma.csv", ",", comma=True),
        write(tmp_path / "tabs.tsv", "\t"),
        write(tmp_path / "bars.txt", "|", end="\r\n"),
        write(tmp_path / "packed.csv.gz", ";"),
        write(tmp_path / "excel.csv", ";", comma=True, encoding="utf-8-sig"),
        write(tmp_path / "windows.csv", ";", comma=True, encoding="cp1252", end="\r\n"),
        write(tmp_path / "unicode.txt", "\t", encoding="utf-16"),
        write(
            tmp_path / "spaces.txt", " ", columns={name: [cell or "NA" for cell in COLUMNS[name]] for name in COLUMNS}
        ),
        tmp_path / "typed.parquet",
        tmp_path / "text.parquet",
    ]
    loaded = [load(path, targets="price") for path in paths]
    assert loaded[0].train.inputs.shape == (40, len(loaded[0].columns))
    assert loaded[0].train.targets.shape == (40, 1)
    assert {
        path.name for path, data in zip(paths, loaded, strict=True) if data.fingerprint != loaded[0].fingerprint
    } == set()
    assert "the text is not UTF-8" in "".join(loaded[8].table["findings"])
    assert "semicolons separate the cells" in loaded[1].table["findings"]


def frame(tmp_path, text, name="x.csv", **fields):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_frame(path, **fields)


def test_headers_are_recognised(tmp_path):
    assert frame(tmp_path, "a,b\n1,2\n").table.column_names == ["a", "b"]
    assert frame(tmp_path, "1,2\n3,4\n").table.column_names == ["0", "1"]
    assert frame(tmp_path, "p,x\ne,y\np,y\n").table.num_rows == 3  # "p" comes again
    assert frame(tmp_path, "country,2019,2020\nPeru,1,2\n").table.column_names == ["country", "2019", "2020"]
    assert frame(tmp_path, "city,n\ncity,1\ntown,2\n").table.num_rows == 2  # "n" is above numbers
    assert frame(tmp_path, ',"1.5","2.5"\n"a",1,2\n"b",3,4\n').table.column_names == ["unnamed", "1.5", "2.5"]
    assert frame(tmp_path, "x,y,z,\n1,2,3\n4,5,6\n").table.column_names == ["x", "y", "z"]
    assert frame(tmp_path, "2019,2020\n1,2\n", header=True).table.num_rows == 1
    assert frame(tmp_path, "a,b\nc,d\n", header=False).table.num_rows == 2
    assert "there is no header" in frame(tmp_path, "1,2\n3,4\n").findings[0]


def test_names_are_made_unique(tmp_path):
    read = frame(tmp_path, "x,x,,x 2,\n1,2,3,4,5\n6,7,8,9,1\n")
    assert read.table.column_names == ["x", "x 3", "unnamed", "x 2", "unnamed 2"]
    assert "`x 3`, `unnamed`, `unnamed 2`" in read.findings[0]


def test_row_names_are_recognised(tmp_path):
    indexed = frame(tmp_path, ",x,y\n0,5,6\n1,7,8\n")
    assert indexed.row_names == "unnamed"
    assert indexed.table.column_names == ["unnamed", "x", "y"]
    from_r = frame(tmp_path, '"x" "y"\n"Mazda RX4" 5 6\n"Fiat 128" 7 8\n', "x.txt")
    assert from_r.row_names == "unnamed"
    assert from_r.table["y"].to_pylist() == ["6", "8"]
    assert frame(tmp_path, "rownames,x\nb,5\na,7\n").row_names == "rownames"
    assert frame(tmp_path, "x,y\n0,5\n1,7\n").row_names is None
    trailing = frame(tmp_path, "x,y\n1,2,\n3,4,\n")
    assert trailing.table["x"].to_pylist() == ["1", "3"]


def test_lines_around_the_table_are_left_out_and_said(tmp_path):
    read = frame(tmp_path, "Sales of 2020\n\na,b,c\n1,2,3\n4,5,6\n")
    assert read.table.column_names == ["a", "b", "c"]
    assert "left out" in read.findings[0]
    assert "Sales of 2020" in read.findings[0]
    commented = frame(tmp_path, "# made by us\n# in 2020\nx,price\n1,2\n4,5\n")
    assert commented.table.column_names == ["x", "price"]
    assert commented.table.num_rows == 2
    footed = frame(tmp_path, "a,b,c\n1,2,3\n4,5,6\n====\nSource: us\n")
    assert footed.table.num_rows == 2
    assert footed.findings == ("2 lines below the table are left out, because the rows have other cells",)
    counted = frame(tmp_path, "3,2,setosa\n1,2,0\n3,4,1\n5,6,1\n")
    assert counted.table.num_rows == 3


def test_newlines_and_delimiters_in_quotes(tmp_path):
    read = frame(tmp_path, 'a,b\n"one\ntwo, three",2\n"say ""hi""",3\n')
    assert read.table["a"].to_pylist() == ["one\ntwo, three", 'say "hi"']
    assert find_delimiter(["x;y\n", "1,5;2,5\n", "2,5;3,5\n"]) == ";"
    assert find_delimiter(["time,value\n", "2020-01-01 10:00,5\n"]) == ","
    assert find_delimiter(["word\n", "one\n"]) == ","
    assert frame(tmp_path, "word\none two\nthree four five\n").table.num_columns == 1


def test_the_delimiter_may_be_given(tmp_path):
    assert frame(tmp_path, "sep=;\na;b\n1;2\n").table.column_names == ["a", "b"]
    assert frame(tmp_path, "a:b\n1:2\n", delimiter=":").table["b"].to_pylist() == ["2"]
    assert frame(tmp_path, "a\tb,c\n1\t2,3\n", delimiter="tab").table.column_names == ["a", "b,c"]
    for wrong in ("", "::", "é", "a", "\n"):
        with pytest.raises(UserError, match="cannot separate cells"):
            frame(tmp_path, "a\n1\n", delimiter=wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no rows"),
        (b"\n\n", "has no rows"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n4,5\n", "row 2 has 1 cells, not 2: 3"),
        (b"a,b\n1,\x002\n", "NUL bytes"),
        (b"a" * (2**24 + 9), "longer than"),
        (b";" * 2**17 + b"\n1" + b";" * 2**17, "columns, more than"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(tmp_path, content, said):
    with pytest.raises(UserError, match=said) as error:
        frame(tmp_path, content)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


PIECES = [
    "a",
    "1",
    "1.5",
    "1,5",
    "NA",
    ",",
    ";",
    "\t",
    "|",
    " ",
    '"',
    "'",
    "\n",
    "\r\n",
    "\r",
    "é",
    "\0",
    "x,y\n",
    "0,1\n",
    "sep=;\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.sampled_from(["utf-8", "cp1252", "utf-16"]))
@example("", "utf-8")
def test_any_text_is_a_table_or_one_line(text, encoding):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.csv")
        path.write_bytes(text.encode(encoding))
        said = ""
        try:
            read = read_frame(path)
            data = load(path, targets=guess_target(read.table.column_names, read.table))
        except UserError as error:
            said = str(error)
        assert "\n" not in said
        assert said or len(data.train)
        assert said or len(set(read.table.column_names)) == read.table.num_columns


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="save it as a csv"):
        frame(tmp_path, b"PK", "x.xlsx")
    with pytest.raises(UserError, match="single image"):
        frame(tmp_path, b"1", "x.png")
    with pytest.raises(UserError, match="cannot read"):
        frame(tmp_path, b"no gzip", "x.csv.gz")
    with pytest.raises(UserError, match="as a parquet file"):
        frame(tmp_path, b"no parquet", "x.parquet")


def test_a_task_is_inferred_and_said():
    table = pyarrow.table(
        {
            "word": ["a", "b"] * 50, "truth": [True, False] * 50, "few": [1, 2, 3, 1] * 25, "half": [1.0, 0.5] * 50,
            "many": list(range(100)), "binary": ["0", "1"] * 50, "price": [f"{row},5" for row in range(100)],
            "whole": [1.0, 2.0] * 50, "day": [f"2020-01-{1 + row % 31:02d}" for row in range(100)],
        }
    )  # fmt: skip
    said = {name: describe_target(table, name).reason for name in table.column_names}
    assert said == {
        "word": "classification, because it has 2 different values, which are words",
        "truth": "classification, because it is true or false",
        "few": "classification, because it has 3 different values",
        "half": "regression, because it has 2 different numbers",
        "many": "regression, because it has 100 different whole numbers",
        "binary": "classification, because it has 2 different values",
        "price": "regression, because it has 100 different numbers",
        "whole": "classification, because it has 2 different values",
        "day": "regression, because it has dates, which are predicted as days since 1970",
    }
    with pytest.raises(UserError, match="did you mean 'price'"):
        describe_target(table, "prise")
    assert guess_target(["a", "Target", "b"]) == "Target"
    assert guess_target(["a", "b"]) == "b"
    unfit = pyarrow.table({"good": [1, 2, 1], "blank": ["", "", None], "same": [1, 1, 1], "name": ["a", "b", "c"]})
    assert guess_target(unfit.column_names, unfit) == "good"
    numbered = pyarrow.table({"price": [1.5, 2.5, 1.5], "customer_id": [7, 8, 9]})
    assert guess_target(numbered.column_names, numbered) == "price"


def test_classes_are_sorted_naturally_and_rows_without_a_target_left_out(tmp_path):
    label = ["10", "9", "", "2"] * 15
    data = load(write(tmp_path / "x.csv", columns={"x": [str(row % 11) for row in range(60)], "y": label}), targets="y")
    assert data.classes == ("2", "9", "10")
    assert sum(len(data.split(name)) for name in ("train", "validation", "test")) == 45
    assert "15 of 60 rows have no target, left out" in data.table["findings"]
    assert any("predicting `y`: classification" in finding for finding in data.table["findings"])
    assert data.table["targets"] == ["y"]
    assert data.table["encoder"]["columns"][0]["name"] == "x"


def test_targets_of_every_kind(tmp_path):
    path = write(tmp_path / "x.csv")
    assert load(path, targets="town").classes == ("Bern; Köniz", "Genève", "Zürich")
    assert load(path, targets=["price", "area"]).train.targets.shape == (40, 2)
    assert load(path, targets="rooms", kind="regression").classes == ()
    assert load(path, targets="rooms", kind="classification").classes == tuple("123456")
    assert load(path).train.targets is None
    assert load(path, targets="price", inputs="rooms").columns == ("rooms", "rooms is missing")
    assert load(path, targets="price", inputs=["rooms", "town"], row_names="town").columns[0] == "rooms"
    everything = load(path, targets="price").table["inputs"]
    assert load(path, targets="price", without=["rooms", "town"]).table["inputs"] == [
        name for name in everything if name not in ("rooms", "town")
    ]
    for fields, said in (
        ({"targets": "town", "kind": "regression"}, "not numeric: it has 'Zürich'"),
        ({"targets": "price", "kind": "classification"}, "not whole numbers that can be classes"),
        ({"targets": ["price", "area"], "kind": "classification"}, "one target, not 2"),
        ({"targets": "prices"}, "did you mean 'price'"),
        ({"targets": "price", "inputs": "price"}, "both in source.targets and in source.inputs"),
        ({"targets": "price", "without": "price"}, "both in source.targets and in source.without"),
        ({"targets": "price", "without": "room"}, "did you mean 'rooms'"),
        ({"targets": "price", "without": everything}, "no column besides source.targets and source.without"),
    ):
        with pytest.raises(UserError, match=said):
            load(path, **fields)


def test_training_rows_alone_decide_the_encoding(tmp_path):
    first = load(write(tmp_path / "first.csv"), targets="price")
    test = {name: cells[:7] for name, cells in COLUMNS.items()}
    write(tmp_path / "test.csv", ";", columns=dict(reversed(test.items())))
    other = {**test, "area": ["1e9"] * 7, "town": ["Basel"] * 7}
    write(tmp_path / "other.csv", columns=other)
    with_test = load(tmp_path / "first.csv", targets="price", test_path=str(tmp_path / "test.csv"))
    with_other = load(tmp_path / "first.csv", targets="price", test_path=str(tmp_path / "other.csv"))
    assert with_test.table["encoder"] == with_other.table["encoder"]
    assert len(with_test.test) == 7
    assert (with_test.train.inputs == with_other.train.inputs).all()
    assert with_test.fingerprint != with_other.fingerprint
    assert len(with_test.train) == len(first.train) + 5


def test_points_separate_thousands_beside_decimal_commas(tmp_path):
    lines = [f"{price:,};{area / 10:.1f}".translate(str.maketrans(".,", ",.")) for price, area in PRICES]
    (tmp_path / "x.csv").write_text("\n".join(["price;area", *lines]))
    prices = {price for price, _ in PRICES}
    data = load(tmp_path / "x.csv", targets="price")
    assert set(data.train.targets.ravel().tolist()) <= prices
    data = load(tmp_path / "x.csv", targets="area")
    assert data.table["encoder"]["columns"][0]["comma"]
    assert data.table["encoder"]["columns"][0]["fill"] in prices


def test_another_file_may_have_decimal_points_where_training_rows_have_commas(tmp_path):
    columns = {"width": [f"{0.5 + row / 8:.3f}" for row in range(ROWS)], "price": COLUMNS["price"]}
    commas, points = (write(tmp_path / f"{comma}.csv", ";", comma, columns=columns) for comma in (True, False))
    same, other = (load(commas, targets="price", test_path=str(test)) for test in (commas, points))
    assert (same.test.inputs == other.test.inputs).all()
    rows = EncodedRows(same.table)
    assert (next(rows.from_file(commas)).rows == next(rows.from_file(points)).rows).all()


def test_targets_that_float32_would_round_coarsely_are_refused(tmp_path):
    for first, step in ((1_700_000_000, 10), (1e9, 0.5)):
        (tmp_path / "x.csv").write_text("x,y\n" + "".join(f"{row},{first + step * row}\n" for row in range(40)))
        with pytest.raises(UserError, match="float32; subtract a constant"):
            load(tmp_path / "x.csv", targets="y")
    (tmp_path / "x.csv").write_text("x,y,z\n" + "".join(f"{row},{row},0.1\n" for row in range(40)))
    assert load(tmp_path / "x.csv", targets=["y", "z"]).train.targets.shape[1] == 2  # a constant is not coarse


def test_a_column_of_which_no_category_is_known_is_warned_of(tmp_path):
    rows = EncodedRows(load(write(tmp_path / "x.csv"), targets="price").table)
    capitals = {**COLUMNS, "town": [town.upper() for town in COLUMNS["town"]]}
    with pytest.warns(UserWarning, match=r"no cell of `town` is a category of the training rows: 'ZÜRICH' is none of "):
        list(rows.from_file(write(tmp_path / "capitals.csv", columns=capitals)))
    one_known = {**capitals, "town": [COLUMNS["town"][0], *capitals["town"][1:]]}
    list(rows.from_file(write(tmp_path / "one.csv", columns=one_known)))


def test_texts_among_the_targets_that_are_no_numbers_are_named(tmp_path):
    (tmp_path / "x.csv").write_text("x,y\n" + "".join(f"{row},{row / 2}\n" for row in range(40)) + "40,about 3\n")
    findings = load(tmp_path / "x.csv", targets="y").table["findings"]
    assert "1 of 41 rows has no target, left out ('about 3' cannot be read)" in findings


def test_tables_in_memory():
    pandas = pytest.importorskip("pandas")
    when = pandas.date_range("2020-01-01", periods=3, tz="Europe/Vienna")
    made = table_of(
        pandas.DataFrame(
            {
                "text": ["a", None, "c"], "kind": pandas.Categorical(["x", "y", "x"]), "when": when,
                "whole": pandas.array([1, None, 3], "Int64"), "mixed": [1, "two", None], 7: [1.0, float("nan"), 2.0],
                "period": pandas.period_range("2020", periods=3, freq="M"),
                "truth": pandas.array([True, None, False], "boolean"),
            },
            index=[5, 6, 7],
        )
    )  # fmt: skip
    assert made.column_names == ["text", "kind", "when", "whole", "mixed", "7", "period", "truth"]
    assert made["mixed"].to_pylist() == ["1", "two", None]
    assert made["whole"].to_pylist() == [1, None, 3]
    assert made["period"].to_pylist() == ["2020-01", "2020-02", "2020-03"]
    assert made["7"].null_count == 1
    assert table_of({"a": [1, 2], "b": ["x", None]}).num_rows == 2
    assert table_of([{"a": 1}, {"b": "x"}]).to_pydict() == {"a": [1, None], "b": [None, "x"]}
    assert table_of(np.eye(2)).column_names == ["0", "1"]
    assert table_of(made) is made
    assert table_of(made.to_batches()[0]).num_rows == 3
    for wrong, said in (
        (np.zeros(3), "an array of shape"),
        ([1, 2], "list is not a table"),
        ("x.csv", "str is not"),
        ({"a": [1], "b": [1, 2]}, "differ in length"),
    ):
        with pytest.raises(UserError, match=said):
            table_of(wrong)


def test_a_polars_table_in_memory():
    polars = pytest.importorskip("polars")
    made = table_of(polars.DataFrame({"a": [1, None], "b": ["x", "y"]}))
    assert made["a"].to_pylist() == [1, None]
    assert made["b"].to_pylist() == ["x", "y"]
