r"""Steps to modes with exact zeros, if the prior has a corner: :math:`-\log p(w) = c |w|` near :math:`w = 0`.

A smooth optimiser only comes close to zero. Here every step stays in one orthant, on which the objective is smooth: a
weight that would change sign stops at zero, and leaves it only if the gradient of the rest exceeds c in absolute value
:cite:p:`andrew2007scalable`. This is the proximal step for the corner in whatever metric the optimiser has, and its
fixed points are the modes.
"""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import PyTree


def pseudo_gradient(gradient: PyTree, weights: PyTree, corners: PyTree) -> PyTree:
    """Return the pseudo-gradient: at zero, the gradient of the rest soft-thresholded by the corner; else unchanged."""

    def thresholded(g: Array, w: Array, c: Array) -> Array:
        rest = g - c * jax.vmap(jax.grad(jnp.abs))(w.ravel()).reshape(w.shape)
        return jnp.where(w == 0.0, jnp.sign(rest) * jnp.maximum(jnp.abs(rest) - c, 0.0), g)

    return jax.tree.map(thresholded, gradient, weights, corners)


def within(moved: PyTree, weights: PyTree, gradient: PyTree, corners: PyTree) -> PyTree:
    """Return the new weights, set to zero where they would leave the orthant of the old ones."""

    def projected(new: Array, w: Array, s: Array, c: Array) -> Array:
        side = jnp.where(w == 0.0, -jnp.sign(s), jnp.sign(w))
        return jnp.where((c > 0.0) & (jnp.sign(new) != side), 0.0, new)

    return jax.tree.map(projected, moved, weights, gradient, corners)
