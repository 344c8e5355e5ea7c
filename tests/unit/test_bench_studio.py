"""The benchmark of the studio: a study with a page open is compared with the one of its own round."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.studio import compare_slowdown


def fabricate(number: int, page: str, seconds: float) -> dict[str, Any]:
    times = {"seconds": seconds, "processor seconds": seconds + 1, "processor seconds beside": seconds / 50}
    return {"round": number, "page": page, "epochs": 1, **times}


def test_ratios_are_paired_by_round() -> None:
    rows = [fabricate(number, "none", seconds) for number, seconds in enumerate((10.0, 20.0))]
    rows += [fabricate(number, "events read", seconds) for number, seconds in enumerate((10.0, 20.4))]
    alone, followed = compare_slowdown(rows, 2)
    assert (alone["time, ratio"], alone["time, 95 %"]) == (1.0, "1.0000 to 1.0000")
    assert followed["time, ratio"] == 1.01
    low, high = map(float, followed["time, 95 %"].split(" to "))
    assert (low, high) == pytest.approx((1.01 - 12.706 * 0.01, 1.01 + 12.706 * 0.01), abs=1e-3)
    assert followed["taken from a study on all cores"] == "0.93%"  # 0.1 of 11 and 0.204 of 21.4 seconds
    assert followed["study on all cores, ratio"] == pytest.approx((1 + (21.4 + 0.204) / 21.2) / 2, abs=1e-4)
    assert compare_slowdown(rows[::2], 2)[1]["time, 95 %"] == "–"
