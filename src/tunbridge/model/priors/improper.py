"""The log-uniform prior, which is no distribution."""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model.priors.base import AbstractPrior, total

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


class LogUniform(AbstractPrior):
    r"""Every order of magnitude alike, :math:`p(w) \propto 1 / |w|`, as under normal-Jeffreys scales.

    Improper, and so is its posterior: any finite data leave infinite mass at :math:`w = 0`
    :cite:p:`hron2018variational`. All that can be had is the variational objective of variational dropout, through
    `kl`; every other method refuses it.
    """

    @property
    def proper(self) -> bool:
        """No."""
        return False

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Minus the logarithm of the absolute value, up to a constant that does not exist; level around 0."""

        def one(leaf: Array) -> Scalar:
            return -jnp.sum(jnp.log(jnp.maximum(jnp.abs(leaf), jnp.finfo(leaf.dtype).tiny)))

        return total(jax.tree.map(one, raw))

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Refused."""
        raise improper("LogUniform")

    @staticmethod
    def kl(log_alpha: Array) -> Array:
        r"""KL of :math:`N(\mu, \alpha \mu^2)` from it, a weight, up to the constant that makes it 0 as alpha grows.

        The fit of :cite:t:`molchanov2017variational` to :math:`\frac12 \log\alpha - E\log|1 + \sqrt\alpha \epsilon|`.
        """
        sigmoid = jax.nn.sigmoid(_K2 + _K3 * log_alpha)
        return 0.5 * jnp.log1p(jnp.exp(-log_alpha)) + _K1 * (1.0 - sigmoid)


def improper(name: str) -> InputError:
    """The reason why an improper prior is refused."""
    return InputError(
        "a proper prior",
        f"{name}, whose posterior is improper too: infinite mass at 0 whatever the data",
        "Use priors.Horseshoe or StudentT; LogUniform is for variational dropout's objective alone.",
    )
