"""Finds and reads data files; every error names the file."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from isthmus.core.errors import UserError
from isthmus.core.files import digest, expand_user, need_regular
from isthmus.core.machine import memory_bytes

_CHUNK = 2**24


@contextmanager
def name_errors(path: Path | str, kind: str) -> Iterator[None]:
    """Convert any exception of a parser into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except PermissionError:
        raise UserError(f"cannot read {path}: permission denied; allow it with `chmod u+r {path}`") from None
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        if reason.startswith("Object arrays"):
            reason = "it contains Python objects, which are never loaded; save an array of numbers"
        raise UserError(f"cannot read {path} as {kind}: {reason}") from None


def need_room(path: Path | str, size: int) -> None:
    """Refuse a file that unpacks to more than a quarter of the memory, because processing takes several copies."""
    room = memory_bytes() // 4
    if size > room:
        raise UserError(
            f"{path} unpacks to more than {room / 2**30:.1f} GiB, a quarter of this machine's memory; "
            "split it into smaller files"
        )


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, unpacked if its name ends in ``.gz``."""
    need_regular(path)
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield unpacked  # type: ignore[misc]


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """The content of a file of at most ``largest`` bytes, unpacked if its name ends in ``.gz``."""
    packed = path.suffix == ".gz"
    with name_errors(path, "a gzip file" if packed else "a file"), open_bytes(path) as file:
        chunks, size = [], 0
        while chunk := file.read(_CHUNK if packed else -1):
            chunks.append(chunk)
            size += len(chunk)
            if packed:
                need_room(path, size)
            if largest is not None and size > largest:
                raise UserError(f"{path} is larger than {largest / 2**30:.0f} GiB; convert it to a parquet file")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class Header(NamedTuple):
    """The header of an npy file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> Header:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    header = Header(*read(file))
    if header.dtype.hasobject:
        raise ValueError("Object arrays are never loaded")
    if any(size < 0 for size in header.shape) or not header.dtype.itemsize:
        raise ValueError(f"{header.dtype} of shape {header.shape} is not an array")
    return header


def need_content(header: Header, there: int) -> None:
    """Check that the file has as many bytes as its header claims, before allocating memory."""
    if header.bytes > there:
        rows, shape = header.shape[0] if header.shape else 1, header.shape
        raise ValueError(
            f"it ends in row {there // max(1, header.row_bytes)} of {rows}; its header gives the shape {shape}"
        )


def read_npy(path: Path) -> np.ndarray:
    """The array of an npy file; Python objects are refused."""
    with name_errors(path, "an npy file"):
        raw = read_bytes(path)
        if raw.startswith(b"PK"):
            raise UserError(f"{path} is an npz archive; rename it to .npz")
        file = io.BytesIO(raw)
        need_content(read_header(file), len(raw) - file.tell())
        return np.asarray(np.load(io.BytesIO(raw), allow_pickle=False))


@contextmanager
def open_archive(path: Path) -> Iterator[NpzFile]:
    """The arrays of an npz file, read on access; Python objects are refused."""
    need_regular(path)
    # Opened here, because numpy does not close a damaged file.
    with name_errors(path, "an npz file"), path.open("rb") as file:
        if file.read(2) != b"PK":  # numpy would suggest unpickling it
            raise UserError(f"cannot read {path} as an npz file: it is not an archive; write it with np.savez")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def open_member(archive: NpzFile, name: str) -> IO[bytes]:
    """The npy file of an array in an archive."""
    assert archive.zip is not None  # it is open
    return archive.zip.open(f"{name}.npy")


def member_size(archive: NpzFile, name: str) -> int:
    """The unpacked size of that npy file."""
    assert archive.zip is not None  # it is open
    return archive.zip.getinfo(f"{name}.npy").file_size


def read_member(path: Path, archive: NpzFile, name: str) -> np.ndarray:
    """An array of an archive, after checking its size, because a small archive can unpack to any size."""
    with open_member(archive, name) as file:
        header = read_header(file)
        need_content(header, member_size(archive, name) - file.tell())
        need_room(path, header.bytes)
    return np.asarray(archive[name])


def locate(data_dir: Path, folders: Sequence[str], names: Sequence[str], advice: str) -> Path:
    """The first of ``names`` that exists in one of ``folders`` under ``data_dir``."""
    for folder in folders:
        for name in names:
            if (data_dir / folder / name).is_file():
                return data_dir / folder / name
    raise not_found(" or ".join(names), [data_dir / folder for folder in folders], advice)


def locate_shards(data_dir: Path, folders: Sequence[str], split: str) -> list[Path]:
    """The parquet files of one split; their names give their number (``train-00000-of-00005.parquet``)."""
    for folder in folders:
        shards = sorted((data_dir / folder).glob(f"{split}-*-of-*.parquet"))
        if shards:
            total = shards[0].stem.rpartition("-of-")[2]
            expected = [f"{split}-{i:05d}-of-{total}.parquet" for i in range(int(total) if total.isdigit() else 0)]
            missing = sorted(set(expected) - {shard.name for shard in shards})
            if missing or len(shards) != len(expected):
                raise UserError(
                    f"{data_dir / folder} has {len(shards)} {split} files, but their names say {len(expected)}; "
                    f"missing: {', '.join(missing) or 'none, remove the files of another download'}"
                )
            return shards
    return []


def resolve(data_dir: Path, path: str, advice: str) -> Path:
    """A user's file or folder: absolute, under ``data_dir``, or under the current folder."""
    places = list(dict.fromkeys([data_dir / expand_user(path), expand_user(path)]))
    for place in places:
        if place.exists():
            return place
    raise UserError(f"cannot find {' or '.join(str(place) for place in places)}; {advice}")


def not_found(what: str, folders: Sequence[Path], advice: str) -> UserError:
    return UserError(f"cannot find {what} in {', '.join(str(folder) for folder in folders)}; {advice}")


def find_packaged(package: str, *parts: str) -> Path:
    """A data file inside an installed package, found without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"the data of the package {package} are needed, but it is not installed; pip install {package}")
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    if not path.is_file():
        raise UserError(f"{path} is missing from the installed {package}; reinstall it from PyPI")
    return path


def stamp(root: Path, paths: Sequence[Path]) -> str:
    """A digest of names, sizes and modification times, because reading the contents would take too long."""
    facts = [(path, path.stat()) for path in paths]
    return digest([[path.relative_to(root).as_posix(), fact.st_size, fact.st_mtime_ns] for path, fact in facts])
