"""The estimators keep scikit-learn's rules, and do what theirs say."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_wine, make_friedman1
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from isthmus.sklearn import HourglassClassifier, HourglassDenoiser, HourglassRegressor, ShapeSearchCV
from isthmus.sklearn.search import list_shapes

KINDS: dict[str, Any] = {
    "regressor": HourglassRegressor,
    "classifier": HourglassClassifier,
    "denoiser": HourglassDenoiser,
}
SMALL: dict[str, Any] = {"d_z": 24, "d_h": 8, "depth": 1, "max_iter": 60}
ESTIMATORS = [
    *(
        pytest.param(kind(**SMALL), id=name, marks=pytest.mark.slow if name == "denoiser" else [])
        for name, kind in KINDS.items()
    ),
    *(
        pytest.param(
            ShapeSearchCV(kind(max_iter=10), budget=400, depths=(1,), narrowness=(0.25,), cv=2),
            id=f"search of {name}",
            marks=pytest.mark.slow,
        )
        for name, kind in KINDS.items()
    ),
    pytest.param(
        ShapeSearchCV(
            make_pipeline(StandardScaler(), HourglassRegressor(max_iter=10)),
            budget="0.4k", depths=(1,), narrowness=(0.25,), cv=2,
        ),
        id="search of a pipeline",
        marks=pytest.mark.slow,
    ),
]  # fmt: skip
DEFAULTS = [pytest.param(kind(), id=f"{name} as it comes", marks=pytest.mark.slow) for name, kind in KINDS.items()]


@pytest.mark.filterwarnings("ignore")  # scikit-learn warns where it tests warnings
@pytest.mark.parametrize("estimator", [*ESTIMATORS, *DEFAULTS])
def test_scikit_learn_s_own_checks(estimator: Any) -> None:
    results = check_estimator(estimator, on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}, "which only runs where scipy is told to"
    assert len(results) > 40


@pytest.fixture(scope="module")
def friedman() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_friedman1(120, random_state=0)
    return X, 1000 * y + 5000


def test_a_regression_learns_in_the_units_of_its_targets(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    model = HourglassRegressor(alpha=0, learning_rate=0.03, max_iter=100, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    two = HourglassRegressor(max_iter=3).fit(X, np.column_stack([y, -y]))
    assert two.predict(X).shape == (120, 2)
    assert HourglassRegressor(max_iter=3).fit(X.astype(np.float32), y).predict(X.astype(np.float32)).dtype == np.float32


def test_a_seed_decides_and_copies_agree(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    model = HourglassRegressor(max_iter=3, random_state=1).fit(X, y)
    global_state = torch.get_rng_state()
    for copy in (clone(model).fit(X, y), pickle.loads(pickle.dumps(model))):  # noqa: S301 (our own bytes)
        assert np.array_equal(copy.predict(X), model.predict(X))
    assert torch.equal(global_state, torch.get_rng_state())
    assert not np.array_equal(clone(model).set_params(random_state=2).fit(X, y).predict(X), model.predict(X))


def test_early_stopping_keeps_the_best_weights(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    noise = np.random.default_rng(0).normal(size=len(y))
    model = HourglassRegressor(max_iter=200, early_stopping=True, n_iter_no_change=3, random_state=0).fit(X, noise)
    assert model.n_iter_ < 200
    assert model.best_loss_ < 1.5
    with pytest.raises(ValueError, match="validation_fraction=2 must be a number between 0 and 1"):
        HourglassRegressor(early_stopping=True, validation_fraction=2).fit(X, y)


def test_the_penalty_is_against_the_sum_of_the_rows(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    """Every row twice at twice the penalty is the same; the penalty shrinks what is learned."""
    X, y = friedman
    once, free = (HourglassRegressor(alpha=alpha, max_iter=20, random_state=0).fit(X, y) for alpha in (50.0, 0))
    twice = HourglassRegressor(alpha=100.0, max_iter=20, random_state=0).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=1e-6)
    assert once.predict(X).std() < free.predict(X).std()


@pytest.mark.parametrize("seed", range(5))
def test_a_class_without_weight_is_never_predicted(seed: int, friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman[0][:10], np.arange(10) % 2
    model = HourglassClassifier(max_iter=1, random_state=seed).fit(X, y, sample_weight=y)
    assert set(model.predict(X)) == {1}


def test_progress_is_shown_only_when_asked(
    friedman: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    HourglassRegressor(max_iter=2).fit(*friedman)
    assert capsys.readouterr() == ("", "")
    HourglassRegressor(max_iter=2, verbose=True).fit(*friedman)
    assert capsys.readouterr().err.count("iteration") == 2


def test_pipelines_and_grid_search() -> None:
    X, y = load_wine(return_X_y=True)
    grid = {"hourglassclassifier__d_h": [4, 8]}
    pipeline = make_pipeline(StandardScaler(), HourglassClassifier(max_iter=15, random_state=0))
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, np.array(["a", "b", "c"])[y])
    assert search.best_score_ > 0.9
    assert set(search.predict(X)) == {"a", "b", "c"}
    np.testing.assert_allclose(search.predict_proba(X).sum(axis=1), 1)


def test_a_denoiser_brings_rows_nearer_to_clean_ones() -> None:
    draw = np.random.default_rng(0)
    clean = draw.normal(size=(300, 2)) @ draw.normal(size=(2, 10)) * 5 + 100  # a plane in ten dimensions
    noisy = clean + draw.normal(size=clean.shape) * clean.std(axis=0) * 0.5
    restored = HourglassDenoiser(noise=0.5, max_iter=80, random_state=0).fit(clean).transform(noisy)
    assert ((restored - clean) ** 2).mean() < 0.5 * ((noisy - clean) ** 2).mean()
    with pytest.raises(ValueError, match="noise=0 must be a number above 0"):
        HourglassDenoiser(noise=0).fit(clean)


def test_a_denoiser_is_scored_by_what_it_restores() -> None:
    draw = np.random.default_rng(0)
    clean = draw.normal(size=(200, 2)) @ draw.normal(size=(2, 6)) * 5 + 100
    little, much = (HourglassDenoiser(noise=0.5, max_iter=n, random_state=0).fit(clean) for n in (1, 60))
    assert little.score(clean) < much.score(clean) < 0
    assert -much.score(clean) < 0.5**2, "less than the noise itself"
    assert much.score(clean) == much.score(clean)
    assert much.score(clean * [1, 1e3, 1, 1, 1, 1]) < much.score(clean)
    grid = GridSearchCV(HourglassDenoiser(noise=0.5, random_state=0), {"max_iter": [1, 60]}, cv=2).fit(clean)
    assert grid.best_params_ == {"max_iter": 60}
    search = ShapeSearchCV(HourglassDenoiser(max_iter=3), 400, depths=(1,), cv=2, random_state=0).fit(clean)
    assert search.score(clean) < 0


@pytest.mark.parametrize(("budget", "d_in", "d_out"), [(500, 11, 1), (10_000, 65, 10), (77, 4, 2)])
def test_shapes_fill_the_budget_and_keep_within(budget: int, d_in: int, d_out: int) -> None:
    for shape in list_shapes(budget, d_in, d_out, (1, 2, 4), (0.125, 0.5, 2.0)):
        d_z, d_h, depth = shape["d_z"], shape["d_h"], shape["depth"]
        assert d_z * (d_in + d_out) + 2 * depth * d_z * d_h <= budget
        assert (d_z + 1) * (d_in + d_out + 2 * depth * (d_h + 3)) > budget


def test_the_search_chooses_under_its_budget(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    search = ShapeSearchCV(HourglassRegressor(max_iter=5), 800, depths=(1, 2), cv=2, random_state=0).fit(*friedman)
    assert sum(parameter.numel() for parameter in search.best_estimator_.model_.parameters()) <= 800
    assert len(search.cv_results_["params"]) == 8
    with pytest.raises(ValueError, match="budget=5 holds no network of 10 features and 1 outputs"):
        ShapeSearchCV(HourglassRegressor(), budget=5).fit(*friedman)


def _rate(params: dict[str, Any]) -> float:
    """Best for two blocks whose hidden width is an eighth of a stream of 60."""
    narrow, wide = math.log(8 * params["d_h"] / params["d_z"]), math.log(params["d_z"] / 60)
    return 0.8 - 0.1 * narrow**2 - 0.1 * wide**2 - 0.1 * (params["depth"] - 2) ** 2


@pytest.mark.parametrize("failing", [False, True])
def test_a_shape_search_chooses_by_the_scores_so_far(failing: bool) -> None:
    ratios = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
    found = [shape for share in (1, 4, 16) for shape in list_shapes(9600 // share, 10, 1, (1, 2, 3, 4), ratios)]
    search, asked = ShapeSearchCV(HourglassRegressor(), n_iter=16, random_state=0), list[dict[str, Any]]()
    search._shapes, search._prefix = found, ""

    def evaluate(candidates: list[dict[str, Any]]) -> dict[str, Any]:
        asked.extend(candidates)
        scores = [_rate(each) for each in asked]
        return {"mean_test_score": [math.nan if failing and len(scores) < 6 else score for score in scores]}

    search._run_search(evaluate)
    assert len(asked) == 16 < len(found) / 4
    assert len({tuple(each.items()) for each in asked}) == 16, "none twice"
    assert len({each["random_state"] for each in asked}) == 1
    ranked = sorted(map(_rate, found), reverse=True)
    assert max(map(_rate, asked)) >= ranked[1], "one of the best two of 72"


def test_a_shape_search_by_model_fits_pipelines_and_smaller_networks(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    settings: dict[str, Any] = {"budget": 1600, "depths": (1,), "narrowness": (0.25, 2.0), "cv": 2, "random_state": 0}
    network = make_pipeline(StandardScaler(), HourglassRegressor(max_iter=2))
    search = ShapeSearchCV(network, n_iter=5, **settings).fit(*friedman)
    assert len(search.cv_results_["params"]) == 5
    sizes = {each["hourglassregressor__d_z"] for each in search.cv_results_["params"]}
    assert min(sizes) < max(sizes) / 3
    again = ShapeSearchCV(network, n_iter=5, **settings).fit(*friedman)
    assert again.cv_results_["params"] == search.cv_results_["params"]
    whole = ShapeSearchCV(network, n_iter=99, scoring=["r2", "neg_max_error"], refit="r2", **settings).fit(*friedman)
    assert len(whole.cv_results_["params"]) == 6
    several = ShapeSearchCV(network, n_iter=5, scoring=["r2", "neg_max_error"], refit=False, **settings)
    with pytest.raises(ValueError, match="refit='r2'"):
        several.fit(*friedman)


@pytest.mark.parametrize(("text", "number"), [("3k", 3000), ("0.5K", 500), ("1200", 1200)])
def test_a_budget_may_be_an_amount(text: str, number: int, friedman: tuple[np.ndarray, np.ndarray]) -> None:
    one, other = (
        ShapeSearchCV(HourglassRegressor(max_iter=1), budget, depths=(1,), cv=2, random_state=0)
        for budget in (text, number)
    )
    assert one.fit(*friedman).cv_results_["params"] == other.fit(*friedman).cv_results_["params"]
    assert clone(one).budget == one.get_params()["budget"] == text


def test_a_search_within_a_pipeline_and_a_pipeline_within_a_search() -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    y = y.map({0: "a", 1: "b", 2: "c"})
    network = HourglassClassifier(max_iter=15, random_state=0)
    settings: dict[str, Any] = {"depths": (1,), "cv": 2}
    outer = make_pipeline(StandardScaler(), ShapeSearchCV(network, "1k", **settings))
    inner = ShapeSearchCV(make_pipeline(StandardScaler(), network), "1k", random_state=0, **settings)
    for estimator, prefix in ((outer, "shapesearchcv__"), (inner, "")):
        estimator.set_params(**{f"{prefix}budget": "0.6k", f"{prefix}narrowness": (0.25, 2.0)})
        assert cross_val_score(clone(estimator), X, y, cv=2).min() > 0.8
        assert estimator.fit(X, y).score(X, y) > 0.9
        assert set(estimator.predict(X)) == {"a", "b", "c"}
        assert list(estimator.feature_names_in_) == list(X.columns)
    assert sorted(outer[-1].best_params_) == ["d_h", "d_z", "depth"]
    names = ["d_h", "d_z", "depth", "random_state"]
    assert sorted(inner.best_params_) == [f"hourglassclassifier__{name}" for name in names]
    fitted = inner.best_estimator_[-1]
    assert sum(parameter.numel() for parameter in fitted.model_.parameters()) <= 600


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"norm": "batch"}, "norm"),
        ({"d_h": 0}, "d_h=0"),
        ({"device": "abacus"}, "device='abacus' is not a torch device"),
        ({"device": None}, "device=None is not a torch device"),
        ({"device": "meta"}, "device='meta' is not on this machine; try 'cpu'"),
        ({"max_iter": 0}, "max_iter=0 must be a whole number above 0"),
        ({"max_iter": 2.5}, r"max_iter=2\.5 must be a whole number above 0"),
        ({"n_iter_no_change": 2.5}, r"n_iter_no_change=2\.5 must be a whole number above 0"),
        ({"batch_size": "some"}, "batch_size='some' must be 'auto' or a whole number above 0"),
        ({"alpha": -1.0}, r"alpha=-1\.0 must be 'auto' or a number from 0"),
        ({"learning_rate": -1.0}, r"learning_rate=-1\.0 must be a number above 0"),
        ({"learning_rate": "a"}, "learning_rate='a' must be a number above 0"),
        ({"validation_fraction": "x"}, "validation_fraction='x' must be a number between 0 and 1"),
        ({"early_stopping": "yes"}, "early_stopping='yes' must be True or False"),
        ({"noise": "x"}, "noise='x' must be a number above 0"),
    ],
)
def test_bad_settings_are_one_line(fields: dict[str, Any], words: str, friedman: tuple[np.ndarray, np.ndarray]) -> None:
    model = (HourglassDenoiser if "noise" in fields else HourglassRegressor)(**fields)
    for estimator in (model, ShapeSearchCV(model, cv=2)):
        if estimator is model or "d_h" not in fields:  # which the search sets itself
            assert words_of(estimator, *friedman, match=words)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_absent_is_one_line(device: str, friedman: tuple[np.ndarray, np.ndarray]) -> None:
    if getattr(torch, device).is_available():
        pytest.skip(f"{device} is here")
    words_of(HourglassRegressor(device=device), *friedman, match=f"device='{device}' is not on this machine; try 'cpu'")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"budget": "big"}, "budget='big' must be a whole number above 0"),
        ({"narrowness": (0,)}, r"narrowness=\(0,\) must be numbers above 0"),
        ({"narrowness": 0.5}, r"narrowness=0\.5 must be numbers above 0"),
        ({"depths": ()}, r"depths=\(\) must be whole numbers above 0"),
        ({"depths": (1.5,)}, r"depths=\(1\.5,\) must be whole numbers above 0"),
        ({"budget": "0.5"}, "budget='0.5' must be a whole number above 0, such as 3000 or '3k'"),
        ({"estimator": make_pipeline(StandardScaler())}, "estimator=StandardScaler must be .* or a Pipeline that ends"),
        ({"n_iter": 0}, "n_iter=0 must be None or a whole number above 0"),
        ({"estimator": StandardScaler()}, "estimator=StandardScaler must be one of those in isthmus.sklearn"),
    ],
)
def test_bad_settings_of_a_search_are_one_line(
    fields: dict[str, Any], words: str, friedman: tuple[np.ndarray, np.ndarray]
) -> None:
    words_of(ShapeSearchCV(**{"estimator": HourglassRegressor(), **fields}), *friedman, match=words)


def test_bad_rows_are_one_line(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    model = HourglassRegressor(max_iter=2)
    for estimator in (model, ShapeSearchCV(model, 400, depths=(1,), narrowness=(0.5,), cv=2)):
        words_of(estimator, np.full_like(X, np.nan), y, match="X contains NaN.*SimpleImputer")
        words_of(estimator, np.full(X.shape, "word"), y, match="convert")
        words_of(estimator, X[:, 0], y, match="Expected 2D array.*Reshape your data")
        words_of(estimator, X, np.full(len(y), np.nan), match="y contains NaN")
        words_of(
            estimator, X, np.full(len(y), "word"), match="y holds <U4, such as .*word.* a regression needs numbers"
        )
        large = np.full(len(y), 1.7e308)
        large[0] *= -1
        words_of(estimator, X, large, match="y holds numbers whose differences overflow float64.*divide y")
        words_of(estimator, X.astype(np.float32), y * 1e100, match="y holds numbers beyond float32.*X as float64")
        words_of(estimator, large[:, None], y, match="X holds numbers whose differences overflow float64.*divide X")
    words_of(HourglassClassifier(), X, np.where(y > 0, np.nan, 0), match="y contains NaN")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(st.integers(-100, 100), st.integers(-100, 100))
def test_units_change_no_bit_of_a_score(kind: str, dtype: Any, inputs: int, targets: int) -> None:
    X, y = make_friedman1(40, random_state=0)
    X[:30, 3], X[:30, 4] = 0.7, 0  # constant in the fit alone
    labels = (y > np.median(y)).astype(int)
    scores = []
    for a, b in ((0, 0), (inputs, targets)):
        rows = np.ldexp(X.astype(dtype), a)
        values = labels if kind == "classifier" else np.ldexp(y.astype(dtype), b)
        model = KINDS[kind](**SMALL | {"max_iter": 3}, random_state=0, early_stopping=True)
        scores.append(model.fit(rows[:30], values[:30]).score(rows[30:], values[30:]))
    assert scores[0] == scores[1]
    assert scores[0] < 1


@pytest.mark.parametrize("unit", [1e-15, 1e15])
def test_a_decimal_unit_hardly_changes_a_score(unit: float, friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    models = [HourglassRegressor(max_iter=20, random_state=0).fit(X / a, y * a) for a in (1, unit)]
    assert models[1].score(X / unit, y * unit) == pytest.approx(models[0].score(X, y), abs=1e-5)


def test_a_constant_target_is_predicted_as_it_is(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    predicted = HourglassRegressor(max_iter=3).fit(X, np.column_stack([y, np.full_like(y, 1e-20)])).predict(X)
    np.testing.assert_array_equal(predicted[:, 1], 1e-20)


def test_bad_rows_for_a_fitted_network_are_one_line(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = friedman
    model = HourglassRegressor(max_iter=2).fit(X, y)
    words_of(model, X[:, :9], match="X has 9 features, but HourglassRegressor is expecting 10")
    words_of(model, np.full_like(X, np.nan), match="X contains NaN")
    words_of(HourglassRegressor(max_iter=2).fit(X.astype(np.float32), y), X * 1e300, match="too far.*overflow")
    words_of(HourglassRegressor(max_iter=2).fit(X, y * 1e149), X * 1e200, match="predictions overflow float64")


def words_of(estimator: Any, X: Any, y: Any = None, *, match: str) -> str:
    """What a fit, or without targets a prediction, says: one line."""
    with pytest.raises(ValueError, match=match) as caught:
        estimator.predict(X) if y is None else estimator.fit(X, y)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)
