import arviz_base
import arviz_stats
import numpy as np
import pytest

import tunbridge as tb
from tunbridge import diagnostics


def autoregressive(rng, shape, rho):
    """Stationary AR(1) noise of variance 1 along axis 1."""
    noise = rng.normal(size=shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return values


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(0)
    draws = autoregressive(rng, (4, 300, 3, 2), 0.7)
    draws[2, :, 1] += 0.8
    return np.exp(draws)


def test_figures_are_those_of_arviz(draws):
    given = arviz_base.convert_to_dataset({"f": draws})
    for ours, theirs in (
        (diagnostics.rhat, arviz_stats.rhat(given)),
        (diagnostics.ess_bulk, arviz_stats.ess(given)),
        (diagnostics.ess_tail, arviz_stats.ess(given, method="tail", prob=(0.05, 0.95))),
        (diagnostics.mcse, arviz_stats.mcse(given)),
    ):
        assert ours(draws).shape == (3, 2)
        np.testing.assert_allclose(ours(draws), theirs["f"].values, rtol=1e-6)


def test_a_shifted_chain_shows_in_rhat_where_it_is_shifted(draws):
    found = diagnostics.rhat(draws)
    assert (found[1] > 1.05).all()
    assert (found[1] > found[[0, 2]].max()).all()


def test_the_effective_sample_size_of_an_autoregression_is_known():
    """n (1 - rho) / (1 + rho), to 15 %: the spread over 8 quantities of 40,000 draws is about 3 %."""
    draws = autoregressive(np.random.default_rng(1), (4, 10_000, 8), 0.6)
    assert diagnostics.ess_bulk(draws).mean() == pytest.approx(40_000 * 0.4 / 1.6, rel=0.15)
    assert diagnostics.mcse(draws).mean() == pytest.approx(np.sqrt(1.6 / 0.4 / 40_000), rel=0.1)


def test_chains_that_stand_still_apart_have_infinite_rhat_and_constants_none():
    still = np.repeat(np.arange(4.0)[:, None], 10, axis=1)
    assert diagnostics.rhat(still) == np.inf
    assert np.isnan(diagnostics.rhat(np.ones((4, 10))))
    assert np.isnan(diagnostics.rhat(np.random.default_rng(0).normal(size=(1, 10))))


def test_too_few_draws_are_refused():
    for draws in (np.zeros((4, 3)), np.zeros(100)):
        with pytest.raises(tb.InputError, match="with at least 4 draws"):
            diagnostics.rhat(draws)


def test_chains_are_grouped_by_where_they_stay():
    values = autoregressive(np.random.default_rng(2), (5, 400, 6), 0.9)
    assert diagnostics.modes(values) == [[0, 1, 2, 3, 4]]
    values[[1, 3], :, 4] += 3.0  # at one quantity of six
    values[3, :, 0] -= 3.0
    assert diagnostics.modes(values) == [[0, 2, 4], [1], [3]]
    assert diagnostics.modes(values, apart=100.0) == [[0, 1, 2, 3, 4]]
    assert diagnostics.modes(np.repeat(np.arange(3.0)[:, None] // 2, 5, axis=1)) == [[0, 1], [2]]
    with pytest.raises(tb.InputError, match="the axis of chains"):
        diagnostics.modes(np.zeros(5))
