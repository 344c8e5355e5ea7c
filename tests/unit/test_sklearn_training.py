"""How the estimators train: weights of classes, ``partial_fit``, ``warm_start``, and curves of held-out rows."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_friedman1
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from isthmus.sklearn import HourglassClassifier, HourglassDenoiser, HourglassRegressor, ShapeSearchCV

KINDS: dict[str, Any] = {
    "regressor": HourglassRegressor,
    "classifier": HourglassClassifier,
    "denoiser": HourglassDenoiser,
}
Rows = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def friedman() -> Rows:
    X, y = make_friedman1(120, random_state=0)
    return X, 1000 * y + 5000


@pytest.fixture(scope="module")
def rare() -> Rows:
    """One row in twenty is of class "yes", which overlaps with "no"."""
    y = (np.arange(600) % 20 == 0).astype(int)
    return np.random.default_rng(0).normal(size=(600, 4)) + y[:, None], np.array(["no", "yes"])[y]


def outputs(model: Any, X: np.ndarray) -> np.ndarray:
    name = next(name for name in ("predict_proba", "transform", "predict") if hasattr(model, name))
    values: np.ndarray = getattr(model, name)(X)
    return values


def data_for(kind: str, rows: Rows) -> Rows:
    X, y = rows
    return X, (y > np.median(y)).astype(int) if kind == "classifier" else y


def continue_training(model: Any, X: Any, y: Any, **weights: Any) -> Any:
    classes = {"classes": [0, 1]} if isinstance(model, HourglassClassifier) else {}
    return model.partial_fit(X, y, **classes, **weights)


def says(action: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        action()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_of_classes_are_weights_of_their_rows(early_stopping: bool, rare: Rows) -> None:
    X, y = rare
    settings = {"max_iter": 5, "random_state": 0, "early_stopping": early_stopping, "batch_size": 100}
    draw = np.random.default_rng(0).uniform(0.5, 2, len(y))
    for class_weight in ({"no": 0.5, "yes": 3}, {"yes": 4}):
        ours = HourglassClassifier(class_weight=class_weight, **settings).fit(X, y, sample_weight=draw)
        weights = draw * compute_sample_weight(class_weight, y)
        other = HourglassClassifier(**settings).fit(X, y, sample_weight=weights)
        assert np.array_equal(ours.predict_proba(X), other.predict_proba(X))
        assert ours.validation_loss_curve_ == other.validation_loss_curve_
    balanced = HourglassClassifier(class_weight="balanced", **settings).fit(X, y)
    weights = compute_class_weight("balanced", classes=np.array(["no", "yes"]), y=y)
    by_hand = HourglassClassifier(class_weight=dict(zip(["no", "yes"], weights, strict=True)), **settings).fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X), by_hand.predict_proba(X), rtol=1e-9)


def test_a_class_of_weight_3_has_every_row_three_times(rare: Rows) -> None:
    X, y = rare
    weighed, balanced = (
        HourglassClassifier(class_weight=class_weight, max_iter=10, random_state=0)
        for class_weight in ({"yes": 3}, "balanced")
    )
    times = np.where(y == "yes", 3, 1)
    plain = HourglassClassifier(max_iter=10, random_state=0).fit(X.repeat(times, 0), y.repeat(times))
    np.testing.assert_allclose(weighed.fit(X, y).predict_proba(X), plain.predict_proba(X), rtol=1e-6)
    # Balanced weights count rows by their sample_weight.
    by_weight = balanced.fit(X, y, sample_weight=times).predict_proba(X)
    np.testing.assert_allclose(by_weight, balanced.fit(X.repeat(times, 0), y.repeat(times)).predict_proba(X), rtol=1e-6)


def test_balanced_classes_raise_the_balanced_accuracy(rare: Rows) -> None:
    X, test_X, y, test_y = train_test_split(*rare, random_state=0, stratify=rare[1])
    plain, balanced = (
        balanced_accuracy_score(
            test_y, HourglassClassifier(class_weight=weight, random_state=0).fit(X, y).predict(test_X)
        )
        for weight in (None, "balanced")
    )
    assert balanced > plain + 0.1


def test_a_class_of_weight_0_stays_among_the_classes(rare: Rows) -> None:
    model = HourglassClassifier(class_weight={"no": 0, "yes": 1}, max_iter=30, random_state=0).fit(*rare)
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(rare[0])) == {"yes"}


@pytest.mark.parametrize(
    ("class_weight", "words"),
    [
        ("even", "class_weight='even' must be None, 'balanced' or a dict"),
        ({"no": -1}, r"class_weight=\{'no': -1\} must be None, 'balanced' or a dict"),
        ({"maybe": 2}, r"\['no', 'yes'\], are not in class_weight"),
        ({"no": 0, "yes": 0}, "the weights of the rows sum to 0 with class_weight="),
    ],
)
def test_bad_weights_of_classes_are_one_line(class_weight: Any, words: str, rare: Rows) -> None:
    says(lambda: HourglassClassifier(class_weight=class_weight).fit(*rare), words)


def test_steps_of_partial_fit_are_adam_s(friedman: Rows) -> None:
    X, y = friedman
    model = HourglassRegressor(alpha=2, learning_rate=0.02, random_state=0)
    model.fit(X, y)
    network = copy.deepcopy(model.model_).train()
    optimizer = torch.optim.Adam(network.parameters())
    optimizer.load_state_dict(copy.deepcopy(model._optimizer.state_dict()))
    inputs = torch.tensor(np.column_stack([StandardScaler().fit_transform(X), np.ones(len(X))]))
    goals = torch.tensor((y - y.mean()) / y.std())
    for seen in (2 * len(X), 3 * len(X)):
        model.partial_fit(X, y)
        optimizer.param_groups[0].update(lr=0.02, weight_decay=2 / seen)
        optimizer.zero_grad()
        (network(inputs)[:, 0] - goals).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        np.testing.assert_allclose(model.predict(X), network(inputs)[:, 0].numpy() * y.std() + y.mean(), rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_partial_fit_is_reproducible_after_pickling(kind: str, friedman: Rows) -> None:
    X, y = data_for(kind, friedman)
    model, again = (KINDS[kind](batch_size=16, random_state=3) for _ in range(2))
    global_state = torch.get_rng_state()
    for rows in (slice(0, 50), slice(50, 100), slice(0, 120)):
        continue_training(model, X[rows], y[rows])
        again = pickle.loads(pickle.dumps(again))  # noqa: S301 (our own bytes)
        continue_training(again, X[rows], y[rows])
    assert np.array_equal(outputs(model, X), outputs(again, X))
    assert torch.equal(global_state, torch.get_rng_state())
    assert (model.n_iter_, len(model.loss_curve_)) == (1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_weight_2_is_two_rows_in_every_call(kind: str, friedman: Rows) -> None:
    X, y = data_for(kind, friedman)
    times = np.random.default_rng(0).integers(0, 3, len(y))
    weighed, repeated = (KINDS[kind](random_state=0) for _ in range(2))
    for rows in (slice(0, 70), slice(70, 120)):
        continue_training(weighed, X[rows], y[rows], sample_weight=times[rows])
        continue_training(repeated, X[rows].repeat(times[rows], 0), y[rows].repeat(times[rows]))
    np.testing.assert_allclose(outputs(weighed, X), outputs(repeated, X), rtol=1e-6)


@pytest.mark.parametrize("first", [1, 50])
def test_means_and_scales_are_those_of_all_chunks(first: int, friedman: Rows) -> None:
    X, y = friedman
    X = X * 10.0 ** np.arange(-150, 150, 30)
    model = HourglassRegressor(random_state=0)
    for rows in (slice(0, first), slice(first, 90), slice(90, 120)):
        model.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(model.scale_, X.std(axis=0), rtol=1e-10)
    np.testing.assert_allclose(model.target_scale_, [y.std()], rtol=1e-10)


def test_a_stream_is_learned_chunk_by_chunk() -> None:
    X, test_X, y, test_y = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = HourglassClassifier(random_state=0)
    for start in range(0, len(X), 10):
        rows = slice(start, start + 10)  # a few of the ten classes
        model.partial_fit(X[rows], y[rows], classes=range(10) if start == 0 else None)
    assert model.score(test_X, test_y) > 0.9


def test_later_rows_take_the_precision_and_the_columns_of_the_first(friedman: Rows) -> None:
    X, y = friedman
    model = HourglassRegressor(random_state=0).partial_fit(X.astype(np.float32), y).partial_fit(X, y)
    assert model.predict(X.astype(np.float32)).dtype == np.float32
    says(lambda: model.partial_fit(X[:, 1:], y), "X has 9 features, but HourglassRegressor is expecting 10")
    says(lambda: model.partial_fit(X, np.column_stack([y, y])), "y has 2 columns, but the fitted network has 1 outputs")
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    model = HourglassRegressor(random_state=0).partial_fit(table, y).partial_fit(table, y)
    assert list(model.feature_names_in_) == list(table.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(table.rename(columns={"x0": "z"}), y)


def test_mistakes_with_partial_fit_are_one_line(friedman: Rows) -> None:
    X, y = data_for("classifier", friedman)
    model = HourglassClassifier(random_state=0)
    says(lambda: model.partial_fit(X, y), "classes must be passed on the first call to partial_fit")
    says(lambda: model.partial_fit(X * np.nan, y, classes=[0, 1]), "X contains NaN")
    says(lambda: model.predict(X), "not fitted yet")
    says(lambda: model.partial_fit(X, y + 1, classes=[0, 1]), "y holds 2, but the network's classes are 0, 1")
    model.partial_fit(X, y, classes=[1, 0]).partial_fit(X[y == 1], y[y == 1])
    says(lambda: model.partial_fit(X, y, classes=[0, 1, 2]), "classes=0, 1, 2, but the network has 0, 1")
    says(lambda: model.set_params(class_weight="balanced").partial_fit(X, y), "'balanced' needs all rows at once")
    says(lambda: HourglassRegressor(early_stopping=True).partial_fit(X, y), "partial_fit holds out no rows")


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_begins_with_the_last_weights(kind: str, friedman: Rows) -> None:
    X, y = data_for(kind, friedman)
    model = KINDS[kind](max_iter=20, warm_start=True, random_state=0).fit(X, y)
    first = outputs(model, X)
    assert np.array_equal(first, outputs(KINDS[kind](max_iter=20, random_state=0).fit(X, y), X))
    model.set_params(max_iter=5).fit(X, y)
    assert (model.n_iter_, len(model.loss_curve_)) == (5, 25)
    assert model.loss_curve_[20] < 0.7 * model.loss_curve_[0], "the twenty epochs are not lost"
    assert not np.array_equal(first, outputs(model, X))
    fresh = model.set_params(warm_start=False, max_iter=20).fit(X, y)
    assert np.array_equal(first, outputs(fresh, X))
    assert len(fresh.loss_curve_) == 20


def test_mistakes_with_warm_start_are_one_line(friedman: Rows) -> None:
    X, y = data_for("classifier", friedman)
    model = HourglassClassifier(max_iter=2, warm_start=True, random_state=0).fit(X, y)
    says(lambda: model.fit(X, y * 0), "y holds no 1, but warm_start needs the classes of the last fit")
    says(lambda: model.fit(X, y + 1), "y holds 2, but the network's classes are 0, 1")
    says(lambda: model.set_params(d_z=16).fit(X, y), "d_z=16, but the fitted network has 32; set d_z=32 to continue")
    says(lambda: HourglassClassifier(warm_start="yes").fit(X, y), "warm_start='yes' must be True or False")


@pytest.mark.parametrize("kind", KINDS)
def test_the_curves_of_held_out_rows(kind: str, friedman: Rows) -> None:
    X, y = data_for(kind, friedman)
    model = KINDS[kind](max_iter=30, early_stopping=True, n_iter_no_change=5, random_state=0)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    model.fit(X, y, sample_weight=weights)
    assert len(model.loss_curve_) == len(model.validation_scores_) == len(model.validation_loss_curve_) == model.n_iter_
    assert model.best_validation_score_ == max(model.validation_scores_)
    assert model.best_loss_ == min(model.validation_loss_curve_)
    kept = model.validation_scores_[int(np.argmin(model.validation_loss_curve_))]
    if kind == "denoiser":  # whose noise differs between score and training
        assert kept == pytest.approx(-model.best_loss_)
    else:
        seed = check_random_state(0).randint(np.iinfo(np.int32).max)
        strata = y if kind == "classifier" else None
        _, out = train_test_split(np.arange(len(y)), test_size=0.1, random_state=seed, stratify=strata)
        assert kept == pytest.approx(model.score(X[out], y[out], sample_weight=weights[out]))
    plain = model.set_params(early_stopping=False).fit(X, y)
    assert plain.validation_scores_ is plain.validation_loss_curve_ is plain.best_validation_score_ is None
    assert plain.best_loss_ == min(plain.loss_curve_)


def test_a_curve_of_constant_columns_and_of_one_row(friedman: Rows) -> None:
    X, y = friedman
    settings: dict[str, Any] = {"max_iter": 2, "early_stopping": True, "random_state": 0}
    both: Any = HourglassRegressor(**settings).fit(X, np.column_stack([y, y * 0]))
    alone: Any = HourglassRegressor(**settings).fit(X, y)
    assert both.validation_scores_[0] == pytest.approx((alone.validation_scores_[0] + 1) / 2, abs=0.05)
    one: Any = HourglassRegressor(**settings).fit(X[:5], y[:5])
    assert np.isnan(one.best_validation_score_)


def test_progress_has_the_held_out_score(friedman: Rows, capsys: pytest.CaptureFixture[str]) -> None:
    HourglassRegressor(max_iter=2, verbose=True, early_stopping=True).fit(*friedman)
    assert capsys.readouterr().err.count(", held-out score ") == 2


@pytest.mark.parametrize("pathway", ["ladder", "attended", {"name": "streams", "count": 2}, "delta"])
def test_a_pathway_is_a_parameter_and_its_gates_are_not_shrunk(pathway):
    X = np.random.default_rng(0).normal(size=(60, 4))
    y = X[:, 0] * X[:, 1]
    network = clone(HourglassRegressor(8, 4, 3, init="depth_scaled_w2", pathway=pathway, max_iter=20, random_state=0))
    gates = list(network.fit(X, y).model_.blocks.pathway.parameters())
    assert network.loss_curve_[-1] < network.loss_curve_[0]
    decays = [group["weight_decay"] for group in network._optimizer.param_groups]
    assert decays == [1 / 60, 0.0] if gates else decays == [1 / 60]
    assert network.predict(X).shape == (60,)


def test_plain_is_the_network_without_a_pathway():
    X = np.random.default_rng(0).normal(size=(60, 4))
    first = HourglassRegressor(max_iter=5, random_state=0)
    second = HourglassRegressor(max_iter=5, random_state=0, pathway="plain")
    assert (first.fit(X, X[:, 0]).predict(X) == second.fit(X, X[:, 0]).predict(X)).all()


@pytest.mark.parametrize(
    ("pathway", "said"),
    [
        (3, "pathway=3 must be a name such as 'ladder', or a dict with a name"),
        ("laddr", "did you mean 'ladder'"),
        ("none", "none needs updates that are not zero"),
    ],
)
def test_a_pathway_that_cannot_be_is_one_line(pathway, said):
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        HourglassRegressor(pathway=pathway).fit([[0.0], [1.0]], [0.0, 1.0])
    assert "\n" not in str(error.value)


def test_a_pathway_changed_after_the_fit_cannot_continue():
    network = HourglassRegressor(max_iter=2, warm_start=True).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="pathway='ladder', but the fitted network has 'plain'"):
        network.set_params(pathway="ladder").fit([[0.0], [1.0]], [0.0, 1.0])


def test_a_search_counts_the_parameters_of_the_pathway():
    X = np.random.default_rng(0).normal(size=(40, 4))
    network = HourglassRegressor(init="depth_scaled_w2", pathway="attended", max_iter=2, random_state=0)
    search = ShapeSearchCV(network, 500, depths=(4,), narrowness=(0.25,), cv=2).fit(X, X[:, 0])
    assert 400 < sum(p.numel() for p in search.best_estimator_.model_.parameters()) <= 500
