"""The likelihood of several classes, with noise in the logits that varies with x."""

import math
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from scipy.special import ndtri

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import Noiseless, OfClasses, check_classes, counted


class NoisyCategorical(Noiseless, OfClasses):
    r"""Several classes, whose logits carry normal noise that varies with x :cite:p:`kendall2017uncertainties`.

    .. math::

        p(y = c) = E_{\epsilon \sim N(0, 1)} \, \text{softmax}(f(x) + \sigma(x) \epsilon)_c
        \approx \frac1T \sum_t \text{softmax}(f + \sigma \epsilon_t)_c

    The network has two outputs per class: first the logits *f*, then *s* with :math:`\sigma = \log(1 + e^s)`. Rows with
    noisy labels can raise :math:`\sigma` instead of bending *f*, which attenuates their loss. The :math:`\epsilon_t`
    are fixed, T points of an additive lattice and its mirror image mapped to the normal, so that the likelihood is
    deterministic and not a random estimate.

    Parameters
    ----------
    classes
        Number of classes; None takes the largest label plus one.
    samples
        T, even. With 128, logits of standard deviation 2 and 2 to 10 classes, probabilities were off by at most 0.02
        where :math:`\sigma = 1` and 0.04 where it is 3 (root mean squares 0.005 and 0.01), half the error of as many
        random draws; with 256 by at most 0.01 and 0.025.
    """

    classes: int | None = eqx.field(default=None, static=True)
    samples: int = eqx.field(default=128, static=True)

    def __check_init__(self):
        check_classes(self.classes)
        if self.samples < 2 or self.samples % 2:
            raise InputError("samples as an even number from 2 on", f"{self.samples}", "Take 128.")

    def num_classes(self, y: Array) -> int:
        """Number of classes: `classes` if given, else the largest label plus one."""
        return counted(self.classes, y)

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: two per class."""
        return 2 * self.num_classes(y)

    def with_outputs(self, num: int) -> "NoisyCategorical":
        """Return the same likelihood with `num` // 2 classes."""
        return NoisyCategorical(num // 2, self.samples)

    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Log probability of each class, (points, classes), summed node by node to avoid a (nodes, points) array."""
        logits, s = jnp.split(outputs, 2, axis=-1)
        sigma = jax.nn.softplus(s)

        @jax.checkpoint
        def add(total: Array, node: Array) -> tuple[Array, None]:
            return jnp.logaddexp(total, jax.nn.log_softmax(logits + sigma * node[None], axis=-1)), None

        nodes = jnp.asarray(_nodes(self.samples, logits.shape[-1]), logits.dtype)
        total, _ = jax.lax.scan(add, jnp.full_like(logits, -jnp.inf), nodes)
        return total - math.log(self.samples)

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of the label, from the averaged probabilities."""
        return dist.Categorical(logits=self.log_probs(outputs, noise), validate_args=False)


@lru_cache
def _nodes(num: int, dimensions: int) -> np.ndarray:
    """Standard normal nodes (num, dimensions): the additive lattice of the generalised golden ratio, and its mirror.

    The ratio is the root of g^(d + 1) = g + 1 :cite:p:`roberts2018unreasonable`; the steps are 1/g, 1/g^2, ...
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (dimensions + 1))
    steps = ratio ** -np.arange(1.0, dimensions + 1)
    half = ndtri((0.5 + np.arange(1, num // 2 + 1)[:, None] * steps[None]) % 1.0)
    return np.concatenate([half, -half])
