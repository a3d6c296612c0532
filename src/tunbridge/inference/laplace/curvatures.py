r"""Curvatures at the mode: the exact Hessian, Gauss-Newton, or a Fisher information.

All but the Hessian are :math:`\sum_n J_n^\top C_n C_n^\top J_n`, with J the Jacobian of a row's outputs in the weights:
such a curvature is defined by its columns C, and structures are built from products of them.
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
    """A curvature of minus the log likelihood in the weights."""


class Outer(Curvature):
    """A curvature that is a sum of outer products, and so positive semi-definite."""

    @abc.abstractmethod
    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """Return C, (points, outputs, columns)."""

    @abc.abstractmethod
    def num_columns(self, outputs: int) -> int:
        """Upper bound on the number of columns per row, for this number of outputs."""


class GGN(Outer):
    """Generalised Gauss-Newton: the likelihood's curvature in the outputs, with the network linearised.

    If minus the log likelihood is not convex in the outputs (`Heteroscedastic`, `StudentT`, `NoisyCategorical`), or has
    a corner (`Laplace`), the Fisher information in the outputs is used instead.
    """

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """Return a square root of the curvature in the outputs."""
        return likelihood.hessian_root(outputs, y, noise)

    def num_columns(self, outputs: int) -> int:
        """Return `outputs`: one column per output."""
        return outputs


class Fisher(Outer):
    """The Fisher information: squared gradients averaged over y drawn from the model, not over the observed targets.

    Parameters
    ----------
    samples
        Number of values of y drawn for each row; None takes the exact expectation.
    """

    samples: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.samples is not None and self.samples < 1:
            raise InputError("at least 1 sample per row", f"{self.samples}", "Use samples=None for the exact mean.")

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """Return a square root of the information in the outputs, or gradients at drawn values of y."""
        if self.samples is None:
            return likelihood.fisher_root(outputs, noise)
        expected = likelihood.distribution(outputs, noise)

        def gradient(key_draw: Key) -> Array:
            return _gradients(likelihood, outputs, expected.sample(key_draw), noise)

        gradients = jax.vmap(gradient, out_axes=2)(jax.random.split(key, self.samples))
        return gradients / jnp.sqrt(float(self.samples))

    def num_columns(self, outputs: int) -> int:
        """Return the number of samples; `outputs` for the exact expectation."""
        return outputs if self.samples is None else self.samples


class EmpiricalFisher(Outer):
    """Squared gradients at the observed targets.

    It is neither the Hessian nor the Fisher information, and shrinks where the network fits its data: for comparisons
    only.
    """

    def columns(self, key: Key, likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
        """Return the gradient of log p(y) in the outputs."""
        return _gradients(likelihood, outputs, y, noise)[:, :, None]

    def num_columns(self, outputs: int) -> int:
        """Return 1: the gradient is the only column."""
        return 1


class Hessian(Curvature):
    """The exact Hessian, which may be negative in some directions: these keep their prior variance."""


def _gradients(likelihood: Likelihood, outputs: Array, y: Array, noise: PyTree) -> Array:
    """The gradient of log p(y) in the outputs, (points, outputs)."""
    return jax.grad(lambda f: jnp.sum(likelihood.distribution(f, noise).log_prob(y)))(outputs)
