"""The studies behind the paper's Transformers (Tables 3 and 4, Figures 10 to 13), at three scales.

``paper`` is Table 11 on the data sets of Table 10, three seeds. ``smoke`` shows in seconds that everything works.
``cpu`` keeps the rule of Table 2 (d_z half as wide again, d_h half of d_z, equal parameters and FLOPs) on CIFAR-10 at
32 pixels with patches of 8, so that an image has 17 tokens: half of a ViT-Tiny, and for Table 4 three sizes. Its cost
on one core (two workers of one thread take half of it):

    study                     runs   epochs   minutes   used by
    hourglass-vit-tiny           6       10        54   T3, F10
    hourglass-vit-tiny-brief     6        5        34   T4, F13
    hourglass-vit-small-brief    6        5        58   T4, F11, F13
    hourglass-vit-large-brief    6        5        87   T4, F12, F13

A step of 128 images takes 0.15 s on one core for either network at the smallest size, 0.34 s for the conventional ViT
and 0.30 s for the Hourglass at the next, 0.49 s and 0.46 s at the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.networks import Network, count_parameters, printed_network
from isthmus.papers.engine.parts import (
    Base,
    Model,
    Settings,
    change_task,
    describe_study,
    make_part,
    shorten,
    smoke_base,
)
from isthmus.papers.hourglass import recipes
from isthmus.studies.statistics import Sample

SIZES = ("tiny", "small", "large")
SHAPES = ("conventional", "hourglass")
FIELDS = ("d_z", "d_h", "depth", "num_heads")
CLASSES = {"cars": 196, "flowers": 102, "cifar10": 10, "cifar100": 100, "imagenet100": 100}
WIDTHS: dict[Scale, dict[str, int]] = {
    "cpu": {"tiny": 96, "small": 144, "large": 192},
    "smoke": {"tiny": 12, "small": 24, "large": 36},
}
"""d_z of the conventional network."""
DEPTHS: dict[Scale, int] = {"cpu": 6, "smoke": 1}
EPOCHS = {"T3": 10, "T4": 5}
CPU_RATE = 0.1
"""Of 0.03, 0.1 and 0.3: after 200 steps the smallest Hourglass had a loss of 1.993, 1.947 and 1.954, the conventional
network 2.006, 1.950 and 1.987."""
HELD_OUT = (
    "the paper trains on all training images; here some are held out for validation (a tenth of CIFAR's, 1,000 of "
    "Cars', 5,000 of ImageNet-100's; Flowers-102 has validation images of its own)"
)
UNPRINTED = (
    "the paper prints neither momentum, crops, flips, nor which epoch and how many seeds it reports; here: Nesterov's "
    "0.9, timm's crops and flips, the last epoch, three seeds"
)
QUOTED = "the first row of Table 3 is quoted by the authors from elsewhere and not trained"
SHRUNK = (
    "images at their own 32 pixels with patches of 8 instead of 224 with patches of 16, and narrower, shallower "
    "networks without drop path; by Table 2's rule d_z is half as wide again and d_h half of d_z in the Hourglass"
)
ONE_RATE = (
    "one learning rate for both shapes: of 0.03, 0.1 and 0.3 the one with the least loss after 200 steps of either"
)
STANDS_FOR = "CIFAR-10 stands for the data sets of the paper, which are run at its own scale"


def vit(size: str, shape: str, scale: Scale) -> Model:
    """One of the paper's six networks, at the size of the scale."""
    if scale == "paper":
        return recipes.vit(size, shape)
    width = WIDTHS[scale][size]
    d_z, d_h = (width, 4 * width) if shape == "conventional" else (3 * width // 2, 3 * width // 4)
    shared = {"patch": 8 if scale == "cpu" else 4, "depth": DEPTHS[scale], "num_heads": 3}
    return {"name": f"{shape}_vit", "d_z": d_z, "d_h": d_h, **shared}


def _base(size: str, scale: Scale, source: str, epochs: int) -> Base:
    if scale == "smoke":
        return smoke_base(epochs=2)
    if scale == "paper":
        return recipes.from_scratch(size, "hourglass", source)
    short = shorten(
        recipes.from_scratch(size, "hourglass", "cifar10"), epochs, warmup_epochs=1, batch_size=128, accumulate=1,
        learning_rate=CPU_RATE, warmup_learning_rate=0.0, final_learning_rate=0.0, clip_norm=1.0,
    )  # fmt: skip
    return change_task(short, resize=None, crop_ratio=1.0, augment={"crop_padding": 4, "flip": True})


def _part(
    title: str, name: str, size: str, scale: Scale, source: str, epochs: int, shapes: Sequence[str] = SHAPES,
    notes: Iterable[str] = (), **more: Any,
) -> Part:  # fmt: skip
    def study(chosen: Scale) -> Settings:
        label = f"hourglass-vit-{name}" if chosen != "paper" else f"hourglass-vit-{name}-{source}"
        models = [vit(size, shape, chosen) for shape in shapes]
        return describe_study(label, chosen, _base(size, chosen, source, epochs), models)

    all_notes = {"all": [*notes, HELD_OUT, UNPRINTED], "cpu": [SHRUNK, ONE_RATE, STANDS_FOR]}
    return make_part(title, scale, study, all_notes, fields=FIELDS, **more)


def _cell(identity: str, row: Mapping[str, Any], column: str, size: str, shape: str, source: str) -> Network:
    """The paper prints neither a spread nor the number of runs."""
    model = recipes.vit(size, shape)
    params = count_parameters(model, (3, 224, 224), (CLASSES[source],))
    settings = {name: model[name] for name in ("name", *FIELDS)}
    return printed_network(identity, row, settings, params, Sample(row[column], None, 1))


def table_3(scale: Scale) -> list[Part]:
    """ViT-Tiny on five data sets; at the small scales CIFAR-10 stands for them."""
    rows = {row["architecture"]: (name, row) for name, row in load_paper("hourglass").tables["T3"].rows.items()}
    parts = []
    for source in CLASSES if scale == "paper" else ("cifar10",):
        cells = [_cell(f"{rows[s][0]}.{source}", rows[s][1], source, "tiny", s, source) for s in SHAPES]
        more: Settings = {"table": "T3", "printed_title": f"Table 3, {source}", "printed": cells, "notes": [QUOTED]}
        parts.append(_part("ViT-Tiny", "tiny", "tiny", scale, source, EPOCHS["T3"], **more))
    return parts


def table_4(scale: Scale, sizes: Iterable[str] = SIZES) -> list[Part]:
    """Three sizes on Cars and Flowers-102; a part for each, because the largest has its own batch and rate."""
    rows = {row["dataset"]: (name, row) for name, row in load_paper("hourglass").tables["T4"].rows.items()}
    parts = []
    for size in sizes:
        for source in ("cars", "flowers") if scale == "paper" else ("cars",):
            identity, row = rows[source]
            cells = [_cell(f"{identity}.{size}.{s}", row, f"{size}_{s}", size, s, source) for s in SHAPES]
            more: Settings = {"table": "T4", "printed_title": f"Table 4, {source}, {size}", "printed": cells}
            label = size if scale == "paper" else f"{size}-brief"
            parts.append(_part(f"ViT-{size.capitalize()}", label, size, scale, source, EPOCHS["T4"], **more))
    return parts


def curves_of(size: str, scale: Scale) -> list[Part]:
    """Figures 10 to 12: the runs of Table 4; for the smallest size at the small scales the longer ones of Table 3."""
    return table_3(scale) if size == "tiny" and scale != "paper" else table_4(scale, [size])


def hourglasses(scale: Scale) -> list[Part]:
    """Figure 13: the Hourglasses of Table 4, with the same runs."""
    return [
        _part(
            f"Hourglass ViT-{size.capitalize()}", f"{size}-hourglass", size, scale, source, EPOCHS["T4"], ["hourglass"],
        )
        for source in (("cars", "flowers") if scale == "paper" else ("cars",))
        for size in SIZES
    ]  # fmt: skip
