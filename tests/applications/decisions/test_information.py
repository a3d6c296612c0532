"""The value of information against closed forms, and its order."""

import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from applications.decisions.test_decide import X, known, straight
from tunbridge import decisions

BOTH = [[0.0, -5.0], [-1.0, -1.0]]
"""Payoffs (actions, classes) of waiting and of treating."""


def test_values_for_two_networks_and_two_classes_are_those_of_enumeration():
    """Two networks, P(ill) = 0.05 and 0.6, alike: all four quantities by hand."""
    p = np.array([0.05, 0.6])
    posterior = known(tb.likelihoods.Bernoulli(), np.log(p / (1 - p))[:, None])
    found = decisions.value_of_information(posterior, [[0.0]], ["wait", "treat"], BOTH)
    now = max(-5.0 * p.mean(), -1.0)
    assert found.worth[0] == pytest.approx(now, abs=1e-6)
    assert found.outcome[0] == pytest.approx(-1.0 * p.mean() - now, abs=1e-6)
    assert found.network[0] == pytest.approx(np.mean(np.maximum(-5.0 * p, -1.0)) - now, abs=1e-6)
    assert found.answers is None
    assert "the network" in str(found)


def test_one_answer_is_worth_what_bayes_theorem_says(key):
    """One further label from the same networks: its value enumerated over both labels; 4,000 simulations, 4 errors."""
    p = np.array([0.05, 0.9])
    posterior = known(tb.likelihoods.Bernoulli(), np.log(p / (1 - p))[:, None])
    found = decisions.value_of_information(
        posterior, [[0.0]], ["wait", "treat"], BOTH, further=[[0.0]], key=key, simulations=4000
    )
    wanted = -max(-5.0 * p.mean(), -1.0)
    for label in (p, 1.0 - p):
        weights = label / label.sum()
        wanted += label.mean() * max(-5.0 * weights @ p, -1.0)
    assert found.answers[0] == pytest.approx(wanted, abs=0.03)
    assert wanted > 0.1


def test_squared_error_splits_into_the_two_uncertainties(predictive_of_line):
    """With payoff -(a - y)^2 knowing y is worth the whole variance, knowing the network the epistemic part."""
    posterior, predictive = predictive_of_line
    actions = np.linspace(-15.0, 15.0, 3001)
    found = decisions.value_of_information(posterior, X, actions, lambda a, y: -((a - y) ** 2), num=256)
    epistemic = np.var(np.asarray(predictive.functions)[..., 0], axis=0)
    np.testing.assert_allclose(found.network, epistemic, rtol=0.02)
    np.testing.assert_allclose(found.outcome, np.asarray(predictive.aleatoric)[:, 0] + epistemic, rtol=0.02)


def test_more_is_worth_more(predictive_of_line, key):
    posterior, _ = predictive_of_line
    actions = np.linspace(-15.0, 15.0, 301)
    for utility in (lambda a, y: -((a - y) ** 2), decisions.CARA(lambda a, y: -jnp.abs(a - y), aversion=0.5)):
        found = decisions.value_of_information(posterior, X, actions, utility, further=[[2.0], [1.9]], key=key)
        assert np.all(found.outcome >= found.network)
        assert np.all(found.network >= found.answers)
        assert np.all(found.answers >= 0.0)
        assert found.answers.max() > 0.01


@pytest.fixture(scope="module")
def predictive_of_line():
    rows = np.linspace(-2.0, 2.0, 8)
    posterior = straight(3.0 + 2.0 * rows, tb.likelihoods.Gaussian(2.0), 8)
    return posterior, posterior.predict(X)


def test_utilities_that_are_no_expectation_are_refused(predictive_of_line):
    posterior, _ = predictive_of_line
    with pytest.raises(tb.InputError, match="a utility that is an expectation"):
        decisions.value_of_information(posterior, X, [1.0], decisions.CVaR(lambda a, y: a * y))
