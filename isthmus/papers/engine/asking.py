"""How a claim is asked: the same test of every part, as measured and as printed, with the numbers it rests on.

What the seeds leave undecided is said with how many of them would decide it, if the difference is what it seems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Findings, Judgement, Measured
from isthmus.papers.engine.verdicts import all_of
from isthmus.studies.statistics import Answer, Decision, Interval, compare, seeds_to_decide

AHEAD: Mapping[Decision, Answer] = {"ahead": "yes", "behind": "no", "undecided": "undecided"}
REVERSED: Mapping[Answer, Answer] = {
    "yes": "no", "no": "yes", "undecided": "undecided", "not addressed": "not addressed"
}  # fmt: skip

Finding = tuple[Answer, dict[str, Any]]
"""An answer and the numbers that it rests on, ``said`` in words among them."""
Test = Callable[[Sequence[Network]], Finding]


def not_addressed(reason: str) -> Finding:
    return "not addressed", {"said": reason}


def asked(findings: Findings, test: Test, tables: Sequence[str] | None = None) -> Judgement:
    """The same test of every part, as measured and as printed; a claim must hold in all of them."""
    parts = [item for item in findings.parts if tables is None or item.part.table in tables]
    measured = {item.part.title: test(item.networks) for item in parts}
    printed = {
        _printed_name(item, parts): test([row.network for row in item.part.printed.values()])
        for item in parts
        if item.part.printed
    }
    return judged(measured, printed)


def _printed_name(item: Measured, parts: Sequence[Measured]) -> str:
    """The table; where several parts stand beside one, with its data."""
    shared = sum(other.part.table == item.part.table for other in parts) > 1
    return item.part.printed_title if shared else item.part.table


def judged(measured: Mapping[str, Finding], printed: Mapping[str, Finding] | None = None) -> Judgement:
    """Findings by the name of what they are about; all must hold."""
    printed = printed or {}
    return Judgement(
        measured=all_of([answer for answer, _ in measured.values()]),
        published=all_of([answer for answer, _ in printed.values()]) if printed else "not printed",
        numbers={"measured": numbers_of(measured), "published": numbers_of(printed)},
        because=said(measured),
        printed_because=said(printed),
    )


def said(found: Mapping[str, Finding]) -> str:
    return "; ".join(f"{name}: {numbers['said']}" for name, (_, numbers) in found.items())


def numbers_of(found: Mapping[str, Finding]) -> dict[str, Any]:
    return {name: {"answer": answer, **numbers} for name, (answer, numbers) in found.items()}


def together(found: Mapping[str, Finding], join: Callable[[Sequence[Answer]], Answer] = all_of) -> Finding:
    """Several findings as one."""
    return join([answer for answer, _ in found.values()]), {"said": said(found), **numbers_of(found)}


def interval_numbers(interval: Interval) -> dict[str, Any]:
    return asdict(interval) | {"decision": interval.decision}


def case(first: Network, second: Network, interval: Interval, bounds: Sequence[float] = (0.0,)) -> dict[str, Any]:
    """The difference of two networks, and how many seeds of each would decide on which side of the bounds it lies."""
    numbers: dict[str, Any] = {"first": first.id, "second": second.id, "said": difference(first, second, interval)}
    numbers |= interval_numbers(interval)
    if interval.low is None or interval.high is None:
        return numbers
    open_bounds = [bound for bound in bounds if interval.low <= bound <= interval.high]
    nearest = min((abs(interval.difference - bound) for bound in open_bounds), default=0.0)
    if open_bounds and (seeds := seeds_to_decide(first.quality, second.quality, nearest)) is not None:
        numbers["seeds_to_decide"] = seeds
        numbers["said"] += f", which about {seeds:,} seeds of each would decide"
    return numbers


def difference(first: Network, second: Network, interval: Interval) -> str:
    return f"{first.id} − {second.id} is {interval.text(first.unit)}"


def counted(decisions: Sequence[Decision], noun: str) -> str:
    ahead, behind, undecided = (decisions.count(word) for word in AHEAD)
    return f"ahead at {ahead}, behind at {behind} and undecided at {undecided} of {len(decisions)} {noun}"


class Rule(NamedTuple):
    """How a difference answers a claim, and the bounds on which that turns."""

    judge: Callable[[Interval], Answer]
    bounds: tuple[float, ...]


LEADS = Rule(lambda gap: AHEAD[gap.decision], (0.0,))
TRAILS = Rule(lambda gap: REVERSED[AHEAD[gap.decision]], (0.0,))


def at_least(bound: float) -> Rule:
    return Rule(lambda gap: gap.above(bound), (bound,))


def less_than(bound: float) -> Rule:
    return Rule(lambda gap: REVERSED[gap.above(bound)], (bound,))


def within(bound: float) -> Rule:
    """Smaller than so much, in either direction."""
    return Rule(lambda gap: gap.within(bound), (-bound, bound))


def pair(first: Network | None, second: Network | None, rule: Rule = LEADS) -> Finding:
    """Two networks and what their difference says; by default, whether the first is ahead."""
    if first is None or second is None:
        return not_addressed("the two networks that the claim compares are not trained at this scale")
    interval = compare(first.quality, second.quality)
    return rule.judge(interval), case(first, second, interval, rule.bounds)
