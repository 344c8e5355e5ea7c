"""How claims are tested: the same test for every part, on measured and on printed numbers, and the rules behind it.

The docstring of a test is printed with its answer. A finding that is undecided says how many seeds would decide it if
the measured difference is the true one. Every pair, budget or setting is tested at 95 % on its own, without a
correction for their number. Printed numbers are taken as exact; the rounding of their last digit is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from isthmus.core.errors import UserError
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import ClaimTest, Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import Network
from isthmus.studies.statistics import Answer, Decision, Interval, Sample, compare, seeds_to_decide

AHEAD: Mapping[Decision, Answer] = {"ahead": "yes", "behind": "no", "undecided": "undecided"}
REVERSED: Mapping[Answer, Answer] = {
    "yes": "no", "no": "yes", "undecided": "undecided", "not addressed": "not addressed"
}  # fmt: skip

Finding = tuple[Answer, dict[str, Any]]
"""An answer and the numbers behind it; ``said`` among them is the sentence that is printed."""
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

    def each_part(self, name: str, *of: str, statement: str = "", elsewhere: str = "") -> Callable[[Test], ClaimTest]:
        """A test of the networks of one part, applied to every part; ``of`` and ``elsewhere`` as in judge_parts."""

        def register(test: Test) -> ClaimTest:
            @wraps(test)
            def judge(findings: Findings) -> Judgement:
                return judge_parts(findings.parts, test, of, elsewhere)

            return self(name, statement)(judge)

        return register


class NotStored(UserError):
    """A stored result lacks a metric that a claim needs; the run records have it."""


def judge_parts(parts: Sequence[MeasuredPart], test: Test, of: Sequence[str] = (), elsewhere: str = "") -> Judgement:
    """The same test for every part, on measured and on printed numbers; the claim must hold in all of them.

    ``of`` limits the test to parts beside one of these tables or on one of these data sets; where there is none,
    ``elsewhere`` is the reason that is printed.
    """
    chosen = [item for item in parts if not of or {item.part.table, item.part.source} & {*of}]
    tables = [item.part.table for item in chosen]
    measured = {item.part.title: test(item.networks) for item in chosen}
    printed = {  # the table; with its data where several parts stand beside it
        part.table if tables.count(part.table) == 1 else part.printed_title: test(list(part.printed.values()))
        for part in (item.part for item in chosen)
        if part.printed
    }
    judgement = conclude(measured, printed)
    return judgement if chosen else replace(judgement, because=elsewhere)


def conclude(measured: Mapping[str, Finding], published: Mapping[str, Finding] = MappingProxyType({})) -> Judgement:
    """The judgement of named findings; all must hold."""
    (answer, numbers), (printed, printed_numbers) = combine(measured), combine(published)
    said = numbers.pop("said"), printed_numbers.pop("said")
    both = {"measured": numbers, "published": printed_numbers}
    return Judgement(answer, printed if published else "not printed", both, *said)


def combine(found: Mapping[str, Finding]) -> Finding:
    """Several findings as one; all must hold."""
    said = "; ".join(f"{name}: {numbers['said']}" for name, (_, numbers) in found.items())
    numbers_of = {name: {"answer": answer, **numbers} for name, (answer, numbers) in found.items()}
    return all_of([answer for answer, _ in found.values()]), {"said": said, **numbers_of}


def not_addressed(reason: str) -> Finding:
    return "not addressed", {"said": reason}


def all_of(answers: Sequence[Answer]) -> Answer:
    """A statement about all cases: one counter-example refutes it; cases that were not addressed do not count."""
    given = set(answers) - {"not addressed"}
    if not given:
        return "not addressed"
    return "no" if "no" in given else "yes" if given == {"yes"} else "undecided"


def any_of(answers: Sequence[Answer]) -> Answer:
    """A statement that at least one case holds: one case proves it, and only all cases together refute it."""
    return REVERSED[all_of([REVERSED[answer] for answer in answers])]


def agree_over_seeds(holds: Sequence[bool]) -> Answer:
    """One answer per seed: yes or no where all seeds agree."""
    return "undecided" if len(set(holds)) > 1 else "yes" if holds[0] else "no"


def agreement(measured: Sample, published: Sample, same_setup: bool) -> tuple[Agreement, Interval | None]:
    """A measured value against the published one. Other data or another protocol can neither agree nor contradict."""
    if not same_setup:
        return "other set-up", None
    interval = compare(measured, published)
    if interval.low is None:
        return "undecided", interval
    words: dict[Decision, Agreement] = {"ahead": "higher", "behind": "lower", "undecided": "agrees"}
    return words[interval.decision], interval


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
    return rule.judge(interval), case(first, second, interval, rule.bounds)
