"""A table of houses with names of colours, dates and blanks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def write_houses(path: Path, rows: int = 60) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 2))
    words = draw.choice(["red", "green", "blue"], rows)
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(rows)]
    price = 2 * x[:, 0] - x[:, 1] + 3 * (words == "red") + 0.1 * draw.normal(size=rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "size", "age", "colour", "sold", "price"])
        for i in range(rows):
            age = "" if i % 9 == 0 else f"{x[i, 1]:.4f}"
            writer.writerow([i + 1, f"{x[i, 0]:.4f}", age, words[i], days[i], f"{price[i]:.3f}"])
    return path
