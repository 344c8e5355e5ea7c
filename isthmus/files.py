"""Files that are whole or absent: atomic writes, checksums, and where Isthmus keeps things."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.errors import UserError

_LARGEST_JSON = 2**28
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def home() -> Path:
    """Where runs, studies, reports and caches live: ``ISTHMUS_HOME``, or ``~/.isthmus``."""
    return Path(os.environ.get("ISTHMUS_HOME") or Path.home() / ".isthmus").expanduser()


def data_dir() -> Path:
    """Where data files are looked for: ``ISTHMUS_DATA``, or ``data`` under :func:`home`."""
    return Path(os.environ.get("ISTHMUS_DATA") or home() / "data").expanduser()


def need_regular(path: Path) -> int:
    """The size in bytes of a regular file; asked before it is opened, because a pipe or a device may never end."""
    try:
        facts = path.stat()
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "of a special kind")
        raise UserError(f"{path} is {kind}; give a regular file")
    return facts.st_size


def read_text(path: Path, largest: int) -> str:
    """The text of a regular file of at most so many characters."""
    need_regular(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(largest + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is no text file in UTF-8 ({error})") from None
    if len(text) > largest:
        raise UserError(f"{path} is too large: it may have {largest:,} characters")
    return text


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """The one text of a JSON value, for hashing: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, length: int = 64) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "; set ISTHMUS_HOME to a writable one" if path.is_relative_to(home()) else ""
        raise UserError(f"cannot create the folder {path}: {error.strerror}{advice}") from None
    return path


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file, flush it to disk and rename it over ``path``: readers see all or nothing."""
    make_folder(path.parent)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    os.close(descriptor)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp makes files for their owner only
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_with(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in a file; a truncated or foreign file is named instead of half used."""
    if not path.exists():
        raise UserError(f"there is no file {path}")
    try:
        return json.loads(read_text(path, _LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: not valid JSON ({error})") from None


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """JSON that carries the checksum of its own content."""
    write_json(path, content | {"checksum": digest(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote; content that was altered or cut short is named, never used."""
    content = read_json(path)
    try:
        intact = content.pop("checksum") == digest(content)
    except (AttributeError, KeyError, TypeError, ValueError):  # no mapping, no checksum, or a number that is none
        intact = False
    if not intact:
        raise UserError(f"{path} is damaged or was altered: its checksum does not match its content")
    return dict(content)
