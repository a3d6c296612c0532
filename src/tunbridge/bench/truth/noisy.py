"""A density that is written down, with a gradient from rows whose noise is known: what is asked of batches."""

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
    """The density of a vector of `num` numbers; the gradient from one row has `noise` as the variance of each number.

    Rows y_i, whose mean is 0, are normal around w with variance `rows`: together a factor exp(-w^2 / 2), which the
    prior takes back. The gradient from a batch is then the true one plus the mean of the batch.
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
