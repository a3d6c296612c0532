"""Langevin steps: the same as one leapfrog step, the textbook's ratio, the bias of leaving it out."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from densities import alarm, sampled
from tunbridge.core.errors import Result
from tunbridge.inference.mcmc.langevin import langevin

DIAGONAL = np.array([0.5, 2.0, 1.0])
DENSE = np.array([[1.0, 0.3, 0.0], [0.3, 2.0, -0.4], [0.0, -0.4, 0.7]])


def _banana(w):
    return -0.5 * w[0] ** 2 - 2.0 * (w[1] - w[0] ** 2) ** 2 - jnp.cosh(w[2])


@pytest.mark.parametrize(
    "inverse_mass", [pytest.param(DIAGONAL, marks=pytest.mark.slow), DENSE], ids=["diagonal", "dense"]
)
def test_a_langevin_step_is_one_leapfrog_step(inverse_mass, key, x64):
    """The same noise leads to the same proposal and the same acceptance, to 1e-12."""

    @jax.jit
    @jax.vmap
    def both(key, step_size):
        chain = blackjax.hmc.init(jnp.array([0.3, -0.8, 1.1]), _banana)
        one = langevin(jax.random.split(key)[0], _banana, chain, step_size, jnp.asarray(inverse_mass))
        _, info = blackjax.hmc.build_kernel()(key, chain, _banana, step_size, jnp.asarray(inverse_mass), 1)
        return (one.chain.position, one.acceptance), (info.proposal.position, info.acceptance_rate)

    ours, theirs = both(jax.random.split(key, 5), jnp.array([0.1, 0.4, 0.9, 1.6, 2.5]))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert float(ours[1].min()) < 0.9


def test_a_langevin_step_is_accepted_by_the_ratio_of_the_textbook(key, x64):
    """min(1, pi(w') N(w; m(w'), e^2 C) / pi(w) N(w'; m(w), e^2 C)) with m(w) = w + e^2/2 C grad, C the inverse mass."""
    step_size, chain = 0.8, blackjax.hmc.init(jnp.array([0.3, -0.8, 1.1]), _banana)
    new = jax.jit(lambda: langevin(key, _banana, chain, jnp.asarray(step_size), jnp.asarray(DENSE)))()
    moved = new.chain

    def log_q(to, start):
        mean = np.asarray(start.position) + 0.5 * step_size**2 * DENSE @ np.asarray(start.logdensity_grad)
        return stats.multivariate_normal.logpdf(to.position, mean, step_size**2 * DENSE)

    ratio = moved.logdensity - chain.logdensity + log_q(chain, moved) - log_q(moved, chain)
    np.testing.assert_allclose(new.acceptance, min(1.0, np.exp(ratio)), rtol=1e-12)
    assert float(new.acceptance) < 1.0


def _standard(w):
    return -0.5 * jnp.sum(w**2)


@jax.jit
def _simulate(key, step_size, scale):
    """The mean square and the worst result of each of 1,000 steps of 2,000 chains that start from N(0, scale^2)."""
    chains = 2000

    def one(key, chain):
        return tb.ULA().move(key, _standard, chain, step_size, jnp.ones(1))

    def step(carry, key):
        carry, info = jax.vmap(one)(jax.random.split(key, chains), carry)
        return carry, (jnp.mean(carry.position**2), jnp.max(info.result))

    key_start, key_steps = jax.random.split(key)
    start = scale * jax.random.normal(key_start, (chains, 1))
    begin = jax.vmap(lambda w: blackjax.hmc.init(w, _standard))(start)
    return jax.lax.scan(step, begin, jax.random.split(key_steps, 1000))[1]


@pytest.mark.parametrize("step_size", [0.5, 1.0, 1.5])
def test_the_bias_of_ula_on_a_normal_target_is_the_closed_form(step_size, key):
    """w' = (1 - e^2/2) w + e z has variance 1 / (1 - e^2/4): 1 / (1 - h/2) in a step h = e^2/2 of the drift.

    From the stationary law: the standard error of the variance is far below the bias.
    """
    variance = 1.0 / (1.0 - step_size**2 / 4.0)
    squares, results = _simulate(key, step_size, float(np.sqrt(variance)))
    keeps = (1.0 - step_size**2 / 2.0) ** 2
    error = variance * np.sqrt(2.0 * (1.0 + keeps) / (1.0 - keeps) / (len(squares) * 2000))
    assert abs(float(squares.mean()) - variance) < 3.5 * error
    assert variance - 1.0 > 7.0 * error
    assert set(np.asarray(results)) == {Result.SUCCESSFUL}


def test_ula_that_explodes_says_so(key):
    """Above a step of 2 every step leads further out."""
    _, results = _simulate(key, 3.0, 1.0)
    assert results[0] == Result.SUCCESSFUL
    assert results[-1] == Result.NONFINITE_DENSITY


@pytest.mark.slow
def test_ula_says_that_it_is_biased_and_its_warm_up_survives_steps_that_are_too_long(key):
    """Chains that start 30 standard deviations out, where an unadjusted search for a step size would explode."""
    method = tb.ULA(run=tb.Run(chains=4, warmup=200, draws=50, thin=1))
    draws, posterior = sampled(method, _standard, 2, key, 30.0)
    assert np.isfinite(draws).all()
    assert "Biased by its step size" in posterior.notes[-1]


@pytest.mark.slow
def test_mala_is_unbiased_at_its_acceptance(key):
    method = tb.MALA(run=tb.Run(chains=24, warmup=1000, draws=1000, thin=3))
    draws, posterior = sampled(method, _standard, 10, key)
    assert alarm(draws, 0.0) < 1
    assert alarm(draws**2, 1.0) < 1
    assert abs(float(posterior.stats["acceptance"].mean()) - 0.574) < 0.12  # the last tenth of warm-up sets it


@pytest.mark.slow
def test_ula_is_biased_where_mala_is_not(key):
    """On ten normal dimensions by as much as the step size says."""
    method = tb.ULA(step_size=1.0, run=tb.Run(chains=24, warmup=1000, draws=2000, thin=3))
    draws, _ = sampled(method, _standard, 10, key)
    assert alarm(draws**2, 1.0) > 5
    np.testing.assert_allclose((draws**2).mean(), 1 / (1 - 0.25), rtol=0.05)  # the mass matrix is an estimate
