"""Table 1's effective rank in each reading that the paper allows, and which of them is nearest to the printed one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from isthmus.core.errors import UserError
from isthmus.papers.engine.exhibit import AnalysisInput
from isthmus.reports.text import architecture_title

PRINTED_WIDTHS = {"hourglass_mlp": 3075, "conventional_mlp": 3072}
NEAR = 0.1
"""A reading comes near if it is within 10 % of both printed ranks, each as a share of d_z."""


def effective_ranks(given: AnalysisInput) -> dict[str, Any]:
    """The ranks of every run at the selected learning rate, by row, and the reading that fits the paper best."""
    from isthmus.analysis.effective_rank import READINGS, of_run

    (item,) = given.parts
    if {network.shape for network in item.networks} != PRINTED_WIDTHS.keys():
        raise UserError(
            "ranks are compared between two networks, and one of them did not finish; see `isthmus runs list`"
        )
    rows: dict[str, Any] = {}
    for network, folders in item.runs():
        found = [of_run(folder, given.data_dir) for folder in folders]
        rows[network.id] = {
            "effective_rank": {name: [entry["ranks"][name] for entry in found] for name in READINGS},
            "width": found[0]["width"],
        }
    shares = {
        network.shape: {
            name: statistics.fmean(values) / rows[network.id]["width"]
            for name, values in rows[network.id]["effective_rank"].items()
        }
        for network in item.networks
    }
    cells = item.part.printed.values()
    printed = {row.network.shape: row.columns["effective_rank"] / row.network.model["d_z"] for row in cells}
    return {
        "rows": rows,
        "readings": READINGS,
        "shares": shares,
        "printed_shares": printed,
        "summary": summary(shares, printed, {network.shape: rows[network.id]["width"] for network in item.networks}),
    }


def summary(
    shares: Mapping[str, Mapping[str, float]], printed: Mapping[str, float], widths: Mapping[str, int]
) -> list[str]:
    """Which reading is nearest, and how near. Shares of d_z are compared, because widths differ between scales."""
    from isthmus.analysis.effective_rank import READINGS

    lines = [f"effective rank as printed: {_describe(printed, PRINTED_WIDTHS)}"]
    off: dict[str, float] = {}
    for name, title in READINGS.items():
        values = {shape: shares[shape][name] for shape in printed}
        off[name] = max(abs(math.log(max(values[shape], 1e-12) / printed[shape])) for shape in printed)
        lines.append(f"{title}: {_describe(values, widths)}; off by a factor of up to {math.exp(off[name]):.2f}")
    nearest = min(off, key=lambda name: off[name])
    verdict = "comes near both printed ranks" if off[nearest] <= math.log1p(NEAR) else "is not within 10 % of both"
    lines.append(f"as shares of d_z, {READINGS[nearest]} is the nearest reading, and {verdict}")
    lines.append(
        "the W_2 W_1 of one block of the printed Hourglass has at most the rank d_h = 1146, so no such product can be "
        "what is printed as 1501.27"
    )
    return lines


def _describe(shares: Mapping[str, float], widths: Mapping[str, int]) -> str:
    ranks = {shape: share * widths[shape] for shape, share in shares.items()}
    parts = [
        f"{architecture_title(s)} {ranks[s]:.1f} of {widths[s]} ({shares[s]:.3f})"
        for s in ("hourglass_mlp", "conventional_mlp")
    ]
    return f"{', '.join(parts)}, ratio {ranks['hourglass_mlp'] / max(ranks['conventional_mlp'], 1e-12):.2f}"
