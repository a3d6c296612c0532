"""Normal weights whose scale is a product of unknown scales that groups of weights share."""

import abc
import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, biject_to

from tunbridge.core.declared import Module
from tunbridge.core.tree import unravel
from tunbridge.core.types import Key, Prior, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import NORMAL, AbstractPrior, FanIn, deviation, draw, total

Groups = Literal["all", "weight", "inputs", "outputs"]


class Factor(Module):
    """A scale, and which weights share it: all, none, those of one input unit, or those of one output unit."""

    law: Any
    over: Groups = eqx.field(static=True, default="all")
    squared: bool = eqx.field(static=True, default=False)
    """Whether `law` is the distribution of the squared scale."""

    def shape(self, leaf: Array, role: axes.Leaf) -> tuple[int, ...]:
        """Shape of the scale of an array of weights, with 1 for each axis along which it is the same.

        An array without input (or output) axes, such as a bias without inputs, has one scale.
        """
        kept: tuple[int, ...] = tuple(range(len(leaf.shape)))
        if self.over in ("inputs", "outputs"):
            kept = role.inputs if self.over == "inputs" else role.outputs
        return tuple(size if axis in kept else 1 for axis, size in enumerate(leaf.shape))

    def shapes(self, like: PyTree, layout: PyTree) -> list[tuple[int, ...]]:
        """Shapes of the unknowns: one for all weights, or one per array of weights; empty if the scale is known."""
        if self.prior is None:
            return []
        if self.over == "all":
            return [()]
        return [self.shape(*pair) for pair in zip(jax.tree.leaves(like), jax.tree.leaves(layout), strict=True)]

    @property
    def prior(self) -> Distribution | None:
        """Prior of the unknown scale; None if the scale is a number."""
        entry = self.law.scale if isinstance(self.law, FanIn) else self.law
        return entry if isinstance(entry, Distribution) else None

    def each(self, real: tuple[Array, ...], like: PyTree, layout: PyTree) -> list[Array]:
        """Scale of each array of weights, given the unknowns as real coordinates."""
        leaves, roles = jax.tree.leaves(like), jax.tree.leaves(layout)
        known = [transforms.values(self.law, (u,)) for u in real] if self.prior else [self.law]
        entries = known * len(leaves) if len(known) == 1 else known
        scales = [jnp.asarray(deviation(*row)) for row in zip(entries, leaves, roles, strict=True)]
        return [jnp.sqrt(scale) for scale in scales] if self.squared else scales


class Grouped(AbstractPrior):
    r"""Weights :math:`w = s \, r,\; r \sim N(0, 1)`, in the coordinates *r* and the unknown scales on the real line."""

    @abc.abstractmethod
    def factors(self) -> dict[str, Factor]:
        """The scales whose product is the scale of a weight, by name."""

    def combine(self, values: dict[str, Array]) -> Array:
        """Combine the factors of an array of weights into its scale: by default, their product."""
        scale = jnp.ones(())
        for value in values.values():
            scale = scale * value
        return scale

    @property
    def gaussian(self) -> bool:
        """True, as raw coordinates are normal."""
        return True

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return self; InputError if the scales need axes that the layout does not know."""
        factors = self.factors().values()
        if any(factor.over in ("inputs", "outputs") or isinstance(factor.law, FanIn) for factor in factors):
            axes.require_known(layout, f"priors.{type(self).__name__}")
        return self

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights: raw coordinates times their scales."""
        return jax.tree.map(jnp.multiply, raw, self.scale_of(raw, scales, layout))

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates: the inverse of `weights`."""
        return jax.tree.map(jnp.divide, weights, self.scale_of(weights, scales, layout))

    def scale_of(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Scale *s* of each array of weights, with length 1 along the axes where it is the same."""
        leaves, treedef = jax.tree.flatten(like)
        each = {
            name: factor.each((scales or {}).get(name, ()), like, layout) for name, factor in self.factors().items()
        }
        combined = [self.combine({name: arrays[i] for name, arrays in each.items()}) for i in range(len(leaves))]
        return jax.tree.unflatten(treedef, combined)

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of the raw coordinates, log N(raw; 0, 1)."""
        return total(jax.tree.map(lambda leaf: jnp.sum(NORMAL.log_prob(leaf)), raw))

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight: its squared scale."""
        each = self.scale_of(raw, scales, layout)
        return jax.tree.map(lambda leaf, s: jnp.broadcast_to(jnp.square(s), leaf.shape), raw, each)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        r"""Log density of each weight relative to its peak, :math:`-r^2 / 2`."""
        return jax.tree.map(lambda leaf: -0.5 * jnp.square(leaf), raw)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of the unknown scales, on the real line if `jacobian`."""
        laws = self._laws()
        rows = [(laws[name], u) for name, arrays in scales.items() for u in arrays]
        return total([transforms.log_prob(law, (u,), jacobian=jacobian) for law, u in rows])

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales) from the prior."""
        key_scales, key_weights = jax.random.split(key)

        laws = self._laws()
        keys = dict(zip(laws, jax.random.split(key_scales, len(laws)), strict=True))

        def drawn(name: str, shapes: list[tuple[int, ...]]) -> tuple[Array, ...]:
            flat = laws[name].sample(keys[name], (sum(map(math.prod, shapes)),))
            real = transforms.to_real(laws[name], flat)
            return tuple(unravel([jax.ShapeDtypeStruct(shape, real.dtype) for shape in shapes], real))

        scales = {name: drawn(name, shapes) for name, shapes in self._shapes(like, layout).items()}
        return draw(NORMAL, key_weights, like), scales

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """The unknown scales at the medians of their priors, as real coordinates."""
        medians = {name: transforms.median(law)[0] for name, law in self._laws().items()}
        return {
            name: tuple(jnp.broadcast_to(medians[name], shape) for shape in shapes)
            for name, shapes in self._shapes(like, layout).items()
        }

    def values(self, scales: PyTree) -> PyTree:
        """Values of the unknown scales, by name; those with `squared` are left squared."""
        laws = self._laws()
        return {name: tuple(biject_to(laws[name].support)(u) for u in arrays) for name, arrays in scales.items()}

    def _laws(self) -> dict[str, Distribution]:
        return {name: factor.prior for name, factor in self.factors().items() if factor.prior is not None}

    def _shapes(self, like: PyTree, layout: PyTree) -> dict[str, list[tuple[int, ...]]]:
        """Shapes of the unknowns of each factor that has any, by name."""
        factors = self.factors()
        return {name: factors[name].shapes(like, layout) for name in self._laws()}
