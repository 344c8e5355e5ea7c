"""What the bench of ViTs says where timm does not work, and that the augmentation which it times is Table 11's."""

from __future__ import annotations

import sys

import pytest

from benchmarks.vit import AUGMENTATION_BAR, augmented_step, measure
from isthmus.core.errors import UserError


def test_without_timm_it_says_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="make test-timm"):
        measure(1, 1)


def test_the_step_is_timed_with_and_without_augmentation() -> None:
    line = augmented_step(1, batch=2)
    assert line["ours"] > 0
    assert line["rival's"] > 0
    assert line["bar"] == AUGMENTATION_BAR
