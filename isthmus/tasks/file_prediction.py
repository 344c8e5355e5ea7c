"""Files to predict from: which kinds there are, where their results go, and the rows of npy and npz files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from isthmus.core.errors import UserError
from isthmus.core.files import resolve_links
from isthmus.sources.dialects import ENDINGS
from isthmus.sources.files import member_size, open_archive, open_member, read_header
from isthmus.sources.streaming import array_pieces, npy_pieces
from isthmus.sources.tables import as_names

RESULTS = {".npy": ".predicted.npy", ".npz": ".predicted.npy"} | dict.fromkeys(ENDINGS, ".predicted.csv")
"""Suffixes of files of rows, and of their results."""
LISTING = "images.predicted.csv"
"""The result of images that are given by name and classified."""


def ending_of(file: Path) -> str:
    """The suffix of a file; of a packed table, both."""
    name = file.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), file.suffix.lower())


def result_paths(files: Sequence[Path], read: Sequence[Path], out: Path) -> dict[Path, Path]:
    """The result file of each of ``files``; files with the same name keep the folders that tell them apart.

    No result may overwrite an input or another result.
    """
    whole = {file: Path(os.path.abspath(file)) for file in files}  # noqa: PTH100 (a symbolic link keeps its own name)
    results = {file: _result_name(path) for file, path in whole.items()}
    folders = {file: Path() for file in whole}
    if len(set(results.values())) < len(results):
        common = os.path.commonpath([path.parent for path in whole.values()])
        folders = {file: path.parent.relative_to(common) for file, path in whole.items()}
    targets = {file: out / folders[file] / result for file, result in results.items()}
    taken = {resolve_links(file) for file in read}
    for file, target in targets.items():
        if resolve_links(target) in taken:
            raise UserError(f"{target} would be replaced by the result of {file}; predict it into another folder")
        taken.add(resolve_links(target))
    return targets


def _result_name(path: Path) -> str:
    if path.is_dir():
        return f"{path.name}.predicted.csv"
    ending = ending_of(path)
    return path.name[: len(path.name) - len(ending)] + RESULTS.get(ending, ".png")


def array_rows(
    path: Path, source: Mapping[str, Any], fits: Callable[[tuple[int, ...]], bool], shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    """The rows of an npy or npz file piece by piece.

    ``source`` may say how the arrays of an archive are called, ``fits`` whether rows of a shape can be predicted from;
    ``shape`` is that of the model's inputs, for error messages.
    """
    seen = 0
    for rows in npy_pieces(path) if ending_of(path) == ".npy" else _from_archive(path, source, fits, shape):
        seen += rows.size
        if rows.size:
            yield rows
    if not seen:
        raise UserError(f"{path} has no rows")


def _from_archive(
    path: Path, source: Mapping[str, Any], fits: Callable[[tuple[int, ...]], bool], shape: tuple[int, ...]
) -> Iterator[np.ndarray]:
    with open_archive(path) as archive:
        name = _choose_array(archive, source, fits)
        if name is None:
            raise UserError(
                f"{path} holds the arrays {', '.join(archive.files) or '(none)'}, of which "
                f"{len(_list_fitting(archive, source, fits))} fit a model of inputs {shape}; "
                "save only the one to predict from"
            )
        with open_member(archive, name) as file:
            yield from array_pieces(file, member_size(archive, name))


def _choose_array(archive: NpzFile, source: Mapping[str, Any], fits: Callable[[tuple[int, ...]], bool]) -> str | None:
    """The only array, the one named as in training, or the only one that fits."""
    if len(archive.files) == 1:
        return str(archive.files[0])
    for name in as_names(source.get("inputs")):
        if name in archive.files:
            return name
    fitting = _list_fitting(archive, source, fits)
    return fitting[0] if len(fitting) == 1 else None


def _list_fitting(archive: NpzFile, source: Mapping[str, Any], fits: Callable[[tuple[int, ...]], bool]) -> list[str]:
    fitting = []
    for name in sorted(set(archive.files) - set(as_names(source.get("targets")))):
        with open_member(archive, name) as file:
            shape = read_header(file).shape
        fitting += [str(name)] if math.prod(shape) and fits(shape) else []
    return fitting
