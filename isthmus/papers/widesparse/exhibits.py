"""The tables and figures of the wide-and-sparse paper that can be reproduced."""

from __future__ import annotations

from functools import partial

from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.engine.figures import by_shape, plot_over, ratios
from isthmus.papers.widesparse import claims, figures, measurements, studies
from isthmus.papers.widesparse import supplement_studies as supplement

_exhibit = Exhibits(
    "widesparse",
    {"T1": ("Table 1", "T1a")} | {f"FS{number}": (f"Figure S.{number}", "FS6_FS8") for number in (6, 7, 8)},
)
_ratio = plot_over(lambda network: network.model["C"] / network.model["S"], "C/S", claims.families, log=10)
_depth = plot_over(lambda network: float(network.model["depth"]), "blocks", by_shape)
_width = plot_over(lambda network: float(claims.width(network)), "effective width m", claims.families, log=10)
_patch = plot_over(lambda network: 3.0 * network.model["patch"] ** 2, "C0", by_shape, log=10)
_connections = plot_over(lambda network: network.params, "parameters", by_shape, log=10)
_curves = partial(_exhibit, draw=figures.losses, analyse=measurements.curves)
_table = partial(_exhibit, draw=figures.table)

TABLES = by_id(
    _exhibit("T1", claims.c1, claims.c2, parts=studies.table_1, draw=_connections),
    _table("TS1", claims.table_s1, analyse=measurements.components),
    _table("TS2", claims.table_s2, analyse=measurements.settings),
    _exhibit("TS3", claims.c11, draw=ratios, analyse=measurements.costs),
    _exhibit(
        "F2", claims.c8, claims.c9, parts=studies.similarity, draw=figures.similarity, analyse=measurements.similarities
    ),
    _exhibit("F3", claims.widest, draw=figures.shape_curves, analyse=measurements.shape_curves),
    _exhibit(
        "F4", claims.c3, claims.c4, parts=studies.width, draw=figures.widths, analyse=measurements.widths,
        opens_runs=False,
    ),
    _exhibit("F5", claims.c5, parts=studies.effective_width, draw=_width),
    _exhibit("F6", claims.c6, parts=studies.ratio, draw=_ratio),
    _exhibit("F7", claims.c7, parts=studies.depth, draw=_depth),
    _exhibit(
        "FS1", claims.too_sparse, claims.largest_value, parts=supplement.density, draw=figures.densities,
        analyse=measurements.exponents, opens_runs=False,
    ),
    _exhibit("FS2", claims.wider, parts=supplement.expanded_width, draw=_width),
    _exhibit("FS3", claims.c10, parts=supplement.expansion, draw=figures.expansions),
    _exhibit("FS4", claims.c12, parts=supplement.replacement, draw=figures.random_blocks),
    _exhibit("FS5", claims.best_patch, parts=supplement.patches, draw=_patch),
    _curves("FS6", claims.c13, parts=supplement.s_mixer_losses),
    _curves("FS7", claims.c13, parts=supplement.mixer_losses),
    _curves("FS8", claims.random_leads, parts=supplement.adamw),
    _exhibit("FS9", draw=figures.pictures, analyse=measurements.pictures),
)  # fmt: skip
