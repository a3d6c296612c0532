"""The log-uniform prior, which is improper."""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model.priors.base import AbstractPrior, total

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


class LogUniform(AbstractPrior):
    r"""Equal mass for every order of magnitude, :math:`p(w) \propto 1 / |w|`, as under normal-Jeffreys scales.

    Improper, and so is its posterior: any finite data leave infinite mass at :math:`w = 0`
    :cite:p:`hron2018variational`. Its only use is in the objective of variational dropout, through `kl`; every
    other method refuses it.
    """

    @property
    def proper(self) -> bool:
        """False, as the density does not integrate to one."""
        return False

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Unnormalised log density, the sum of -log |w|, constant near 0; no normalising constant exists."""

        def log_density(leaf: Array) -> Scalar:
            return -jnp.sum(jnp.log(jnp.maximum(jnp.abs(leaf), jnp.finfo(leaf.dtype).tiny)))

        return total(jax.tree.map(log_density, raw))

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Raise InputError: an improper prior has no draws."""
        raise improper("LogUniform")

    @staticmethod
    def kl(log_alpha: Array) -> Array:
        r"""KL of :math:`N(\mu, \alpha \mu^2)` from the prior, per weight, shifted to tend to 0 as alpha grows.

        The fit of :cite:t:`molchanov2017variational` to :math:`\frac12 \log\alpha - E\log|1 + \sqrt\alpha \epsilon|`.
        """
        sigmoid = jax.nn.sigmoid(_K2 + _K3 * log_alpha)
        return 0.5 * jnp.log1p(jnp.exp(-log_alpha)) + _K1 * (1.0 - sigmoid)


def improper(name: str) -> InputError:
    """InputError for an improper prior."""
    return InputError(
        "a proper prior",
        f"{name}, whose posterior is improper too: infinite mass at 0 whatever the data",
        "Use priors.Horseshoe or StudentT; LogUniform is for variational dropout's objective alone.",
    )
