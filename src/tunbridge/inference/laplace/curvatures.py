r"""What is measured at the mode: the exact Hessian, Gauss-Newton, or a Fisher information.

All but the Hessian are :math:`\sum_n J_n^\top C_n C_n^\top J_n`, with J the derivative of a row's outputs by the
weights: a curvature of this kind is its columns C, and structures are built from products of them.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Likelihood, PyTree


class Curvature(Module):
    """Of minus the log likelihood, in the weights."""


class Outer(Curvature):
    """A sum of outer products, never negative."""

    @abc.abstractmethod
    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """C, (points, outputs, columns)."""

    @abc.abstractmethod
    def num_columns(self, outputs: int) -> int:
        """At most how many there are."""


class GGN(Outer):
    """Generalised Gauss-Newton: the likelihood's curvature in the outputs, the network taken for linear.

    Where minus the log likelihood is not convex in the outputs (`Heteroscedastic`, `StudentT`, `NoisyCategorical`), or
    has a corner (`Laplace`), its Fisher information stands for its curvature.
    """

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """A root of the curvature in the outputs."""
        return likelihood.hessian_root(outputs, y, noise)

    def num_columns(self, outputs: int) -> int:
        """One per output."""
        return outputs


class Fisher(Outer):
    """The Fisher information: squared gradients averaged over what the model expects, not over what was seen.

    Parameters
    ----------
    samples
        How many values of y are drawn for each row; None takes the exact expectation.
    """

    samples: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.samples is not None and self.samples < 1:
            raise InputError("at least 1 sample a row", f"{self.samples}", "Leave samples=None for the exact one.")

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """A root of the information, or gradients at drawn values."""
        if self.samples is None:
            return likelihood.fisher_root(outputs, noise)
        expected = likelihood.distribution(outputs, noise)

        def one(key_draw: Key) -> Array:
            return _slopes(likelihood, outputs, expected.sample(key_draw), noise)

        slopes = jax.vmap(one, out_axes=2)(jax.random.split(key, self.samples))
        return slopes / jnp.sqrt(float(self.samples))

    def num_columns(self, outputs: int) -> int:
        """One per output, or one a sample."""
        return outputs if self.samples is None else self.samples


class EmpiricalFisher(Outer):
    """Squared gradients at the targets that were seen.

    It is neither the Hessian nor the Fisher information, and shrinks where a network fits its data: for comparison.
    """

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """The gradient of log p(y) in the outputs."""
        return _slopes(likelihood, outputs, y, noise)[:, :, None]

    def num_columns(self, outputs: int) -> int:
        """One."""
        return 1


class Hessian(Curvature):
    """The exact second derivative, which may be negative in some directions: these keep their prior variance."""


def _slopes(likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
    """Of log p(y), (points, outputs)."""
    return jax.grad(lambda f: jnp.sum(likelihood.distribution(f, noise).log_prob(y)))(outputs)
