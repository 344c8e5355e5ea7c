"""Opens data sets of the Hugging Face hub, or folders that the package ``datasets`` can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import UserError, nearest, quiet
from isthmus.core.files import expand_user
from isthmus.sources.files import name_errors
from isthmus.sources.images import open_image

if TYPE_CHECKING:
    from PIL.Image import Image


def open_hub(data_dir: Path, repo: str, split: str, subset: str | None = None, revision: str | None = None) -> Any:
    """One split as ``datasets.Dataset``; ``repo`` may be a folder, under ``data_dir`` or by its path."""
    try:
        import datasets
    except ImportError:
        raise UserError("data sets of the hub need the package datasets: pip install 'isthmus[hub]'") from None
    folder = data_dir / expand_user(repo)
    try:
        with quiet("huggingface_hub", "datasets"):  # the hub warns on every retry
            dataset = datasets.load_dataset(
                str(folder) if folder.is_dir() else repo, subset, revision=revision, split=split
            )
    except Exception as error:  # the hub and the readers raise many kinds of error
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise UserError(
            f"cannot load the split {split!r} of {repo!r}, a folder or a data set of the hub: {reason}"
        ) from None
    if not len(dataset):
        raise UserError(f"{repo}: the split {split!r} has no rows")
    return dataset


def need_column(dataset: Any, repo: str, column: str) -> None:
    if column not in dataset.column_names:
        raise UserError(f"{repo} has no column {column!r}; {nearest(column, dataset.column_names)}")


def labels_of(dataset: Any, repo: str, column: str) -> np.ndarray:
    """A column of whole numbers."""
    need_column(dataset, repo, column)
    with name_errors(f"{repo}, column {column!r}", "labels of whole numbers"):
        values = dataset.select_columns([column]).with_format("numpy")[:][column]
        return np.asarray(values).astype(np.int64, casting="safe")


def image_opener(dataset: Any, repo: str, column: str, channels: int = 3) -> Callable[[int], Image]:
    """A function from a row's number to its image."""
    import datasets

    need_column(dataset, repo, column)
    if not isinstance(dataset.features[column], datasets.Image):
        raise UserError(f"the column {column!r} of {repo} does not hold images but {dataset.features[column]}")
    encoded = dataset.select_columns([column]).cast_column(column, datasets.Image(decode=False))

    def open_row(row: int) -> Image:
        image, name = encoded[row][column], f"{repo}, {dataset.split}, row {row}"
        if not image:
            raise UserError(f"{name}: there is no image in {column!r}")
        return open_image(image["bytes"] or Path(image["path"]), name, channels)

    return open_row
