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


def describe(values: list[float], others: dict[str, list[float]], **content: Any) -> str:
    first = network("hourglass_mlp", values) | {"run": "1234", "epoch": 3, "overfits": False}
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


def test_a_network_without_blocks_is_called_a_linear_model() -> None:
    def use(depth: int) -> str:
        best = network("hourglass_mlp", FOLDS) | {"title": f"hourglass_mlp d_z=2 d_h=1 depth={depth} rate=0.01"}
        best |= {"model": {"name": "hourglass_mlp", "d_z": 2, "d_h": 1, "depth": depth}}
        return describe(FOLDS, {}, best=best | {"run": "1234", "epoch": 3, "overfits": False})

    assert "Use hourglass_mlp d_z=2 depth=0 rate=0.01, a linear model, 1.00\xa0k parameters:" in use(0)
    assert "Use hourglass_mlp d_z=2 d_h=1 depth=1 rate=0.01, 1.00\xa0k parameters:" in use(1)


def test_a_column_that_gives_the_target_away_is_named_when_the_result_is_too_good() -> None:
    told = {"giveaway": "total price", "targets": ["price"]}
    assert "known only after `price`, leave it out: --without 'total price'" in describe([0.9995] * 5, {}, **told)
    assert "--without" not in describe(FOLDS, {}, **told)
    assert "--without" not in describe([0.9995] * 5, {}, giveaway=None, targets=[])


def refer(lead: list[float], rows: int, values: list[float]) -> str:
    """The answer beside a reference with a test R² of 0.7 and the given lead of the network on the test rows."""
    reference = {"title": "ridge regression", "values": values, "test": 0.7, "lead": lead}
    counts = {"train": 80, "validation": 20, "test": rows}
    return describe(FOLDS, {}, references=[reference], rows=counts)


def test_references_that_saw_fewer_rows_than_the_network_are_named() -> None:
    def refer_to(*fitted: int) -> str:
        found = [
            {"title": f"model {rows}", "values": FOLDS, "test": 0.7, "lead": [0.1, 0.05, 0.2], "fitted_rows": rows}
            for rows in fitted
        ]
        return describe(FOLDS, {}, references=found)

    assert "only time to fit model 40 to 40 of 80 training rows" in refer_to(40, 100)
    assert "only time to fit the references to 20 of 80 training rows" in refer_to(20, 40)
    assert "only time" not in refer_to(80, 100)


def test_a_comparison_on_test_rows_gives_the_figures_of_the_test_rows() -> None:
    behind = [-0.2, -0.3, -0.1]
    assert "ridge regression (test R² 0.7; ahead by 0.1 to 0.3)" in refer(behind, 100, [0.8])
    assert "ridge regression (R² 0.9; ahead by" in refer(behind, 100, [value + 0.09 for value in FOLDS])
    assert "(R² 0.9; ahead by 0.074 to 0.11 on the 3 folds of both)" in refer(behind, 100, [0.9, 0.93, 0.87])
    assert "of both" not in refer(behind, 100, [value + 0.09 for value in FOLDS]) + refer(behind, 100, [0.8])


def test_a_handful_of_test_rows_decides_nothing() -> None:
    text = refer([-0.2, -0.3, -0.1], 3, [0.8])
    assert "The data cannot distinguish it from ridge regression (test R² 0.7; too few test rows to compare)." in text


def test_the_rarest_class_is_counted_if_accuracy_hides_it() -> None:
    def predict(rare: list[int]) -> str:
        confusion = {"classes": ["fail", "ok"], "counts": [rare, [1, 95]], "omitted": 0}
        test = {"values": [0.97], "confusion": confusion}
        counts = {"train": 80, "validation": 20, "test": 96 + sum(rare)}
        return describe(FOLDS, {}, test=test, rows=counts, objective="accuracy")

    assert "Of 4 test rows of the rarest class `fail`, 1 is predicted correctly." in predict([1, 3])
    assert "rarest" not in predict([30, 3])


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
