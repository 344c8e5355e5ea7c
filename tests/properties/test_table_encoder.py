"""Whatever is in a table, its features are finite, and every row is encoded on its own."""

import json

import numpy as np
import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from isthmus.sources.encoding import TableEncoder

JUNK = st.sampled_from(
    ["", "NA", "-", "1", "2.5", "1,5", "1,234", "$3", "1e999", "-1e308", "1e308", "5e-324", "yes", "no", "true",
     "2020-01-31", "31.12.2021", "1/2/2020", "2020-02-30", "2020Q1", "0001-01-01", "9999-12-31", "red", "blue", "Inf",
     "nan", "a b c d e", "the quick brown fox", "名前", "x" * 2000, "\n", "(", "\\", "'", "1 2 3", "ǅ", "٣"]
)  # fmt: skip
NUMBERS = st.floats() | st.none()
TIMES = st.none() | st.integers(-(2**62), 2**62)


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 25))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["junk", "text", "numbers", "whole", "times", "truth", "coded"]))
        cell = {
            "junk": JUNK, "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=8), "numbers": NUMBERS,
            "whole": st.integers(-(2**63), 2**63 - 1), "times": TIMES, "truth": st.none() | st.booleans(),
            "coded": st.sampled_from(["a", "b", "1", None]),
        }[kind]  # fmt: skip
        if draw(st.booleans()):  # few different values
            cell = st.sampled_from(draw(st.lists(cell, min_size=1, max_size=3)))
        types = {
            "numbers": pyarrow.float64(), "whole": pyarrow.int64(), "truth": pyarrow.bool_(),
            "times": pyarrow.timestamp(draw(st.sampled_from(["s", "ns"]))),
        }  # fmt: skip
        made = pyarrow.array(draw(st.lists(cell, min_size=rows, max_size=rows)), types.get(kind, pyarrow.string()))
        columns[f"column {number}"] = made.dictionary_encode() if kind == "coded" else made
    return pyarrow.table(columns)


@given(tables(), st.integers(0, 2**32))
def test_features_are_finite_and_rows_independent(table, seed):
    shuffled = np.random.default_rng(seed).permutation(table.num_rows)
    train = np.sort(shuffled[: max(1, table.num_rows // 2)])
    encoder = TableEncoder.learn(table.take(train))
    codes = encoder.codes(table)
    features = encoder.expand(codes)
    assert features.shape == (table.num_rows, len(encoder.features))
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(encoder.codes(table.take(shuffled)), codes[shuffled])
    np.testing.assert_array_equal(encoder.expand(codes[shuffled]), features[shuffled])
    for row in shuffled[:3]:
        np.testing.assert_array_equal(encoder.expand(encoder.codes(table.slice(int(row), 1))), features[row : row + 1])


@given(tables(), st.integers(0, 2**32))
def test_the_order_of_training_rows_does_not_matter_and_json_keeps_every_bit(table, seed):
    encoder = TableEncoder.learn(table)
    shuffled = np.random.default_rng(seed).permutation(table.num_rows)
    assert TableEncoder.learn(table.take(shuffled)).memory() == encoder.memory()
    memory = json.loads(json.dumps(encoder.memory(), allow_nan=False))
    recalled = TableEncoder.recall(memory)
    np.testing.assert_array_equal(recalled.expand(recalled.codes(table)), encoder.expand(encoder.codes(table)))


@given(tables(), tables())
def test_a_learned_encoder_takes_any_table_with_its_columns(first, second):
    shared = [name for name in first.column_names if name in second.column_names]
    encoder = TableEncoder.learn(first, shared)
    assert np.isfinite(encoder.expand(encoder.codes(second))).all()
