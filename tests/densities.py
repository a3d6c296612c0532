"""Any log density as a model, so that samplers can be tried on it, and a test of means over many chains."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy import stats as jstats
from scipy import stats

import tunbridge as tb
from tunbridge.model.likelihoods.base import Noiseless, OfNumbers, diagonal


class _Scored(dist.Independent):
    """Normal around the outputs to whoever predicts, with a log probability of one's own."""

    def __init__(self, outputs, log_factor):
        super().__init__(dist.Normal(outputs, jnp.ones_like(outputs)), 1)
        self.log_factor = log_factor

    def log_prob(self, value):
        return self.log_factor


class Factor(Noiseless, OfNumbers):
    """A "likelihood" that makes the posterior of outputs with prior N(0, scale^2) proportional to exp(log_density)."""

    log_density: Callable = eqx.field(static=True)
    num: int = eqx.field(static=True)
    scale: float

    def num_outputs(self, y):
        return self.num

    def distribution(self, outputs, noise=()):
        prior = jnp.sum(jstats.norm.logpdf(outputs, 0.0, self.scale), axis=-1)
        return _Scored(outputs, jax.vmap(self.log_density)(outputs) - prior)

    def fisher_root(self, outputs, noise=()):
        return diagonal(jnp.ones_like(outputs))

    def in_units(self, scale) -> Any:
        return self


@cache
def _identity(num):
    """A network whose output is its weights."""
    return tb.networks.from_functions(
        lambda key, x: {"w": jnp.zeros(num)}, lambda weights, x: jnp.tile(weights["w"][None], (x.shape[0], 1))
    )


def density(log_density, num, scale=1.0):
    """(model, data) whose posterior density of a vector of `num` numbers is exp(log_density), up to a constant.

    Chains start from N(0, scale^2). `log_density` is compared by identity: define it once.
    """
    model = tb.Model(_identity(num), tb.priors.Normal(scale), Factor(log_density, num, scale))
    return model, tb.Data([[0.0]], [0.0])


def sampled(method, log_density, num, key, scale=1.0):
    """Draws (chains, draws, num) of a density, and the posterior that holds them."""
    posterior = method.fit(*density(log_density, num, scale), key=key, progress=False)
    return np.asarray(posterior.params.weights["w"], np.float64), posterior


def alarm(values, truth, rate=1e-3):
    """How far means over chains are from the truth: above 1 where chance explains it with less than `rate`.

    `values` is (chains, draws, ...). The means of the chains are independent and nearly normal, so that their mean is
    judged by Student's t with chains - 1 degrees of freedom; over several quantities the rate is shared.
    """
    means = values.mean(axis=1)
    chains, each = len(means), means[0].size
    error = means.std(axis=0, ddof=1) / np.sqrt(chains)
    limit = stats.t.isf(rate / (2 * each), chains - 1)
    return float(np.max(np.abs(means.mean(axis=0) - truth) / error) / limit)
