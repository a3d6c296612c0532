"""Moments of known densities by the samplers that follow gradients: many chains against the truth.

Each assertion raises a false alarm once in a thousand keys; the keys are fixed.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from densities import alarm, sampled

pytestmark = [pytest.mark.slow, pytest.mark.optimised]
RUN = tb.Run(chains=24, warmup=500, draws=500)


def _scales(num):
    """Standard deviations from 0.1 to 1."""
    return jnp.logspace(-1.0, 0.0, num) if num > 1 else jnp.full(1, 0.3)


def _normal(w):
    return -0.5 * jnp.sum((w / _scales(w.shape[0])) ** 2)


@pytest.mark.parametrize("num", [1, 10, 100, 1000])
@pytest.mark.parametrize("method", [tb.HMC(run=RUN), tb.NUTS(run=RUN)], ids=["hmc", "nuts"])
def test_means_and_variances_of_normal_densities(method, num, key):
    """Independent, with standard deviations that differ by a factor of ten; acceptance near what is asked for."""
    draws, posterior = sampled(method, _normal, num, key)
    standard = draws / np.asarray(_scales(num))
    assert alarm(standard, 0.0) < 1
    assert alarm(standard**2, 1.0) < 1
    assert 0.65 < float(posterior.stats["acceptance"].mean()) < 0.97
    assert not np.asarray(posterior.stats["divergent"]).any()


def _funnel(z):
    """Non-centred: v = 3 z_0, w = e^(v/2) z_1, ..., z standard normal."""
    return -0.5 * jnp.sum(z**2)


@pytest.mark.parametrize("method", [tb.HMC(run=RUN), tb.NUTS(run=RUN)], ids=["hmc", "nuts"])
def test_a_funnel_in_non_centred_coordinates(method, key):
    """v ~ N(0, 9), and each weight's log size has the mean of v/2 + log|z|: -(gamma + log 2)/2."""
    draws, _ = sampled(method, _funnel, 5, key)
    v, w = 3.0 * draws[..., 0], np.exp(1.5 * draws[..., :1]) * draws[..., 1:]
    assert alarm(np.stack([v, v**2], axis=-1), np.array([0.0, 9.0])) < 1
    assert alarm(np.log(np.abs(w)), -0.5 * (np.euler_gamma + np.log(2.0))) < 1


def _donut(w):
    """A ring of radius 3 and width 0.5."""
    return -0.5 * ((jnp.linalg.norm(w) - 3.0) / 0.5) ** 2


def _mixture(w):
    """Two overlapping normal peaks at -1.5 and 1.5 of the first axis, three to one."""
    apart = jnp.array([1.5, 0.0])
    left, right = jnp.log(0.75) - 0.5 * jnp.sum((w + apart) ** 2), jnp.log(0.25) - 0.5 * jnp.sum((w - apart) ** 2)
    return jnp.logaddexp(left, right)


METHODS = {
    "randomwalk": tb.RandomWalk(run=tb.Run(chains=24, warmup=1000, draws=500, thin=20)),
    "mala": tb.MALA(run=tb.Run(chains=24, warmup=1000, draws=500, thin=10)),
    "hmc": tb.HMC(run=RUN),
    "nuts": tb.NUTS(run=RUN),
    "adjustedmclmc": tb.AdjustedMCLMC(run=RUN),
    "ellipticalslice": tb.EllipticalSlice(run=tb.Run(chains=24, warmup=200, draws=500, thin=3)),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_ring(name, key):
    draws, _ = sampled(METHODS[name], _donut, 2, key, 3.0)
    radius = np.linalg.norm(draws, axis=-1)
    grid = np.linspace(1e-3, 8.0, 20_001)
    p = grid * np.exp(-0.5 * ((grid - 3.0) / 0.5) ** 2)
    assert alarm(np.stack([radius, radius**2], -1), np.array([p @ grid, p @ grid**2]) / p.sum()) < 1
    assert alarm(draws, 0.0) < 1


@pytest.mark.parametrize("name", METHODS)
def test_an_overlapping_mixture(name, key):
    draws, _ = sampled(METHODS[name], _mixture, 2, key, 2.0)
    assert alarm(draws, np.array([-0.75, 0.0])) < 1
    assert alarm(draws**2, np.array([1.0 + 2.25, 1.0])) < 1


def test_hmc_makes_more_of_a_gradient_than_a_random_walk_of_a_density(key):
    """100 normal dimensions: the error of chains' means says how many draws they are worth."""

    def worth(method):
        draws, posterior = sampled(method, _normal, 100, key)
        standard = draws / np.asarray(_scales(100))
        draws_a_chain = 1.0 / np.mean(np.var(standard.mean(axis=1), axis=0, ddof=1))
        return draws_a_chain / (float(jnp.sum(posterior.stats["gradients"])) * method.run.thin / len(draws))

    walk = tb.RandomWalk(run=tb.Run(chains=24, warmup=5000, draws=500, thin=40))
    assert worth(tb.HMC(run=RUN)) > 5.0 * worth(walk)
