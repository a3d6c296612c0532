"""The best action against closed forms: the newsvendor's quantile, mean-variance portfolios, Chow's rule."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge import decisions

X = np.array([[-1.0], [0.3], [2.0]])


def straight(y=None, likelihood=None, points=30):
    """A posterior of a line, in closed form, and the rows it was fitted to."""
    x = np.linspace(-2.0, 2.0, points)[:, None]
    y = 3.0 + 2.0 * x[:, 0] + np.sin(9.0 * x[:, 0]) if y is None else y
    likelihood = tb.likelihoods.Gaussian(1.0) if likelihood is None else likelihood
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), likelihood)
    method = tb.NeuralLinear(tb.MAP(train=tb.Train(1)))
    return method.fit(model, (x, y), key=jax.random.key(0), progress=False)


def known(likelihood, outputs, networks=1):
    """Networks without inputs' effect whose outputs are given, (networks, outputs)."""
    x, outputs = np.zeros((2, 1)), np.atleast_2d(outputs)
    y = (
        np.zeros(2, int)
        if isinstance(likelihood, tb.likelihoods.Categorical | tb.likelihoods.Bernoulli)
        else np.ones((2, outputs.shape[1]))
    )
    model, _ = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), likelihood).bind(tb.Data(x, y))
    bias = jnp.asarray(outputs)
    weights = {"layers": [{"weight": jnp.zeros((len(bias), 1, bias.shape[1])), "bias": bias}]}
    return tb.Draws(model, jax.random.key(0), tb.Params(weights))


@pytest.fixture(scope="module")
def predictive():
    return straight().predict(X)


@pytest.mark.parametrize("price", [2.5, 5.0, 20.0])
def test_a_newsvendor_orders_the_quantile_at_the_critical_ratio(price, predictive):
    """Cost 2: within 2 % of a standard deviation, by a continuous order and by a list of orders."""
    wanted = np.asarray(predictive.quantile((price - 2.0) / price))[:, 0]

    def payoff(order, demand):
        return price * jnp.minimum(order, demand) - 2.0 * order

    found = decisions.decide(predictive, decisions.Interval(-10.0, 20.0), payoff)
    np.testing.assert_allclose(found.actions, wanted, atol=0.02 * np.asarray(predictive.std).max())
    listed = decisions.decide(predictive, np.linspace(-10.0, 20.0, 3001), payoff)
    np.testing.assert_allclose(listed.actions, wanted, atol=0.02 * np.asarray(predictive.std).max())
    np.testing.assert_allclose(listed.worth, found.worth, atol=1e-3)


def test_a_newsvendor_of_counts_orders_their_quantile():
    """Poisson demand of rate 7, or of 4 and 12 alike: all whole numbers are enumerated, so the answer is exact."""
    for rates in ([7.0], [4.0, 12.0]):
        counted = known(tb.likelihoods.Poisson(), np.log(rates)[:, None]).predict([[0.0]])
        orders = np.arange(0.0, 30.0)
        found = decisions.decide(counted, orders, lambda a, y: 5.0 * jnp.minimum(a, y) - 2.0 * a)
        below = np.mean([stats.poisson(rate).cdf(orders) for rate in rates], axis=0)
        assert found.actions[0] == orders[np.argmax(below >= 0.6)]
        demand = np.arange(200)
        mass = np.mean([stats.poisson(rate).pmf(demand) for rate in rates], axis=0)
        wanted = np.sum(mass * (5.0 * np.minimum(found.actions[0], demand) - 2.0 * found.actions[0]))
        assert found.worth[0] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("aversion", [0.5, 2.0, 8.0])
def test_a_stake_under_cara_is_the_mean_over_the_variance(aversion):
    """Normal y: a = mu / (lambda sigma^2), worth mu^2 / (2 lambda sigma^2)."""
    some = straight(np.linspace(0.2, 1.5, 30)).predict(X)
    mean, variance = (np.asarray(part)[:, 0] for part in (some.mean, some.variance))
    found = decisions.decide(
        some, decisions.Interval(-30.0, 30.0), decisions.CARA(lambda a, y: a * y, aversion=aversion)
    )
    np.testing.assert_allclose(found.actions, mean / (aversion * variance), rtol=0.02)
    np.testing.assert_allclose(found.worth, mean**2 / (2 * aversion * variance), rtol=0.02)


def test_a_portfolio_is_the_one_in_closed_form(key):
    """Two assets with independent normal returns, shares a and 1 - a: 40,000 draws, within 0.02."""
    mean, sigma, aversion = np.array([0.3, 0.2]), np.array([0.5, 0.3]), 3.0
    both = known(tb.likelihoods.Gaussian(jnp.asarray(sigma)), mean).predict([[0.0]])
    utility = decisions.CARA(lambda shares, y: shares @ y, aversion=aversion)
    found = decisions.decide(both, decisions.Simplex(2), utility, key=key, num=40_000)
    share = ((mean[0] - mean[1]) / aversion + sigma[1] ** 2) / np.sum(sigma**2)
    np.testing.assert_allclose(found.actions[0], [share, 1.0 - share], atol=0.02)


def test_the_ends_of_a_set_are_reached(predictive):
    """Without aversion to risk all is staked where y is positive on average, and nothing where it is negative."""
    mean = np.asarray(predictive.mean)[:, 0]
    found = decisions.decide(predictive, decisions.Interval(0.0, 4.0), lambda a, y: a * (y - mean[1]))
    np.testing.assert_allclose(found.actions[[0, 2]], [0.0, 4.0], atol=1e-9)
    both = known(tb.likelihoods.Gaussian(0.1), [1.0, 2.0]).predict([[0.0]])
    shares = decisions.decide(both, decisions.Simplex(2), lambda shares, y: shares @ y)
    np.testing.assert_allclose(shares.actions[0], [0.0, 1.0], atol=1e-9)


def test_cvar_of_a_normal_payoff_is_its_closed_form(predictive):
    """mu - sigma phi(z) / share, with z the quantile at the share."""
    for share in (0.05, 0.5):
        found = decisions.decide(predictive, [1.0], decisions.CVaR(lambda a, y: a * y, share=share), num=2000)
        mean, std = (np.asarray(part)[:, 0] for part in (predictive.mean, predictive.std))
        wanted = mean - std * stats.norm.pdf(stats.norm.ppf(share)) / share
        np.testing.assert_allclose(found.worth, wanted, atol=2e-3 * std.max())
    whole = decisions.decide(predictive, [1.0], decisions.CVaR(lambda a, y: a * y, share=1.0))
    np.testing.assert_allclose(whole.worth, np.asarray(predictive.mean)[:, 0], rtol=1e-3)


def test_more_aversion_to_risk_is_never_less_conservative(predictive):
    """Stakes on y shrink, and so do worths, as aversion grows or the share of the worst outcomes falls."""
    stakes, range_ = [], decisions.Interval(0.0, 50.0)
    for aversion in (0.1, 0.3, 1.0, 3.0, 10.0):
        stakes.append(decisions.decide(predictive, range_, decisions.CARA(lambda a, y: a * y, aversion=aversion)))
    for less, more in itertools.pairwise(stakes):
        assert np.all(more.actions <= less.actions)
        assert np.all(more.worth <= less.worth + 1e-6)
    worths = [
        decisions.decide(predictive, [1.0], decisions.CVaR(lambda a, y: a * y, share=share)).worth
        for share in (1.0, 0.5, 0.2, 0.05, 0.01)
    ]
    assert np.all(np.diff(worths, axis=0) < 0.0)


def test_two_classes_are_referred_by_chows_rule():
    """Payoff 1 for the right class: referred at cost c where the larger probability is below 1 - c."""
    logits = np.linspace(-3.0, 3.0, 25)
    cost = 0.2
    for logit in logits:
        classes = known(tb.likelihoods.Bernoulli(), [logit]).predict([[0.0]])
        found = decisions.decide(classes, ["no", "yes"], np.eye(2), referral=cost)
        p = 1.0 / (1.0 + np.exp(-logit))
        assert bool(found.referred[0]) == (max(p, 1.0 - p) < 1.0 - cost)
        assert found.worth[0] == pytest.approx(max(p, 1.0 - p, 1.0 - cost), abs=1e-6)
        assert found.chosen[0] == ("refer" if found.referred[0] else ["no", "yes"][int(p > 0.5)])


def test_classes_are_decided_by_the_average_of_the_networks():
    """Treating costs 1 and saves 5 from class 1: treat where the averaged probability is above 0.2."""
    classes = known(tb.likelihoods.Bernoulli(), [[-4.0], [1.0]]).predict([[0.0]])
    found = decisions.decide(classes, ["wait", "treat"], [[0.0, -5.0], [-1.0, -1.0]])
    p = float(np.asarray(classes.probs)[0, 1])
    assert p == pytest.approx(0.5 * (1 / (1 + np.exp(4.0)) + 1 / (1 + np.exp(-1.0))), abs=1e-6)
    np.testing.assert_allclose(found.worths[:, 0], [-5.0 * p, -1.0], rtol=1e-6)
    assert found.chosen == ["treat"]
    assert "treat" in str(found)


def test_heavy_tails_and_large_units_keep_their_digits():
    """Student-t noise with 3 degrees of freedom around 1e6: the newsvendor's quantile within 1 % of the scale."""
    scaling = tb.datasets.Scaling(np.zeros(1), np.ones(1), np.array([1e6]), np.array([10.0]))
    plain = known(tb.likelihoods.StudentT(3.0, 1.0), [0.0])
    found = decisions.decide(
        tb.Standardised(plain.model, plain.key, plain, scaling).predict([[0.0]]),
        np.linspace(1e6 - 100, 1e6 + 100, 2001),
        lambda a, y: 5.0 * jnp.minimum(a, y) - 2.0 * a,
    )
    assert found.actions[0] == pytest.approx(1e6 + 10.0 * stats.t(3).ppf(0.6), abs=0.2)


REFUSED = {
    "a payoff that is NaN": (lambda p: decisions.decide(p, [1.0], lambda a, y: jnp.log(y - 1e9)), "finite payoffs"),
    "a payoff that is an array": (
        lambda p: decisions.decide(p, [1.0], lambda a, y: jnp.ones(3) * y),
        "one real number",
    ),
    "a payoff with an if": (lambda p: decisions.decide(p, [1.0], lambda a, y: 1.0 if y > a else 0.0), "jnp.where"),
    "a payoff of one argument": (lambda p: decisions.decide(p, [1.0], lambda a: a), "one action and one y"),
    "a table for numbers": (lambda p: decisions.decide(p, ["a", "b"], np.eye(2)), "for a predictive of classes"),
    "no action": (lambda p: decisions.decide(p, [], lambda a, y: y), "a list of names"),
    "an action that is NaN": (lambda p: decisions.decide(p, [np.nan], lambda a, y: y), "a list of names"),
    "the same name twice": (lambda p: decisions.decide(p, ["a", "a"], lambda a, y: y), "different names"),
    "ends the wrong way round": (lambda p: decisions.Interval(1.0, 0.0), "low below high"),
    "no aversion": (lambda p: decisions.CARA(lambda a, y: y, aversion=-1.0), "above 0"),
    "a share above 1": (lambda p: decisions.CVaR(lambda a, y: y, share=1.5), "up to 1"),
    "a referral from a continuous set": (
        lambda p: decisions.decide(p, decisions.Interval(0.0, 1.0), lambda a, y: y, referral=1.0),
        "a list of actions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_decided_is_refused(case, predictive):
    call, words = REFUSED[case]
    with pytest.raises(tb.InputError, match=words):
        call(predictive)
