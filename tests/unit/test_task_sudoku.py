"""What the Sudoku task counts: empty cells alone, whole boards, and boards by their number of givens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import isthmus
from isthmus.core import registry
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Data, Split
from isthmus.sources.puzzles.boards import is_complete
from isthmus.sources.puzzles.generation import generate
from isthmus.tasks.token_scores import IGNORED
from isthmus.training.prepare import prepare

PUZZLES, SOLUTIONS = (side.astype(np.int16) for side in generate(np.array([50, 50, 60, 60]), np.random.default_rng(0)))
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
    assert (target == IGNORED).sum(dim=1).tolist() == [50, 50, 60, 60]
    output = sure(target)  # says class 0 in every given cell
    assert built.loss(output, target) < 1e-6
    output[0, (target[0] != IGNORED).nonzero()[0, 0]] *= -1  # one wrong cell
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
    assert float(built.loss(uniform, torch.full((4, 81), IGNORED))) == 0


def test_training_boards_are_drawn_anew_and_stay_puzzles():
    built = task(symmetries=True, reveal=(55, 58))
    rows = torch.from_numpy(PUZZLES), torch.from_numpy(SOLUTIONS)
    index = torch.arange(4)
    first, second = (built.training_batch(*rows, index, 0 * index, 0, step) for step in (0, 1))
    assert not torch.equal(first.input, second.input)
    for shown in (first, second):
        whole = torch.where(shown.target == IGNORED, shown.input, shown.target + 1)
        assert is_complete(whole.numpy()).all()
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
    with pytest.raises(UserError, match="hourglass_mlp takes numbers, but task sudoku gives tokens; try hyper_set"):
        prepare(run_config({"source": source, "task": {"name": "sudoku"}, "model": model}))


def test_the_loss_of_every_iteration_is_the_mean_of_their_losses():
    built, target = task(), batch(task()).target
    outputs = torch.randn(4, 3, 81, 9, generator=torch.Generator().manual_seed(0))
    apart = [float(built.loss(outputs[:, number], target)) for number in range(3)]
    assert float(built.loss(outputs, target)) == pytest.approx(np.mean(apart), rel=1e-5)
    assert float(built.loss(outputs[:, 0].flatten(1), target)) == pytest.approx(apart[0])


def test_boards_open_up_over_the_first_steps():
    built = task(reveal=(60, 80), reveal_steps=100)
    rows = [torch.from_numpy(side[[0] * 64]) for side in (PUZZLES, SOLUTIONS)]
    view = torch.zeros(64, dtype=torch.int64)

    def fewest(step):
        return int((built.training_batch(*rows, view, view, 0, step).input > 0).sum(dim=1).min())

    assert [fewest(0), fewest(50), fewest(100), fewest(10_000)] == [80, 70, 60, 60]
    with pytest.raises(UserError, match="reveal_steps=5 needs reveal"):
        registry.component("tasks", {"name": "sudoku", "reveal_steps": 5})


@pytest.mark.parametrize("name", ["hyper_set", "recurrent_transformer"])
def test_a_model_trained_on_every_iteration_predicts_with_the_last(name):
    fields = {"input_shape": (81,), "output_shape": (81, 9), "vocabulary": 10, "d": 8, "num_heads": 2, "iterations": 3}
    model = isthmus.create_model(name, **fields, trained_on="every")
    x = torch.from_numpy(PUZZLES.astype(np.int64))
    every = model(x)
    assert every.shape == (4, 3, 81, 9)
    assert torch.equal(model.eval()(x), every[:, -1])
    with pytest.raises(UserError, match="trained_on=every needs tokens"):
        isthmus.create_model(name, input_shape=(1, 8, 8), output_shape=(3,), patch=4, trained_on="every")
