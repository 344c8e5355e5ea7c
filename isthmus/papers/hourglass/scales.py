"""How a study of this paper is said at each scale, and what is printed beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.core.config import RunConfig, StudyConfig
from isthmus.papers import load_paper
from isthmus.papers.engine import scales
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Part, Printed, Scale
from isthmus.papers.engine.scales import Model, Studies, study
from isthmus.studies.statistics import Sample

PRINTED_DATA = {
    "T1": "ImageNet-32",
    "T6": "ImageNet-224",
    "T7": "ImageNet-224",
    "T8": "ImageNet-32",
    "T9": "ImageNet-32",
}
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


def printed_rows(table: str, keep: Callable[[Mapping[str, Any]], bool] = lambda row: True) -> dict[str, Printed]:
    """Rows of Tables 1 and 6 to 9. A printed spread is five standard deviations over five runs; Table 1 has one run."""
    return {
        identity: Printed(row, _printed_network(identity, row, runs=1 if table == "T1" else 5))
        for identity, row in load_paper("hourglass").tables[table].rows.items()
        if keep(row)
    }


def _printed_network(identity: str, row: Mapping[str, Any], runs: int) -> Network:
    std = round(row["psnr_5sigma_dB"] / 5, 6) if "psnr_5sigma_dB" in row else None
    params = row["params_M"] * 1e6
    model = {"d_z": row["d_z"], "d_h": row["d_h"], "depth": row["L"], "w_in": "trainable"}
    quality = Sample(row["psnr_dB"], std, runs)
    return Network(identity, f"{row['architecture']}_mlp", model, params, params, row["psnr_dB"], quality)


def models_of(printed: Mapping[str, Printed], **fields: Any) -> list[Model]:
    return [{"name": row.network.shape, **row.network.model, **fields} for row in printed.values()]


def paper_study(name: str, recipe: RunConfig, rates: Sequence[float], models: Iterable[Model] = ()) -> StudyConfig:
    """Appendix A: the given networks, or the whole search, on the recipe's data; five seeds of everything."""
    models = list(models)
    spaces = [] if models else _mnist_search()
    return study(f"hourglass-{name}", "paper", recipe, models, spaces=spaces, learning_rates=rates, seeds=range(5))


def _mnist_search() -> list[dict[str, Any]]:
    """The stated ranges of the search on MNIST; how fine its grid was is not printed."""
    ranges = {"d_z": (785, 4500, 5), "d_h": (4, 2500, 7), "depth": (1, 40, 6)}
    vary = {name: {"low": a, "high": b, "log": True, "points": n} for name, (a, b, n) in ranges.items()}
    return [
        {"model": {"name": "hourglass_mlp"}, "vary": vary, "where": ["d_z > d_in", "d_h < d_z"]},
        {"model": {"name": "conventional_mlp"}, "vary": vary, "where": ["d_h > d_z"]},
    ]


def cpu_study(
    name: str, source: str, task: dict[str, Any], epochs: int, rates: Sequence[float], models: Iterable[Model]
) -> StudyConfig:
    base = _base({"name": source}, task, epochs, 128)
    seeds = {"rates_on": "first_seed", "seeds": (0, 1, 2)}
    return study(f"hourglass-{name}", "cpu", base, models, learning_rates=rates, **seeds)


def smoke_study(name: str, source: dict[str, Any], task: dict[str, Any], models: Iterable[Model]) -> StudyConfig:
    return study(f"hourglass-{name}", "smoke", _base(source, task, 1, 64), models, seeds=(0, 1))


def _base(source: dict[str, Any], task: dict[str, Any], epochs: int, batch_size: int) -> dict[str, Any]:
    return {"source": source, "task": task, "train": {"epochs": epochs, "batch_size": batch_size}, "threads": 1}


def part_of(task: str, scale: Scale, studies: Studies, notes: Mapping[str, Sequence[str]], **more: Any) -> Part:
    """With what the paper leaves open, whatever the scale."""
    name = studies[scale]().base.task.name
    unstated = [NOISE] if name == "denoise" else []
    unstated += [BLOCK] if "norm" not in more.get("fields", ()) else []
    described: dict[str, Any] = {"subject": "hourglass_mlp"} | more
    if table := more.get("table"):
        described["printed_title"] = f"Table {table[1:]}, {PRINTED_DATA[table]}"
    notes = {**notes, "all": [*notes.get("all", ()), *unstated, *UNSTATED]}
    return scales.part_of(task, scale, studies, notes, **described)
