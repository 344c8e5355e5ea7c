"""Files of rows in pieces: the same rows as all at once, in memory for one piece only."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.lib import format as npy

from isthmus.core.errors import UserError
from isthmus.sources import streaming
from isthmus.sources.files import open_archive
from isthmus.sources.streaming import array_pieces, npy_pieces, table_pieces, write_pieces

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
    assert len(pieces) > 1
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


@pytest.mark.slow
@pytest.mark.parametrize("fortran", [False, True])
def test_memory_is_that_of_a_piece(fortran: bool, tmp_path: Path) -> None:
    """Half a gigabyte, most of which the disk never sees."""
    rows = 2**17
    with (tmp_path / "x.npy").open("wb") as file:
        fields = {"descr": "<f4", "fortran_order": fortran, "shape": (rows, 1024)}
        npy.write_array_header_1_0(file, fields)
        file.truncate(file.tell() + rows * 4096)
    tracemalloc.start()
    try:
        read = sum(len(piece) for piece in npy_pieces(tmp_path / "x.npy"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == rows
    assert peak < 3 * streaming.PIECE


@pytest.mark.usefixtures("small")
def test_columns_that_come_first_are_read_whole_from_an_archive_only_if_small(tmp_path: Path) -> None:
    for rows in (ROWS, ROWS[:50]):
        np.savez(tmp_path / "x.npz", x=np.asfortranarray(rows))
        with zipfile.ZipFile(tmp_path / "x.npz") as archive, archive.open("x.npy") as file:
            size = archive.getinfo("x.npy").file_size
            if rows is ROWS:
                with pytest.raises(UserError, match=r"1000 rows that is stored column by column .*; save it alone"):
                    list(array_pieces(file, size))
            else:
                assert np.array_equal(np.concatenate(list(array_pieces(file, size))), rows)


def test_columns_that_come_first_may_be_cut_short_or_none(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 3), order="F"))
    assert not sum(len(piece) for piece in npy_pieces(tmp_path / "x.npy"))
    np.save(tmp_path / "x.npy", np.asfortranarray(ROWS))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(UserError, match=r"x\.npy as an npy file: it ends before the last of its 1000 rows"):
        list(npy_pieces(tmp_path / "x.npy"))


def test_what_is_no_archive_is_told_so_without_pickle(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(
        UserError, match=r"bad\.npz as an npz file: it is not an archive; write it with np\.savez"
    ) as caught:
        open_archive(tmp_path / "bad.npz").__enter__()
    assert "pickle" not in str(caught.value)
