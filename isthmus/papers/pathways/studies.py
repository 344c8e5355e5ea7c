"""What is trained at each scale: ``paper`` is the experiment as planned, ``cpu`` what two cores do in an hour or two.

All networks of a part have the same budget of parameters: a pathway with parameters of its own gets a narrower stream.
Block weights depend on the seed alone, so pathways of the same width are compared from the same start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from isthmus.core.registry import component
from isthmus.core.titles import pathway_title
from isthmus.papers.engine.exhibit import MeasuredPart, Part, Scale
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.parts import Model, Notes, Settings, describe_study, make_part
from isthmus.papers.pathways.laws import extra_macs, fit_width, mlp

HISTORIES = ("attended/blocks-8", "attended/full", "weighted", "streams/static-2", "streams/hyper-4", "streams/mhc-4")
"""Pathways that keep more than one or two streams, or mix them with matrix products."""
ON_TOWER = (
    "plain", "none", "scaled/sqrt", "delayed/ladder", "delayed/groups-4", "delayed/parallel", "reversible",
    "delta/value", "delta/erase-and-add", "weighted", "attended/blocks-8", "attended/full", "streams/static-2",
)  # fmt: skip
FORMS = {"attended/blocks-8": "attended/full", "attended/published": "attended/published-full"}
"""Attention over 8 blocks, and over all updates: weights sum to the number of sources or, as published, to 1."""
BY_SHAPE = (
    "plain", "scaled/sqrt", "delayed/ladder", "delayed/groups-4", "reversible", "delta/erase-and-add",
    "attended/blocks-8", "streams/static-2",
)  # fmt: skip
IN_TOKENS = (
    "plain",
    "delayed/ladder",
    "delayed/groups-4",
    "delta/erase-and-add",
    "attended/blocks-8",
    "attended/published",
    "attended/published-full",
    "streams/static-2",
)
FED = ("plain", "injected/addition", "injected/parcae")
SCALES_OF_TOWER: Mapping[str, float] = {"λ = 2": 2.0, "λ = 1/2": 0.5, "λ = 1/16": 0.0625}
LONGER = (2, 4)
"""Multiples of the steps with which plain is trained, for comparisons at equal seconds."""
LONGER_BY_SHAPE = (1.5, 2.0)
"""The same in E7: of E3's pathways with multiply–adds of their own, nearly all take 1.5 to 2.5 times plain's time."""
TWICE_UP_TO = 64
"""Blocks up to which E7 trains plain for twice the steps at the CPU scale."""
SHAPES: Mapping[str, tuple[int, int]] = {
    "conventional": (220, 4), "hourglass 1/4": (30, 12), "hourglass 1/14": (7, 64), "hourglass 1/45": (2, 256),
}  # fmt: skip
"""d_h and depth; d_z follows from the parameters, and the name is about d_h / d_z."""
NARROW = 16
"""d_h up to which a block is narrow (H1)."""
FIELDS = ("pathway", "d_z", "d_h", "depth")

PAIRED = (
    "every pathway has the same budget of parameters; one with parameters of its own has a narrower stream, so only "
    "pathways without any start from the very weights of plain"
)
STARTS = (
    "updates start divided by √L (init=depth_scaled_w2), with scaled and none as PyTorch draws them, because scaled "
    "divides them itself"
)
NO_PAPER = "no paper has this experiment: the set-up is ours, and the scale `paper` is the plan made before any result"


def label(model: Mapping[str, Any]) -> str:
    """The published name of a model's pathway."""
    given = model.get("pathway") or {"name": "plain"}
    return next((name for name, settings in _known().items() if settings == given), pathway_title(given))


@cache
def _known() -> dict[str, Any]:
    names = dict.fromkeys([*ON_TOWER, *BY_SHAPE, *IN_TOKENS, *FED, *WITHOUT_NORMS])
    return {name: component("pathways", name).model_dump(mode="json") for name in names}


def of_pathway(networks: Iterable[Network], name: str) -> Network | None:
    """The smallest network of a pathway: larger ones are for other comparisons."""
    found = [network for network in networks if label(network.model) == name]
    return min(found, key=lambda network: network.params, default=None)


def plains_by_steps(item: MeasuredPart, parts: Iterable[MeasuredPart]) -> dict[float, Network | None]:
    """A part's plain, its first network, by multiples of its steps: longer trainings are parts with nothing else."""
    study = item.part.study
    alone = [
        each
        for each in parts
        if each.part.study.candidates == study.candidates[:1] and each.part.study.base.source == study.base.source
    ]
    epochs = study.base.train.epochs
    return {each.part.study.base.train.epochs / epochs: of_pathway(each.networks, "plain") for each in (item, *alone)}


def _init(pathway: str) -> str:
    return "pytorch" if pathway == "none" or pathway.startswith("scaled") else "depth_scaled_w2"


def _train(epochs: int, batch: int, **more: Any) -> Settings:
    shared = {"schedule": "cosine", "betas": [0.9, 0.99], "evaluate_every": 1}
    return {"epochs": epochs, "batch_size": batch, **shared, **more}


def _part(
    title: str, name: str, scale: Scale, base: Mapping[Scale, Settings], models: Mapping[Scale, Sequence[Model]],
    rates: Sequence[float], notes: Notes, every_seed: bool = False, **more: Any,
) -> Part:  # fmt: skip
    """Three seeds, five in the plan; rates are selected on the first seed unless every seed tries all."""

    def study(chosen: Scale) -> Settings:
        tried = rates if chosen != "smoke" else rates[:1]
        searched = {} if every_seed else {"rates_on": "first_seed"}
        fields = {"learning_rates": tried, **searched}
        seeds = 5 if chosen == "paper" else 3
        return describe_study(
            f"pathways-{name}", chosen, base[chosen] | {"threads": 1}, models[chosen], seeds, **fields
        )

    all_notes = {**notes, "all": [*notes.get("all", ()), NO_PAPER]}
    return make_part(title, scale, study, all_notes, **{"fields": FIELDS} | more)


# E2

TOWER_RATES = (3e-3, 1e-2)
"""The best two of 1e-3, 3e-3, 1e-2 and 3e-2 for plain on the first seed, on validation data."""
TOWER_STEPS: Mapping[Scale, int] = {"smoke": 1, "cpu": 13, "paper": 40}
"""Epochs of 32 steps."""


def _tower(scale_of: float, epochs: Mapping[Scale, int]) -> dict[Scale, Settings]:
    rows: dict[Scale, Settings] = {"smoke": {"train": 256, "validation": 64, "test": 64}, "cpu": {}, "paper": {}}
    return {
        scale: {
            "source": {"name": "tower", "scale": scale_of, **rows[scale]},
            "task": {"name": "regression"},
            "train": _train(epochs[scale], 128),
        }
        for scale in rows
    }


def _equal_mlps(pathways: Iterable[str], d_h: int, depth: int, ends: int, budget: int) -> list[Model]:
    return [mlp(name, fit_width(name, d_h, depth, ends, budget), d_h, depth, init=_init(name)) for name in pathways]


def on_tower(scale: Scale) -> list[Part]:
    """E2: all pathways at three λ, and plain for more steps at the largest."""
    sizes: dict[Scale, tuple[int, int, int]] = {
        "smoke": (4, 8, 5_000),
        "cpu": (8, 16, 20_480),
        "paper": (8, 16, 20_480),
    }
    notes = {"all": [PAIRED, STARTS, "networks have the depth and the d_h of the tower, and a stream twice as wide"]}

    def models(pathways: Sequence[str]) -> dict[Scale, Sequence[Model]]:
        return {each: _equal_mlps(pathways, d_h, depth, 64, budget) for each, (d_h, depth, budget) in sizes.items()}

    parts = []
    for number, (title, factor) in enumerate(SCALES_OF_TOWER.items(), start=1):
        base = _tower(factor, TOWER_STEPS)
        parts.append(_part(f"pathways, {title}", f"tower-{number}", scale, base, models(ON_TOWER), TOWER_RATES, notes))
    for times in LONGER:
        epochs = {each: times * number for each, number in TOWER_STEPS.items()}
        title, base = f"plain for {times} times the steps, λ = 2", _tower(2.0, epochs)
        parts.append(_part(title, f"longer-{times}", scale, base, models(["plain"]), TOWER_RATES, notes))
    return parts


# E3

SHAPE_RATES = {"tower": (4e-3, 1.6e-2), "digits": (4e-3, 8e-3)}
"""Around the best rate of plain on the first seed, on validation data: tried from 5e-4 to 1.6e-2 at 4 and 64 blocks."""
BUDGET = 100_000


def by_shape(scale: Scale) -> list[Part]:
    """E3: shape by shape, from the shallowest to the deepest, because each takes four times as long as the last."""
    notes = {"all": [PAIRED, STARTS, *E3_NOTES]}
    parts = []
    for title, name, source, sizes in _list_shapes(scale):
        models, base = _shape_models(BY_SHAPE, *sizes, _equal_macs(*sizes)), _shape_base(source)
        parts.append(_part(title, name, scale, base, models, SHAPE_RATES[source], notes))
    return parts


def _list_shapes(scale: Scale) -> Iterator[tuple[str, str, str, tuple[int, int, int]]]:
    """Title, name, source, and d_h, depth and d_in + d_out of every part of E3."""
    shapes = list(SHAPES.items())[: 2 if scale == "smoke" else None]
    for number, (shape, (d_h, depth)) in enumerate(shapes, start=1):
        for source, ends in (("tower", 64), ("digits", 128)):
            yield f"{shape}, {depth} blocks", f"{source}-shape-{number}", source, (d_h, depth, ends)


def _shape_models(
    pathways: Sequence[str], d_h: int, depth: int, ends: int, larger: Sequence[Model] = ()
) -> dict[Scale, Sequence[Model]]:
    full = [*_equal_mlps(pathways, d_h, depth, ends, BUDGET), *larger]
    return {
        "smoke": _equal_mlps(pathways, min(d_h, 8), min(depth, 8), ends, 20_000),
        "cpu": full,
        "paper": full,
    }


def _shape_base(source: str, times: float = 1.0) -> dict[Scale, Settings]:
    """Tower data of λ = 2, or denoising of 8×8 digits; about 300 steps at the CPU scale, or ``times`` as many."""
    planned: dict[Scale, int] = {"smoke": 1, "cpu": 10, "paper": 30}
    if source == "digits":
        planned = {"smoke": 1, "cpu": 16, "paper": 50}
    epochs = {scale: round(times * number) for scale, number in planned.items()}
    if source == "tower":
        return _tower(2.0, epochs)
    held_out: dict[Scale, Settings] = {"smoke": {"validation": 700, "test": 700}, "cpu": {}, "paper": {}}
    return {
        scale: {
            "source": {"name": "digits", **held_out[scale]},
            "task": {"name": "denoise"},
            "train": _train(number, 64),
        }
        for scale, number in epochs.items()
    }


E3_NOTES = (
    "the plan's 5,000 digits of 28×28 pixels do not fit 100,000 parameters: the two ends of a network alone would have "
    "1,568 for each unit of the stream; so the digits have 8×8 pixels",
    "with d_h up to 16 there are also plain networks, wider than the budget, with the multiply–adds of attended and of "
    "streams",
)


def _equal_macs(d_h: int, depth: int, ends: int) -> list[Model]:
    """Plain networks with as many multiply–adds as each pathway of ``BY_SHAPE`` that keeps a history."""
    if d_h > NARROW:
        return []
    found = []
    for name in (each for each in BY_SHAPE if each in HISTORIES):
        width = fit_width(name, d_h, depth, ends, BUDGET)
        per_width = ends + 2 * depth * d_h
        wide = width * (per_width + extra_macs(name, depth)) // per_width
        found.append(mlp("plain", wide, d_h, depth, init=_init("plain")))
    return found


# E7


def at_equal_seconds(scale: Scale) -> list[Part]:
    """E7: the parts of E3, and plain alone for more steps in each of its shapes."""
    parts = by_shape(scale)
    for title, name, source, sizes in _list_shapes(scale):
        for times in LONGER_BY_SHAPE:
            if scale == "cpu" and times == max(LONGER_BY_SHAPE) and sizes[1] > TWICE_UP_TO:
                continue
            longer, study = f"{title}, plain for {times:g} times the steps", f"{name}-longer-{100 * times:g}"
            models, base = _shape_models(["plain"], *sizes), _shape_base(source, times)
            parts.append(_part(longer, study, scale, base, models, SHAPE_RATES[source], {}))
    return parts


# E4

WITHOUT_NORMS = ("plain", "scaled/sqrt", "scaled/depth", "gained/rezero", "none")
DEEP_RATES = (1e-4, 1e-3)


def without_norms(scale: Scale) -> list[Part]:
    """E4: plain, the factors and starts that replace norms, and plain with norms."""
    epochs: dict[Scale, int] = {"smoke": 1, "cpu": 6, "paper": 40}
    depth: dict[Scale, int] = {"smoke": 8, "cpu": 256, "paper": 256}
    models: dict[Scale, Sequence[Model]] = {
        each: [
            *(mlp(name, 80, 8, blocks, norm="none", init="pytorch") for name in WITHOUT_NORMS),
            mlp("plain", 80, 8, blocks, norm="none", init="zero_w2"),
            mlp("plain", 80, 8, blocks, norm="layer", init="pytorch"),
        ]
        for each, blocks in depth.items()
    }
    notes = {"all": [
        "Fixup also scales the first matrix of a branch and adds scalar biases; here, init=zero_w2 stands for it: the "
        "last matrix of every branch starts at zero",
        "all but init=zero_w2 start with PyTorch's weights, which no factor of the start hides",
    ]}  # fmt: skip
    fields = (*FIELDS, "norm", "init")
    return [_part("256 blocks", "deep", scale, _tower(2.0, epochs), models, DEEP_RATES, notes, fields=fields)]


def _digits(epochs: Mapping[Scale, int]) -> dict[Scale, Settings]:
    """Digits are classified, in E5 and E6."""
    data: Settings = {"source": {"name": "digits"}, "task": {"name": "classification"}}
    return {each: data | {"train": _train(number, 64, warmup_epochs=0.5)} for each, number in epochs.items()}


# E5

TOKEN_RATES = (4e-3, 1e-2)


def in_tokens(scale: Scale) -> list[Part]:
    """E5: a ViT and a Mixer on digits."""
    epochs: dict[Scale, int] = {"smoke": 1, "cpu": 15, "paper": 60}
    depth: dict[Scale, int] = {"smoke": 2, "cpu": 8, "paper": 8}
    kinds: dict[str, Model] = {
        "ViT": {"name": "vit", "patch": 2, "d_z": 32, "d_h": 128, "num_heads": 4},
        "MLP-Mixer": {"name": "mlp_mixer", "patch": 2, "C": 32, "gamma": 2},
    }
    same = "all pathways have the same widths; delta and attended have at most 3 % more parameters than plain"
    forms = (
        "attention over depth also as published: weights sum to 1 and there are 8 blocks, or every update is a source"
    )
    parts = []
    for title, model in kinds.items():
        models = {
            each: [model | {"depth": number, **({} if name == "plain" else {"pathway": name})} for name in IN_TOKENS]
            for each, number in depth.items()
        }
        name = model["name"].replace("_", "-")
        fields = (*FIELDS, "C")
        notes = {"all": [same, forms]}
        parts.append(_part(title, name, scale, _digits(epochs), models, TOKEN_RATES, notes, fields=fields))
    return parts


# E6

RECURRENT_RATES = (1e-3, 4e-3, 1.6e-2)
TRAINED, READ = 6, 24
"""Iterations in training, and the most at test time."""


def over_iterations(scale: Scale) -> list[Part]:
    """E6: three ways to feed the input to a recurrent Transformer, each with three rates on every seed."""
    epochs: dict[Scale, int] = {"smoke": 1, "cpu": 12, "paper": 60}
    shared: Model = {"name": "recurrent_transformer", "patch": 2, "d": 32, "num_heads": 4, "iterations": TRAINED}
    models = [shared | ({} if name == "plain" else {"pathway": name}) for name in FED]
    notes = {"all": [
        "a decay of √(1/5), a full matrix B and a normed input as in the authors' code; the state starts at the input "
        "instead of at random",
        "digits of 8×8 pixels in patches of 2 instead of language",
    ]}  # fmt: skip
    return [_part(
        "6 iterations", "iterated", scale, _digits(epochs), dict.fromkeys(epochs, models), RECURRENT_RATES, notes,
        every_seed=True, fields=("pathway", "d", "iterations"),
    )]  # fmt: skip
