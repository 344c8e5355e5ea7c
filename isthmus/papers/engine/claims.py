"""How claims are tested: the same test for every part, on measured and on printed numbers, and the rules behind it.

The docstring of a test is printed with its answer. A finding that is undecided says how many seeds would decide it if
the measured difference is the true one. An answer of yes or no comes from a 95 % interval (:func:`judge`), or from
values that are counted or computed and have no spread (:func:`exact`). A claim about several cases holds if each of
them holds at 95 %; each is a further chance of a wrong refutation, so one case refutes it at 95 % over all of them
(Bonferroni). Printed numbers are taken as exact; the rounding of their last digit is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from isthmus.core.errors import UserError
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import ClaimTest, Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import Network
from isthmus.studies.statistics import (
    LEVEL,
    Answer,
    Decision,
    Interval,
    Sample,
    compare,
    decide_together,
    seeds_to_clear,
    seeds_to_decide,
)

AHEAD: Mapping[Decision, Answer] = {"ahead": "yes", "behind": "no", "undecided": "undecided"}
REVERSED: Mapping[Answer, Answer] = {
    "yes": "no", "no": "yes", "undecided": "undecided", "not addressed": "not addressed"
}  # fmt: skip

TOLERANCE: Mapping[str, float] = {"": 0.01, "dB": 0.1, "points": 1.0}
"""Two qualities within this are level, by their unit: 0.01 of R², 0.1 dB or one point; our bounds."""

Finding = tuple[Answer, dict[str, Any]]
"""An answer and the numbers behind it: ``said`` is the sentence that is printed, ``p_of_no`` the p-value of a
refutation (1 where there is none)."""
Test = Callable[[Sequence[Network]], Finding]
Judge = Callable[[Findings], Judgement]
Agreement = Literal["agrees", "higher", "lower", "undecided", "other set-up"]


class Claims:
    """Decorators that turn functions into the tests of one paper's claims.

    A claim without a number in the published data brings its own statement.
    """

    def __init__(self, paper: str) -> None:
        self.published = load_paper(paper).claims

    def __call__(self, name: str, statement: str = "") -> Callable[[Judge], ClaimTest]:
        """A test that reads all findings."""
        known = self.published.get(name)
        given = (known.statement, known.supported) if known else (statement, "")
        return lambda judge: ClaimTest(name, given[0], judge, given[1])

    def each_part(
        self, name: str, *of: str, statement: str = "", elsewhere: str = "", every: Sequence[str] = ()
    ) -> Callable[[Test], ClaimTest]:
        """A test of the networks of one part, applied to every part; other arguments as in judge_parts."""

        def register(test: Test) -> ClaimTest:
            @wraps(test)
            def judge(findings: Findings) -> Judgement:
                return judge_parts(findings.parts, test, of, elsewhere, every)

            return self(name, statement)(judge)

        return register


class NotStored(UserError):
    """A stored result lacks a metric that a claim needs; the run records have it."""


def judge_parts(
    parts: Sequence[MeasuredPart], test: Test, of: Sequence[str] = (), elsewhere: str = "", every: Sequence[str] = ()
) -> Judgement:
    """The same test for every part, on measured and on printed numbers; the claim must hold in all of them.

    ``of`` limits the claim to parts beside one of these tables or on one of these data sets; other parts do not address
    it, for the reason ``elsewhere``, and what they show is printed beside it. ``every`` are data sets that the claim
    names; it cannot hold while one of them is not trained.
    """
    of = of or every
    chosen = [item for item in parts if not of or {item.part.table, item.part.source} & {*of}]
    beside = [item.part for item in parts if not of or {item.part.table, item.part.printed_source} & {*of}]
    tables = [part.table for part in beside]
    reason = elsewhere or f"the claim is about {' and '.join(of)}"
    measured = {
        item.part.title: test(item.networks) if item in chosen else set_aside(reason, test(item.networks))
        for item in parts
    }
    missing = [source for source in every if source not in {item.part.source for item in chosen}]
    if missing and {answer for answer, _ in measured.values()} - {"not addressed"}:
        measured["other data"] = "undecided", {"said": f"{', '.join(missing)} not trained at this scale"}
    printed = {  # the table; with its data where several parts stand beside it
        part.table if tables.count(part.table) == 1 else part.printed_title: test(list(part.printed.values()))
        for part in beside
        if part.printed
    }
    return conclude(measured, printed)


def conclude(measured: Mapping[str, Finding], published: Mapping[str, Finding] = MappingProxyType({})) -> Judgement:
    """The judgement of named findings; all must hold."""
    (answer, numbers), (printed, printed_numbers) = combine(measured), combine(published)
    said = numbers.pop("said"), printed_numbers.pop("said")
    both = {"measured": numbers, "published": printed_numbers}
    return Judgement(answer, printed if published else "not printed", both, *said)


def combine(found: Mapping[str, Finding]) -> Finding:
    """Several findings as one; all must hold, and one that is refuted after a correction for their number refutes."""
    for name, (answer, numbers) in found.items():
        if answer in ("yes", "no") and not _refutations(numbers):
            raise ValueError(f"the answer about {name} needs an interval (`judge`), or is `exact`")
    said = "; ".join(f"{name}: {numbers['said']}" for name, (_, numbers) in found.items())
    numbers_of = {name: {"answer": answer, **numbers} for name, (answer, numbers) in found.items()}
    answer = all_of([answer for answer, _ in found.values()])
    if answer != "no" or min(chances := _refutations(numbers_of)) * len(chances) <= 1 - LEVEL:
        return answer, {"said": said, **numbers_of}
    found_of: dict[str, Any] = {
        "said": f"{said}; not refuted after the correction for {len(chances)} cases",
        **numbers_of,
    }
    if seeds := min(_seeds_to_refute(numbers_of, 1 - (1 - LEVEL) / len(chances)), default=0):
        found_of["said"] += f", which about {seeds:,} seeds would decide"
        found_of["seeds_to_decide"] = seeds
    return "undecided", found_of


def _refutations(numbers: Mapping[str, Any]) -> list[float]:
    """The p-values of ``no`` of all cases that were addressed."""
    if "p_of_no" in numbers:
        return [numbers["p_of_no"]]
    cases = [each for each in numbers.values() if isinstance(each, Mapping)]
    return [p for each in cases if each.get("answer", "not addressed") != "not addressed" for p in _refutations(each)]


def _seeds_to_refute(numbers: Mapping[str, Any], level: float) -> Iterator[int]:
    """How many seeds would refute each of the cases that are answered with no, if all cases are corrected for."""
    if numbers.get("answer") == "no" and "bound" in numbers:
        gap = Interval(**{field.name: numbers[field.name] for field in fields(Interval)})
        if (seeds := seeds_to_clear(gap, numbers["bound"], level)) is not None:
            yield seeds
    for each in numbers.values():
        if isinstance(each, Mapping):
            yield from _seeds_to_refute(each, level)


def judge(gap: Interval, rule: Rule | None = None, said: str = "") -> Finding:
    """What an interval says about a claim; by default, whether the difference is above 0."""
    rule = rule or Rule.leads()
    answer = rule.judge(gap)
    bound = min(rule.bounds, key=lambda bound: abs(gap.difference - bound))
    p = gap.less(bound).p if answer == "no" else 1.0
    numbers = {"said": said or gap.text(), **interval_numbers(gap), "bound": bound, "p_of_no": p}
    if answer == "undecided" and (seeds := seeds_to_clear(gap, bound)) is not None:
        numbers |= {"seeds_to_decide": seeds, "said": f"{numbers['said']}, which about {seeds:,} seeds would decide"}
    return answer, numbers


def exact(holds: bool, said: str) -> Finding:
    """What is counted or computed, and has no spread."""
    return "yes" if holds else "no", {"said": said, "exact": True, "p_of_no": 0.0 if not holds else 1.0}


def any_leads(gaps: Sequence[Interval], noun: str) -> Finding:
    """Whether at least one difference is above 0. They are decided together, because each is a chance; no if each one
    is below 0."""
    decisions = decide_together(gaps)
    answer: Answer = "yes" if "ahead" in decisions else "undecided"
    if {gap.decision for gap in gaps} == {"behind"}:
        answer = "no"
    p = max(gap.p for gap in gaps) if answer == "no" else 1.0
    return answer, {"said": tally(decisions, noun), "p_of_no": p, "cases": [interval_numbers(gap) for gap in gaps]}


def not_addressed(reason: str) -> Finding:
    return "not addressed", {"said": reason}


def set_aside(reason: str, found: Finding) -> Finding:
    """What was found where the claim says nothing, such as in networks of other sizes."""
    answer, numbers = found
    if answer == "not addressed":
        return not_addressed(reason)
    return "not addressed", {"said": f"{reason}; here {answer}: {numbers['said']}", "here": numbers}


def all_of(answers: Sequence[Answer]) -> Answer:
    """A statement about all cases: one counter-example refutes it; cases that were not addressed do not count."""
    given = set(answers) - {"not addressed"}
    if not given:
        return "not addressed"
    return "no" if "no" in given else "yes" if given == {"yes"} else "undecided"


def agreement(
    measured: Sample, published: Sample, same_setup: bool, tolerance: float
) -> tuple[Agreement, Interval | None]:
    """A measured value against the published one. Other data or another protocol can neither agree nor contradict.

    The two agree if neither is decided higher and the whole interval lies within the tolerance.
    """
    if not same_setup:
        return "other set-up", None
    interval = compare(measured, published)
    words: dict[Decision, Agreement] = {"ahead": "higher", "behind": "lower"}
    level: Agreement = "agrees" if interval.within(tolerance) == "yes" else "undecided"
    return words.get(interval.decision, level), interval


def interval_numbers(interval: Interval) -> dict[str, Any]:
    return asdict(interval) | {"decision": interval.decision}


def case(first: Network, second: Network, interval: Interval, bounds: Sequence[float] = (0.0,)) -> dict[str, Any]:
    """The difference of two networks, and how many seeds of each would decide on which side of the bounds it lies."""
    said = f"{first.id} − {second.id} is {interval.text(first.unit)}"
    numbers = {"first": first.id, "second": second.id, "said": said, **interval_numbers(interval)}
    if interval.low is None or interval.high is None:
        return numbers
    open_bounds = [bound for bound in bounds if interval.low <= bound <= interval.high]
    nearest = min((abs(interval.difference - bound) for bound in open_bounds), default=0.0)
    if open_bounds and (seeds := seeds_to_decide(first.quality, second.quality, nearest)) is not None:
        numbers["seeds_to_decide"] = seeds
        numbers["said"] += f", which about {seeds:,} seeds of each would decide"
    return numbers


def tally(decisions: Sequence[Decision], noun: str) -> str:
    ahead, behind, undecided = (decisions.count(word) for word in AHEAD)
    return f"ahead at {ahead}, behind at {behind} and undecided at {undecided} of {len(decisions)} {noun}"


class Rule(NamedTuple):
    """How a difference answers a claim, and the bounds that decide it."""

    judge: Callable[[Interval], Answer]
    bounds: tuple[float, ...] = (0.0,)

    @classmethod
    def leads(cls) -> Rule:
        return cls(lambda gap: AHEAD[gap.decision])

    @classmethod
    def trails(cls) -> Rule:
        return cls(lambda gap: REVERSED[AHEAD[gap.decision]])

    @classmethod
    def at_least(cls, bound: float) -> Rule:
        return cls(lambda gap: gap.above(bound), (bound,))

    @classmethod
    def less_than(cls, bound: float) -> Rule:
        return cls(lambda gap: REVERSED[gap.above(bound)], (bound,))

    @classmethod
    def within(cls, bound: float) -> Rule:
        """Smaller than the bound, in either direction."""
        return cls(lambda gap: gap.within(bound), (-bound, bound))


def pair(first: Network | None, second: Network | None, rule: Rule | None = None) -> Finding:
    """The finding about two networks; by default, whether the first is ahead."""
    if first is None or second is None:
        return not_addressed("the two networks that the claim compares are not trained at this scale")
    interval, rule = compare(first.quality, second.quality), rule or Rule.leads()
    answer, numbers = judge(interval, rule)
    return answer, numbers | case(first, second, interval, rule.bounds)
