"""What the table encoder makes of each kind of column, what it leaves out, and what it says."""

import json

import numpy as np
import pyarrow
import pytest

from isthmus.core.errors import UserError
from isthmus.export.raw_form import EncoderModule
from isthmus.sources.encoding import TableEncoder

ROWS = 60
GENERATOR = np.random.default_rng(0)
MIXED = pyarrow.table(
    {
        "id": list(range(ROWS)),
        "age": [None if row % 7 == 0 else 20.0 + row for row in range(ROWS)],
        "income": [f"${1000 + 37 * row:,}" for row in range(ROWS)],
        "colour": [("red", "green", "blue")[row % 3] for row in range(ROWS)],
        "town": [f"town {row % 40}" for row in range(ROWS)],
        "member": [("yes", "no")[row % 2] for row in range(ROWS)],
        "joined": [f"2020-{1 + row % 12:02d}-{1 + row % 28:02d} {row % 24:02d}:00" for row in range(ROWS)],
        "note": [f"the {row} quick brown foxes jump over {row * 7} dogs" for row in range(ROWS)],
        "constant": ["same"] * ROWS,
        "blank": [""] * ROWS,
        "code": [f"X{row:04d}" for row in range(ROWS)],
        "mostly": [str(row) if row % 3 == 0 else "NA" for row in range(ROWS)],
    }
)


def learn(**columns):
    return TableEncoder.learn(pyarrow.table(columns))


def expand(encoder, **columns):
    return encoder.expand(encoder.codes(pyarrow.table(columns)))


def test_everything_found_is_said():
    encoder = TableEncoder.learn(MIXED)
    said = "\n".join(encoder.findings)
    for finding in (
        "`id`: a different whole number in every row, left out",
        "`age`, `mostly`: numbers; missing in 9 to 40 of 60 training rows",
        "`income`: numbers",
        "`colour`: 3 categories",
        "`town`: 40 categories, of which 20 have a feature of their own",
        "`member`: true or false",
        "`joined`: 60 dates, as time, season, weekday and hour",
        "`note`: free text, as 32 counts of hashed words",
        "`constant`: the same value in every row, left out",
        "`blank`: no values, left out",
        "`code`: a different value in every row, left out",
    ):
        assert finding in said
    assert encoder.inputs == {
        "age": "number", "income": "number", "colour": "category", "town": "category", "member": "boolean",
        "joined": "date", "note": "text", "mostly": "number",
    }  # fmt: skip
    assert set(encoder.features) > {"age", "age is missing", "colour=red", "town is rare", "joined year sine"}
    assert encoder.expand(encoder.codes(MIXED)).shape == (ROWS, len(encoder.features))


def test_columns_with_the_same_finding_share_a_sentence():
    encoder = learn(**{name: GENERATOR.normal(size=9) for name in "abcdefg"})
    assert encoder.findings == ["`a`, `b`, `c`, `d` and 3 more: numbers"]


def test_few_categories_with_a_feature_of_their_own_are_counted_in_good_english():
    rare = [f"town {row}" for row in range(12)]
    assert learn(x=["a"] * 30 + rare).findings == ["`x`: 13 categories, of which 1 has a feature of its own"]


def test_a_missing_number_is_the_median_and_is_marked():
    encoder = learn(x=[1.0, 2.0, 3.0, 10.0, None])
    assert encoder.features == ["x", "x is missing"]
    assert expand(encoder, x=[None, 3.0, float("inf")]).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_cells_that_cannot_be_read_are_missing_and_said():
    encoder = learn(x=[str(row) for row in range(99)] + ["error", "-"])
    assert encoder.findings == ["`x`: numbers; missing in 2 of 101 training rows ('error' cannot be read)"]


def test_a_column_of_infinities_is_empty():
    assert learn(x=[float("inf"), None, float("nan")]).findings == ["`x`: no values, left out"]


def test_a_large_offset_keeps_its_digits():
    values = 1e9 + np.arange(20) / 8
    assert np.diff(expand(learn(x=values), x=values)[:, 0]).tolist() == [0.125] * 19


def test_tiny_and_huge_numbers_stay_apart_and_finite():
    for unit in (1e-320, 1e-40, 1e40, 1e299):
        values = unit * np.arange(5)
        features = expand(learn(x=values), x=values)[:, 0]
        assert np.isfinite(features).all()
        assert len(set(features.tolist())) == 5


def test_categories_by_frequency_unseen_and_missing_ones():
    encoder = learn(c=["b"] * 3 + ["a"] * 4 + ["z", "c", "c", None])
    assert encoder.features == ["c=a", "c=b", "c=c", "c is rare", "c is missing"]
    read = expand(encoder, c=["a", "c", "z", "new", None])
    assert read.tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert learn(c=["a", "b", "a", "b"]).features == ["c=a"]


def test_at_most_thirty_categories_have_features():
    encoder = learn(c=[f"value{number}" for number in range(100) for _ in range(100 - number)])
    assert encoder.features[29:] == ["c=value29", "c is rare", "c frequency"]
    read = expand(encoder, c=["value0", "value98", "new", None])
    assert read[:, 30].tolist() == [0, 1, 1, 0]
    np.testing.assert_allclose(read[:, 31], np.log([100, 2, 0.5, 0.5]), rtol=1e-6)


def test_dates_have_only_the_cycles_that_vary():
    months = [f"{year}-{month:02d}-01" for year in range(2000, 2003) for month in range(1, 13)]
    assert learn(d=months).features == ["d", "d year sine", "d year cosine"]
    assert learn(d=[f"{year}-01-01" for year in range(1990, 2010)]).features == ["d"]
    hours = [f"2020-01-01 {hour:02d}:00" for hour in range(24)]
    encoder = learn(d=hours)
    assert encoder.features == ["d", "d day sine", "d day cosine"]
    np.testing.assert_allclose(expand(encoder, d=hours)[6], [-5 / 24, 1, 0], atol=1e-6)


def test_identifiers_are_recognised_by_name_or_by_words():
    whole = np.arange(30)[::-1]
    for name in ("id", "PassengerId", "customer_id", "index", "Unnamed: 0", "row"):
        assert learn(**{name: whole, "x": whole}).features == ["x"]
    assert learn(acid=whole).features == ["acid"]
    assert learn(id=np.append(whole, 3)).features == ["id"]


def test_free_text_may_be_left_out():
    encoder = TableEncoder.learn(MIXED.select(["note"]), hash_text=False)
    assert encoder.features == []
    assert encoder.findings == ["`note`: free text, left out"]
    assert encoder.expand(encoder.codes(MIXED)).shape == (ROWS, 0)


def test_columns_may_be_in_any_order_and_more_but_not_fewer():
    encoder = TableEncoder.learn(MIXED)
    other = MIXED.select(MIXED.column_names[::-1]).append_column("more", [[1] * ROWS])
    assert (encoder.expand(encoder.codes(other)) == encoder.expand(encoder.codes(MIXED))).all()
    with pytest.raises(UserError, match="the table has no column 'colour'; did you mean 'Colour'"):
        encoder.codes(MIXED.rename_columns([name.replace("colour", "Colour") for name in MIXED.column_names]))


def test_what_was_learned_is_plain_json():
    encoder = TableEncoder.learn(MIXED)
    recalled = TableEncoder.recall(json.loads(json.dumps(encoder.memory(), allow_nan=False)))
    assert recalled.memory() == encoder.memory()
    assert recalled.digest() == encoder.digest()
    assert recalled.findings == encoder.findings
    assert recalled.features == encoder.features
    assert (recalled.expand(recalled.codes(MIXED)) == encoder.expand(encoder.codes(MIXED))).all()
    assert encoder.digest() != learn(x=[1, 2]).digest()
    with pytest.raises(UserError, match="version 0"):
        TableEncoder.recall({"version": 0})


def test_torch_expands_as_numpy_does_and_can_be_exported():
    import torch

    encoder = TableEncoder.learn(MIXED)
    codes = encoder.codes(MIXED)
    codes[3] = np.nan
    codes[4, 2] = -1
    module, given = EncoderModule(encoder), torch.from_numpy(codes)
    expected = encoder.expand(codes)
    np.testing.assert_allclose(module(given).numpy(), expected, atol=1e-6)
    rows = torch.export.Dim("rows", min=1)
    exported = torch.export.export(module, (given[:7],), dynamic_shapes=({0: rows},)).module()
    np.testing.assert_allclose(exported(given).numpy(), expected, atol=1e-6)
    assert module(given).dtype == torch.float32
