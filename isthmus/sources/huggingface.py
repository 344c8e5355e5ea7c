"""Opens data sets of the Hugging Face hub, or folders that the package ``datasets`` can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError, nearest, quiet
from isthmus.core.files import expand_user
from isthmus.sources.files import name_errors


def open_hub(data_dir: Path, repo: str, split: str, subset: str | None = None, revision: str | None = None) -> Any:
    """One split as ``datasets.Dataset``; ``repo`` may be a folder, under ``data_dir`` or by its path."""
    try:
        import datasets
    except ImportError:
        raise UserError("data sets of the hub need the package datasets: pip install 'isthmus[hub]'") from None
    folder = data_dir / expand_user(repo)
    place = str(folder) if folder.is_dir() else repo
    named = name_errors(f"the split {split!r} of {repo!r}", "a folder or a data set of the hub")
    with named, quiet("huggingface_hub", "datasets"):  # the hub warns on every retry
        dataset = datasets.load_dataset(place, subset, revision=revision, split=split)
    if not len(dataset):
        raise UserError(f"{repo}: the split {split!r} has no rows")
    return dataset


def need_column(dataset: Any, repo: str, column: str) -> None:
    if column not in dataset.column_names:
        raise UserError(f"{repo} has no column {column!r}; {nearest(column, dataset.column_names)}")


def read_labels(dataset: Any, repo: str, column: str) -> np.ndarray:
    """A column of whole numbers."""
    need_column(dataset, repo, column)
    with name_errors(f"{repo}, column {column!r}", "labels of whole numbers"):
        values = dataset.select_columns([column]).with_format("numpy")[:][column]
        return np.asarray(values).astype(np.int64, casting="safe")
