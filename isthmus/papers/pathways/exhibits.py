"""The experiments on residual pathways, E0 to E7.

``isthmus reproduce pathways E2 --scale cpu`` carries one out. E0 and E1 need no training.
"""

from __future__ import annotations

from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.pathways import claims, figures, hypotheses, measurements, studies, untrained

_exhibit = Exhibits("pathways", {})

TABLES = by_id(
    _exhibit("E0", claims.cost_laws, claims.reversible_memory, draw=figures.costs, analyse=untrained.count_costs),
    _exhibit(
        "E1", claims.expansion, claims.growth, claims.delta_spectrum, draw=figures.starts,
        analyse=untrained.start_networks,
    ),
    _exhibit(
        "E2", hypotheses.free_lunch, hypotheses.parallel_loses_beyond_first_order, claims.ladder_level,
        claims.parallel_level, claims.more_uniform, claims.blocks_keep_the_gain, claims.residuals_help,
        claims.equal_seconds, parts=studies.on_tower, draw=figures.by_pathway, analyse=measurements.on_tower,
    ),
    _exhibit(
        "E3", hypotheses.histories_cost_too_much, hypotheses.free_lunch, hypotheses.erasing_needs_a_narrow_stream,
        hypotheses.shapes_differ_in_their_best, claims.ladder_level, parts=studies.by_shape, draw=figures.by_pathway,
        analyse=measurements.by_shape,
    ),
    _exhibit(
        "E4", claims.depth_factor_costs, claims.residuals_help, parts=studies.without_norms, draw=figures.by_pathway,
    ),
    _exhibit(
        "E5", hypotheses.free_lunch, claims.ladder_level, claims.more_uniform, claims.blocks_keep_the_gain,
        parts=studies.in_tokens, draw=figures.tokens, analyse=measurements.in_tokens,
    ),
    _exhibit(
        "E6", claims.saturates, claims.bounded_state, claims.fewer_diverge, parts=studies.over_iterations,
        draw=figures.iterations, analyse=measurements.over_iterations,
    ),
    _exhibit(
        "E7", claims.equal_seconds_by_shape, parts=studies.at_equal_seconds, draw=figures.equal_seconds,
        analyse=measurements.at_equal_seconds, opens_runs=False,
    ),
)  # fmt: skip
