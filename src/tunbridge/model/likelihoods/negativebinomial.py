"""The likelihood of counts that vary more than Poisson's."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfCounts, by_output, check_width, diagonal


class NegativeBinomial(Noisy, OfCounts):
    r"""Counts with mean :math:`\mu = e^{f(x)}` and variance :math:`\mu + \mu^2 / \alpha`, one *f* per column of y.

    A Poisson count whose rate is drawn from a gamma distribution of shape :math:`\alpha` and mean :math:`\mu`
    :cite:p:`lawless1987negative`; :math:`\alpha \to \infty` is `Poisson`.

    Parameters
    ----------
    concentration
        :math:`\alpha`: a number, an array with one per output, or a numpyro distribution if it is unknown.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> made = NegativeBinomial(2.0).distribution(jnp.log(jnp.full((1, 1), 4.0)))
    >>> round(float(made.variance[0, 0]), 3)
    12.0
    """

    concentration: Any = eqx.field(converter=lambda value: transforms.check_positive(value, "concentration"))

    @property
    def numbers(self) -> PyTree:
        """The concentration, a value or a prior."""
        return self.concentration

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one log mean per column of y."""
        check_width(self.concentration, "concentration", y.shape[1])
        return y.shape[1]

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Fisher information: diagonal, :math:`\sqrt{\mu \alpha / (\mu + \alpha)}`."""
        alpha, logits = self._alpha_and_logits(outputs, noise)
        return diagonal(jnp.sqrt(alpha) * jnp.exp(0.5 * jax.nn.log_sigmoid(logits)))

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Hessian: diagonal, :math:`\sqrt{(y + \alpha) \mu \alpha} / (\mu + \alpha)`."""
        alpha, logits = self._alpha_and_logits(outputs, noise)
        root_derivative = jnp.exp(0.5 * (jax.nn.log_sigmoid(logits) + jax.nn.log_sigmoid(-logits)))
        return diagonal(jnp.sqrt(y + alpha) * root_derivative)

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Negative binomial distribution with log means from the outputs."""
        return dist.NegativeBinomialLogits(*self._alpha_and_logits(outputs, noise), validate_args=False).to_event(1)

    def _alpha_and_logits(self, outputs: Array, noise: PyTree) -> tuple[Array, Array]:
        alpha = by_output(jnp.asarray(self.values(noise)), outputs)
        return alpha, outputs - jnp.log(alpha)
