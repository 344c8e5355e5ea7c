"""The studies behind the tables and figures of the iMixer paper, at three scales.

``paper`` is Table 5: images of 224 pixels, ten seeds. ``smoke`` shows in seconds that everything works. ``cpu`` keeps
the rules on CIFAR-10's own 32 pixels: patches of 4 of them, a sixteenth of the channels and a quarter of the blocks, so
that S, B and L keep their proportions (C 32, 48, 64; 2, 3, 6 blocks), few epochs, three seeds. Tables 1 to 3 and the
figures share runs. Its cost with two workers of one thread, from the CPU time of training steps that shared the machine
with others (so it is an upper bound):

    study                 runs   epochs   minutes   used by
    imixer-small             6        2         3   T1, T4
    imixer-base              6        2         6   T1
    imixer-large             6        2         6   T1
    imixer-search           36        2        20   T2; its 9 runs with h_r = 2 are all that F3, F5, F6 and F7 need
    imixer-norms            27        2        15   T3; 10 after T2, which has 9 of its runs
    imixer-mnist             6        2         3   T4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.core.config import RunConfig, StudyConfig
from isthmus.papers import load_paper
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Part, Printed, Scale
from isthmus.papers.engine.scales import Model, brief, part_of, study
from isthmus.papers.imixer import recipes
from isthmus.studies.statistics import Sample

SEEDS = range(10)
SIZES: dict[str, recipes.Size] = {"small": "s", "base": "b", "large": "l"}
RATIOS = (0.25, 0.5, 1.0, 2.0)
STEPS = (1, 2, 4)
NORMS = ("spectral", "none", "batch")
SHRUNK_SIZES: dict[str, Model] = {  # C 512, 768, 1024 and 8, 12, 24 blocks by 16 and by 4
    "small": {"C": 32, "depth": 2, "token_hidden": 32, "channel_hidden": 128, "drop_path": 0.1},
    "base": {"C": 48, "depth": 3, "token_hidden": 48, "channel_hidden": 192, "drop_path": 0.2},
    "large": {"C": 64, "depth": 6, "token_hidden": 64, "channel_hidden": 256, "drop_path": 0.3, "patch": 8},
}
TINY: dict[str, Model] = {
    "small": {"C": 8, "depth": 1, "token_hidden": 8, "channel_hidden": 16},
    "base": {"C": 12, "depth": 1, "token_hidden": 12, "channel_hidden": 24},
    "large": {"C": 16, "depth": 2, "token_hidden": 16, "channel_hidden": 32},
}
UNPRINTED = (
    "the paper does not print which epoch it reports, its crops, and its cutout; here: the last epoch, timm's crops "
    "and flips, and random erasing alone"
)
HELD_OUT = "the paper trains on all training images; here some are held out for validation (of CIFAR's, a tenth)"
SHRUNK = (
    "images at their own 32 pixels (MNIST: 28) with patches of 4 instead of 224 with patches of 16, a sixteenth of the "
    "channels, a quarter of the blocks, and as many hidden tokens as channels"
)
COARSE = "here iMixer-L and Mixer-L have patches of 8 pixels, a quarter of the tokens, to take a quarter of the time"
FASTER = "the learning rate is 1e-3 at a batch of 128, because there are so few steps; the rule would give 1.25e-4"
FIELDS = ("C", "depth", "h_r", "iterations", "norm")


def _brief(recipe: RunConfig) -> RunConfig:
    """Warm-up and cool-down keep their shares of the epochs."""
    short = brief(
        recipe, 2, batch_size=128, learning_rate=1e-3, warmup_epochs=0.13, cooldown_epochs=0.07,
    )  # fmt: skip
    settings = {"resize": None, "crop_ratio": 1.0}
    task = type(short.task)(**short.task.model_dump() | settings)
    return short.model_copy(update={"task": task})


def _smoke_base() -> dict[str, Any]:
    train = {"epochs": 1, "batch_size": 64, "learning_rate": 3e-3, "schedule": "cosine", "select": "last"}
    return {"source": {"name": "digits"}, "task": {"name": "classification"}, "train": train, "threads": 1}


def imixer(size: str, scale: Scale, **fields: Any) -> Model:
    """One of three sizes, at the size of the scale; h_r = 2 and n = 2 unless said otherwise."""
    given = {"h_r": 2.0, "iterations": 2} | fields
    if scale == "paper":
        return recipes.imixer(SIZES[size], **given)
    return {"name": "imixer", **_shrunk(size, scale), **given}


def mixer(size: str, scale: Scale) -> Model:
    if scale == "paper":
        return recipes.mixer(SIZES[size])
    return {"name": "mlp_mixer", **_shrunk(size, scale), "norm_eps": 1e-6, "init": "xavier"}


def _shrunk(size: str, scale: Scale) -> Model:
    return {"patch": 4, **SHRUNK_SIZES[size]} if scale == "cpu" else {"patch": 2, **TINY[size]}


def _base(size: str, scale: Scale, source: str = "cifar10") -> RunConfig | Mapping[str, Any]:
    if scale == "smoke":
        return _smoke_base()
    recipe = recipes.from_scratch(SIZES[size], recipes.imixer(SIZES[size]), source)
    return recipe if scale == "paper" else _brief(recipe)


def _part(
    title: str,
    name: str,
    scale: Scale,
    models: Mapping[Scale, Sequence[Model]],
    size: str = "small",
    source: str = "cifar10",
    stand_in: str = "cifar10",
    seeds: Sequence[int] = SEEDS,
    notes: Iterable[str] = (),
    **more: Any,
) -> Part:
    def made(chosen: Scale) -> StudyConfig:
        repeats = {"paper": seeds, "cpu": range(3), "smoke": range(2)}[chosen]
        data = source if chosen == "paper" else stand_in
        label = f"imixer-{name}" if chosen != "paper" or data == "cifar10" else f"imixer-{name}-{data}"
        return study(label, chosen, _base(size, chosen, data), models[chosen], seeds=tuple(repeats))

    said = {"all": [*notes, HELD_OUT, UNPRINTED], "cpu": [SHRUNK, *([COARSE] if size == "large" else []), FASTER]}
    studies = {chosen: (lambda chosen=chosen: made(chosen)) for chosen in ("paper", "cpu", "smoke")}
    described = {"subject": "imixer", "rival_agrees_in": ("C", "depth"), "fields": FIELDS} | more
    return part_of(title, scale, studies, said, **described)  # type: ignore[arg-type]


def _every(make: Callable[[Scale], list[Model]]) -> dict[Scale, list[Model]]:
    return {"paper": make("paper"), "cpu": make("cpu"), "smoke": make("smoke")}


def sizes(scale: Scale) -> list[Part]:
    """Table 1: a part for each size, because each has its own batch and learning rate."""
    return [size_part(size, scale) for size in SIZES]


def size_part(size: str, scale: Scale) -> Part:
    letter = SIZES[size].upper()
    rows = load_paper("imixer").tables["T1"].rows
    names = {"mixer": mixer(size, "paper"), "imixer": imixer(size, "paper")}
    printed = {
        f"{identity}.{size}": _printed(f"{identity}.{size}", row, row[size], row[f"{size}_std"], names[row["model"]])
        for identity, row in rows.items()
    }
    return _part(
        f"Mixer-{letter} and iMixer-{letter}",
        size,
        scale,
        _every(lambda chosen: [mixer(size, chosen), imixer(size, chosen)]),
        size,
        table="T1",
        printed_title=f"Table 1, {size}",
        printed=printed,
    )


def _printed(
    identity: str, row: Mapping[str, Any], mean: float, std: float | None, model: Model, runs: int = 10
) -> Printed:
    """A cell."""
    settings = {name: value for name, value in model.items() if name not in ("name", "drop_path", "init", "norm_eps")}
    size = _parameters(model)
    return Printed(row, Network(identity, model["name"], settings, size, size, mean, Sample(mean, std, runs), "points"))


def _parameters(model: Model) -> int:
    """Not printed, but counted, with ten classes."""
    import torch

    from isthmus.core.registry import create_model

    with torch.device("meta"):
        network = create_model(**model, input_shape=(3, 224, 224), output_shape=(10,))
    return sum(parameter.numel() for parameter in network.parameters())


def _cells(table: str, model: Callable[[Mapping[str, Any], int], Model]) -> dict[str, Printed]:
    """The cells of a table with a column for each n."""
    return {
        (name := f"{identity}.n{n}"): _printed(name, row, row[f"n{n}"], row[f"n{n}_std"], model(row, n))
        for identity, row in load_paper("imixer").tables[table].rows.items()
        for n in STEPS
    }


def _steps(scale: Scale) -> tuple[int, ...]:
    return STEPS if scale != "smoke" else STEPS[:2]


def search(scale: Scale) -> list[Part]:
    """Table 2: h_r and n."""
    printed = _cells("T2", lambda row, n: imixer("small", "paper", h_r=float(row["h_r"]), iterations=n))
    models = _every(
        lambda chosen: [
            imixer("small", chosen, h_r=ratio, iterations=n)
            for ratio in (RATIOS if chosen != "smoke" else RATIOS[1::2])
            for n in _steps(chosen)
        ]
    )
    described: dict[str, Any] = {"table": "T2", "printed_title": "Table 2, CIFAR-10", "printed": printed, "subject": ""}
    return [_part("iMixer-S over h_r and n", "search", scale, models, **described)]


def norms(scale: Scale) -> list[Part]:
    """Table 3: what keeps F small."""
    printed = _cells("T3", lambda row, n: imixer("small", "paper", norm=row["norm"], iterations=n))
    models = _every(
        lambda chosen: [
            imixer("small", chosen, iterations=n, **({} if norm == "spectral" else {"norm": norm}))
            for norm in NORMS
            for n in _steps(chosen)
        ]
    )
    notes = [
        "with batch norm and n = 4 the paper used a smaller batch, which it does not print; here the same",
        "where batch norm stands is not printed; here after each of the two layers in F, with statistics shared by all "
        "iterations",
    ]
    described: dict[str, Any] = {"table": "T3", "printed_title": "Table 3, CIFAR-10", "printed": printed, "subject": ""}
    return [_part("iMixer-S with three norms", "norms", scale, models, notes=notes, **described)]


def data_sets(scale: Scale) -> list[Part]:
    """Table 4. At the small scales, MNIST and CIFAR-10 stand for its four data sets."""
    rows = load_paper("imixer").tables["T4"].rows
    models = _every(lambda chosen: [mixer("small", chosen), imixer("small", chosen)])
    if scale != "paper":
        parts = (
            []
            if scale == "smoke"
            else [
                _part("Mixer-S and iMixer-S", "mnist", scale, models, source="cifar100", stand_in="mnist", notes=[FOUR])
            ]
        )
        return [*parts, _part("Mixer-S and iMixer-S", "small", scale, models, source="cifar100", notes=[FOUR])]
    parts = []
    for identity, row in rows.items():
        source = row["dataset"]
        cells = {
            f"{identity}.{name}": _printed(
                f"{identity}.{name}",
                row,
                row[f"{name}_s"],
                row[f"{name}_s_std"],
                model,
                1 if source == "imagenet1k" else 10,
            )
            for name, model in (("mixer", mixer("small", "paper")), ("imixer", imixer("small", "paper")))
        }
        parts.append(
            _part(
                "Mixer-S and iMixer-S", "small", scale, models, source=source,
                seeds=(0,) if source == "imagenet1k" else SEEDS,
                table="T4", printed_title=f"Table 4, {source}", printed=cells,
            )
        )  # fmt: skip
    return parts


FOUR = "the paper's four data sets are run at its own scale; here MNIST and CIFAR-10 stand for them"


def iterations(scale: Scale) -> list[Part]:
    """Figures 3, 5 and 6: iMixer-S with n = 1, 2 and 4, which Table 2 has trained already."""
    models = _every(lambda chosen: [imixer("small", chosen, iterations=n) for n in STEPS])
    return [_part("iMixer-S with h_r = 2", "iterations", scale, models, subject="")]


def feature_maps(scale: Scale) -> list[Part]:
    """Figure 7: n = 4 on ImageNet-1k."""
    models = _every(lambda chosen: [imixer("small", chosen, iterations=4)])
    return [
        _part(
            "iMixer-S with h_r = 2 and n = 4",
            "feature-maps",
            scale,
            models,
            source="imagenet1k",
            seeds=(0,),
            subject="",
        )
    ]
