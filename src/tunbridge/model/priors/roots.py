"""The distribution of a standard deviation whose square is inverse gamma."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaincc, gammaln
from numpyro.distributions import Distribution, constraints

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key
from tunbridge.model import transforms


class RootInverseGamma(Distribution):
    r"""Standard deviation :math:`s` with :math:`s^2 \sim` InverseGamma(concentration, rate).

    As the scale of `likelihoods.Gaussian` it is conjugate: `tb.GibbsMetropolis` then draws the noise from its
    conditional distribution.

    Parameters
    ----------
    concentration, rate
        Those of the inverse gamma distribution of the variance, whose mean is rate / (concentration - 1).
    """

    arg_constraints: ClassVar[dict] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    reparametrized_params: ClassVar[list] = ["rate"]

    def __init__(self, concentration: float = 2.0, rate: float = 1.0):
        self.concentration, self.rate = _positive(concentration, "concentration"), _positive(rate, "rate")
        shapes = jnp.shape(self.concentration), jnp.shape(self.rate)
        try:
            super().__init__(batch_shape=jnp.broadcast_shapes(*shapes))
        except ValueError as error:
            raise InputError("concentration and rate of one shape", f"{shapes}", "Give a number for one.") from error

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the standard deviation."""
        gamma = jax.random.gamma(key, self.concentration, self.shape(sample_shape))
        return jnp.sqrt(self.rate / gamma)

    def log_prob(self, value: Array) -> Array:
        r""":math:`\log 2 s \, p_{IG}(s^2)`."""
        a, b = self.concentration, self.rate
        return jnp.log(2.0) + a * jnp.log(b) - gammaln(a) - (2.0 * a + 1.0) * jnp.log(value) - b / jnp.square(value)

    def cdf(self, value: Array) -> Array:
        """Probability of a smaller standard deviation."""
        return gammaincc(self.concentration, self.rate / jnp.square(value))


def _positive(value: Any, name: str) -> Any:
    """A parameter as a number or an array; InputError unless all its entries are positive."""
    if not isinstance(value, Array):
        array = as_floats(value, name)
        value = float(array) if array.ndim == 0 else jnp.asarray(array)
    return transforms.check_positive(value, name)
