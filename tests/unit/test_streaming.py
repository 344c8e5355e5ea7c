"""Files of rows in pieces: the same rows as all at once, in memory for one piece only."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from isthmus import streaming
from isthmus.errors import UserError
from isthmus.streaming import npy_pieces, table_pieces, write_pieces

ROWS = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
ARRAYS = [ROWS, ROWS.astype(">f8"), np.asfortranarray(ROWS), ROWS[:, 0], ROWS.reshape(250, 3, 4)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PIECE", 1200)
    monkeypatch.setattr(streaming, "_BLOCK", 2000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_in_pieces(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    pieces = list(npy_pieces(tmp_path / "x.npy"))
    assert len(pieces) > 1 or array.flags.f_contiguous
    assert np.array_equal(np.concatenate(pieces), array)
    write_pieces(tmp_path / "y.npy", iter(pieces))
    again = np.load(tmp_path / "y.npy")
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


@pytest.mark.usefixtures("small")
def test_tables_in_pieces(tmp_path: Path) -> None:
    text = "y, a,b,c\n" + "".join(f"0,{a:.9g},{b:.9g},{c:.9g}\n" for a, b, c in ROWS)
    text = text.replace("\n0,", "\nzero,", 1)  # a column that is not asked for may hold anything
    (tmp_path / "x.csv").write_text(text)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "bare.csv").write_text("".join(f"{a:.9g},{b:.9g},{c:.9g}\n" for a, b, c in ROWS))
    table = pyarrow.table({"c": ROWS[:, 2], "b": ROWS[:, 1], "a": ROWS[:, 0], "y": ["zero"] * len(ROWS)})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    for name in ("x.csv", "x.csv.gz", "bare.csv", "x.parquet"):
        pieces = list(table_pieces(tmp_path / name, None, ["a", "b", "c"]))
        assert len(pieces) > 1, name
        assert np.array_equal(np.concatenate(pieces), ROWS), name
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(UserError, match=r"has no column 'd'; "):
            list(table_pieces(tmp_path / name, None, ["a", "d"]))


@pytest.mark.usefixtures("small")
def test_whole_numbers_may_be_followed_by_others(tmp_path: Path) -> None:
    """The type of a column is not what its first block says."""
    (tmp_path / "x.csv").write_text("a\n" + "1\n" * 2000 + "1.5\n")
    assert np.concatenate(list(table_pieces(tmp_path / "x.csv", None, ["a"])))[-1] == 1.5


@pytest.mark.usefixtures("small")
def test_the_row_that_is_wrong_is_counted_from_the_first(tmp_path: Path) -> None:
    bad = ROWS.copy()
    bad[700, 1] = np.nan
    pyarrow.parquet.write_table(pyarrow.table({"a": bad[:, 1]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="first in row 700"):
        list(table_pieces(tmp_path / "x.parquet", None, ["a"]))


@pytest.mark.parametrize("cut", [1, 5000])
def test_a_file_that_ends_early_is_named(cut: int, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-cut])
    with pytest.raises(UserError, match=r"cannot read .*x\.npy as an npy file: it ends in row \d+ of 1000"):
        list(npy_pieces(tmp_path / "x.npy"))


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def pieces():
        yield ROWS
        raise UserError("the second piece is bad")

    with pytest.raises(UserError, match="second piece"):
        write_pieces(tmp_path / "x.npy", pieces())
    assert not list(tmp_path.iterdir())


def test_memory_is_that_of_a_piece(tmp_path: Path) -> None:
    """Half a gigabyte, most of which the disk never sees."""
    rows = 2**17
    np.save(tmp_path / "x.npy", np.zeros((1, 1024), np.float32))
    header = (tmp_path / "x.npy").stat().st_size - 4096
    with (tmp_path / "x.npy").open("r+b") as file:
        streaming._write_header(file, np.zeros((0, 1024), np.float32), rows)
        file.truncate(header + rows * 4096)
    tracemalloc.start()
    try:
        read = sum(len(piece) for piece in npy_pieces(tmp_path / "x.npy"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == rows
    assert peak < 3 * streaming.PIECE
