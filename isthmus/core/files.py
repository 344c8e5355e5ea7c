"""Atomic writes, checksums, and the folders of Isthmus."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError

_LARGEST_JSON = 2**28
_MOST_NAMES = 10_000
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def home() -> Path:
    """The folder of runs, studies, reports and caches: ``ISTHMUS_HOME``, or ``~/.isthmus``."""
    return expand_user(os.environ.get("ISTHMUS_HOME") or "~/.isthmus", "set ISTHMUS_HOME to a folder")


def data_dir() -> Path:
    """The folder of data files: ``ISTHMUS_DATA``, or ``data`` under :func:`home`."""
    given = os.environ.get("ISTHMUS_DATA")
    return expand_user(given, "set ISTHMUS_DATA to a folder") if given else home() / "data"


def expand_user(path: str | Path, advice: str = "give an absolute path") -> Path:
    """A user's path with ``~`` expanded."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # a container may have no home folder
        raise UserError(f"cannot expand {path}: there is no home folder; {advice}") from None


def advise_path(path: Path) -> str:
    """The end of an error message about a missing file: one of nearly the same name, or how to give a path."""
    try:
        names = sorted(entry.name for entry in itertools.islice(os.scandir(path.parent), _MOST_NAMES))
        stems = {Path(name).stem: name for name in reversed(names)}
        found = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
        found = found or [stems[stem] for stem in difflib.get_close_matches(path.stem, stems, n=1, cutoff=0.8)]
        return f"did you mean {str(path.with_name(found[0]))!r}?" if found else f"paths are relative to {Path.cwd()}"
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return f"there is no folder {path.parent}"


def resolve_links(path: Path) -> Path:
    """The path without symbolic links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # RuntimeError before Python 3.13
        raise UserError(f"{path} is a loop of symbolic links") from None


def need_regular(path: Path) -> int:
    """The size of a regular file in bytes; anything else, such as a pipe, is refused because it may never end."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        raise UserError(f"cannot read {path}: there is no such file; {advise_path(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "of a special kind")
        raise UserError(f"{path} is {kind}; give a regular file")
    return facts.st_size


def read_text(path: Path, largest: int) -> str:
    """The text of a regular file of at most ``largest`` characters."""
    need_regular(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(largest + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8 text ({error})") from None
    if len(text) > largest:
        raise UserError(f"{path} is too large: the limit is {largest:,} characters")
    return text


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any, length: int = 64) -> str:
    """SHA-256 of canonical JSON: sorted keys, no spaces."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        text = canonical.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, such as from a file name that is not UTF-8
        around = error.object[max(0, error.start - 40) : error.end + 40]
        raise UserError(f"{around!r} is not valid UTF-8; rename that file or field") from None
    return hashlib.sha256(text).hexdigest()[:length]


def make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "; set ISTHMUS_HOME to a writable folder" if path.is_relative_to(home()) else ""
        raise UserError(f"cannot create the folder {path}: {error.strerror}{advice}") from None
    return path


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file with ``write``, flush it and rename it to ``path``, so that readers never see a part."""
    make_folder(path.parent)
    remove_abandoned(path, path.suffix)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    os.close(descriptor)
    temporary = Path(name)
    try:
        with hold_lock(temporary):
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)  # mkstemp creates files that only the owner can read
            temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


_hidden: dict[Path, frozenset[str]] = {}
"""Hidden names in each folder before this process wrote there; cached because a folder may have many files."""


def remove_abandoned(path: Path, suffix: str = "") -> None:
    """Remove temporary files or folders for ``path`` that a killed process left behind."""
    folder = path.parent.absolute()
    if folder not in _hidden:
        _hidden[folder] = frozenset(name for name in os.listdir(folder) if name.startswith("."))  # noqa: PTH208
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}{re.escape(suffix)}")
    for name in filter(ours.fullmatch, _hidden[folder]):
        left = folder / name
        with contextlib.suppress(OSError), hold_lock(left) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold a lock on a temporary file or folder until the process ends; yields whether it was free."""
    if sys.platform == "win32":  # an open file cannot be renamed there
        yield False
        return
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = True
    except OSError:  # held by another process, or the file system has no locks
        is_ours = False
    try:
        yield is_ours
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_with(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in a file; a damaged file is an error that names it."""
    if not path.exists():
        raise UserError(f"there is no file {path}")
    try:
        return json.loads(read_text(path, _LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: not valid JSON ({error})") from None


def read_json_lines(path: Path, fields: Collection[str]) -> list[dict[str, Any]]:
    """The rows of a file that keeps one per line, each with these fields; none if there is no file."""
    rows = []
    for number, line in enumerate(read_text(path, _LARGEST_JSON).splitlines() if path.exists() else (), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not row.keys() >= {*fields}:
            known = ", ".join(fields)
            raise UserError(f"{path}: line {number} is no row with {known}; remove the line, or give another file")
        rows.append(row)
    return rows


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with a checksum of its content."""
    write_json(path, content | {"checksum": digest(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what :func:`write_sealed` wrote; altered or truncated content is an error."""
    content = read_json(path)
    try:
        intact = content.pop("checksum") == digest(content)
    except (AttributeError, KeyError, TypeError, ValueError):  # not a mapping, no checksum, or a NaN
        intact = False
    if not intact:
        raise UserError(f"{path} is damaged or was altered: its checksum does not match its content")
    return dict(content)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def as_cell(value: Any) -> Any:
    """A cell of a csv file; an apostrophe is put before text that a spreadsheet would run as a formula."""
    runs = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if runs else value
