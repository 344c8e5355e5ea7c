"""How a source meets files that others wrote: where it looks, and one line of error that names what it cannot read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from isthmus.errors import UserError
from isthmus.files import digest, expanded


@contextmanager
def parsing(path: Path | str, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged bytes, from KeyError to zlib.error, into a line that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        if reason.startswith("Object arrays"):
            reason = "it holds Python objects, which are never loaded; save an array of numbers"
        raise UserError(f"cannot read {path} as {kind}: {reason}") from None


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in ``.gz``."""
    with parsing(path, "a gzip file" if path.suffix == ".gz" else "a file"):
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw


def read_npy(path: Path) -> np.ndarray:
    """The array of an npy file; Python objects are refused."""
    with parsing(path, "an npy file"):
        array = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is an npz archive; name it so")
    return array


@contextmanager
def open_archive(path: Path) -> Iterator[NpzFile]:
    """The arrays of an npz file, each read when asked for; Python objects are refused."""
    # Opened here, because numpy leaves the file open if it turns out to be damaged.
    with parsing(path, "an npz file"), path.open("rb") as file:
        if file.read(2) != b"PK":  # of which numpy would say that unpickling it may help
            raise UserError(f"cannot read {path} as an npz file: it is no archive; write it with np.savez")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def locate(data_dir: Path, folders: Sequence[str], names: Sequence[str], advice: str) -> Path:
    """The first of ``names`` that is in one of ``folders`` under ``data_dir``."""
    for folder in folders:
        for name in names:
            if (data_dir / folder / name).is_file():
                return data_dir / folder / name
    raise not_found(" or ".join(names), [data_dir / folder for folder in folders], advice)


def locate_shards(data_dir: Path, folders: Sequence[str], split: str) -> list[Path]:
    """The parquet files of one split: as many as their names say (``train-00000-of-00005.parquet``), or none."""
    for folder in folders:
        shards = sorted((data_dir / folder).glob(f"{split}-*-of-*.parquet"))
        if shards:
            total = shards[0].stem.rpartition("-of-")[2]
            expected = [f"{split}-{i:05d}-of-{total}.parquet" for i in range(int(total) if total.isdigit() else 0)]
            missing = sorted(set(expected) - {shard.name for shard in shards})
            if missing or len(shards) != len(expected):
                raise UserError(
                    f"{data_dir / folder} holds {len(shards)} {split} files, where their names count {len(expected)}; "
                    f"missing: {', '.join(missing) or 'none, remove those of another download'}"
                )
            return shards
    return []


def resolve(data_dir: Path, path: str, advice: str) -> Path:
    """A file or folder that the user named: absolute, under ``data_dir``, or under the current folder."""
    places = list(dict.fromkeys([data_dir / expanded(path), expanded(path)]))
    for place in places:
        if place.exists():
            return place
    raise UserError(f"cannot find {' or '.join(str(place) for place in places)}; {advice}")


def not_found(what: str, folders: Sequence[Path], advice: str) -> UserError:
    return UserError(f"cannot find {what} in {', '.join(str(folder) for folder in folders)}; {advice}")


def packaged(package: str, *parts: str) -> Path:
    """A data file inside an installed package, found without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"the package {package} is not installed, and its data are used here; pip install isthmus")
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    if not path.is_file():
        raise UserError(
            f"{path} is missing: the installed {package} comes without this data file; reinstall it from PyPI"
        )
    return path


def stamp(root: Path, paths: Sequence[Path]) -> str:
    """Which files these are, by name, size and time of change; their content would take too long to read."""
    facts = [(path, path.stat()) for path in paths]
    return digest([[path.relative_to(root).as_posix(), fact.st_size, fact.st_mtime_ns] for path, fact in facts])
