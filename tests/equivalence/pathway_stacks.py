"""Small stacks of branches in float64, joined by every pathway."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from isthmus.core.registry import catalogue, component, find, presets
from isthmus.layers.residual import Block, Branch, Layout, Stack

D, BLOCKS = 5, (1, 2, 1, 3, 1)


class Tanh(Block):
    """Some branches that share nothing."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places
        self.maps = nn.ModuleList(nn.Linear(D, D) for _ in range(places))

    def branches(self) -> tuple[Branch, ...]:
        return tuple(Branch(f"map{n}", nn.Sequential(f, nn.Tanh())) for n, f in enumerate(self.maps))


def stack(pathway: Any, blocks: tuple[int, ...] = BLOCKS, move: float = 0.0) -> Stack:
    """In float64, with the pathway's parameters moved away from their start."""
    torch.manual_seed(0)
    made = [Tanh(places) for places in blocks]
    config, layout = component("pathways", pathway), Layout(D, blocks)
    config.check(layout)  # type: ignore[attr-defined]
    joined = Stack(made, find("pathways", config.name)(config, layout)).double()
    with torch.no_grad():
        for parameter in joined.pathway.parameters():
            parameter.add_(move * torch.randn_like(parameter))
    return joined


LISTED: list[Any] = [
    *catalogue("pathways"),
    *(name for name in presets() if "/" in name),
    {"name": "scaled", "by": 0.3},
    {"name": "gained", "per": "channel"},
    {"name": "delayed", "lag": 3},
    {"name": "delayed", "lag": 1, "from_block": 3},
    {"name": "delayed", "lag": 2, "from_block": 3},
    {"name": "delayed", "group": "all", "from_block": 2},
    {"name": "delayed", "group": 3, "from_block": 2},
    {"name": "highway", "gate": "full", "carry": "free"},
    {"name": "injected", "decay": 0.3, "normed": True, "begin": "zero"},
    {"name": "injected", "how": "concatenation"},
    {"name": "post_norm", "alpha": 0.7, "norm": "rms"},
    {"name": "delta", "value": "linear"},
    {"name": "delta", "value": "constant", "value_scale": 2.0},
    {"name": "mobius", "curvature": 1.3, "order": "stream_first"},
    {"name": "weighted", "dilation": 2},
    {"name": "weighted", "period": 2},
    {"name": "attended", "blocks": 3},
    {"name": "attended", "blocks": None, "window": 2, "total": "mean"},
    {"name": "attended", "blocks": 3, "window": 1},
    {"name": "streams", "count": 3, "constrain": "permutations", "dynamic": False, "output": "sum"},
    {"name": "streams", "count": 2, "constrain": "doubly_stochastic", "sinkhorn_iterations": 3},
    {"name": "streams", "count": 2, "norm": "rms", "bound": "none"},
    {"name": "streams/mhc-2", "pre_eps": 1e-2, "post_scale": 0.7},
    {"name": "streams", "count": 2, "constrain": "permutations", "pre_eps": 1e-2, "post_scale": 0.7},
]
CASES = list({component("pathways", case): case for case in LISTED}.values())  # a preset may be a default
IDS = [case if isinstance(case, str) else "-".join(map(str, case.values())) for case in CASES]
every_case = pytest.mark.parametrize("case", CASES, ids=IDS)
