"""The studies behind the Hourglass paper's tables and figures of MLPs, at three scales.

``paper`` is appendix A: the printed networks (for MNIST, where none are printed, a grid over the stated ranges), every
learning rate with every one of five seeds. ``smoke`` shows in seconds that everything works. ``cpu`` applies the same
rules to data that users have at hand, and chooses learning rates on the first of three seeds. Its cost on two cores,
from 6 · parameters · rows FLOPs at 70 GFLOP/s and 28 bytes per parameter and step at 6 GB/s, each per core:

    study                               runs   minutes      used by
    mnist-denoise                         40        27      F7
    mnist-super-resolution                40        18      F8
    cifar10-denoise                       40        87      T6, T8, F3, F7
    cifar10-super-resolution              40        29      T7, T9, F3, F8
    mnist-fixed-input                     48         5      F4 (an upper bound: counts frozen projections as trained)
    mnist-generative-classification       32         4      F6
    mnist-ablation                        24         4      F9
    cifar10-rank                           8         2      T1
    digits-norm-activation-init          360         3      S4 (a second for each run, whose steps take a millisecond)
    digits-shapes                        300         4      SC2 (likewise)

Runs are shared: T8 after T6 trains nothing. Measured times of the MNIST studies are below these estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from isthmus.core.config import RunConfig
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.networks import Network, printed_network
from isthmus.papers.engine.parts import Model, Settings, describe_study, make_part
from isthmus.papers.hourglass import protocols, recipes
from isthmus.recipes.mlps import conventional, hourglass
from isthmus.recipes.mlps import mnist as mnist_recipe
from isthmus.studies.statistics import Sample

FROZEN = ("uniform", "orthogonal")
NORMS, ACTIVATIONS = ("layer", "rms", "none"), ("gelu", "relu", "silu")
INITS = ("zero_w2", "pytorch", "depth_scaled_w2", "xavier", "orthogonal")
SHARED_RANGE = "conventional networks with d_z below d_x are added, so that both shapes have networks of the same sizes"
BLOCK = (
    "the paper prints neither norm, activation nor initialisation; here: LayerNorm without parameters, GELU, W_2 from "
    "zero and PyTorch's initialisation of the rest"
)
UNSTATED = (
    "the paper prints neither loss nor weight decay; here: squared error, and none",
    "the paper does not say how PSNR is averaged; here: of each image with peak 1, then over images",
)
NOISE = (
    "the paper does not say whether noise is drawn once or afresh in every epoch, or clipped; here: afresh, unclipped"
)
TITLES = {
    "denoise": "denoising", "super_resolution": "super-resolution",
    "generative_classification": "generative classification",
}  # fmt: skip


def _networks(*, h: Iterable[tuple[int, int, int]] = (), c: Iterable[tuple[int, int, int]] = ()) -> list[Model]:
    """Hourglass and conventional networks by d_z, d_h and depth."""
    return [*(hourglass(*shape) for shape in h), *(conventional(*shape) for shape in c)]


MNIST_HOURGLASS = _networks(h=((785, 16, 3), (785, 64, 4), (785, 128, 5), (785, 256, 4), (1000, 256, 6)))
MNIST_CONVENTIONAL = _networks(c=((392, 784, 1), (588, 785, 1), (784, 785, 1), (784, 785, 2), (784, 1176, 2)))
CIFAR_DENOISE = _networks(
    h=((3546, 8, 5), (3546, 16, 5), (3546, 64, 5), (3546, 128, 5), (3075, 765, 2)),
    c=((1536, 2304, 1), (2048, 2304, 1), (1536, 2304, 2), (1024, 2048, 4), (1536, 3072, 2)),
)
CIFAR_SUPER_RESOLUTION = _networks(
    h=((1024, 32, 5), (1024, 128, 5), (1536, 128, 5), (2048, 115, 5), (3546, 16, 5)),
    c=((512, 768, 1), (768, 1152, 1), (768, 1152, 2), (1024, 1536, 2), (1536, 2304, 1)),
)
DIGITS = _networks(h=((65, 4, 1), (65, 16, 2), (80, 32, 2)), c=((32, 64, 1), (64, 65, 1), (64, 96, 2)))
SMALL_MNIST = _networks(h=((785, 4, 1), (785, 64, 2)), c=((392, 784, 1), (588, 785, 1)))
PHOTOS = _networks(h=((769, 8, 1), (769, 256, 2)), c=((512, 768, 1), (640, 768, 1)))
SMALL_MNIST_SOURCE = {"name": "mnist5k", "validation": 2200, "test": 2200}
PHOTOS_SOURCE = {"name": "photos", "patches_per_photo": 32}
DIGITS_SOURCE = {"name": "digits"}
RATES = {"digits": (1e-3, 3e-3), "mnist": (5e-4, 1e-3), "cifar10": (1e-4, 3e-4)}
"""At the cpu scale."""

COLOUR = {
    "T6": ("imagenet224", "denoise"), "T7": ("imagenet224", "super_resolution"),
    "T8": ("imagenet32", "denoise"), "T9": ("imagenet32", "super_resolution"),
}  # fmt: skip


def _part(
    title: str, name: str, scale: Scale, task: Settings, paper: Callable[[], Settings],
    cpu: tuple[str | Settings, int, Iterable[Model]], smoke: tuple[Settings, Iterable[Model]],
    notes: Iterable[str] = (), at_paper: Sequence[str] = (), at_cpu: Sequence[str] = (), block: str = BLOCK,
    **more: Any,
) -> list[Part]:  # fmt: skip
    """A study at three scales: that of the paper; the data, epochs and networks of ``cpu``; the data and networks of
    ``smoke``."""

    def study(chosen: Scale) -> Settings:
        if chosen == "paper":
            return paper()
        rates: Settings = {}
        source, epochs, batch_size, models = smoke[0], 1, 64, smoke[1]
        if chosen == "cpu":
            source = {"name": cpu[0]} if isinstance(cpu[0], str) else cpu[0]
            epochs, batch_size, models = cpu[1], 128, cpu[2]
            rates = {"learning_rates": RATES[source["name"]], "rates_on": "first_seed"}
        base = {"source": source, "task": task, "train": {"epochs": epochs, "batch_size": batch_size}, "threads": 1}
        return describe_study(f"hourglass-{source['name']}-{name}", chosen, base, models, **rates)

    unstated = [*([NOISE] if task["name"] == "denoise" else []), *([block] if block else []), *UNSTATED]
    all_notes = {"all": [*notes, *unstated], "paper": at_paper, "cpu": at_cpu}
    return [make_part(title, scale, study, all_notes, **{"subject": "hourglass_mlp"} | more)]


def _paper(name: str, recipe: RunConfig, models: Iterable[Model] = ()) -> Settings:
    """Appendix A: these networks, or the whole search on MNIST; five seeds of everything."""
    models = list(models)
    mnist = recipe.source.name == "mnist"
    rates = (1e-4, 5e-4, 1e-3, 5e-3) if mnist else (1e-4, 3e-4, 5e-4, 7e-4)
    # The stated ranges of the search on MNIST; the paper does not print how fine its grid was.
    ranges = {"d_z": (785, 4500, 5), "d_h": (4, 2500, 7), "depth": (1, 40, 6)}
    vary = {field: {"low": a, "high": b, "log": True, "points": n} for field, (a, b, n) in ranges.items()}
    spaces = [
        {"model": {"name": "hourglass_mlp"}, "vary": vary, "where": ["d_z > d_in", "d_h < d_z"]},
        {"model": {"name": "conventional_mlp"}, "vary": vary, "where": ["d_h > d_z"]},
    ]
    searched = {} if models else {"spaces": spaces}
    return describe_study(f"hourglass-{name}", "paper", recipe, models, 5, learning_rates=rates, **searched)


def colour(table: str, scale: Scale) -> list[Part]:
    """Tables 6 to 9. Both colour data sets have one stand-in, so Tables 6 and 8 share runs, and 7 and 9."""
    (source, task), printed = COLOUR[table], printed_rows(table)
    models, few = CIFAR_DENOISE, (SMALL_MNIST_SOURCE, SMALL_MNIST)
    if task == "super_resolution":
        models, few = CIFAR_SUPER_RESOLUTION, (PHOTOS_SOURCE, PHOTOS)
    words = task.replace("_", "-")
    unsearched = "the grid of the paper's search is not printed; only the members of its fronts are trained"
    return _part(
        TITLES[task], words, scale, {"name": task},
        lambda: _paper(f"{source}-{words}", recipes.imagenet(source, task), models_of(printed)),
        ("cifar10", 2, models), few, at_paper=[unsearched], at_cpu=[SHARED_RANGE],
        protocol=protocols.mlps(source, task), **_beside(table, printed),
    )  # fmt: skip


def mnist(task: str, scale: Scale) -> list[Part]:
    """Figures 6 to 8."""
    enlarges, words = task == "super_resolution", task.replace("_", "-")
    few = slice(-1 if task == "generative_classification" else None)
    models = [*MNIST_HOURGLASS[few], *MNIST_CONVENTIONAL[few]]
    grid = "the paper prints the ranges of its search and not the grid; here: 5 d_z, 7 d_h and 6 depths"
    return _part(
        TITLES[task], words, scale, {"name": task} | ({"flips": True} if enlarges else {}),
        lambda: _paper(f"mnist-{words}", mnist_recipe(task, 50)),
        ("mnist", 5 if task == "denoise" else 1, models), (DIGITS_SOURCE, DIGITS),
        ["for MNIST the paper plots its fronts and prints no numbers"], at_paper=[grid], at_cpu=[SHARED_RANGE],
        protocol=protocols.mlps("mnist", task),
    )  # fmt: skip


def fixed_input(scale: Scale) -> list[Part]:
    """Figure 4: W_in trained and frozen, and the conventional network with a frozen one that keeps the dimension."""

    def paper(table: str) -> Settings:
        """The conventional network keeps the dimension of its input only in denoising; super-resolution widens it."""
        frozen = printed_rows(table, lambda row: table == "T6" or row["architecture"] == "hourglass")
        models = [*models_of(printed_rows(table)), *models_of(frozen, w_in="uniform")]
        return _paper(f"fixed-input-{table.lower()}", recipes.imagenet(*COLOUR[table]), models)

    def with_projections(models: Iterable[Model], *kinds: str) -> list[Model]:
        return [{**model, "w_in": kind} for kind in ("trainable", *kinds) for model in models]

    models = [*MNIST_HOURGLASS[:3], conventional(784, 785, 1)]
    small = _networks(h=((65, 4, 1), (65, 16, 2)), c=((64, 65, 1), (64, 96, 2)))
    unnamed = "the figure's networks, and how a fixed W_in is drawn, are not printed; here: "
    notes = [f"{unnamed}{' and '.join(FROZEN)}", "denoising alone; the figure shows super-resolution as well"]
    if scale == "paper":
        notes = [f"{unnamed}those of Tables 6 and 7, and PyTorch's initialisation left as it is"]
    return [
        part
        for table in (("T6", "T7") if scale == "paper" else ("T6",))
        for part in _part(
            TITLES[COLOUR[table][1]], "fixed-input", scale, {"name": COLOUR[table][1]}, partial(paper, table),
            ("mnist", 1, with_projections(models, *FROZEN)), (DIGITS_SOURCE, with_projections(small, "orthogonal")),
            notes, fields=("d_z", "d_h", "depth", "w_in"), protocol=protocols.mlps(*COLOUR[table]),
        )
    ]  # fmt: skip


def ablation(scale: Scale) -> list[Part]:
    """Figure 9: d_h varied at L = 5, and L varied at one d_h, d_z held fixed."""

    def sweep(d_z: int, widths: Iterable[int], depths: Iterable[int], d_h: int) -> list[Model]:
        models = [hourglass(d_z, width, 5) for width in widths] + [hourglass(d_z, d_h, depth) for depth in depths]
        return [model for place, model in enumerate(models) if model not in models[:place]]

    printed = printed_rows("T8", lambda row: row["d_z"] == 3546 and (row["L"] == 5 or row["d_h"] == 270))
    widths = (8, 16, 48, 64, 86, 115, 128, 270, 765, 1146, 1560, 2014)  # those of Tables 6 to 9
    unnamed = (
        "the paper names neither the data nor the points of this figure; the rows of Table 8 with its d_z of 3546 "
        "stand for it as published"
    )
    smaller = "d_z is 1000 instead of 3546, and the fixed d_h 64 instead of 270: about the same ratio"
    return _part(
        "denoising", "ablation", scale, {"name": "denoise"},
        lambda: _paper("ablation", recipes.imagenet(*COLOUR["T8"]), sweep(3546, widths, range(1, 11), 270)),
        ("mnist", 1, sweep(1000, (16, 64, 128, 512), (2, 5, 9), 64)),
        (DIGITS_SOURCE, sweep(65, (4, 8, 16), (1, 5, 7), 4)), [unnamed], at_cpu=[smaller],
        protocol=protocols.mlps(*COLOUR["T8"]), **_beside("T8", printed),
    )  # fmt: skip


def ranks(scale: Scale) -> list[Part]:
    """Table 1: one network of each shape; smaller ones have both ratios d_h / d_z and about equal sizes."""
    printed = printed_rows("T1")
    notes = [
        "the paper does not say of which matrix, layer and data it takes the effective rank: five readings",
        "the printed Hourglass is no row of Table 9, and has 54.10 M parameters, not the printed 55.00",
    ]
    quarters = "15,000 images; both networks are a quarter as wide as the printed ones, with their ratios d_h / d_z"
    return _part(
        "super-resolution", "rank", scale, {"name": "super_resolution"},
        lambda: _paper("rank", recipes.imagenet(*COLOUR["T9"]), models_of(printed)),
        ({"name": "cifar10", "rows": 15_000}, 3, [conventional(768, 887, 2), hourglass(769, 287, 6)]),
        (PHOTOS_SOURCE, [conventional(500, 578, 2), hourglass(769, 32, 3)]), notes, at_cpu=[quarters],
        protocol=protocols.mlps(*COLOUR["T9"]), **_beside("T1", printed),
    )  # fmt: skip


def norm_activation_init(scale: Scale) -> list[Part]:
    """A study of ours that section 4 leaves to future work: one network of each shape, everything else varied."""
    names, all_cells = ("norm", "activation", "init"), (NORMS, ACTIVATIONS, INITS)

    def vary(models: Sequence[Model], *values: Iterable[str]) -> list[Model]:
        return [{**model, **dict(zip(names, cell, strict=True))} for cell in product(*values) for model in models]

    large = [hourglass(3075, 765, 4), conventional(3072, 3075, 1)]
    medium = [hourglass(65, 8, 4), conventional(32, 64, 2)]
    small = [hourglass(65, 16, 2), conventional(48, 64, 1)]
    return _part(
        "norm, activation and initialisation: denoising", "norm-activation-init", scale, {"name": "denoise"},
        lambda: _paper("norm-activation-init", recipes.imagenet(*COLOUR["T8"]), vary(large, *all_cells)),
        ("digits", 40, vary(medium, *all_cells)),
        (DIGITS_SOURCE, vary(small, ("layer", "none"), ("gelu",), INITS[:2])),
        ["the paper prints no such study: section 4 names it as future work"], block="",
        rival_agrees_in=names, comparable=False, fields=("d_z", "d_h", "depth", *names),
        protocol=protocols.mlps(*COLOUR["T8"]),
    )  # fmt: skip


def searched_shapes(scale: Scale) -> list[Part]:
    """Appendix C.2 on the best Hourglasses of each budget; at the paper's scale, the whole search of Figure 7.

    A shape is a depth and the share of the budget that W_in and W_out take; d_h is what the budget leaves.
    """

    digits: list[Model] = []
    budgets, shares = (22_000, 35_000, 55_000, 88_000, 140_000), (0.1, 0.15, 0.25, 0.4, 0.6)
    for budget, share, depth in product(budgets, shares, (1, 2, 4, 8, 16)):
        d_h = round((1 - share) * 64 / (share * depth))
        d_z = budget // (128 + 2 * depth * d_h)
        if d_z > max(64, d_h):
            digits.append(hourglass(d_z, d_h, depth))
    return _part(
        "shapes", "shapes", scale, {"name": "denoise"}, lambda: _paper("mnist-denoise", mnist_recipe("denoise", 50)),
        ("digits", 60, digits), (DIGITS_SOURCE, DIGITS),
        at_cpu=["digits of 8×8 pixels; d_z is above d_x, as in the paper's search, from 68 to 673"],
        protocol=protocols.mlps("mnist", "denoise"),
    )  # fmt: skip


def _beside(table: str, printed: Iterable[Network]) -> Settings:
    data = "ImageNet-224" if table in ("T6", "T7") else "ImageNet-32"
    return {"table": table, "printed_title": f"Table {table[1:]}, {data}", "printed": printed}


def printed_rows(table: str, keep: Callable[[Mapping[str, Any]], bool] = lambda row: True) -> list[Network]:
    """Rows of Tables 1 and 6 to 9. A printed spread is five standard deviations over five runs; Table 1 has one run."""
    found = []
    for identity, row in load_paper("hourglass").tables[table].rows.items():
        std = round(row["psnr_5sigma_dB"] / 5, 6) if "psnr_5sigma_dB" in row else None
        model = {"d_z": row["d_z"], "d_h": row["d_h"], "depth": row["L"], "w_in": "trainable"}
        model["name"] = f"{row['architecture']}_mlp"
        quality = Sample(row["psnr_dB"], std, 1 if table == "T1" else 5)
        if keep(row):
            # A fifth of a spread with three decimals has four.
            decimals = load_paper("hourglass").tables[table].decimals["psnr_dB"], 4
            found.append(printed_network(identity, row, model, row["params_M"] * 1e6, quality, decimals, "dB"))
    return found


def models_of(printed: Iterable[Network], **fields: Any) -> list[Model]:
    return [{"name": row.shape, **row.model, **fields} for row in printed]
