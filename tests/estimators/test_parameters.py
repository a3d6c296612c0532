"""Parameters of parts: a method's fields, and those of its parts, are parameters of the estimator."""

import numpy as np
import numpyro.distributions as dist
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tunbridge as tb
from toys import LeastSquares

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = X @ [1.0, 2.0] + 0.1 * RNG.normal(size=30)


def test_fields_of_parts_are_listed_and_set():
    regressor = tb.BayesianRegressor(tb.Laplace(point=tb.MAP(0.02, train=tb.Train(50))), tb.networks.MLP((4,)))
    deep = regressor.get_params(deep=True)
    assert deep["method__damping"] == 0.0
    assert deep["method__point__step_size"] == 0.02
    assert deep["method__point__train__steps"] == 50
    assert deep["network__hidden"] == (4,)
    assert set(regressor.get_params(deep=False)) == {name for name in deep if "__" not in name}
    before = regressor.method
    changed = regressor.set_params(method__point__step_size=0.5, method__damping=1, method__point__train__steps=7)
    assert changed is regressor
    assert regressor.method == tb.Laplace(point=tb.MAP(0.5, train=tb.Train(7)), damping=1.0)
    assert before.point.train.steps == 50
    assert type(regressor.method.damping) is float


def test_every_listed_parameter_can_be_set_to_what_it_is():
    for name in tb.METHODS:
        regressor = tb.BayesianRegressor(name, likelihood=tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
        deep = regressor.get_params()
        assert regressor.set_params(**deep).method == tb.METHODS[name]()
        assert regressor.network == tb.METHODS[name].parts.network(0, None)
        assert set(regressor.get_params()) == set(deep)


def test_parts_that_are_named_or_left_out_have_parameters_too():
    regressor = tb.BayesianRegressor("nuts").set_params(method__run__chains=2, network__hidden=(7,), prior__scale=1.0)
    assert regressor.method == tb.NUTS(run=tb.Run(chains=2))
    assert regressor.network == tb.networks.MLP((7,))
    assert regressor.prior == tb.priors.Normal(1.0)
    assert tb.BayesianRegressor().set_params(method="map", method__step_size=0.3).method == tb.MAP(0.3)
    assert tb.BayesianRegressor(network=(5, 5)).set_params(network__activation="relu").network.hidden == (5, 5)
    assert "method__step_size" not in tb.BayesianRegressor("nutz").get_params()


def test_a_prior_and_a_likelihood_may_be_named():
    regressor = tb.BayesianRegressor("map", prior="Cauchy", likelihood="student-t").set_params(likelihood__df=9.0)
    assert regressor.prior == "Cauchy"
    assert regressor.likelihood.df == 9.0
    assert "prior__scale" in regressor.get_params()
    fitted = tb.BayesianRegressor(LeastSquares(), (), prior="normal", likelihood="laplace").fit(X, Y)
    assert type(fitted.posterior_.model.prior) is tb.priors.Normal
    assert type(fitted.posterior_.model.likelihood) is tb.likelihoods.Laplace
    fitted = tb.BayesianClassifier(LeastSquares(), (), prior="horseshoe", likelihood="ordinal").fit(X, Y > 0)
    assert type(fitted.posterior_.model.prior) is tb.priors.Horseshoe
    assert fitted.posterior_.model.likelihood.classes == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"prior": "magic"}, r"a prior of normal, laplace, studentt, .*, cauchy, .*; got 'magic'"),
        ({"prior": "FullNormal"}, r"a prior of normal, .*; got 'FullNormal', which needs covariance"),
        ({"likelihood": "magic"}, r"a likelihood of gaussian, .*, ordinal, bernoulli, .*; got 'magic'"),
        ({"likelihood": "categorical"}, r"a likelihood of numbers or counts; got Categorical"),
    ],
)
def test_names_that_cannot_be_used_are_refused(parts, said):
    regressor = tb.BayesianRegressor(LeastSquares(), (), **parts)
    assert regressor.get_params()
    with pytest.raises(tb.InputError, match=said):
        regressor.fit(X, Y)


def test_a_part_is_set_before_its_fields():
    regressor = tb.BayesianRegressor("laplace").set_params(method__point__train__steps=9, method__point=tb.MAP(0.7))
    assert regressor.method.point == tb.MAP(0.7, train=tb.Train(9))
    both = {"method__run__warmup": 3, "method__run": tb.Run(chains=1), "method": tb.NUTS()}
    assert tb.BayesianRegressor().set_params(**both).method == tb.NUTS(run=tb.Run(chains=1, warmup=3))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"method__step_size": 0.1}, r"a parameter of Laplace: curvature, .*, point, .*; got 'step_size'"),
        ({"method__point__stepsize": 0.1}, r"a parameter of MAP: step_size, .*; got 'stepsize'"),
        ({"method__damping__x": 0.1}, r"a part with parameters of its own; got 'damping', which is 0\.0"),
        ({"likelihood__scale": 0.1}, r"a part with parameters of its own; got 'likelihood', which is None"),
        ({"method__damping": -1.0}, "damping of at least 0"),
        ({"metod__damping": -1.0}, "Invalid parameter 'metod'"),
        ({"metod": 1}, "Invalid parameter 'metod'"),
    ],
)
def test_wrong_parameters_are_refused_with_those_that_there_are(params, said):
    regressor = tb.BayesianRegressor("laplace")
    with pytest.raises(ValueError, match=said):
        regressor.set_params(**params)
    assert regressor.method == "laplace"


@pytest.mark.slow
def test_hidden_units_are_a_network():
    for network in ((4,), [4], (np.int64(4),)):
        regressor = tb.BayesianRegressor(LeastSquares() if not network else "map", network, max_seconds=0.1)
        assert regressor.get_params()["network"] is network
        assert regressor.fit(X, Y).posterior_.model.network == tb.networks.MLP((4,), outputs=1)
    labels = tb.BayesianClassifier("map", (3, 2), max_seconds=0.1).fit(X, Y > 0)
    assert labels.posterior_.model.network.hidden == (3, 2)
    assert tb.BayesianRegressor(LeastSquares(), (), likelihood=tb.likelihoods.Gaussian(0.1)).fit(X, Y).score(X, Y) > 0.9


@pytest.mark.parametrize(
    "network", [50, "50", (50, 0), (50, 2.5), (50, True), {"hidden": 50}, tb.networks.MLP, ((5, 5),)]
)
def test_other_networks_are_refused_before_anything_is_computed(network):
    with pytest.raises(tb.InputError, match=r"network= as .*; got .*Write network=\(50, 50\)"):
        tb.BayesianRegressor("map", network).fit(X, Y)


@pytest.mark.slow
def test_a_search_goes_over_fields_of_parts():
    linear = tb.BayesianRegressor(
        tb.MAP(train=tb.Train(20)), (), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1), random_state=0
    )
    search = GridSearchCV(linear, {"method__step_size": [1e-6, 0.1], "network": [(), (3,)]}, cv=2).fit(X, Y)
    assert search.best_params_["method__step_size"] == 0.1
    assert clone(search.best_estimator_).method == tb.MAP(0.1, train=tb.Train(20))
    chain = make_pipeline(StandardScaler(), linear).set_params(bayesianregressor__method__train__steps=5)
    assert chain[-1].method.train.steps == 5
