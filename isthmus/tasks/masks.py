"""Masks over the tokens of an image, and the steps in which a masked model fills them in.

Paper: MaskGIT (Chang, Zhang, Jiang, Liu, Freeman 2022): in every step the model proposes a token for each masked
position, and the most confident ones are kept. Step k = 0 … T − 1 keeps a number proportional to
arccos(1 − k / (T − 1)): few at first, when little is known.

Differs from the paper: positions are ranked by confidence alone, without added noise. In Hyper-SET parts of an image
are known, so each image has its own number of positions to fill; all follow the same curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "rows positions"]
Mask = Bool[Tensor, "rows positions"]

_ROWS_AT_ONCE = 128
_COLD = 1e-4  # below it, scores / temperature overflow float32, and only the most likely token would be drawn


def random_mask(shares: Float[Tensor, " rows"], positions: int, generator: torch.Generator) -> Mask:
    """Masks each position with its row's probability, and at least one per row."""
    drawn = torch.rand(len(shares), positions, generator=generator, device=generator.device)
    return (drawn < shares[:, None]) | (drawn == drawn.amin(dim=1, keepdim=True))


def exact_mask(rows: int, positions: int, share: float, generator: torch.Generator) -> Mask:
    """Masks the same number of positions in every row: the rounded share, and at least one."""
    drawn = torch.rand(rows, positions, generator=generator, device=generator.device)
    return drawn.argsort(dim=1).argsort(dim=1) < max(1, round(share * positions))


def arccos_shares(steps: int) -> list[float]:
    """The fraction of masked positions that is filled after each step."""
    if steps == 1:
        return [1.0]
    weights = [math.acos(1 - k / (steps - 1)) for k in range(steps)]
    return [sum(weights[: k + 1]) / sum(weights) for k in range(steps)]


@torch.no_grad()
def fill(
    model: Callable[[Tensor], Tensor],
    tokens: Tokens,
    mask_token: int,
    steps: int,
    temperature: float,
    generator: torch.Generator,
    planned_for_all: bool = False,
) -> Tokens:
    """Replace every ``mask_token`` in at most ``steps`` passes of the model.

    The steps are planned for the masked positions of each image or for all of its positions. The latter keeps more
    tokens in each step, and ends when none is masked: after 14 of 24 steps if 40 % of 256 are.
    """
    if len(tokens) > _ROWS_AT_ONCE:
        parts = tokens.split(_ROWS_AT_ONCE)
        return torch.cat(
            [fill(model, part, mask_token, steps, temperature, generator, planned_for_all) for part in parts]
        )
    total = (tokens == mask_token).sum(dim=1)
    for step, share in enumerate(arccos_shares(steps)):
        masked = tokens == mask_token
        if not masked.any():
            break
        proposed, confidence = _propose(model(tokens)[..., :mask_token], temperature, generator)
        whole = torch.full_like(total, tokens.shape[1]) if planned_for_all else total
        due = (whole * share).round().long().clamp(min=step + 1).minimum(total)  # at least one in every step
        if step == steps - 1:
            due = total
        now = due - (total - masked.sum(dim=1))
        surest = confidence.masked_fill(~masked, -1).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        tokens = torch.where(masked & (surest < now[:, None]), proposed, tokens)
    return tokens


def _propose(
    scores: Float[Tensor, "rows positions codes"], temperature: float, generator: torch.Generator
) -> tuple[Tokens, Float[Tensor, "rows positions"]]:
    """A token for every position, drawn at the temperature (0: the most likely), and its probability."""
    probabilities = scores.float().softmax(dim=-1)
    if temperature < _COLD:
        return probabilities.argmax(dim=-1), probabilities.amax(dim=-1)
    tempered = (scores.float() / temperature).softmax(dim=-1).flatten(0, 1).to(generator.device)
    drawn = torch.multinomial(tempered, 1, generator=generator).view(scores.shape[:2]).to(scores.device)
    return drawn, probabilities.gather(-1, drawn[..., None])[..., 0]
