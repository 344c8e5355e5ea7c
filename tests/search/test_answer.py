"""What an answer says in words, and the front that is shown while a search works."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from isthmus.search.answer import Answer
from isthmus.search.display import Bar

FOLDS = [0.80, 0.84, 0.78, 0.82, 0.81]


def network(name: str, values: list[float], params: int = 1000) -> dict[str, Any]:
    looks = {"values": values, "looks": len(values), "mean": sum(values) / len(values)}
    return {"title": f"{name} d_z=8", "model": {"name": name}, "params": params, **looks}


def describe(best: list[float], others: dict[str, list[float]], **content: Any) -> str:
    first = network("hourglass_mlp", best) | {"run": "1234", "epoch": 3, "overfits": False}
    tried = [first, *(network(name, values) for name, values in others.items())]
    settled = {"name": "houses-1", "best": first, "networks": tried, "references": [], "maximise": True, "folds": 5}
    settled |= {"objective": "r2", "rows": {"train": 80, "validation": 20, "test": 10}, "test": {}, "is_whole": True}
    return " ".join(Answer(settled | content).sentences())


@pytest.mark.parametrize(
    ("lead", "said"),
    [
        ([0.1, 0.11, 0.1, 0.09, 0.1], "another family, sw_mlp d_z=8 with 1.00\xa0k parameters, loses 0.1 (0.0"),
        ([0.1, -0.1, 0.05, -0.06, 0.02], "parameters, may be as good (difference +0.002"),
        ([-0.1, -0.11, -0.1, -0.09, -0.1], "is ahead by 0.0"),
        ([0.1], "a single training of each does not show how sure that is"),
    ],
)
def test_the_runner_up_is_of_another_family_and_has_an_interval(lead: list[float], said: str) -> None:
    other = [value - ahead for value, ahead in zip(FOLDS, lead, strict=False)]
    text = describe(FOLDS, {"conventional_mlp": [0.1], "sw_mlp": other} if lead[1:] else {"sw_mlp": other})
    assert said in text


def test_a_lower_error_is_better() -> None:
    higher = [value + 0.1 for value in FOLDS]
    assert "loses 0.1 (" in describe(FOLDS, {"sw_mlp": higher}, maximise=False)


def test_a_family_of_its_own_has_no_runner_up() -> None:
    assert "another family" not in describe(FOLDS, {"hourglass_mlp": FOLDS})


def test_the_front_is_drawn_below_the_bar_and_leaves_nothing_behind() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100, markup=False)
    with Bar(console) as bar:
        bar.show([(f"[/x] {size}", f"0.{size}", f"{size} k") for size in range(20)])
        with console.capture() as drawn:
            console.print(bar.bar.draw())  # type: ignore[union-attr]
        bar.say("kept")
    assert "best of their size so far" in drawn.get()
    assert "[/x] 19" in drawn.get()
    assert "[/x] 11" not in drawn.get(), "only the largest are shown"
    assert "kept" in console.file.getvalue()  # type: ignore[attr-defined]


def test_without_a_terminal_nothing_is_drawn() -> None:
    console = Console(file=StringIO(), force_terminal=False, markup=False)
    with Bar(console) as bar:
        bar.show([("x", "0.5", "1 k")])
        bar.advance(0.5, "a line")
    assert console.file.getvalue().strip() == "a line"  # type: ignore[attr-defined]
