"""Decodes images once into a memory-mapped array under ``files.home()/cache``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.core import files
from isthmus.core.errors import UserError
from isthmus.sources.splits import array_digest

LAYOUT = 1  # part of every key; increase it when the cached bytes change
SMALL = 1 << 30  # caches up to this size are verified whenever they are opened
CHUNK = 32  # items that a thread decodes at a time
BLOCK = 64 * CHUNK  # items between progress updates


class CachedArray(NamedTuple):
    array: np.ndarray
    digest: str
    """The :func:`array_digest` of what was written."""
    unreadable: tuple[int, ...] = ()
    """The skipped rows; the array holds the others in order."""


def cache_array(
    origin: str, key: Mapping[str, Any], shape: tuple[int, ...], fill: Callable[[np.ndarray], Sequence[int] | None]
) -> CachedArray:
    """The uint8 array that ``fill`` writes for this key, written atomically by one process.

    ``fill`` may return the positions of rows that it skipped, which shortens the array. A damaged cache is rewritten.
    Up to :data:`SMALL`, it is verified by content and mapped copy-on-write (torch needs writable memory); larger ones
    are verified by size only and mapped read-only.
    """
    folder = files.home() / "cache" / origin
    path = folder / f"{files.digest({'layout': LAYOUT, 'shape': list(shape), **key}, 24)}.npy"
    if kept := _open(path, shape):
        return kept
    from filelock import FileLock

    files.make_folder(folder)
    with FileLock(path.with_suffix(".lock")):
        if kept := _open(path, shape):
            return kept
        for leftover in folder.glob(f".{path.name}.*"):  # left by a killed process
            leftover.unlink(missing_ok=True)
        needed, free = int(np.prod(shape)), shutil.disk_usage(folder).free
        if needed > free:  # writing to a full disk through a memory map kills the process
            raise UserError(
                f"the cache of {origin} needs {needed / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB free; "
                "set ISTHMUS_HOME to a folder on a larger disk"
            )
        left_out: list[int] = []

        def write(temporary: Path) -> None:
            array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
            left_out.extend(fill(array) or ())
            array.flush()

        files.write_with(path, write)
        note = {"digest": array_digest(np.load(path, mmap_mode="r")), "bytes": path.stat().st_size}
        files.write_json(path.with_suffix(".json"), note | {"unreadable": left_out})
        kept = _open(path, shape)
    if kept is None:
        raise UserError(f"the cache {path} differs from what was written; check the disk")
    return kept


def _open(path: Path, shape: tuple[int, ...]) -> CachedArray | None:
    try:
        note = files.read_json(path.with_suffix(".json"))
        size = path.stat().st_size
        array = np.load(path, mmap_mode="c" if size <= SMALL else "r", allow_pickle=False)
        if size != note["bytes"] or array.shape != shape or array.dtype != np.uint8:
            return None
        if size <= SMALL and array_digest(array) != note["digest"]:
            return None
        left_out = tuple(note.get("unreadable", ()))
        return CachedArray(array[: len(array) - len(left_out)], note["digest"], left_out)
    except (UserError, OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def decode_all(
    array: np.ndarray,
    items: Sequence[Any],
    decode: Callable[[Any], np.ndarray],
    title: str,
    skip: bool = False,
    counts: Sequence[int] | None = None,
) -> list[int]:
    """Fill ``array`` with the decoded items in order; each gives ``counts`` images (default: the same number).

    With ``skip``, an item that raises a :class:`UserError` is reported and skipped; the positions of skipped
    rows are returned. Threads suffice, because Pillow releases the interpreter lock while decoding.
    """
    if not items:  # no validation rows in a refit
        return []
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import track

    ends = np.cumsum(counts) if counts is not None else np.arange(1, len(items) + 1) * (len(array) // len(items))
    starts = [0, *ends.tolist()]
    left_out: dict[int, str] = {}

    def decode_chunk(start: int) -> None:
        for index in range(start, min(start + CHUNK, len(items))):
            try:
                array[starts[index] : starts[index + 1]] = decode(items[index])
            except UserError as error:
                if not skip:
                    raise
                left_out[index] = str(error)

    console = Console(stderr=True, emoji=False)
    blocks = range(0, len(items), BLOCK)
    progress = track(blocks, escape(title), console=console, transient=True, disable=not console.is_terminal)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in progress:
            list(pool.map(decode_chunk, range(start, min(start + BLOCK, len(items)), CHUNK)))
    for index in sorted(left_out):
        console.print(f"skipped: {left_out[index]}", markup=False, highlight=False, soft_wrap=True)
    skipped = [row for index in sorted(left_out) for row in range(starts[index], starts[index + 1])]
    if skipped:  # close the gaps, one row at a time because source and target may overlap
        kept = np.delete(np.arange(len(array)), skipped)
        for place, index in enumerate(kept.tolist()):
            if place < index:
                array[place] = array[index]
        array[len(kept) :] = 0
    return skipped
