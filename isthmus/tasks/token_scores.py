"""Accuracy as the mean of ones and zeros."""

from __future__ import annotations

from torchmetrics import MeanMetric


class ShareOfRight(MeanMetric):
    """The mean of ones and zeros; more is better."""

    higher_is_better = True  # type: ignore[assignment]
