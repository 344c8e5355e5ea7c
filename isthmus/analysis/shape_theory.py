"""Formulas for the shape of Mixers seen as wide, sparse MLPs: connections, widths, densities, singular values.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), sections 3.4, 4 and appendices C.4, D.

    paper            here
    Ω, γ             ``omega``, ``gamma``: connections of a layer on average, and the hidden layer's expansion
    S, C, m = S C    ``S``, ``C``, ``m``
    p, q = √(p m)    ``p``, and ``p * m`` for q²
    c_γ              ``dense_edge``, the largest singular value of a γm × m matrix of N(0, 1/m) as m grows
    √L_+             ``sparse_edge``, that of the same matrix masked with density p and scaled by 1/√p

Eq. (17) is wrong if γ is not 1. Its excess over the dense edge is 3 c² √γ (1 − p)/q² as printed, but measured matrices
agree with 3 c² (1 − p)/(√γ q²) (γ = 4, m = 600, p = 0.05: printed 1.71, here 0.43, measured 0.42).
``printed_squared_edge`` is kept for comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from isthmus.core.errors import UserError

_MOST_CONNECTIONS, _WIDEST = 10**18, 10**6
"""Far above any network, and far below the overflow of a float."""


def sparse_connections(m: float, p: float, gamma: float = 1.0) -> float:
    """Ω of a masked γm × m matrix."""
    return p * gamma * m**2  # Eq. (13)


def mixer_connections(S: float, C: float, gamma: float = 1.0) -> float:
    """Ω of token and channel mixing, on average; Eq. (S.42) is γ = 1."""
    return gamma * (C * S**2 + C**2 * S) / 2  # Eqs. (14), (S.44)


def density(m: float, omega: float, gamma: float = 1.0) -> float:
    """p at which a layer of width m has Ω connections."""
    return omega / (gamma * m**2)


def matched_density(S: float, C: float) -> float:
    """p of the SW-MLP beside a Mixer: the mean share of nonzero entries of I ⊗ W and of Vᵀ ⊗ I."""
    return (1 / S + 1 / C) / 2


def tokens(C: float, omega: float, gamma: float = 1.0) -> float:
    """S at which a Mixer of C channels has Ω connections; with tokens and channels exchanged, C of S."""
    return (math.sqrt(C**2 + 8 * omega / (gamma * C)) - C) / 2


def widest_side(omega: float, gamma: float = 1.0) -> float:
    """C* = S*, at which the width S C of a Mixer of Ω connections is largest, and its density smallest."""
    return (omega / gamma) ** (1 / 3)  # Eq. (15)


def mixer_widths(omega: float, gamma: float = 1.0) -> tuple[float, float]:
    """The least and the largest m of a Mixer: with one token (or channel), and with C* = S*."""
    return (math.sqrt(1 + 8 * omega / gamma) - 1) / 2, (omega / gamma) ** (2 / 3)  # Eq. (S.45)


def dense_edge(gamma: float = 1.0) -> float:
    """1 + √γ, the square root of the Marchenko–Pastur law's right edge, also for a Mixer's effective weights."""
    return 1 + math.sqrt(gamma)


def squared_edge(m: float, p: float, gamma: float = 1.0) -> float:
    """L_+ to first order in 1/q², as corrected."""
    c2 = dense_edge(gamma) ** 2
    return c2 + 3 * c2 * (1 - p) / (math.sqrt(gamma) * p * m)  # Eq. (17)


def printed_squared_edge(m: float, p: float, gamma: float = 1.0) -> float:
    """L_+ as eq. (17) is printed."""
    c2 = dense_edge(gamma) ** 2
    return c2 + 3 * c2 * math.sqrt(gamma) * (1 - p) / (p * m)


def sparse_edge(m: float, p: float, gamma: float = 1.0) -> float:
    return math.sqrt(squared_edge(m, p, gamma))


def scaled_sparse_shape(omega: float, a: float) -> tuple[float, float]:
    """m and p of appendix D.1: Ω connections for every a, dense at a = 0 and sparser with larger a."""
    return float(omega) ** ((1 + a) / 2), float(omega) ** -a


@dataclass(frozen=True)
class Shape:
    """A Mixer of whole S and C, with its Ω after rounding."""

    C: int
    S: int
    m: int
    p: float
    omega: float
    deviation: float
    """Relative deviation of ``omega`` from the requested one."""


def shape(C: int, omega: float, gamma: float = 1.0) -> Shape:
    """The Mixer of C channels whose whole S is nearest to Ω connections, rounded as in the paper."""
    return _shape(C, max(1, round(tokens(C, omega, gamma))), omega, gamma)


def _shape(C: int, S: int, omega: float, gamma: float) -> Shape:
    realised = mixer_connections(S, C, gamma)
    return Shape(C, S, S * C, matched_density(S, C), realised, realised / omega - 1)


def shapes(omega: float, gamma: float = 1.0, channels: Iterable[int] | None = None) -> list[Shape]:
    """Mixers of Ω connections, by channels: the given numbers, or all sixteenths of C* and their mirrors.

    The mirror of (S, C) is (C, S), which has as many connections. The paper's pairs are among these.
    """
    if not 1 <= omega <= _MOST_CONNECTIONS:
        raise UserError(f"omega={omega:g} is no number of connections: from 1 to {_MOST_CONNECTIONS:g}")
    if not 1 / _WIDEST <= gamma <= _WIDEST:
        raise UserError(f"gamma={gamma:g} is no expansion factor: from {1 / _WIDEST:g} to {_WIDEST:g}")
    if channels is not None:
        channels = list(channels)
        if not all(1 <= C <= _MOST_CONNECTIONS for C in channels):
            raise UserError(f"channels are whole numbers from 1 to {_MOST_CONNECTIONS:g}")
        return [shape(C, omega, gamma) for C in sorted(set(channels))]
    side = widest_side(omega, gamma)
    below = {max(1, round(side * k / 16)) for k in range(1, 17)}
    narrow = [shape(C, omega, gamma) for C in sorted(below)]
    mirrored = [_shape(each.S, each.C, omega, gamma) for each in reversed(narrow)]
    return narrow + [each for each in mirrored if each.C > narrow[-1].C]


def parse_amount(text: str) -> float:
    """A number of connections such as 2^18, 262144, 290_217_984 or 2.6e8."""
    power = re.fullmatch(r"(\d{1,20})\s*(?:\^|\*\*)\s*(\d{1,4})", text.strip(), re.ASCII)
    try:
        return float(int(power[1]) ** int(power[2])) if power else float(text)
    except OverflowError:
        return math.inf
    except ValueError:
        raise UserError(f"{text[:60]!r} is no number such as 2^18, 262144 or 2.6e8") from None
