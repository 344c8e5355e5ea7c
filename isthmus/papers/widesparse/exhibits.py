"""The tables and figures of the wide-and-sparse paper that can be reproduced."""

from __future__ import annotations

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Exhibits, no_parts
from isthmus.papers.engine.figures import by_shape, plot_over, ratios
from isthmus.papers.widesparse import claims, figures, measurements, studies
from isthmus.papers.widesparse import supplement_studies as supplement

SHARED = {"T1": ("Table 1", "T1a")} | {f"FS{number}": (f"Figure S.{number}", "FS6_FS8") for number in (6, 7, 8)}
_exhibit = Exhibits(load_paper("widesparse"), SHARED)
_ratio = plot_over(lambda network: network.model["C"] / network.model["S"], "C/S", figures.families, log=10)
_depth = plot_over(lambda network: float(network.model["depth"]), "blocks", by_shape)
_width = plot_over(lambda network: float(claims.width(network)), "effective width m", figures.families, log=10)
_patch = plot_over(lambda network: 3.0 * network.model["patch"] ** 2, "C0", by_shape, log=10)
_connections = plot_over(lambda network: network.params, "parameters", by_shape, log=10)
_losses, _curves = figures.losses, measurements.curves

TABLES = {
    exhibit.id: exhibit
    for exhibit in (
        _exhibit("T1", studies.table_1, claims.c1, claims.c2, draw=_connections),
        _exhibit("TS1", no_parts, claims.table_s1, draw=figures.table, analyse=measurements.components),
        _exhibit("TS2", no_parts, claims.table_s2, draw=figures.table, analyse=measurements.settings),
        _exhibit("TS3", no_parts, claims.c11, draw=ratios, analyse=measurements.costs),
        _exhibit(
            "F2", studies.similarity, claims.c8, claims.c9, draw=figures.similarity, analyse=measurements.similarities
        ),
        _exhibit("F3", no_parts, claims.widest, draw=figures.shape_curves, analyse=measurements.shape_curves),
        _exhibit("F4", studies.width, claims.c3, claims.c4, draw=figures.widths, analyse=measurements.widths),
        _exhibit("F5", studies.effective_width, claims.c5, draw=_width),
        _exhibit("F6", studies.ratio, claims.c6, draw=_ratio),
        _exhibit("F7", studies.depth, claims.c7, draw=_depth),
        _exhibit(
            "FS1", supplement.density, claims.too_sparse, claims.largest_value, draw=figures.densities,
            analyse=measurements.exponents,
        ),
        _exhibit("FS2", supplement.expanded_width, claims.wider, draw=_width),
        _exhibit("FS3", supplement.expansion, claims.c10, draw=figures.expansions),
        _exhibit("FS4", supplement.replacement, claims.c12, draw=figures.random_blocks),
        _exhibit("FS5", supplement.patches, claims.best_patch, draw=_patch),
        _exhibit("FS6", supplement.overfitting, claims.c13, draw=_losses, analyse=_curves),
        _exhibit("FS7", supplement.overfitting_mlp, claims.c13, draw=_losses, analyse=_curves),
        _exhibit("FS8", supplement.adamw, claims.random_leads, draw=_losses, analyse=_curves),
        _exhibit("FS9", no_parts, draw=figures.pictures, analyse=measurements.pictures),
    )
}  # fmt: skip
