"""How the KL is weighted in each minibatch of an epoch."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError


class KLWeights(Module):
    r"""Weights :math:`\pi_i` of batches i = 1, ..., M of an epoch: :math:`\pi_i \text{KL} - \log p(D_i \mid w)`."""

    @abc.abstractmethod
    def share(self, place: Array, num: Array) -> Array:
        r""":math:`\pi_i` of batch `place` (from 0) of `num`."""


class Uniform(KLWeights):
    r""":math:`1 / M`: every batch's objective is unbiased :cite:p:`graves2011practical`."""

    def share(self, place: Array, num: Array) -> Array:
        """The same weight for all batches."""
        return jnp.ones_like(place, float) / num


class Geometric(KLWeights):
    r""":math:`2^{M - i} / (2^M - 1)`: first batches follow the prior, last ones the data :cite:p:`blundell2015weight`.

    They add up to 1, so the objective is unbiased over an epoch, but not for a single batch. Computed as
    :math:`2^{-i} / (1 - 2^{-M})`, which does not overflow.
    """

    def share(self, place: Array, num: Array) -> Array:
        """Half of the previous batch's weight."""
        return jnp.exp2(-(place + 1.0)) / (1.0 - jnp.exp2(-jnp.asarray(num, float)))


class Tempered(KLWeights):
    r""":math:`\lambda / M`: below 1 a cold posterior, above 1 a warm one; not Bayesian unless 1.

    Parameters
    ----------
    factor
        :math:`\lambda`.
    """

    factor: float = eqx.field(default=1.0, converter=float)

    def __check_init__(self):
        if not self.factor > 0:
            raise InputError("a factor above 0", f"{self.factor}", "Use 1 for Bayes.")

    def share(self, place: Array, num: Array) -> Array:
        """The same weight for all batches."""
        return self.factor * jnp.ones_like(place, float) / num
