"""The words for what intervals say: of a claim, and of a measured number beside a printed one.

Printed numbers are taken as they stand; that their last digit is rounded is no part of an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from isthmus.studies.statistics import Answer, Decision, Interval, Sample, compare

Agreement = Literal["agrees", "higher", "lower", "undecided", "other set-up"]


def agreement(measured: Sample, published: Sample, same_setup: bool) -> tuple[Agreement, Interval | None]:
    """A measured value against the published one. Other data or another protocol can neither agree nor contradict."""
    if not same_setup:
        return "other set-up", None
    interval = compare(measured, published)
    if interval.low is None:
        return "undecided", interval
    words: dict[Decision, Agreement] = {"ahead": "higher", "behind": "lower", "undecided": "agrees"}
    return words[interval.decision], interval


def all_of(answers: Sequence[Answer]) -> Answer:
    """A statement about all cases: one counter-example refutes it; what was not addressed has no say."""
    asked = [answer for answer in answers if answer != "not addressed"]
    if not asked:
        return "not addressed"
    return "no" if "no" in asked else "yes" if set(asked) == {"yes"} else "undecided"


def any_of(answers: Sequence[Answer]) -> Answer:
    """A statement that something happens somewhere: one case shows it; only all cases together refute it."""
    asked = [answer for answer in answers if answer != "not addressed"]
    if not asked:
        return "not addressed"
    return "yes" if "yes" in asked else "no" if set(asked) == {"no"} else "undecided"
