"""A few test rows: input, output and target."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from isthmus.core.files import write_with

_SHOWN = 10
_SIDE = 84
_GAP = 6


def write_sheet(path: Path, lines: list[np.ndarray]) -> None:
    """Write uint8 images (rows, channels, height, width) as one PNG: a line each for input, output and target."""
    from PIL import Image

    shown = min(_SHOWN, len(lines[0]))
    width = shown * (_SIDE + _GAP) + _GAP
    sheet = Image.new("RGB", (width, len(lines) * (_SIDE + _GAP) + _GAP), "white")
    for y, images in enumerate(lines):
        for x, image in enumerate(images[:shown]):
            pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
            picture = Image.fromarray(pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., 0])
            scaled = picture.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
            sheet.paste(scaled, (_GAP + x * (_SIDE + _GAP), _GAP + y * (_SIDE + _GAP)))
    write_with(path, lambda temporary: sheet.save(temporary, "PNG"))


def write_values(path: Path, output: np.ndarray, target: np.ndarray) -> None:
    """Write numbers or labels as CSV: one line per row, outputs beside targets."""
    output, target = output.reshape(len(output), -1), target.reshape(len(target), -1)

    def write(temporary: Path) -> None:
        with temporary.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow([f"{kind}_{i}" for kind in ("output", "target") for i in range(output.shape[1])])
            table.writerows([*a.tolist(), *b.tolist()] for a, b in zip(output[:_SHOWN], target[:_SHOWN], strict=True))

    write_with(path, write)
