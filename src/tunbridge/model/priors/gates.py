"""Priors for LSTMs: one scale per gate."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import NORMAL, Independent, as_scale, deviation, fan_in

GATES = ("input", "forget", "cell", "output")


class Gates(Independent):
    r"""Normal weights of an LSTM, :math:`w \sim N(0, s_g^2)` with one scale for each of its four gates.

    For cells that store the gates one after another along the outputs, in the order input, forget, cell, output
    (Equinox, Keras, PyTorch); where each gate has arrays of its own (Flax) use `ByPath`.

    Parameters
    ----------
    input, forget, cell, output
        The gates' scales: each a number, a distribution, or `fan_in` of either.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from tunbridge import priors
    >>> prior = priors.ByPath({"cell/*": priors.Gates(forget=dist.HalfNormal(1.0))})
    """

    input: Any = eqx.field(default_factory=fan_in, converter=as_scale)
    forget: Any = eqx.field(default_factory=fan_in, converter=as_scale)
    cell: Any = eqx.field(default_factory=fan_in, converter=as_scale)
    output: Any = eqx.field(default_factory=fan_in, converter=as_scale)

    @property  # type: ignore[misc]  # Equinox allows it
    def scale(self) -> tuple[Any, ...]:
        """The four scales, in the order of the gates."""
        return tuple(getattr(self, gate) for gate in GATES)

    @property
    def gaussian(self) -> bool:
        """True, as raw coordinates are normal."""
        return True

    def law(self) -> dist.Distribution:
        """The standard normal distribution."""
        return NORMAL

    def em_variance(self, r: Array) -> Array:
        """Return 1, the variance of a standard normal."""
        return jnp.ones_like(r)

    def bind(self, weights: PyTree, layout: PyTree) -> "Gates":
        """Return self; InputError unless the outputs of each array come in four blocks."""
        axes.require_known(layout, "priors.Gates")
        for (path, leaf), role in zip(flatten_with_paths(weights), jax.tree.leaves(layout), strict=True):
            if len(role.outputs) != 1 or leaf.shape[role.outputs[0]] % len(GATES):
                raise InputError(
                    f"outputs in four blocks, one per gate, in {path}",
                    f"shape {leaf.shape}",
                    "Name the arrays of the LSTM with ByPath.",
                )
        return self

    def values(self, scales: PyTree) -> PyTree:
        """Values of the unknown scales, by gate."""
        unknown = [gate for gate in GATES if transforms.unknowns(getattr(self, gate))]
        return dict(zip(unknown, transforms.natural(self.scale, scales), strict=True))

    def _deviations(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        known = transforms.values(self.scale, scales)

        def leaf_scale(leaf: Array, role: axes.Leaf) -> Array:
            (axis,) = role.outputs
            each = jnp.stack([jnp.asarray(deviation(gate, leaf, role)) for gate in known])
            repeated = jnp.repeat(each, leaf.shape[axis] // len(GATES))
            return jnp.expand_dims(repeated, tuple(other for other in range(len(leaf.shape)) if other != axis))

        return jax.tree.map(leaf_scale, like, layout)
