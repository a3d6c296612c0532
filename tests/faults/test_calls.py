"""Public classes, functions and methods called with anything: errors are Tunbridge's own, and nothing hangs."""

import random
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from faults.calls import BAD, GOOD, ROOMS, UNLIKE, errors, functions, is_built_by_users, names, outcome, taken
from toys import model, table

TIMES = {"class": 600, "posterior": 400, "fit": 1000, "data": 5000, "function": 60, "method": 60}
"""How often the slow tests call each; `figures` prints them."""
POSTERIORS, PREDICTIVES = 6, 7
"""Kinds of posteriors and of predictives whose methods the slow tests call."""
CLASSES = [thing for room in ROOMS for name in names(room) if is_built_by_users(thing := getattr(room, name))]
CLASSES = list(dict.fromkeys(CLASSES))


@pytest.mark.parametrize("times", [12, pytest.param(TIMES["class"], marks=pytest.mark.slow)])
def test_constructors_raise_nothing_but_their_own_errors(times):
    rng, found = random.Random(1), []
    for cls in CLASSES:
        for _ in range(times):
            chosen = [name for name, optional in taken(cls).items() if not optional or rng.random() < 0.3]
            kwargs = {name: rng.choice(BAD if rng.random() < 0.6 else GOOD) for name in chosen}
            found.append(outcome(cls, **kwargs))
    assert len(CLASSES) > 120
    assert errors(found) == []
    assert found.count("refused") > len(found) // 4


def _posteriors(all_kinds):
    data, key = table(), jax.random.key(0)
    short = {"train": tb.Train(3)}
    methods = [tb.MAP(**short), tb.Laplace(point=tb.MAP(**short)), tb.HMC(run=tb.Run(1, 3, 3))]
    if all_kinds:
        methods += [tb.Ensemble(tb.MAP(**short), 2), tb.MeanField(**short), tb.MCDropout(**short)]
        assert len(methods) == POSTERIORS
    return [method.fit(model(), data, key=key, progress=False) for method in methods]


@pytest.mark.parametrize("times", [4, pytest.param(TIMES["posterior"], marks=pytest.mark.slow)])
def test_posteriors_raise_nothing_but_their_own_errors(times):
    rng, found = random.Random(2), []
    good = {"x": table().x[:3], "key": jax.random.key(1), "num": 2}
    for posterior in _posteriors(times > 4):
        for _ in range(times):
            wrong = {name: rng.choice(BAD) if rng.random() < 0.5 else value for name, value in good.items()}
            found.append(outcome(posterior.sample, wrong["key"], wrong["num"]))
            found.append(outcome(posterior.predict, wrong["x"], key=wrong["key"], num=wrong["num"]))
    assert errors(found) == []
    assert found.count("refused") > len(found) // 4


@pytest.mark.parametrize("times", [30, pytest.param(TIMES["fit"], marks=pytest.mark.slow)])
def test_fits_raise_nothing_but_their_own_errors(times, tmp_path):
    rng, found, method = random.Random(3), [], tb.MAP(train=tb.Train(2))
    good = {"model": model(), "data": table(), "key": jax.random.key(1), "init": None, "progress": False}
    good |= {"checkpoint": None, "max_seconds": None, "callbacks": ()}
    for number in range(times):
        wrong = {name: rng.choice(BAD) if rng.random() < 0.2 else value for name, value in good.items()}
        if isinstance(wrong["checkpoint"], str | Path):
            wrong["checkpoint"] = tmp_path / str(number)
        found.append(outcome(method.fit, wrong.pop("model"), wrong.pop("data"), **wrong))
    assert errors(found) == []
    assert found.count("refused") > len(found) // 4


@pytest.mark.parametrize("times", [200, pytest.param(TIMES["data"], marks=pytest.mark.slow)])
def test_data_raises_nothing_but_its_own_errors(times):
    rng = random.Random(4)
    pool = [*BAD, *GOOD, np.ones((4, 2)), np.arange(4), [1.0, 2.0, 3.0, 4.0], [["a"]] * 4, np.ones((4, 2), complex)]
    found = [outcome(tb.Data, *(rng.choice(pool) for _ in range(rng.choice([2, 3])))) for _ in range(times)]
    assert errors(found) == []


FUNCTION_ROOMS = [tb, tb.metrics, tb.diagnostics, tb.datasets, tb.priors, tb.likelihoods]
LEFT_OUT = ("compare", "to_bayesian", "cite")
"""Functions whose valid calls fit; they have tests of their own."""


FUNCTIONS = [function for function in functions(*FUNCTION_ROOMS) if function.__name__ not in LEFT_OUT]
METHODS = ["quantile", "interval", "cdf", "cdfs", "log_prob", "log_probs", "sample", "replicates"]
"""Of a predictive. `Data.padded`, `with_rows` and `where` are used inside jit, where nothing is checked."""


def _fitted(all_kinds):
    """A posterior for numbers and one for classes; with `all_kinds` one for each kind of predictive."""
    short = tb.Train(3)
    x = np.random.default_rng(0).normal(size=(24, 2))
    fits = [
        (tb.MAP(train=short), tb.likelihoods.Gaussian(0.1), x[:, :1]),
        (tb.Ensemble(tb.MAP(train=short), 2), tb.likelihoods.Categorical(3), np.arange(24) % 3),
    ]
    if all_kinds:
        linear = tb.NeuralLinear(tb.MAP(train=short), tb.conjugate.NormalInverseGamma())
        fits += [
            (tb.MAP(train=short), tb.likelihoods.Poisson(), np.arange(24)),
            (tb.MAP(train=short), tb.likelihoods.Ordinal(3), np.arange(24) % 3),
            (linear, tb.likelihoods.Gaussian(dist.Gamma(1.0, 1.0)), x[:, :1]),
            (tb.bench.BASELINES["gp"](), tb.likelihoods.Gaussian(dist.Gamma(1.0, 1.0)), x[:, :1]),
        ]
    fitted = []
    for method, likelihood, y in fits:
        scored = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), likelihood)
        fitted.append((method.fit(scored, tb.Data(x, y), key=jax.random.key(0), progress=False), y))
    if all_kinds:
        scaling = tb.datasets.Scaling.of(x, x[:, :1])
        bound = fitted[0][0]
        fitted.append((tb.Standardised(bound.model, bound.key, bound, scaling), x[:, :1]))
        assert len(fitted) == PREDICTIVES
    return x, [(posterior, posterior.predict(x), y) for posterior, y in fitted]


def _usual(x, fitted):
    """Right values by the name of the argument."""
    draws = np.random.default_rng(1).normal(size=(4, 60, 2))
    predictives = [predictive for _, predictive, _ in fitted]
    plain = {"bins": 5, "mass": 0.5, "slices": 4, "num": 20, "scale": 1.0, "power": -0.3}
    plain |= {"noise": 0.1, "share": 0.3, "q": 0.3}
    plain |= dict.fromkeys(["apart", "r_eff", "tau", "weight_decay", "length_scale"], 1.0)
    plain |= dict.fromkeys(["damping", "time_step", "step_size", "momentum", "rate", "alpha"], 0.5)
    plain |= {"key": jax.random.key(0), "data": tb.Data(x, x), "prior": tb.priors.Normal(1.0), "model": model()}
    plain |= {"confidence": x[:, 0], "edges": tb.metrics.equal_mass, "positive": draws[0, :, 0] > 0, "_": x[:, 0]}
    plain |= {"ranks": np.linspace(0, 1, 30), "log_likelihood": draws[0], "energy": draws[..., 0], "change": draws}
    plain |= {"folder": "missing", "path": "missing", "posterior": fitted[0][0], "functions": draws, "w": x[:, 0]}
    several = {"predictive": predictives, "y": [y for *_, y in fitted] + [draws[1], np.ones((24, 1))]}
    several |= {"other": [*predictives, draws], "x": [draws[0], x], "draws": [draws, draws[0]]}
    several |= {"scores": [draws[0], draws[0, :, 0]]}
    several |= {"pairs": [{"predictive": [made], "other": [made], "y": [y]} for _, made, y in fitted]}
    return {name: [value] for name, value in plain.items()} | several


def _with_wrong(rng, function, usual):
    """Arguments of which about a third are wrong; user functions may raise what they like, so none is given."""
    named = taken(function)
    usual = usual | (rng.choice(usual["pairs"]) if "predictive" in named else {})
    return {
        name: rng.choice(UNLIKE if rng.random() < 0.35 or name not in usual else usual[name])
        for name, optional in named.items()
        if not optional or rng.random() < 0.5
    }


def _called(rng, function, usual):
    return outcome(function, **_with_wrong(rng, function, usual))


@pytest.mark.parametrize("times", [2, pytest.param(TIMES["function"], marks=pytest.mark.slow)])
def test_functions_raise_nothing_but_their_own_errors(times):
    rng, usual = random.Random(5), _usual(*_fitted(times > 4))
    found = [_called(rng, function, usual) for function in FUNCTIONS for _ in range(times)]
    assert len(FUNCTIONS) > 40
    assert errors(found) == []
    assert found.count("refused") > len(found) // 4
    assert found.count("done") > len(found) // 10


@pytest.mark.parametrize("times", [6, pytest.param(TIMES["method"], marks=pytest.mark.slow)])
def test_methods_raise_nothing_but_their_own_errors(times):
    rng, (x, fitted) = random.Random(6), _fitted(times > 6)
    usual = _usual(x, fitted)
    bound, _ = model().bind(table())
    calls = [getattr(predictive, name) for _, predictive, _ in fitted for name in METHODS]
    calls += [model().bind, bound.sample]
    found = [_called(rng, call, usual) for call in calls for _ in range(times)]
    assert errors(found) == []
    assert found.count("refused") > len(found) // 4
    assert found.count("done") > len(found) // 10


@pytest.mark.parametrize("name", ["model", "train", "test", "methods", "key"])
def test_compare_refuses_what_it_cannot_fit(name):
    good = {"model": model(), "train": table(), "test": table(), "methods": [], "baselines": False}
    found = [outcome(tb.compare, **good | {name: value}) for value in BAD]
    assert errors(found) == []
    assert found.count("refused") > len(found) // 2


@pytest.mark.parametrize("name", ["module", "data", "method", "key", "prior", "likelihood"])
def test_to_bayesian_refuses_what_it_cannot_fit(name):
    module = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    good = {"module": module, "data": table(), "method": tb.MAP(train=tb.Train(2)), "key": jax.random.key(0)}
    found = [outcome(tb.to_bayesian, **good | {name: value, "progress": False}) for value in BAD]
    assert errors(found) == []
    assert found.count("refused") > len(found) // 2
