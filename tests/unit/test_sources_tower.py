"""The source tower: its rows are the tower's, its order is the printed one, and a seed gives it all."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.config import run_config
from isthmus.core.registry import component
from isthmus.sources.tower import draw_branch
from isthmus.training.run import run
from tests.unit.source_data import load_source

load = partial(load_source, "tower", Path())


def share(data: Any) -> float:
    return float(re.findall(r"is (\d+\.\d+):", data.findings[0])[0])


@pytest.mark.parametrize(("scale", "expected"), [(1 / 16, 0.012), (0.5, 0.512), (2.0, 1.221)])
def test_the_share_beyond_first_order_is_the_printed_one(scale: float, expected: float) -> None:
    assert share(load(scale=scale)) == pytest.approx(expected, abs=0.0005)


def test_rows_are_those_of_the_tower_written_out() -> None:
    config: Any = component("sources", {"name": "tower", "depth": 3, "d": 4, "h": 2})
    data = load(depth=3, d=4, h=2, train=5, validation=2, test=3)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [5, 2, 3]
    for x, y in zip(data.test.inputs.astype(float), data.test.targets, strict=True):
        z = x.copy()
        for k in range(3):
            W_1, W_2 = draw_branch(config, k + 1)
            hidden = [np.tanh(sum(W_1[j, i] * z[i] for i in range(4))) for j in range(2)]
            z = z + 0.5 * np.array([sum(W_2[i, j] * hidden[j] for j in range(2)) for i in range(4)])
        np.testing.assert_allclose(y, z - x, atol=1e-6)


def test_one_branch_is_first_order() -> None:
    assert share(load(depth=1, scale=2.0)) == 0


def test_a_seed_gives_the_rows_and_the_scale_only_the_targets() -> None:
    first, again, other, scaled = load(), load(), load(seed=1), load(scale=2.0)
    assert first.fingerprint == again.fingerprint
    assert len({first.fingerprint, other.fingerprint, scaled.fingerprint}) == 3
    np.testing.assert_array_equal(first.train.inputs, scaled.train.inputs)


def test_a_run_records_the_order_of_its_data() -> None:
    config = {
        "source": {"name": "tower", "train": 64, "validation": 16, "test": 16}, "task": {"name": "regression"},
        "threads": 1, "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 4, "depth": 2},
        "train": {"epochs": 1, "batch_size": 32},
    }  # fmt: skip
    record = run(run_config(config))
    assert "beyond first order" in record.data["findings"][0]
