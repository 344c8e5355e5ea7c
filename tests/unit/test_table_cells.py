"""Cells of every kind: numbers in many notations, dates in many forms, truth values, categories and words."""

import datetime
import decimal

import numpy as np
import pyarrow
import pytest

from isthmus.sources import cells

NAN = float("nan")


def column(values, kind=None):
    return pyarrow.chunked_array([pyarrow.array(values, kind)])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), ("-1.5", -1.5), ("+3", 3), (" 7 ", 7), ("1e3", 1000), (".5", 0.5), ("5.", 5), ("1,234", 1234),
        ("1,234,567.5", 1234567.5), ("$1,200", 1200), ("-$5", -5), ("12 %", 12), ("€3.50", 3.5), ("USD 12", 12),
        ("(1,200)", -1200), ("1 234 567", 1234567), ("1'234.5", 1234.5), ("−2", -2), ("1.234.567,5", 1234567.5),
        ("0,5", 0.5), ("", NAN), ("NA", NAN), ("n/a", NAN), ("?", NAN), ("-", NAN), ("null", NAN), ("NaN", NAN),
        ("inf", NAN), ("1e999", NAN), ("twelve", NAN), ("1.2.3", NAN), ("12 34", NAN), ("9" * 400, NAN),
    ],
)  # fmt: skip
def test_a_number_is_read_in_any_usual_notation(text, number):
    np.testing.assert_equal(cells.numbers(column([text, "1"])), [number, 1])
    np.testing.assert_equal(cells.numbers(column([text, "1,5"])), [number, 1.5])


def test_the_column_decides_what_a_comma_means():
    assert cells.recognise(column(["1,5", "2,25", "1,234"])) == cells.Form("number", comma=True)
    assert cells.recognise(column(["1,234", "2,500.5"])) == cells.Form("number")
    assert cells.recognise(column(["1,234", "5,678"])) == cells.Form("number")
    assert cells.recognise(column(["1,234", "5,678"]), lambda: True) == cells.Form("number", comma=True)
    assert cells.numbers(column(["1,234", "1.234", "0.5"]), comma=True).tolist() == [1.234, 1234, 0.5]
    assert cells.recognise(column(["0,125", "7,250"])) == cells.Form("number", comma=True)
    assert cells.numbers(column(["0,125", "7,250"]), comma=True).tolist() == [0.125, 7.25]
    assert cells.recognise(column(["900", "1.200"]), lambda: True) == cells.Form("number", comma=True)
    assert cells.recognise(column(["900", "1.200"])) == cells.Form("number")
    assert cells.recognise(column(["0.900", "1.200"]), lambda: True) == cells.Form("number")
    table = pyarrow.table({"a": ["1,5", "2,5"], "b": ["1,234", "2"]})
    assert cells.uses_decimal_comma(table)
    assert cells.uses_decimal_comma(pyarrow.table({"a": ["1,5", "2"], "b": ["1.234", "5.678"]}))
    assert not cells.uses_decimal_comma(pyarrow.table({"a": ["1.5", "2.5"], "b": ["1,234", "2"]}))


def test_commas_of_thousands_are_said_if_nothing_else_shows_them():
    assert cells.say_thousands(column(["12", "1,234", "5,678"])) == " (1,234 is read as 1234)"
    assert cells.say_thousands(column(["1,234", "5,678.5"])) == ""
    assert cells.say_thousands(column([1.5, 2.5])) == ""


def days(*when):
    return (datetime.datetime(*when) - datetime.datetime(1970, 1, 1)).total_seconds() / 86400


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2020-02-29", "2021-12-31"], (2020, 2, 29)),
        (["2020/2/29", "2021/12/31"], (2020, 2, 29)),
        (["2020-02-29T12:30:00Z", "2021-12-31T00:00:00+02:00"], (2020, 2, 29, 12, 30)),
        (["2020-02-29 12:30:15.5", "2021-12-31"], (2020, 2, 29, 12, 30, 15, 500_000)),
        (["29.02.2020", "31.12.2021"], (2020, 2, 29)),
        (["02/29/2020", "12/31/2021"], (2020, 2, 29)),
        (["29/02/2020", "31/12/2021"], (2020, 2, 29)),
        (["3/4/2020", "5/6/2020"], (2020, 3, 4)),
        (["3.4.20", "5.6.99"], (2020, 4, 3)),
        (["2/29/2020 1:05 PM", "3/1/2020 12:00 AM"], (2020, 2, 29, 13, 5)),
        (["29 Feb 2020", "31 December 2021"], (2020, 2, 29)),
        (["29-Feb-20", "31-Dec-21"], (2020, 2, 29)),
        (["Feb 29, 2020", "December 31, 2021"], (2020, 2, 29)),
        (["Sat, 29 Feb 2020 12:30:00 GMT", "Fri, 31 Dec 2021 00:00:00 GMT"], (2020, 2, 29, 12, 30)),
        (["2020-02", "2021-12"], (2020, 2, 1)),
        (["Feb 2020", "Dec 2021"], (2020, 2, 1)),
        (["Feb-29-2020", "Dec-31-2021"], (2020, 2, 29)),
        (["20200229", "20211231"], (2020, 2, 29)),
        (["1959Q2", "1960 Q1"], (1959, 4, 1)),
    ],
)
def test_a_date_is_read_in_any_usual_form(texts, expected):
    form = cells.recognise(column([*texts, None, "-"]))
    assert form.kind == "date"
    read = cells.days(column([*texts, None, "2020-02-30"]), form.date)
    assert read[0] == pytest.approx(days(*expected), abs=1e-9)
    assert np.isfinite(read[1])
    assert np.isnan(read[2:]).all()


def test_dates_of_parquet_are_read_by_their_own_clock():
    moment = datetime.datetime(2020, 2, 29, 12, 30)
    for kind in (pyarrow.timestamp("s"), pyarrow.timestamp("ns"), pyarrow.date64()):
        read = cells.days(column([moment, None], kind))
        assert read[0] == pytest.approx(days(2020, 2, 29, *((12, 30) if kind != pyarrow.date64() else ())))
        assert np.isnan(read[1])
    assert cells.days(column([moment.date()])).tolist() == [days(2020, 2, 29)]
    abroad = moment.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=5)))
    kind = pyarrow.timestamp("us", tz="+05:00")
    assert cells.recognise(column([abroad], kind)) == cells.Form("date")
    assert cells.days(column([abroad], kind))[0] == pytest.approx(days(2020, 2, 29, 12, 30))


def test_whole_numbers_may_be_dates():
    assert cells.recognise(column([20200229, 20211231, None])) == cells.Form("date", date="yearmonthday")
    assert cells.recognise(column([20200229, 20211331])) == cells.Form("number")
    assert cells.days(column([20200229]), "yearmonthday").tolist() == [days(2020, 2, 29)]


def test_types_that_are_not_text():
    assert cells.recognise(column([True, None])) == cells.Form("boolean")
    assert cells.recognise(column([decimal.Decimal("1.5")])) == cells.Form("number")
    assert cells.numbers(column([decimal.Decimal("1.5"), None]))[0] == 1.5
    assert cells.numbers(column([datetime.time(0, 0, 1)]))[0] > 0
    assert cells.numbers(column([2**64 - 1], pyarrow.uint64()))[0] == 2.0**64
    assert cells.recognise(column([[1, 2], [3]])) == cells.Form("nested")
    assert cells.recognise(column([None, None])) == cells.Form("empty")
    assert cells.recognise(column(["", " NA "])) == cells.Form("empty")
    assert cells.recognise(column([3, 4]).dictionary_encode()) == cells.Form("words")  # categories by choice
    assert cells.recognise(column(["3", "4"]).dictionary_encode()) == cells.Form("number")
    assert cells.positions(column([3, 5, None]).dictionary_encode(), ("5", "3")).tolist()[:2] == [1, 0]


@pytest.mark.parametrize("pair", [("true", "false"), ("Yes", "NO"), ("t", "f"), ("Y", "n")])
def test_truth_values(pair):
    assert cells.recognise(column([*pair, ""])) == cells.Form("boolean")
    np.testing.assert_equal(cells.booleans(column([*pair, "", "1", "x"])), [1, 0, NAN, 1, NAN])


def test_words_that_numbers_lack_are_categories_elsewhere():
    assert cells.recognise(column(["none", "mild", "severe"])) == cells.Form("words")
    np.testing.assert_equal(cells.positions(column(["none", "?", "new"]), ("mild", "none")), [1, NAN, -1])
    assert cells.recognise(column(["none", "1", "2", "3"])) == cells.Form("number")


def test_one_cell_in_twenty_may_be_unreadable():
    assert cells.recognise(column(["1", "2.5"] * 20 + ["error"])) == cells.Form("number")
    assert cells.recognise(column(["1", "2.5", "error"])) == cells.Form("words")


def test_hashed_words_are_the_same_everywhere():
    counts = cells.word_counts(column(["The cat, the hat", None, ""]))
    assert counts.shape == (3, cells.WORD_COUNTS)
    assert counts[0].sum() == 4
    assert counts[0].max() >= 2
    assert np.isnan(counts[1:]).all()
    assert np.flatnonzero(cells.word_counts(column(["isthmus"]))[0]).tolist() == [12]
