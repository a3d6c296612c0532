"""A known log density whose minibatch gradients have known variance, for tests of stochastic-gradient methods."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.types import Scalar
from tunbridge.model.likelihoods import Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks import from_functions
from tunbridge.model.priors import LogDensity


def known(log_density: Callable[[Array], Scalar], num: int, noise: float = 0.0, rows: int = 1) -> tuple[Model, Data]:
    """Model and data with the given posterior log density of w in R^num, and minibatch gradients of known variance.

    The likelihood N(y_i; w, `rows`) of rows y_i with mean 0 and variance `noise` contributes a factor exp(-w^2 / 2) in
    all, which the prior cancels. The gradient from a minibatch is then the true gradient plus the mean of its rows:
    from a single row, each component has variance `noise`.
    """
    network = from_functions(
        lambda key, _: {"w": jax.random.normal(key, (num,))},
        lambda weights, x: jnp.tile(weights["w"][None], (x.shape[0], 1)),
    )
    prior = LogDensity(
        lambda weights: log_density(weights["w"]) + 0.5 * jnp.sum(weights["w"] ** 2),
        lambda key, _: {"w": jax.random.normal(key, (num,))},
    )
    y = np.random.default_rng(0).normal(size=(rows, num))
    y = np.sqrt(noise) * (y - y.mean(0)) / np.maximum(y.std(0), 1e-9)
    return Model(network, prior, Gaussian(float(rows) ** 0.5)), Data(np.zeros((rows, 1)), y)
