"""Measurements on trained runs beyond their records: quality over iterations, and token dynamics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.papers.engine.exhibit import AnalysisInput, Quantity
from isthmus.papers.engine.networks import unit_of

NUMBERS = ("attention_energy", "feed_forward_energy", "effective_rank", "full_rank", "angle", "mean_of_angles")
PERCENT = {"accuracy": "accuracy (%)", "board_accuracy": "solved boards (%)"}


def over_iterations(given: AnalysisInput) -> dict[str, Any]:
    """``extrapolation[network][run][iteration]``: the objective in percent, from iteration 0 to twice the trained."""
    from isthmus.analysis.iterations import of_run

    found: dict[str, Any] = {}
    quantities = []
    for item in given.parts:
        for network, folders in item.runs():
            identity, runs = network.id, [of_run(folder, given.data_dir) for folder in folders]
            trained, objective = runs[0]["trained_iterations"], runs[0]["objective"]
            factor = unit_of(objective)[1]
            curves = [[factor * point[objective] for point in run["curve"]] for run in runs]
            found[identity] = {"trained": trained, "runs": curves}
            for place, title in ((trained, "as trained"), (2 * trained, "twice as many")):
                value = statistics.fmean(curve[place] for curve in curves)
                what = f"{PERCENT[objective]} after {place} iterations, {title}"
                quantities.append(Quantity(f"{identity}, {place}", what, None, value))
    return {"extrapolation": found, "quantities": quantities}


def boards_and_cells(given: AnalysisInput) -> dict[str, Any]:
    """:func:`over_iterations`, and the share of empty cells filled in correctly."""
    found = over_iterations(given)
    for item in given.parts:
        for network, candidate in zip(item.networks, item.candidates, strict=True):
            cells = [100 * share for share in candidate.metrics["cell_accuracy"]]
            what, note = "right cells (%), as trained", f"runs: {', '.join(f'{share:.1f}' for share in cells)}"
            mean = statistics.fmean(cells)
            found["quantities"].append(Quantity(f"{network.id}, cells", what, None, mean, note=note))
    return found


def tokens(given: AnalysisInput) -> dict[str, Any]:
    """``tokens[part]``: the curves of each Hyper-SET run by head, from X_0 to twice the trained iterations.

    The quantities are every number at X_0 and at the last trained iteration, averaged over heads and seeds.
    """
    from isthmus.analysis.token_dynamics import of_run

    found: dict[str, Any] = {}
    quantities: list[Quantity] = []
    printed = {("angle", "start"): 70, ("angle", "end"): 90}
    for item in given.parts:
        ((network, folders),) = item.runs()
        runs = [of_run(folder, given.data_dir) for folder in folders]
        title, trained, curves = item.part.title, runs[0]["trained_iterations"], [run["curves"] for run in runs]
        found[title] = {"row": network.id, "trained": trained, "runs": curves, "sphere": runs[0]["sphere"]}
        quantities += [
            Quantity(
                f"{title}, {name}, {word}", f"{name.replace('_', ' ')} at the {word}, {title}",
                printed.get((name, word)), statistics.fmean(line(run, name)[place] for run in curves), "",
                "printed for one head, and approximately" if (name, word) in printed else "",
            )
            for name in NUMBERS
            for word, place in (("start", 0), ("end", trained))
        ]  # fmt: skip
    return {
        "tokens": found,
        "quantities": quantities,
        "differences": [
            "the paper plots these curves and prints next to no values; here they are means over 64 test rows",
            "the average angle is eq. (14), the arccos of the mean cosine; the authors' code averages the angles",
        ],
    }


def line(curves: Mapping[str, Sequence[Any]], name: str) -> list[float]:
    """One number per iteration: the attention energy summed over heads, everything else averaged."""
    parts = [value if isinstance(value, list) else [value] for value in curves[name]]
    return [sum(heads) / (1 if name == "attention_energy" else len(heads)) for heads in parts]
