"""A prior with any log density of the weights."""

from collections.abc import Callable

import equinox as eqx

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model.priors.base import AbstractPrior


class LogDensity(AbstractPrior):
    """A prior given by functions of all weights at once: layers may be coupled in any way.

    Parameters
    ----------
    function
        The log density of a tree of weights; normalise it if evidence is to be compared.
    draw
        ``draw(key, like)`` returns a draw, with `like` a tree of the weights' shapes. Without it, methods that start
        from prior draws, or measure scales by them, raise an InputError.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def tied(weights):  # the two layers have about the same norm
    ...     first, second = (jnp.sum(layer["weight"] ** 2) for layer in weights["layers"])
    ...     return -0.5 * (first + second) - 10.0 * (first - second) ** 2
    >>> prior = LogDensity(tied)
    """

    function: Callable[[PyTree], Scalar] = eqx.field(static=True)
    draw: Callable[[Key, PyTree], PyTree] | None = eqx.field(default=None, static=True)

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of the weights, from `function`."""
        return self.function(raw)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (weights, ()) by `draw`; InputError if there is none."""
        if self.draw is None:
            raise InputError("draw= beside the log density", "none", "Write LogDensity(function, draw).")
        return self.draw(key, like), ()
