"""What every panel is made of: the trained network, test rows to take, and pieces of HTML."""

from __future__ import annotations

import base64
import io
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.studio.layout import Part

SAMPLES = 10
"""Test rows that can be taken."""
TURN = threading.Lock()
"""Networks of one process take turns."""


@lru_cache(maxsize=4)
def load_run(folder: Path) -> Any:
    from isthmus.export.prediction import load

    return load(folder)


@lru_cache(maxsize=2)
def read_samples(folder: Path) -> Any:
    """Ten test rows of a run's data, with their targets."""
    from isthmus.core.protocols import Split
    from isthmus.core.record import read_record
    from isthmus.core.registry import component
    from isthmus.training.prepare import load_data

    rows = load_data(component("sources", read_record(folder).config["source"])).test
    places = np.linspace(0, len(rows) - 1, min(SAMPLES, len(rows))).astype(int)
    return Split(np.array(rows.inputs[places]), None if rows.targets is None else np.array(rows.targets[places]))


class Panel(ABC):
    """How a person tries the runs of a task. ``given`` are the fields of its form, which may hold anything."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder, self.path, self.trained = folder, path, load_run(folder)

    @abstractmethod
    def form(self, given: Mapping[str, str]) -> str:
        """The fields, within a form."""

    @abstractmethod
    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        """What the network makes of the fields. A ``UserError`` says what is wrong with them."""

    @cached_property
    def samples(self) -> Any:
        """Test rows, or None if the data are not here."""
        try:
            return read_samples(self.folder)
        except UserError:
            return None


def show_probabilities(classes: Sequence[Any], found: np.ndarray, most: int = 10) -> str:
    """The most likely classes with bars."""
    order = np.argsort(-found, kind="stable")[:most]
    rows = "".join(
        f"<tr><th scope='row'>{escape(str(classes[place]))}</th><td><progress max='1' value='{found[place]:.4f}' "
        f"aria-label='{found[place]:.1%}'></progress></td><td class='number'>{found[place]:.1%}</td></tr>"
        for place in order
    )
    best = escape(str(classes[order[0]]))
    return f"<p class='answer' aria-live='polite'>{best}</p><table class='small bars'><tbody>{rows}</tbody></table>"


def address(image: np.ndarray) -> str:
    """An image (channels, height, width) as an address that holds it."""
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(made, "png")
    return f"data:image/png;base64,{base64.b64encode(made.getvalue()).decode()}"


def picture(image: np.ndarray, name: str) -> str:
    """An image within the page."""
    return f"<img class='pixels' alt='{escape(name)}' src='{address(image)}'>"


def whole_number(text: str, usual: int, most: int) -> int:
    return min(int(text), most) if re.fullmatch("[0-9]{1,4}", text) else usual
