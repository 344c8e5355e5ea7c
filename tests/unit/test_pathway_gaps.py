"""Pathways against plain at equal shapes: which networks are paired, what is decided, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isthmus.core.titles import architecture_of, pathway_title, split_architecture
from isthmus.reports.html_tables import pathways_table
from isthmus.reports.sections import Section, varying_settings
from isthmus.reports.text import answer, architecture_title, describe_pathway
from isthmus.studies.fronts import Candidate
from isthmus.studies.pathway_gaps import compare_with_plain
from tests.unit.candidates import make_candidate

LADDER = {"name": "delayed", "lag": 1, "group": None, "from_block": 1}
DELTA = {"name": "delta", "write": "value", "channels": 1, "value": "sigmoid"}


def network(depth: int, tests: tuple[float, ...], pathway: dict[str, Any] | None = None, **others: Any) -> Candidate:
    model = {"name": "hourglass_mlp", "d_z": 80, "d_h": 8, "depth": depth} | ({"pathway": pathway} if pathway else {})
    title = architecture_of(model)
    candidate = make_candidate(1000 * depth, tests[0], title, identity=f"{title} {depth}")
    settings = {"model": model, "source": {"name": "digits"}}
    fixed: dict[str, Any] = {"settings": settings, "seeds": tuple(range(len(tests)))}
    return replace(candidate, **fixed, metrics={candidate.objective: tests}, **others)


PLAIN = [network(4, (20.0, 20.2, 20.1)), network(8, (21.0, 21.2, 21.1))]
BETTER = [network(4, (20.5, 20.71, 20.6), DELTA, params=4400), network(8, (21.5, 21.7, 21.61), DELTA, params=8800)]
ALIKE = [network(4, (20.0, 20.21, 20.1), LADDER), network(8, (21.01, 21.2, 21.1), LADDER)]


def section(candidates: list[Candidate]) -> Any:
    """Without runs, which only the rest of a page needs."""

    class Fixed(Section):
        objective = "psnr"
        refits = outdated_runs = failed_runs = ()  # type: ignore[assignment]

        @property
        def architectures(self) -> list[str]:  # type: ignore[override]
            return list(dict.fromkeys(each.architecture for each in candidates))

    return Fixed((), tuple(candidates))


def test_networks_that_differ_in_the_pathway_alone_are_paired_by_seed() -> None:
    alone = network(16, (30.0, 30.1, 30.2), DELTA)  # no plain network has this depth
    gaps = {gap.pathway: gap for gap in compare_with_plain([*PLAIN, *BETTER, *ALIKE, alone])}
    assert list(gaps) == ["delta", "delayed(lag=1)"]
    assert [len(gap.shapes) for gap in gaps.values()] == [2, 2]
    delta = gaps["delta"]
    assert delta.mean.difference == pytest.approx(0.50333, abs=1e-4)
    assert delta.mean.rule == "paired over 3 seeds"
    assert (delta.decision, gaps["delayed(lag=1)"].decision) == ("ahead", "undecided")
    assert delta.ratio(lambda each: each.params) == pytest.approx(1.1)


def test_a_smaller_loss_is_better() -> None:
    worse = [replace(each, maximise=False) for each in [*PLAIN, *BETTER]]
    assert compare_with_plain(worse)[0].decision == "behind"


def test_it_is_said_in_words_and_on_the_page() -> None:
    found = section([*PLAIN, *BETTER, *ALIKE])
    assert answer(found)[0] == (
        "Compared with the pathway plain at equal shapes, in PSNR (dB), delta (by 0.5033) is better; delayed(lag=1) "
        "does not differ significantly."
    )
    said = [describe_pathway(gap, "psnr").replace("\N{NO-BREAK SPACE}", " ") for gap in found.pathway_gaps]
    assert said[0].startswith(
        "The pathway delta is better than plain by 0.5033 dB on average over 2 shapes (95 % interval"
    )
    assert said[0].endswith("paired over 3 seeds), with 1.10 times the parameters and 1.00 times the training time.")
    assert said[1].startswith(
        "The pathways delayed(lag=1) and plain do not differ significantly on average over 2 shapes:"
    )
    page = pathways_table(found)
    assert all(
        text in page for text in ("Pathways against plain", "+0.5033", "better", "undecided", "× 1.10", "depth 8")
    )
    assert pathways_table(section(PLAIN)) == ""


def test_one_seed_ranks_nothing() -> None:
    found = section([network(4, (20.0,)), network(4, (20.5,), DELTA)])
    assert answer(found)[0] == "With one seed per network, pathways cannot be ranked."
    assert "one seed" in pathways_table(found)


def test_pathways_are_compared_with_plain_and_not_with_each_other() -> None:
    conventional = replace(PLAIN[0], architecture="conventional_mlp")
    found = section([*PLAIN, *BETTER, *ALIKE, conventional])
    pairs = {(first[0].architecture, second[0].architecture) for first, second in found.pairs}
    delta, ladder = "hourglass_mlp · delta", "hourglass_mlp · delayed(lag=1)"
    assert pairs == {("hourglass_mlp", delta), ("hourglass_mlp", ladder), ("hourglass_mlp", "conventional_mlp")}
    without_plain = section([*BETTER, *ALIKE])
    assert len(without_plain.pairs) == 1


def test_architectures_name_the_pathway_and_columns_do_not_repeat_it() -> None:
    assert architecture_of({"name": "vit"}) == architecture_of({"name": "vit", "pathway": "plain"}) == "vit"
    assert split_architecture("vit · delta") == ("vit", "delta")
    assert architecture_title("hourglass_mlp · delta") == "Hourglass · delta"
    assert pathway_title({"name": "streams", "count": 2, "dynamic": False, "constrain": "none"}) == (
        "streams(count=2,dynamic=False)"
    )
    assert varying_settings([*PLAIN, *BETTER, *ALIKE]) == ["model.d_z", "model.d_h", "model.depth"]
    other = network(4, (20.0, 20.1), {**DELTA, "eps": 1e-3})
    assert "model.pathway.eps" in varying_settings([*PLAIN, *BETTER, other])
