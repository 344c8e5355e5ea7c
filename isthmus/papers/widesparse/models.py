"""The networks of this paper, and how a study of them is defined at each scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from isthmus.analysis import shape_theory as theory
from isthmus.core.config import RunConfig
from isthmus.papers import load_paper
from isthmus.papers.engine.differences import SOURCES
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.parts import Model, Settings, describe_study, make_part, smoke_base

SEEDS = (0, 1, 2)
FIELDS = ("C", "S", "m", "p", "gamma", "depth", "permutation")
FIGURE_4 = {  # C to S, at Ω = 2^19 and γ = 2
    4: 360, 8: 252, 12: 203, 16: 173, 20: 152, 24: 136, 28: 124, 32: 113, 36: 104, 40: 96, 44: 89, 48: 83, 64: 64,
}  # fmt: skip
FIGURE_5 = {  # Ω to pairs of C and S
    2**18: ((16, 173), (32, 113), (48, 83), (83, 48), (113, 32), (173, 16)),
    2**21: ((16, 504), (32, 346), (64, 226), (226, 64), (346, 32), (504, 16)),
    2**27: ((128, 1386), (256, 904), (904, 256), (1386, 128)),
}
SPARSE_5 = {0.9: 540, 0.7: 612, 0.5: 724, 0.3: 935, 0.1: 1619}  # p to m, at Ω = 2^18
HELD_OUT = "the paper trains on all training images; here a tenth of CIFAR's is held out for validation"
UNPRINTED = (
    "the paper prints neither weight decay nor the padding of crops nor which epoch it reports; here: 0.01 for AdamW "
    "and none for SGD, 4 pixels, the last epoch"
)
MASK = (
    "the paper gives kept entries of a mask as 1/√p (section 4.3) and as 1 (A.2.5), and ticks (Table S.1) and omits "
    "(A.2.5) pooling; here: 1/√p and pooling beside a Mixer of the same S·C (Figures 2 and 4), 1 and the whole vector "
    "elsewhere, because with 1/√p plain SGD at these rates diverges"
)


def tokens_of(C: int, omega: float, gamma: float) -> int:
    """The integer S nearest to the solution of Ω = γ (C S² + C² S) / 2."""
    return theory.shape(C, omega, gamma).S


def mixer(C: int, S: int | None, depth: int, gamma: float, patch: int = 4, **fields: Any) -> Model:
    return {"name": "mlp_mixer", "patch": patch, "S": S, "C": C, "depth": depth, "gamma": gamma, **fields}


def s_mixer(C: int, S: int, depth: int, patch: int = 4, **fields: Any) -> Model:
    return {"name": "s_mixer", "patch": patch, "S": S, "C": C, "depth": depth, **fields}


def sparse(m: int, p: float, depth: int, patch: int = 4, **fields: Any) -> Model:
    return {"name": "sw_mlp", "patch": patch, "m": m, "p": p, "depth": depth, "mask_scale": "one", **fields}


def sparse_beside(C: int, S: int, p: float, depth: int, gamma: float, patch: int = 4) -> Model:
    """The sparse MLP with the width of a Mixer; it has a block each for token and channel mixing."""
    return sparse(S * C, p, 2 * depth, patch, block="mlp", gamma=gamma, S=S, pool=True, mask_scale="inverse_root")


def with_random(models: Iterable[Model]) -> list[Model]:
    """Each network with normal and with random permutations."""
    models = list(models)
    return [*models, *({**model, "permutation": "random"} for model in models)]


Setup = tuple[RunConfig, Iterable[Model]] | tuple[RunConfig, Iterable[Model], Sequence[int]]
"""What networks are trained with, the networks, and the seeds if they are not ``SEEDS``."""


def make_parts(
    figure: str, name: str, title: str, scale: Scale, paper: Callable[[str], Setup], cpu: Callable[[], Setup],
    smoke: Callable[[], Iterable[Model]], notes: Mapping[str, Sequence[str]], sources: Sequence[str] = ("cifar10",),
    **more: Any,
) -> list[Part]:  # fmt: skip
    """A part for every source at the paper's scale; one at the others, which stands for the first source."""
    all_notes = {**notes, "all": [*notes.get("all", ()), _axes_of(figure), HELD_OUT, UNPRINTED]}
    if scale != "paper" and (others := [SOURCES[source] for source in sources[1:]]):
        untrained = f"the paper also has {', '.join(others)}; only one data set is run at this scale"
        all_notes[scale] = [*notes.get(scale, ()), untrained]

    def study(source: str) -> Settings:
        return describe(name if len(sources) == 1 else f"{name}-{source}", "paper", *paper(source))

    return [
        make_part(
            title,
            scale,
            {
                "paper": partial(study, source),
                "cpu": lambda: describe(name, "cpu", *cpu()),
                "smoke": lambda: describe_smoke(name, smoke()),
            },
            all_notes,
            **{"fields": FIELDS} | more,
        )
        for source in (sources if scale == "paper" else sources[:1])
    ]


def _axes_of(figure: str) -> str:
    """What is known of a figure's values: the ends of its axes."""
    ticks = load_paper("widesparse").figures[figure].ticks
    axes = ", ".join(f"{axis.replace('_', ' ')} {low:g} to {high:g}" for axis, (low, high) in ticks.items())
    return "the paper plots this and prints no values" + (f"; its axes are labelled: {axes}" if axes else "")


def describe(
    name: str, scale: Scale, base: RunConfig | Settings, models: Iterable[Model], seeds: Sequence[int] = SEEDS
) -> Settings:
    return describe_study(f"widesparse-{name}", scale, base, models, seeds=seeds)


def describe_smoke(name: str, models: Iterable[Model]) -> Settings:
    return describe(name, "smoke", smoke_base(learning_rate=0.01), models, (0, 1))
