"""Loss and accuracy of predicted tokens, of which only some count."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from torchmetrics import MeanMetric

IGNORED = -100
"""The target of a token that does not count."""


class ShareOfRight(MeanMetric):
    """The mean of ones and zeros; more is better."""

    higher_is_better = True  # type: ignore[assignment]


def mean_cross_entropy(
    output: Float[Tensor, "rows ..."], target: Int[Tensor, "rows positions"], classes: int, smoothing: float = 0.0
) -> Tensor:
    """The mean over rows of each row's mean over its tokens that count; one output per row, or one per iteration."""
    scores = output.reshape(len(target), -1, target.shape[1], classes)
    wanted = target[:, None].expand(scores.shape[:-1]).flatten(0, 1)
    losses = functional.cross_entropy(
        scores.flatten(0, 1).mT, wanted, ignore_index=IGNORED, reduction="none", label_smoothing=smoothing
    )
    return (losses.sum(dim=1) / (wanted != IGNORED).sum(dim=1).clamp(min=1)).mean()
