"""Whether what a database says of a trial can be true, by the study's config: only the config says what is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isthmus.core.config import StudyConfig
from isthmus.core.space import Range, Space
from isthmus.studies.judging import Proposal
from isthmus.studies.planning import Plan
from isthmus.studies.storage import Entry, settings_of


def check_candidate(plan: Plan, entry: Entry, before: Entry | None) -> Proposal:
    """The candidate that the config makes of what the entry varies; a ValueError says where they differ."""
    if entry.number < len(plan.listed):
        proposal, generations = plan.listed[entry.number], {0}
    else:
        proposal, last = _drawn(plan, entry), -1 if before is None else before.generation
        generations = {max(last, 0), last + 1}
    if entry.generation not in generations:
        raise ValueError(f"generation {entry.generation} cannot be")
    told = (entry.key, entry.space, dict(entry.varied), dict(entry.model))
    if told != (proposal.key, proposal.space, dict(proposal.varied), settings_of(proposal)):
        raise ValueError("it is not a candidate of the config")
    name, cost = plan.config.cost, entry.costs[plan.config.cost]
    if not isinstance(cost, int | float) or not 0 < cost < math.inf or cost != proposal.cost.get(name, cost):
        raise ValueError(f"its cost of {cost!r} {name} cannot be")
    return proposal


def _drawn(plan: Plan, entry: Entry) -> Proposal:
    spaces = plan.config.spaces
    if not isinstance(entry.space, int) or not 0 <= entry.space < len(spaces) or not plan.quotas[entry.space]:
        raise ValueError(f"there is no space {entry.space}")
    space = spaces[entry.space]
    proposal = (
        plan.judge.judge(space.model | dict(entry.varied), entry.space) if _lies_in(space, entry.varied) else None
    )
    if proposal is None:
        raise ValueError("it does not lie in its space")
    return proposal


def _lies_in(space: Space, varied: Mapping[str, Any]) -> bool:
    return varied.keys() == space.vary.keys() and all(
        _is_among(item, varied[name]) for name, item in space.vary.items()
    )


def _is_among(item: Range | tuple[Any, ...], value: Any) -> bool:
    if not isinstance(item, Range):
        return any(value == choice and type(value) is type(choice) for choice in item)
    if isinstance(value, bool) or not isinstance(value, int if item.is_integer else int | float):
        return False
    return item.low <= value <= item.high and (not item.is_integer or (value - item.low) % item.step == 0)


def check_progress(config: StudyConfig, entry: Entry) -> None:
    """Whether a trial can stand where it stands."""
    rungs = config.pruning.rungs if config.pruning else ()
    if tuple(sorted(entry.rungs)) != rungs[: len(entry.rungs)]:
        raise ValueError(f"it was compared at epochs {sorted(entry.rungs)}, which the config does not say")
    if entry.state == "pruned" and not entry.rungs:
        raise ValueError("it is pruned and was never compared")
    if entry.state == "finished" and (entry.quality is None or len(entry.rungs) < len(rungs)):
        raise ValueError("it is finished and has no quality")
