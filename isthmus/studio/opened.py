"""Data that the user opened: a dropped file, a named path, or the name of a source. Nothing else is ever read.

A dropped file is stored by the digest of its content in ISTHMUS_HOME/studio/uploads, so that dropping it again finds
the same runs. Archives of images are unpacked under limits, and only images come out of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import advise_path, digest, expand_user, make_folder, need_regular, read_json, write_json
from isthmus.core.registry import catalogue, component
from isthmus.sources.dialects import ENDINGS
from isthmus.sources.images import SUFFIXES

ARRAYS = (".npy", ".npz")
KINDS = (*ENDINGS, *ARRAYS, ".zip")
"""The endings of files that can be dropped."""
LARGEST = 2**28
"""Bytes of a dropped file."""
_LARGEST_TOTAL, _MOST_UPLOADS = 2**32, 200
_MOST_IMAGES, _LARGEST_IMAGE, _LARGEST_UNPACKED = 20_000, 2**25, 2**30
_BLOCK = 2**20
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Opened:
    """Data that can be searched for a network."""

    id: str
    data: str
    """An absolute path, or the name of a source."""
    title: str

    @property
    def path(self) -> Path | None:
        return Path(self.data) if self.data.startswith("/") else None

    @property
    def kind(self) -> str:
        """``table``, ``arrays``, ``images`` or ``source``."""
        if self.path is None:
            return "source"
        if self.path.is_dir():
            return "images"
        return "arrays" if self.data.lower().endswith(ARRAYS) else "table"


class Shelf:
    """What was opened, also before the server was started again."""

    def __init__(self, home: Path) -> None:
        self.root = home / "studio"

    def newest(self) -> list[Opened]:
        """The latest first."""
        with suppress(OSError):
            files = sorted((self.root / "opened").glob("*.json"), key=lambda file: -file.stat().st_mtime)
            return [opened for file in files if (opened := self.find(file.stem)) is not None]
        return []

    def find(self, identity: str) -> Opened | None:
        if not re.fullmatch("[0-9a-f]{12}", identity):
            return None
        try:
            return Opened(**read_json(self.root / "opened" / f"{identity}.json"))
        except (UserError, TypeError):
            return None

    def open(self, given: str) -> Opened:
        """Open what the user named: the path of a file or of a folder of images, or a source."""
        text = given.strip()
        if text in catalogue("sources"):
            component("sources", {"name": text})  # an error says what a source needs besides its name
            return self._keep(text, text)
        try:
            path = expand_user(text).absolute()
            is_there = path.exists()
        except (OSError, ValueError):
            is_there = False
        if not text or not is_there:
            near = nearest(text, catalogue("sources")) if "/" not in text else advise_path(expand_user(text))
            raise UserError(f"there is no file, folder or source {text[:200]!r}; {near}")
        if not path.is_dir():
            check_ending(path.name)
            if path.suffix.lower() == ".zip":
                raise UserError("name the folder that the archive was unpacked to, or drop the archive on the page")
            need_regular(path)
        return self._keep(str(path), path.name)

    def _keep(self, data: str, title: str) -> Opened:
        opened = Opened(digest(data, 12), data, title)
        write_json(self.root / "opened" / f"{opened.id}.json", asdict(opened))
        return opened

    async def receive(self, name: str, blocks: AsyncIterator[bytes]) -> Opened:
        """Store a dropped file, and unpack it if it is an archive of images."""
        title = clean_name(name)
        check_ending(title)
        uploads = make_folder(self.root / "uploads")
        await asyncio.to_thread(self._check_room, uploads)
        descriptor, temporary = tempfile.mkstemp(dir=uploads, prefix=".upload-")
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                seal = await _write(file, blocks)
            place = await asyncio.to_thread(_store, Path(temporary), uploads / seal, title)
        except OSError as error:
            raise UserError(f"the file cannot be stored: {error.strerror or error}") from None
        finally:
            Path(temporary).unlink(missing_ok=True)
        return self._keep(str(place), title)

    def _check_room(self, uploads: Path) -> None:
        sizes = [path.stat().st_size for path in uploads.rglob("*") if path.is_file()]
        if sum(sizes) > _LARGEST_TOTAL or sum(1 for _ in uploads.iterdir()) >= _MOST_UPLOADS:
            raise UserError(f"{uploads} holds too many uploads; delete some of its folders, or name the path of a file")


async def _write(file: Any, blocks: AsyncIterator[bytes]) -> str:
    """Write what arrives, up to the limit; returns a digest of it."""
    seal, size = hashlib.sha256(), 0
    async for block in blocks:
        size += len(block)
        if size > LARGEST:
            raise UserError(f"the file is larger than {LARGEST // 2**20} MiB; name its path instead")
        seal.update(block)
        file.write(block)
    if not size:
        raise UserError("the file is empty")
    return seal.hexdigest()[:16]


def clean_name(name: str) -> str:
    """The last part of a file name without characters that a shell or a path gives a meaning."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = re.sub(r"[^\w .()+-]", "_", last).strip(". -")
    stem, dot, ending = clean.rpartition(".")
    return f"{stem[:_LONGEST_NAME]}{dot}{ending[:10]}" if stem else clean[:_LONGEST_NAME] or "data"


def check_ending(name: str) -> None:
    if not name.lower().endswith(KINDS):
        raise UserError(f"{name!r} is of no known kind; give a {', '.join(KINDS)} file or a folder of images")


def _store(file: Path, folder: Path, title: str) -> Path:
    """Move a received file to its place; returns the file, or the folder of an archive's images."""
    target = folder / (Path(title).stem if title.lower().endswith(".zip") else title)
    if target.exists():
        return _find_images(target) if target.is_dir() else target
    make_folder(folder)
    if not title.lower().endswith(".zip"):
        if title.lower().endswith(".npz"):
            with _open_zip(file) as archive:
                check_sizes(archive)
        file.chmod(0o644)
        file.replace(target)
        return target
    unpacked = Path(tempfile.mkdtemp(dir=folder, prefix=".unpack-"))
    try:
        unpack_images(file, unpacked)
        unpacked.chmod(0o755)
        try:
            unpacked.replace(target)
        except OSError:
            if not target.is_dir():  # otherwise the same archive was dropped twice at once
                raise
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return _find_images(target)


@contextmanager
def _open_zip(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise UserError(f"the archive cannot be read: {error or type(error).__name__}") from None
    except Exception as error:  # a damaged stream of bytes: zlib, lzma and bz2 have errors of their own
        if isinstance(error, UserError):
            raise
        raise UserError(f"the archive is damaged: {type(error).__name__}") from None


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse an archive that says it is too large. What it does not say is counted while it is unpacked."""
    members = archive.infolist()
    if len(members) > _MOST_IMAGES or sum(member.file_size for member in members) > _LARGEST_UNPACKED:
        limit = f"{_MOST_IMAGES:,} files and {_LARGEST_UNPACKED // 2**20:,} MiB"
        raise UserError(f"the archive is too large unpacked; the limits are {limit}")


def unpack_images(file: Path, folder: Path) -> None:
    """Unpack the images of an archive. No member can be written outside the folder, be a link, or grow without end."""
    total = 0
    with _open_zip(file) as archive:
        check_sizes(archive)
        for member in archive.infolist():
            place = _place(member)
            if place is None:
                continue
            target = folder.joinpath(*place.parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("xb") as made:
                    total += _copy(source, made, min(_LARGEST_IMAGE, _LARGEST_UNPACKED - total))
            except FileExistsError:
                raise UserError(f"the archive has {member.filename[:100]!r} twice") from None
            except OSError as error:
                raise UserError(f"{member.filename[:100]!r} cannot be unpacked: {error.strerror or error}") from None
    if not total:
        endings = ", ".join(sorted(SUFFIXES))
        raise UserError(f"the archive holds no images; it may hold {endings}. Drop a table or arrays as they are")


def _place(member: zipfile.ZipInfo) -> PurePosixPath | None:
    """Where an image goes; None for what is no image."""
    name = member.filename.replace("\\", "/")
    place = PurePosixPath(name)
    if member.is_dir() or place.suffix.lower() not in SUFFIXES or "__MACOSX" in place.parts or place.name[:1] == ".":
        return None
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UserError(f"the archive has a link or a device, {name[:100]!r}; pack the images themselves")
    if place.is_absolute() or ".." in place.parts or "\0" in name or re.match("[A-Za-z]:", name):
        raise UserError(f"the archive has a path outside itself, {name[:100]!r}")
    if member.flag_bits & 1:
        raise UserError("the archive is encrypted; pack it without a password")
    return place


def _copy(source: Any, made: BinaryIO, limit: int) -> int:
    size = 0
    while block := source.read(_BLOCK):
        size += len(block)
        if size > limit:
            raise UserError("the archive has an image that is too large, or is too large unpacked")
        made.write(block)
    return size


def _find_images(folder: Path) -> Path:
    """The folder whose subfolders are classes: archives often have one folder around everything."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    while len(inside) == 1 and inside[0].is_dir() and any(path.is_dir() for path in inside[0].iterdir()):
        folder = inside[0]
        inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return folder


class Shape(NamedTuple):
    """What the header of an array says."""

    sizes: tuple[int, ...]
    kind: str

    def __str__(self) -> str:
        return f"{' × '.join(map(str, self.sizes)) or 'one number'}, {self.kind}"


def read_shapes(path: Path) -> dict[str, Shape]:
    """The arrays of a npy or npz file with their shapes and types, from their headers alone."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            return {"": _read_header(file)}
    with _open_zip(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        found = {}
        for name in names[:100]:
            with archive.open(name) as member:
                found[name.removesuffix(".npy")] = _read_header(io.BytesIO(member.read(2**16)))
        return found


def _read_header(file: Any) -> Shape:
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = reader(file)
    except (ValueError, OSError, SyntaxError, TypeError) as error:
        raise UserError(f"this is no array that can be read: {error}") from None
    return Shape(shape, str(kind))


def list_pictures(folder: Path, most: int) -> list[Path]:
    """Some images of a folder, evenly spread over its subfolders."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(root, name) for name in sorted(names) if Path(name).suffix.lower() in SUFFIXES]
        if len(found) > _MOST_IMAGES:
            break
    return [found[round(place)] for place in np.linspace(0, len(found) - 1, min(most, len(found)))]
