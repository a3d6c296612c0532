"""Frames, pipelines and searches: what tables meet on their way to an estimator."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import tunbridge as tb
from toys import LeastSquares

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X @ [1.0, 2.0] + 0.1 * RNG.normal(size=60)


def linear():
    return tb.BayesianRegressor(
        LeastSquares(), tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1), random_state=0
    )


UNSEEN = not hasattr(pl.DataFrame, "__dataframe__") and int(sklearn.__version__.split(".")[1]) < 9
"""Whether scikit-learn is too old to see the names of columns of this version of polars."""
NAMED = [pd.DataFrame, pytest.param(pl.DataFrame, marks=pytest.mark.skipif(UNSEEN, reason="scikit-learn before 1.9"))]


@pytest.mark.parametrize("frame", NAMED)
def test_names_of_columns_are_kept_and_checked(frame):
    table = frame({"age": X[:, 0], "size": X[:, 1]})
    made = linear().fit(table, Y)
    assert made.feature_names_in_.tolist() == ["age", "size"]
    np.testing.assert_array_equal(made.predict(table), linear().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        made.predict(table[["size", "age"]])
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- weight"):
        made.predict(frame({"age": X[:, 0], "weight": X[:, 1]}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        made.predict(X)
    classifier = tb.BayesianClassifier(LeastSquares(), tb.networks.MLP(()), tb.priors.Normal(1.0))
    assert classifier.fit(table, Y > 0).feature_names_in_.tolist() == ["age", "size"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_gaps_and_words_in_a_frame_are_refused(frame):
    with pytest.raises(ValueError, match="contains NaN"):
        linear().fit(frame({"age": [None, *X[1:, 0]], "size": X[:, 1]}), Y)
    with pytest.raises(ValueError, match="could not convert string to float"):
        linear().fit(frame({"age": X[:, 0], "town": ["Tunbridge"] * 60}), Y)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_a_pipeline_fills_gaps_and_encodes_words(output):
    town = np.where(X[:, 1] > 0, "Wells", "Green")
    table = pd.DataFrame({"age": np.where(np.arange(60) % 9 == 0, np.nan, X[:, 0]), "town": town})
    prepare = make_column_transformer(
        (SimpleImputer(), ["age"]), (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["town"])
    )
    chain = make_pipeline(prepare.set_output(transform=output), linear()).fit(table, Y)
    mean, std = chain.predict(table, return_std=True)
    assert chain.score(table, Y) > 0.4
    assert mean.shape == std.shape == (60,)
    elsewhere = pd.DataFrame({"age": [np.nan], "town": ["Rye"]})
    assert np.isfinite(chain.predict(elsewhere)).all()


def test_sample_weights_are_routed_through_a_pipeline_and_a_search():
    weight = np.where(np.arange(60) < 30, 1, 0)
    chain = make_pipeline(StandardScaler(), linear())
    direct = chain.fit(X, Y, bayesianregressor__sample_weight=weight).predict(X)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        wanting = linear().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        routed = make_pipeline(scaler, wanting).fit(X, Y, sample_weight=weight)
        np.testing.assert_array_equal(routed.predict(X), direct)
        search = GridSearchCV(wanting, {"likelihood": [tb.likelihoods.Gaussian(s) for s in (0.1, 1.0)]}, cv=3)
        assert search.fit(X, Y, sample_weight=np.ones(60)).best_score_ > 0.9


@pytest.mark.slow
def test_a_search_runs_over_methods_and_networks():
    grid = {
        "method": [tb.MAP(0.05, train=tb.Train(100)), tb.MAP(1e-5, train=tb.Train(100))],
        "network": [tb.networks.MLP((3,)), tb.networks.MLP((4,))],
    }
    search = GridSearchCV(linear(), grid, cv=2, refit=False, error_score="raise").fit(X, Y)
    assert search.best_params_["method"].step_size == 0.05
    assert search.best_score_ > 0.8
