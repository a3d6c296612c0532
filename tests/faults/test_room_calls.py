"""The functions of every other room called with anything: one or two of their arguments wrong, the others right."""

import inspect
import random

import matplotlib.pyplot as plt
import pytest

import tunbridge as tb
from faults import arguments, calls
from toys import LeastSquares, labelled, quick, table
from tunbridge.core import declared

REFUSED = {tb.bench.make_reference, *((tb.networks.from_torch,) if not calls.installed("torch") else ())}
"""Functions whose right arguments are refused: chains so short agree in nothing, and a framework is missing."""
BY_NAME = (tb, tb.metrics, tb.diagnostics, tb.datasets, tb.priors, tb.likelihoods)
"""Rooms whose functions are called in `test_calls`."""
INTERNAL = (tb.conjugate, tb.structures, tb.tuning)
"""Rooms whose functions are called by methods only, within their programs."""


TIMES, VALUES = 60, 40
"""Calls of each function, and wrong values of each argument of an estimator, in the slow tests."""
FUNCTIONS = (
    *calls.functions(*(room for room in calls.ROOMS if room not in (*BY_NAME, *INTERNAL))),
    tb.bench.Leaderboard.of,
    tb.cite,
)


@pytest.fixture(autouse=True)
def closed():
    """What calls open is closed again, figures too."""
    with arguments.OPEN:
        yield
    plt.close("all")


def _wrong(rng, function, right):
    """Right arguments, one or two of which are wrong; those that may be left out are, or not."""
    given = {name: value for name, value in right.items() if not calls.taken(function)[name] or rng.random() < 0.7}
    changed = rng.sample(list(right), min(len(right), rng.choice([1, 1, 2])))
    return given | {name: rng.choice(calls.UNLIKE) for name in changed}


@pytest.mark.parametrize("times", [3, pytest.param(TIMES, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "room", quick(arguments.ROOMS, [room for room in arguments.ROOMS if room is not arguments.frameworks])
)
def test_functions_raise_nothing_but_their_own_errors(room, times, tmp_path):
    rng, right = random.Random(8), room(tmp_path)
    found = [
        calls.outcome(function, **_wrong(rng, function, given))
        for function, given in right.items()
        for _ in range(times)
    ]
    assert calls.errors(found) == []
    assert found.count("refused") > len(found) // 2


@pytest.mark.slow
@pytest.mark.parametrize("room", arguments.ROOMS)
def test_right_calls_are_not_refused(room, tmp_path):
    for function, given in room(tmp_path).items():
        assert calls.outcome(function, **given) == ("refused" if function in REFUSED else "done"), function
        assert set(given) == set(calls.taken(function)), function


def test_every_public_function_is_called(tmp_path):
    called = {tb.networks.from_flax, tb.networks.from_keras, tb.networks.from_torch}
    called |= {function for room in arguments.ROOMS if room is not arguments.frameworks for function in room(tmp_path)}
    assert called == set(FUNCTIONS)


def test_every_annotation_can_be_checked():
    """A name that only a type checker imports would leave all arguments of its function unchecked."""
    for function in calls.functions(*calls.ROOMS):
        if hasattr(function, "__wrapped__"):
            kinds = declared._hints(function)
            annotated = {n for n, p in inspect.signature(function).parameters.items() if p.annotation is not p.empty}
            assert annotated <= set(kinds), function


@pytest.mark.parametrize("times", [4, pytest.param(VALUES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [tb.BayesianRegressor, tb.BayesianClassifier])
def test_estimators_raise_nothing_but_their_own_errors(make, times):
    """scikit-learn checks X, y and weights; all other arguments are checked when `fit` is called."""
    rng, found = random.Random(9), []
    data = table(20) if make is tb.BayesianRegressor else labelled(20)
    for name in calls.taken(make):
        for value in rng.sample(calls.BAD, times):
            estimator = make(**{"method": LeastSquares(), "network": (), "random_state": 0} | {name: value})
            found.append(calls.outcome(estimator.fit, data.x, data.y.ravel()))
    assert calls.errors(found) == []
    assert found.count("refused") > len(found) // 2
