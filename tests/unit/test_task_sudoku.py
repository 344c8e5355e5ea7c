"""What the Sudoku task counts: empty cells alone, whole boards, and boards by their number of givens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isthmus import registry
from isthmus.config import run_config
from isthmus.errors import UserError
from isthmus.protocols import Data, Split
from isthmus.run import prepare
from isthmus.sudoku.boards import complete
from isthmus.sudoku.generation import generated
from isthmus.tasks.sudoku import GIVEN

PUZZLES, SOLUTIONS = (side.astype(np.int16) for side in generated(np.array([50, 50, 60, 60]), np.random.default_rng(0)))
SPLIT = Split(PUZZLES, SOLUTIONS)
DATA = Data(SPLIT, SPLIT, SPLIT, "f" * 64)


def task(**fields):
    built = registry.find("tasks", "sudoku")(registry.component("tasks", {"name": "sudoku", **fields}))
    built.learn(DATA)
    return built


def batch(built):
    return built.evaluation_batch(torch.from_numpy(PUZZLES), torch.from_numpy(SOLUTIONS), "test", 0)


def sure(target):
    return 20 * torch.nn.functional.one_hot(target.clamp(min=0), 9).float()


def test_given_cells_count_neither_in_loss_nor_in_accuracy():
    built = task(by_givens=(50, 60))
    target = batch(built).target
    assert (target == GIVEN).sum(dim=1).tolist() == [50, 50, 60, 60]
    output = sure(target)  # says class 0 in every given cell
    assert built.loss(output, target) < 1e-6
    output[0, (target[0] != GIVEN).nonzero()[0, 0]] *= -1  # one wrong cell
    metrics = built.metrics("test")
    built.measure(metrics, output, target)
    found = {name: round(float(value), 4) for name, value in metrics.compute().items()}
    assert found == {
        "board_accuracy": 0.75,
        "board_accuracy_50": 0.5,
        "board_accuracy_60": 1.0,
        "cell_accuracy": round(1 - 1 / (2 * 31 + 2 * 21), 4),
    }
    assert set(built.metrics("validation")) == {"board_accuracy", "cell_accuracy"}


def test_the_loss_of_a_board_is_the_mean_over_its_empty_cells():
    built, uniform = task(), torch.zeros(4, 81, 9)
    assert float(built.loss(uniform, batch(built).target)) == pytest.approx(np.log(9), rel=1e-5)
    assert float(built.loss(uniform, torch.full((4, 81), GIVEN))) == 0


def test_training_boards_are_drawn_anew_and_stay_puzzles():
    built = task(symmetries=True, reveal=(55, 58))
    rows = torch.from_numpy(PUZZLES), torch.from_numpy(SOLUTIONS)
    index = torch.arange(4)
    first, second = (built.training_batch(*rows, index, 0 * index, 0, step) for step in (0, 1))
    assert not torch.equal(first.input, second.input)
    for shown in (first, second):
        whole = torch.where(shown.target == GIVEN, shown.input, shown.target + 1)
        assert complete(whole.numpy()).all()
        givens = (shown.input > 0).sum(dim=1)
        assert ((givens[:2] >= 55) & (givens[:2] <= 58)).all()
        assert (givens[2:] == 60).all()


def test_what_is_no_sudoku_is_refused():
    wrong = Data(Split(np.zeros((2, 7), np.float32)), SPLIT, SPLIT, "f" * 64)
    with pytest.raises(UserError, match="needs a source of puzzles and solutions: sudoku or sudoku_csv"):
        registry.find("tasks", "sudoku")(registry.component("tasks", {"name": "sudoku"})).learn(wrong)
    with pytest.raises(UserError, match="by_givens=40: the test boards have 50, 60"):
        task(by_givens=(50, 40))
    with pytest.raises(UserError, match="reveal"):
        task(reveal=(60, 50))


def test_a_model_of_numbers_does_not_take_tokens():
    source = {"name": "sudoku", "givens": [60], "train": 4, "validation": 1, "test": 1}
    model = {"name": "hourglass_mlp", "d_z": 20, "d_h": 4, "depth": 1}
    with pytest.raises(UserError, match="hourglass_mlp takes numbers, and task sudoku gives tokens; try hyper_set"):
        prepare(run_config({"source": source, "task": {"name": "sudoku"}, "model": model}))
