"""Families of normal distributions over all unknowns: which of them may be correlated."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core import memory
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import size
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.vi import spreads
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.spreads import Spread
from tunbridge.model.networks import layout as axes

_COPIES = 6
"""Copies of q's parameters held while it is fitted: themselves, their gradients, an optimiser's two moments."""


class Family(Module):
    """A covariance structure of q, unknown scales and noise included."""

    @abc.abstractmethod
    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Member of the family with this mean and about these standard deviations, without correlations."""

    @property
    def diagonal(self) -> bool:
        """Whether each unknown has a part independent of all others."""
        return False

    def check(self, like: Params, layout: PyTree) -> None:
        """InputError, before anything is allocated, if q over parameters of these shapes does not fit in memory."""

        def made() -> Gaussian:
            mean = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
            return self.around(jax.random.key(0), mean, jax.tree.map(lambda leaf: leaf + 1.0, mean), layout)

        numbers = size(jax.eval_shape(made))
        needed, available = 4 * _COPIES * numbers, memory.available()
        if needed > available:
            raise InputError(
                f"a family that fits in the {available / 1e9:.1f} GB of memory that are free",
                f"families.{type(self).__name__} with {numbers:,} parameters for {size(like):,} unknowns, which takes "
                f"{needed / 1e9:.1f} GB",
                "Use tb.LowRank() or tb.MeanField().",
            )


class Diagonal(Family):
    """All unknowns independent: mean-field. Twice as many parameters as unknowns."""

    @property
    def diagonal(self) -> bool:
        """True, as its covariance has a diagonal part."""
        return True

    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Normal distribution with one spread per array."""
        return _each(mean, [spreads.Diagonal.of(leaf) for leaf in jax.tree.leaves(sds)])


class Layers(Family):
    """Any covariance within a layer, none between layers; unknown scales and noise form one more group."""

    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Normal distribution with one spread per layer."""
        names = axes.layers(layout)
        names += ["" for _ in jax.tree.leaves((mean.scales, mean.noise))]
        num_weights = len(axes.layers(layout))
        members: dict[tuple[bool, str], list[int]] = {}
        for number, name in enumerate(names):
            members.setdefault((number < num_weights, name), []).append(number)
        return _joined(mean, sds, [tuple(group) for group in members.values()])


class Full(Family):
    """Any covariance of all unknowns."""

    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Normal distribution with one spread over all unknowns."""
        return _joined(mean, sds, [tuple(range(len(jax.tree.leaves(mean))))])


class LowRank(Family):
    r"""A diagonal and a few directions, :math:`S (I + U U^\top) S` with :math:`S = \text{diag}(\sigma)`.

    Parameters
    ----------
    rank
        Number of directions.
    """

    rank: int = eqx.field(default=10, static=True)

    def __check_init__(self):
        if self.rank < 1:
            raise InputError("rank as a whole number of at least 1", f"{self.rank}", "Try 10.")

    @property
    def diagonal(self) -> bool:
        """True, as its covariance has a diagonal part."""
        return True

    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Normal distribution with one spread over all unknowns."""
        leaves = jax.tree.leaves(sds)
        vector = _vector(leaves)
        spread = spreads.LowRankDiagonal.of(vector, min(self.rank, len(vector)), key)
        return Gaussian(mean, (spread,), (tuple(range(len(leaves))),))


class Matrix(Family):
    r"""Each weight matrix matrix-variate normal :cite:p:`louizos2016structured`; all else independent.

    :math:`\text{Cov}(\text{vec} W) = V \otimes U` with any U over inputs and any V over outputs.
    """

    def around(self, key: Key, mean: Params, sds: Params, layout: PyTree) -> Gaussian:
        """Normal distribution with one spread per array."""
        known = jax.tree.leaves(layout)
        leaves = jax.tree.leaves(sds)
        known += [axes.Leaf("unknown")] * (len(leaves) - len(known))
        return _each(mean, [_matrix(leaf, layout_leaf) for leaf, layout_leaf in zip(leaves, known, strict=True)])


def _matrix(sds: Array, known: axes.Leaf) -> Spread:
    inputs = known.inputs + known.shared
    if known.role != "weight" or not inputs or not known.outputs or len(inputs + known.outputs) != sds.ndim:
        return spreads.Diagonal.of(sds)
    return spreads.MatrixVariate.of(sds, inputs, known.outputs)


def _each(mean: Params, parts: list[Spread]) -> Gaussian:
    return Gaussian(mean, tuple(parts), tuple((number,) for number in range(len(parts))))


def _joined(mean: Params, sds: Params, groups: list[tuple[int, ...]]) -> Gaussian:
    leaves = jax.tree.leaves(sds)
    parts = tuple(spreads.Dense.of(_vector([leaves[i] for i in group])) for group in groups)
    return Gaussian(mean, parts, tuple(groups))


def _vector(leaves: list[Array]) -> Array:
    return jnp.concatenate([leaf.ravel() for leaf in leaves])
