"""Predictives over counts, ordered classes, heavy tails and several tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.predict.push import push_outputs
from tunbridge.predict.scaled import in_units

RATES = np.array([0.4, 2.0, 2.6, 9.0])
COUNTS = np.arange(200)
POINTS = 3


def predictive(likelihood, outputs, noise=()):
    """The predictive of networks with these outputs (networks, outputs), the same at every point."""
    network = tb.networks.from_functions(lambda k, x: {}, lambda w, x: x)
    model = tb.Model(network, tb.priors.Normal(1.0), likelihood)
    known = jnp.tile(jnp.asarray(outputs, float)[:, None, :], (1, POINTS, 1))
    return push_outputs(model, known, noise, np.zeros((POINTS, 1)))


@pytest.fixture(scope="module")
def counts():
    return predictive(tb.likelihoods.Poisson(), np.log(RATES)[:, None])


def mass(k):
    return stats.poisson(RATES[:, None]).pmf(np.atleast_1d(k)[None]).mean(0)


def test_moments_of_counts_are_split_by_the_law_of_total_variance(counts):
    np.testing.assert_allclose(counts.mean, RATES.mean(), rtol=1e-5)
    np.testing.assert_allclose(counts.aleatoric, RATES.mean(), rtol=1e-5)
    np.testing.assert_allclose(counts.epistemic, RATES.var(), rtol=1e-5)
    assert counts.mean.shape == (POINTS, 1)


def test_quantiles_of_counts_are_the_least_that_reach_the_level(counts):
    levels = np.array([0.01, 0.05, 0.3, 0.5, 0.8, 0.95, 0.999])
    wanted = [int(np.argmax(np.cumsum(mass(COUNTS)) >= q)) for q in levels]
    np.testing.assert_array_equal(counts.quantile(levels)[:, 0, 0], wanted)
    lower, upper = counts.interval(0.9)
    held = mass(COUNTS)[int(lower[0, 0]) : int(upper[0, 0]) + 1].sum()
    assert 0.9 <= held < 0.99
    y = np.broadcast_to(np.array([-1.0, 0.0, 2.0, 2.9, 30.0])[:, None, None], (5, POINTS, 1))
    wanted = [0.0, *(np.cumsum(mass(COUNTS))[k] for k in (0, 2, 2, 30))]
    np.testing.assert_allclose(counts.cdf(y)[:, 0, 0], wanted, atol=1e-5)


@pytest.mark.slow
def test_mode_and_entropy_of_counts_are_those_of_the_mass(counts):
    p = mass(COUNTS)
    assert float(counts.mode[0, 0]) == p.argmax()
    np.testing.assert_allclose(counts.entropy, -np.sum(p * np.log(np.maximum(p, 1e-300))), rtol=1e-4)


@pytest.mark.slow
def test_entropy_of_large_and_of_dispersed_counts_is_within_two_thousandths(x64):
    for likelihood, outputs, exact in (
        (tb.likelihoods.Poisson(), np.log(1e5), stats.poisson(1e5)),
        (tb.likelihoods.NegativeBinomial(0.3), np.log(300.0), stats.nbinom(0.3, 0.3 / 300.3)),
    ):
        found = float(predictive(likelihood, np.array([[outputs]])).entropy[0, 0])
        k = np.arange(int(exact.ppf(1e-12)), int(exact.ppf(1 - 1e-9)))
        p = exact.pmf(k)
        assert found == pytest.approx(-np.sum(p * np.log(np.maximum(p, 1e-300))), abs=2e-3)


def test_the_crps_of_counts_is_the_ranked_probability_score_and_their_pit_is_drawn(counts, key):
    y = np.array([0.0, 3.0, 12.0])
    steps = np.cumsum(mass(COUNTS))
    wanted = np.mean([np.sum((steps - (y_i <= COUNTS)) ** 2) for y_i in y])
    assert tb.metrics.crps(counts, y) == pytest.approx(wanted, abs=2e-4)
    level = np.asarray(tb.metrics.pit(counts, y, key))[:, 0]
    assert (np.where(y > 0, steps[np.maximum(y.astype(int) - 1, 0)], 0.0) <= level + 1e-6).all()
    assert (level <= steps[y.astype(int)] + 1e-6).all()
    with pytest.raises(tb.InputError, match="key= for counts or ordered classes"):
        tb.metrics.pit(counts, y)


@pytest.fixture(scope="module")
def ordered():
    return predictive(tb.likelihoods.Ordinal(cutpoints=jnp.array([-1.0, 0.0, 2.0])), np.array([[-0.5], [1.0]]))


def test_ordered_classes_answer_as_classes_and_as_numbers(ordered):
    p, number = np.asarray(ordered.probs)[0], np.arange(4)
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(ordered.mean[0, 0], p @ number, rtol=1e-5)
    np.testing.assert_allclose(ordered.variance[0, 0], p @ (number - p @ number) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(ordered.total, ordered.aleatoric + ordered.epistemic)
    assert int(ordered.mode[0]) == p.argmax()
    levels = np.array([0.05, 0.5, 0.97])
    wanted = [np.argmax(np.cumsum(p) >= q) for q in levels]
    np.testing.assert_array_equal(ordered.quantile(levels)[:, 0, 0], wanted)
    np.testing.assert_allclose(ordered.cdf(np.full((POINTS, 1), 1.5))[0, 0], p[:2].sum(), rtol=1e-5)
    y = np.array([0, 1, 3])
    wanted = np.mean([np.sum((np.cumsum(p) - (k <= number)) ** 2) for k in y])
    assert tb.metrics.crps(ordered, y) == pytest.approx(wanted, abs=1e-4)
    assert tb.metrics.accuracy(ordered, y) == np.mean(y == p.argmax())


@pytest.mark.slow
def test_heavy_tails_have_quantiles_and_no_variance():
    for df, scale in ((1.0, 2.0), (2.0, 0.5), (5.0, 0.5)):
        found = predictive(tb.likelihoods.StudentT(df, scale), np.array([[0.7]]))
        exact = stats.t(df, 0.7, scale)
        levels = np.array([0.001, 0.1, 0.5, 0.95])
        np.testing.assert_allclose(found.quantile(levels)[:, 0, 0], exact.ppf(levels), rtol=2e-3, atol=1e-4)
        assert float(found.mean[0, 0]) == pytest.approx(0.7)
        wanted = exact.var() if df > 2 else np.inf
        assert float(found.total[0, 0]) == float(found.aleatoric[0, 0]) == pytest.approx(wanted, rel=1e-5)
        assert float(found.epistemic[0, 0]) == 0.0
        assert float(found.entropy[0, 0]) == pytest.approx(exact.entropy(), abs=0.02)


@pytest.mark.slow
def test_quantiles_of_a_mixture_of_heavy_tails_invert_its_distribution_function():
    found = predictive(tb.likelihoods.StudentT(3.0, 0.5), np.array([[0.7], [5.0]]))
    levels = np.array([0.01, 0.4, 0.9])
    np.testing.assert_allclose(found.cdf(found.quantile(levels))[:, 0, 0], levels, atol=1e-4)


TASKS = tb.likelihoods.MultiTask({"size": tb.likelihoods.Gaussian(0.5), "kind": tb.likelihoods.Categorical(3)}).bind(
    jnp.array([[0.0, 2.0]])
)
F = np.array([[1.0, 0.2, -0.4, 0.6], [3.0, 0.1, 1.0, -0.5]])


@pytest.mark.slow
def test_each_task_has_a_predictive_of_its_own(key):
    both = predictive(TASKS, F)
    alone = predictive(tb.likelihoods.Gaussian(0.5), F[:, :1])
    np.testing.assert_allclose(both.tasks["size"].quantile(0.9), alone.quantile(0.9), rtol=1e-6)
    assert set(both.total) == set(both.aleatoric) == set(both.epistemic) == {"size", "kind"}
    np.testing.assert_allclose(both.total["size"], alone.total, rtol=1e-6)
    assert both.functions.shape == (2, POINTS, 4)
    y = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 1.0]])
    each = both.tasks["size"].log_probs(y[:, :1]) + both.tasks["kind"].log_probs(y[:, 1].astype(int))
    np.testing.assert_allclose(both.log_prob(y), jax.nn.logsumexp(each, axis=0) - np.log(2), rtol=1e-5)
    assert both.sample(key, 5).shape == (5, POINTS, 2)
    assert "probs of kind" in both._repr_html_()
    for ask in (lambda: both.mean, lambda: both.quantile(0.5), lambda: tb.metrics.rmse(both, y[:, :1])):
        with pytest.raises(tb.InputError, match=r"a predictive of one task.*Ask predictive.tasks\['size'\]"):
            ask()
    with pytest.raises(tb.InputError, match="the predictive of one task"):
        tb.plots.parts(both)


def test_units_of_tasks_are_changed_where_they_have_some(key):
    both, shift, scale = predictive(TASKS, F), np.array([10.0, 0.0]), np.array([5.0, 1.0])
    changed = in_units(both, shift, scale)
    np.testing.assert_allclose(changed.tasks["size"].mean, 10 + 5 * both.tasks["size"].mean, rtol=1e-6)
    np.testing.assert_array_equal(changed.tasks["kind"].probs, both.tasks["kind"].probs)
    np.testing.assert_allclose(changed.sample(key, 4), shift + scale * both.sample(key, 4), rtol=1e-5)
    y = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 1.0]])
    np.testing.assert_allclose(changed.log_prob(shift + scale * y), both.log_prob(y) - np.log(5), rtol=1e-5)
