"""The studies behind the tables and figures of the iMixer paper, at three scales.

``paper`` is Table 5: images of 224 pixels, ten seeds. ``smoke`` shows in seconds that everything works. ``cpu`` applies
the same rules to CIFAR-10 at 32 pixels: patches of 4, a sixteenth of the channels and a quarter of the blocks, so that
S, B and L keep their proportions (C 32, 48, 64; 2, 3, 6 blocks), few epochs, three seeds. Tables 1 to 3 and the figures
share runs. Its cost with two workers of one thread, from the CPU time of training steps on a shared machine (an upper
bound):

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

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.networks import Network, count_parameters, printed_network
from isthmus.papers.engine.parts import Base, Model, Settings, describe_study, make_part, shorten, smoke_base
from isthmus.papers.imixer import protocols, recipes
from isthmus.recipes import published_network
from isthmus.studies.statistics import Sample

SEEDS = 10
SIZES = ("small", "base", "large")
RATIOS = (0.25, 0.5, 1.0, 2.0)
STEPS = (1, 2, 4)
NORMS = ("spectral", "none", "batch")
CUTOUT = "the paper names cutout without settings; here random erasing hides rectangles alone"
SHRUNK = (
    "images at their own 32 pixels (MNIST: 28) with patches of 4 instead of 224 with patches of 16, a sixteenth of the "
    "channels, a quarter of the blocks, and as many hidden tokens as channels"
)
COARSE = "here iMixer-L and Mixer-L have patches of 8 pixels, a quarter of the tokens, to take a quarter of the time"
FASTER = "the learning rate is 1e-3 at a batch of 128, because there are so few steps; the rule would give 1.25e-4"
FOUR = "the paper's four data sets are run at its own scale; here MNIST and CIFAR-10 stand for them"


def imixer(size: str, scale: Scale, **fields: Any) -> Model:
    """One of three sizes, shrunk to the scale; h_r = 2 and n = 2 unless ``fields`` say otherwise."""
    given = {"h_r": 2.0, "iterations": 2} | fields
    return recipes.imixer(size[0], **given) if scale == "paper" else {"name": "imixer", **_shrink(size, scale), **given}


def mixer(size: str, scale: Scale) -> Model:
    shrunk = {"name": "mlp_mixer", "norm_eps": 1e-6, "init": "xavier"}
    return recipes.mixer(size[0]) if scale == "paper" else shrunk | _shrink(size, scale)


def _shrink(size: str, scale: Scale) -> Model:
    """A sixteenth or a sixty-fourth of the channels, and as many hidden tokens as channels."""
    known, few = published_network("imixer", size[0]), scale == "smoke"
    C = known["C"] // (64 if few else 16)
    widths = {"C": C, "token_hidden": C, "channel_hidden": (2 if few else 4) * C}
    if few:
        return {"patch": 2, "depth": 2 if size == "large" else 1, **widths}
    patch = 8 if size == "large" else 4
    return {"patch": patch, "depth": known["depth"] // 4, "drop_path": known["drop_path"], **widths}


def _base(size: str, scale: Scale, source: str) -> Base:
    if scale == "smoke":
        return smoke_base()
    recipe = recipes.from_scratch(size[0], source)
    if scale == "paper":
        return recipe
    # Warm-up and cool-down keep their shares of the epochs.
    schedule = {"warmup_epochs": 0.13, "cooldown_epochs": 0.07}
    task = {"resize": None, "crop_ratio": 1.0}
    return shorten(recipe, 2, task, batch_size=128, learning_rate=1e-3, **schedule)


def _part(
    title: str, name: str, scale: Scale, models: Callable[[Scale], Iterable[Model]], size: str = "small",
    source: str = "cifar10", stand_in: str = "cifar10", seeds: int = SEEDS, notes: Iterable[str] = (), **more: Any,
) -> Part:  # fmt: skip
    def study(chosen: Scale) -> Settings:
        repeats, data = (seeds, source) if chosen == "paper" else (3, stand_in)
        label = f"imixer-{name}" if chosen != "paper" or data == "cifar10" else f"imixer-{name}-{data}"
        return describe_study(label, chosen, _base(size, chosen, data), models(chosen), repeats)

    all_notes = {"all": [*notes, CUTOUT], "cpu": [SHRUNK, *([COARSE] if size == "large" else []), FASTER]}
    fields = ("C", "depth", "h_r", "iterations", "norm")
    described = {"subject": "imixer", "rival_agrees_in": ("C", "depth"), "fields": fields} | more
    described["protocol"] = protocols.describe_training(size, source)
    return make_part(title, scale, study, all_notes, **described)


def _both(size: str, scale: Scale, name: str, **more: Any) -> Part:
    """A Mixer and an iMixer of one size."""
    title = f"Mixer-{size[0].upper()} and iMixer-{size[0].upper()}"
    return _part(title, name, scale, lambda chosen: [mixer(size, chosen), imixer(size, chosen)], size, **more)


def _cell(identity: str, row: Mapping[str, Any], column: str, model: Model, runs: int = SEEDS) -> Network:
    """A printed mean and spread; the paper does not print parameters, which are counted with ten classes."""
    settings = {name: value for name, value in model.items() if name not in ("drop_path", "init", "norm_eps")}
    quality = Sample(row[column], row[f"{column}_std"], runs)
    return printed_network(identity, row, settings, count_parameters(model, (3, 224, 224), (10,)), quality, (2, 2))


def sizes(scale: Scale) -> list[Part]:
    """Table 1: a part for each size, because each has its own batch and learning rate."""
    rows, parts = load_paper("imixer").tables["T1"].rows.items(), []
    for size in SIZES:
        models = {"mixer": mixer(size, "paper"), "imixer": imixer(size, "paper")}
        printed = [_cell(f"{identity}.{size}", row, size, models[row["model"]]) for identity, row in rows]
        parts.append(_both(size, scale, size, table="T1", printed_title=f"Table 1, {size}", printed=printed))
    return parts


def _grid(
    title: str, name: str, scale: Scale, table: str, field: str, values: Sequence[Any], few: Sequence[Any], **more: Any
) -> list[Part]:
    """A table with a row for each value of one setting of iMixer-S and a column for each n; smoke has few of both."""

    def models(chosen: Scale) -> list[Model]:
        rows, steps = (few, STEPS[:2]) if chosen == "smoke" else (values, STEPS)
        return [imixer("small", chosen, iterations=n, **{field: value}) for value in rows for n in steps]

    printed = [
        _cell(f"{identity}.n{n}", row, f"n{n}", imixer("small", "paper", iterations=n, **{field: value}))
        for (identity, row), value in zip(load_paper("imixer").tables[table].rows.items(), values, strict=True)
        for n in STEPS
    ]
    beside: Settings = {"table": table, "printed_title": f"Table {table[1:]}, CIFAR-10", "printed": printed}
    return [_part(title, name, scale, models, subject="", **beside, **more)]


def search(scale: Scale) -> list[Part]:
    """Table 2: h_r and n."""
    return _grid("iMixer-S over h_r and n", "search", scale, "T2", "h_r", RATIOS, RATIOS[1::2])


def norms(scale: Scale) -> list[Part]:
    """Table 3: what keeps F small."""
    notes = [
        "with batch norm and n = 4 the paper used a smaller batch, which it does not print; here the same",
        "where batch norm stands is not printed; here after each of the two layers in F, with statistics shared by all "
        "iterations",
    ]
    return _grid("iMixer-S with three norms", "norms", scale, "T3", "norm", NORMS, NORMS, notes=notes)


def data_sets(scale: Scale) -> list[Part]:
    """Table 4. At the small scales, MNIST and CIFAR-10 stand for its four data sets."""
    if scale != "paper":
        stand_ins = {"mnist": "mnist", "small": "cifar10"} if scale == "cpu" else {"small": "cifar10"}
        return [
            _both("small", scale, name=name, source="cifar100", stand_in=data, notes=[FOUR])
            for name, data in stand_ins.items()
        ]
    parts = []
    for identity, row in load_paper("imixer").tables["T4"].rows.items():
        source = row["dataset"]
        seeds = 1 if source == "imagenet1k" else SEEDS
        models = {"mixer": mixer("small", "paper"), "imixer": imixer("small", "paper")}
        cells = [_cell(f"{identity}.{name}", row, f"{name}_s", model, seeds) for name, model in models.items()]
        beside: Settings = {"table": "T4", "printed_title": f"Table 4, {source}", "printed": cells}
        parts.append(_both("small", scale, name="small", source=source, seeds=seeds, **beside))
    return parts


def iterations(scale: Scale) -> list[Part]:
    """Figures 3, 5 and 6: iMixer-S with n = 1, 2 and 4; Table 2 has the same runs."""

    def models(chosen: Scale) -> list[Model]:
        return [imixer("small", chosen, iterations=n) for n in STEPS]

    return [_part("iMixer-S with h_r = 2", "iterations", scale, models, subject="")]


def feature_maps(scale: Scale) -> list[Part]:
    """Figure 7: n = 4 on ImageNet-1k."""
    more: Settings = {"source": "imagenet1k", "seeds": 1, "subject": ""}
    title = "iMixer-S with h_r = 2 and n = 4"
    return [_part(title, "feature-maps", scale, lambda chosen: [imixer("small", chosen, iterations=4)], **more)]
