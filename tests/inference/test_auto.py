"""What `Auto` chooses, and that it says so."""

import jax
import numpy as np
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.inference import auto
from tunbridge.model import defaults

SMALL = tb.Laplace(point=tb.MAP(train=tb.Train(40)), tune=None)


def model(*hidden):
    made = tb.Model(tb.networks.MLP(hidden), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    return made.bind(table(24))[0]


@pytest.mark.parametrize(("rows", "batch"), [(5000, None), (5001, 256)])
def test_more_rows_are_taken_in_batches(rows, batch):
    method, reason = tb.Auto().chosen(model(4), rows)
    assert method.point.train.batch_size == batch
    assert ("256 of them per step" in reason) == (batch == 256)
    assert f"{rows:,} rows" in reason


def test_a_stream_keeps_its_own_batches():
    assert tb.Auto().chosen(model(4), 10**6, streamed=True).method == tb.Laplace()


def test_of_many_weights_the_last_layers_are_random():
    few, many = (tb.Auto().chosen(model(width), 24) for width in (4, 100_000))
    assert few.method == tb.Laplace()
    assert many.method == tb.Laplace(subset=tb.subsets.LastLayer())
    assert "only the last layer's are random" in many.reason


def test_what_is_given_is_kept():
    given = tb.Laplace(point=tb.MAP(0.5), subset=tb.subsets.LastLayer(), damping=1.0)
    assert tb.Auto(given).chosen(model(100_000), 10**6).method == given


def test_the_fit_is_that_of_the_chosen_method_and_says_why(monkeypatch):
    monkeypatch.setattr(auto, "_MOST_ROWS", 20)
    monkeypatch.setattr(auto, "_BATCHES", tb.Train(40, 8))
    rows, key = table(24), jax.random.key(0)
    chosen = tb.Laplace(point=tb.MAP(train=tb.Train(40, 8)), tune=None).fit(model(4), rows, key=key)
    posterior = tb.Auto(tb.Laplace(tune=None)).fit(model(4), rows, key=key)
    assert equal(posterior.gaussian.params, chosen.gaussian.params)
    assert posterior.notes[0].startswith("Chosen by size: Laplace. 24 rows are more than 20")
    assert posterior.notes[1:] == chosen.notes
    assert "Chosen by size" in str(posterior.summary())


@pytest.mark.parametrize(("rows", "hidden"), [(5000, (50,)), (5001, (50, 50))])
def test_the_default_network_grows_with_the_rows(rows, hidden):
    assert defaults.network(rows).hidden == hidden


def test_an_estimator_without_arguments_chooses_by_size():
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    regressor = tb.BayesianRegressor().set_params(method=tb.Auto(SMALL)).fit(x, x[:, 0])
    assert tb.BayesianRegressor().method == "auto"
    assert regressor.posterior_.model.network.hidden == (50,)
    assert regressor.posterior_.notes[0].startswith("Chosen by size")
