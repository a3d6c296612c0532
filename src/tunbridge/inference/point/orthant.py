r"""Steps to modes with exact zeros, where the prior has a corner: :math:`-\log p(w) = c |w|` near :math:`w = 0`.

A smooth optimiser only comes near zero. Here every step stays in one orthant, on which the objective is smooth: a
weight that would change its sign stops at zero, and leaves it only where the gradient of the rest is steeper than the
corner :cite:p:`andrew2007scalable`. This is the proximal step of the corner in whatever metric the optimiser has, and
its fixed points are the modes.
"""

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.types import PyTree


def slopes(gradient: PyTree, weights: PyTree, corners: PyTree) -> PyTree:
    """The gradient towards the better side: at zero what the gradient of the rest leaves after the corner, or 0."""

    def one(g: Array, w: Array, c: Array) -> Array:
        rest = g - c * jax.vmap(jax.grad(jnp.abs))(w.ravel()).reshape(w.shape)
        return jnp.where(w == 0.0, jnp.sign(rest) * jnp.maximum(jnp.abs(rest) - c, 0.0), g)

    return jax.tree.map(one, gradient, weights, corners)


def within(moved: PyTree, weights: PyTree, slope: PyTree, corners: PyTree) -> PyTree:
    """The new weights, at zero where they would have left the orthant of the old ones."""

    def one(new: Array, w: Array, s: Array, c: Array) -> Array:
        side = jnp.where(w == 0.0, -jnp.sign(s), jnp.sign(w))
        return jnp.where((c > 0.0) & (jnp.sign(new) != side), 0.0, new)

    return jax.tree.map(one, moved, weights, slope, corners)
