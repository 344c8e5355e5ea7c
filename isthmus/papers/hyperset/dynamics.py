"""What is measured on trained runs beyond their records: quality over iterations, and how tokens move."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.papers.engine.networks import unit_of
from isthmus.papers.engine.protocol import Given, Measured, Quantity

NUMBERS = ("attention_energy", "feed_forward_energy", "effective_rank", "full_rank", "angle", "mean_of_angles")
PERCENT = {"accuracy": "accuracy (%)", "board_accuracy": "solved boards (%)"}


def _runs(item: Measured, given: Given, measure: Callable[[Path, Path | None], Any]) -> dict[str, list[Any]]:
    """An analysis of every run, by the network's id."""
    folders = {folder.name: folder for folder in item.folders}
    return {
        network.id: [measure(folders[run], given.data_dir) for run in candidate.run_ids]
        for network, candidate in zip(item.networks, item.candidates, strict=True)
    }


def over_iterations(given: Given) -> dict[str, Any]:
    """``extrapolation[network][run][iteration]``: the objective in percent, from iteration 0 to twice the trained."""
    from isthmus.analysis.iterations import of_run

    found: dict[str, Any] = {}
    quantities = []
    for item in given.parts:
        for identity, runs in _runs(item, given, of_run).items():
            trained, objective = runs[0]["trained_iterations"], runs[0]["objective"]
            factor = unit_of(objective)[1]
            curves = [[factor * point[objective] for point in run["curve"]] for run in runs]
            found[identity] = {"trained": trained, "runs": curves}
            for place, title in ((trained, "as trained"), (2 * trained, "twice as many")):
                value = statistics.fmean(curve[place] for curve in curves)
                what = f"{PERCENT[objective]} after {place} iterations, {title}"
                quantities.append(Quantity(f"{identity}, {place}", what, None, value))
    return {"extrapolation": found, "quantities": quantities}


def boards_and_cells(given: Given) -> dict[str, Any]:
    """:func:`over_iterations`, and the empty cells that are filled in rightly after the iterations of the training."""
    found = over_iterations(given)
    for item in given.parts:
        for network, candidate in zip(item.networks, item.candidates, strict=True):
            cells = [100 * share for share in candidate.metrics["cell_accuracy"]]
            runs = ", ".join(f"{share:.1f}" for share in cells)
            found["quantities"].append(
                Quantity(
                    f"{network.id}, cells", "right cells (%), as trained", None, statistics.fmean(cells),
                    note=f"runs: {runs}",
                )
            )  # fmt: skip
    return found


def tokens(given: Given) -> dict[str, Any]:
    """``tokens[part]``: of each Hyper-SET run its curves by head, from X_0 to twice the trained iterations."""
    from isthmus.analysis.token_dynamics import of_run

    found: dict[str, Any] = {}
    quantities: list[Quantity] = []
    for item in given.parts:
        ((identity, runs),) = _runs(item, given, of_run).items()
        title, trained = item.part.title, runs[0]["trained_iterations"]
        found[title] = {"row": identity, "trained": trained, "runs": [run["curves"] for run in runs]}
        found[title]["sphere"] = runs[0]["sphere"]
        quantities += _quantities(title, found[title])
    return {
        "tokens": found,
        "quantities": quantities,
        "differences": [
            "the paper plots these curves and prints next to no values; here they are means over 64 test rows",
            "the average angle is eq. (14), the arccos of the mean cosine; the authors' code averages the angles",
        ],
    }


def _quantities(title: str, found: Mapping[str, Any]) -> list[Quantity]:
    """Every number at X_0 and at the last iteration of the training, in the mean over heads and seeds."""
    printed = {("angle", 0): 70, ("angle", 1): 90}
    return [
        Quantity(
            f"{title}, {name}, {word}", f"{name.replace('_', ' ')} at the {word}, {title}", printed.get((name, place)),
            statistics.fmean(line(run, name)[number] for run in found["runs"]), "",
            "printed for one head, and approximately" if (name, place) in printed else "",
        )
        for name in NUMBERS
        for place, (word, number) in enumerate((("start", 0), ("end", found["trained"])))
    ]  # fmt: skip


def line(curves: Mapping[str, Sequence[Any]], name: str) -> list[float]:
    """One number for each iteration: the attention's energy is the sum over heads, all else their mean."""
    parts = [value if isinstance(value, list) else [value] for value in curves[name]]
    return [sum(heads) / (1 if name == "attention_energy" else len(heads)) for heads in parts]
