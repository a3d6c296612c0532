"""Normal priors with full or low-rank covariances, of each layer or of all weights together."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core import memory
from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import AbstractPrior, check_layers, total
from tunbridge.model.priors.matrix import check_covariance


class _Correlated(AbstractPrior):
    """Groups of weight arrays, each group a jointly normal vector."""

    @abc.abstractmethod
    def laws(self, num: int) -> list[Distribution]:
        """Distributions of the `num` groups, in order."""

    def groups(self, layout: PyTree) -> list[str]:
        """The group of each array: its layer."""
        return axes.layers(layout)

    @property
    def gaussian(self) -> bool:
        """True, as the weights are normal."""
        return True

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density: the sum over groups."""
        groups = self._gathered(raw, layout)
        return total([law.log_prob(ravel(group)) for law, group in zip(self.laws(len(groups)), groups, strict=True)])

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (weights, ()) from the prior."""
        groups = self._gathered(like, layout)
        keys = jax.random.split(key, len(groups))
        rows = zip(keys, self.laws(len(groups)), groups, strict=True)
        drawn = [iter(unravel(group, law.sample(k))) for k, law, group in rows]
        names = self.groups(layout)
        order = list(dict.fromkeys(names))
        leaves = [next(drawn[order.index(name)]) for name in names]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), ()

    def _gathered(self, tree: PyTree, layout: PyTree) -> list[list[Array]]:
        """The arrays of each group."""
        names, leaves = self.groups(layout), jax.tree.leaves(tree)
        order = dict.fromkeys(names)
        return [[leaf for leaf, owner in zip(leaves, names, strict=True) if owner == name] for name in order]

    def _checked(self, sizes: list[int], weights: PyTree, layout: PyTree, what: str) -> None:
        groups = self._gathered(weights, layout)
        if len(sizes) > 1:
            check_layers(len(sizes), what, layout)
        for name, group, given in zip(
            dict.fromkeys(self.groups(layout)), groups, _spread(sizes, len(groups)), strict=True
        ):
            if size(group) != given:
                raise InputError(
                    f"{what} for the {size(group)} weights of {name or 'the network'}",
                    f"one for {given}",
                    "Weights and biases of a layer go together, in the order of the tree.",
                )


def _spread(given: Any, num: int) -> Any:
    """One entry for each of `num` layers, from a single one for all or one per layer."""
    return tuple(given) * num if len(given) == 1 else given


class FullNormal(_Correlated):
    r"""A full covariance for each layer, over weights and biases together: :math:`w_\ell \sim N(0, \Sigma_\ell)`.

    Parameters
    ----------
    covariance
        :math:`\Sigma`, over a layer's arrays in tree order, each flattened row by row; or a sequence, one per layer.
    """

    covariance: Any = eqx.field(
        converter=lambda given: _each(given, lambda matrix: check_covariance(matrix, "covariance"))
    )
    root: Any = eqx.field(default=None, kw_only=True)
    """Lower Cholesky factors of the covariances, once the prior is bound."""

    def bind(self, weights: PyTree, layout: PyTree) -> "FullNormal":
        """Return the prior with its Cholesky factors; InputError unless the covariances have the layers' sizes."""
        self._checked([matrix.shape[0] for matrix in self.covariance], weights, layout, "covariance")
        return FullNormal(self.covariance, root=tuple(map(jnp.linalg.cholesky, self.covariance)))

    def laws(self, num: int) -> list[Distribution]:
        """One multivariate normal per layer."""
        roots = self.root or tuple(map(jnp.linalg.cholesky, self.covariance))
        return [dist.MultivariateNormal(jnp.zeros(len(root)), scale_tril=root) for root in _spread(roots, num)]


class LowRankNormal(_Correlated):
    r"""A low-rank covariance for each layer, over weights and biases together.

    :math:`w_\ell \sim N(0, F_\ell F_\ell^\top + s^2 I)`. It is cheap at low rank: evaluating the density costs weights
    times rank squared.

    Parameters
    ----------
    factor
        *F* (weights, rank), over a layer's arrays in tree order; or a sequence, one per layer.
    scale
        *s*.
    """

    factor: Any = eqx.field(converter=lambda given: _each(given, _check_factor))
    scale: float = eqx.field(default=1.0, converter=float)

    def __check_init__(self):
        if not self.scale > 0:
            raise InputError("a scale above 0", f"{self.scale}", "Give a positive number.")

    def bind(self, weights: PyTree, layout: PyTree) -> "LowRankNormal":
        """Return self; InputError unless the factors have the layers' sizes."""
        self._checked([factor.shape[0] for factor in self.factor], weights, layout, "factor")
        return self

    def laws(self, num: int) -> list[Distribution]:
        """One low-rank normal per layer."""
        factors = _spread(self.factor, num)
        return [
            dist.LowRankMultivariateNormal(jnp.zeros(len(factor)), factor, jnp.full(len(factor), self.scale**2))
            for factor in factors
        ]


class JointNormal(_Correlated):
    r"""A full covariance over all weights of the network, :math:`w \sim N(0, \Sigma)`, layers coupled in any way.

    :math:`\Sigma` takes 8 bytes per pair of weights: one that does not fit in memory raises an InputError, with the
    number of bytes, before it is built.

    Parameters
    ----------
    covariance
        :math:`\Sigma`, over all arrays in tree order, each flattened row by row; or a function of the number of
        weights that returns it, called once the network is known.
    """

    covariance: Any = eqx.field(
        converter=lambda given: given if callable(given) else check_covariance(given, "covariance")
    )
    root: Any = eqx.field(default=None, kw_only=True)
    """Lower Cholesky factor of the covariance, once the prior is bound."""

    def bind(self, weights: PyTree, layout: PyTree) -> "JointNormal":
        """Return the prior with its covariance built; InputError, with the number of bytes, if it is too large."""
        num = size(weights)
        if callable(self.covariance):
            needed, available = num**2 * 8, memory.available()
            if 3 * needed > available:
                raise InputError(
                    f"a covariance that fits, with its root, in the {available / 1e9:.1f} GB of memory that are free",
                    f"{num:,} weights, so {num:,}^2 * 8 = {needed:,} bytes",
                    "Use priors.FullNormal (one covariance per layer), LowRankNormal or MatrixNormal.",
                )
            return JointNormal(self.covariance(num)).bind(weights, layout)
        self._checked([self.covariance.shape[0]], weights, layout, "covariance")
        return JointNormal(self.covariance, root=jnp.linalg.cholesky(self.covariance))

    def groups(self, layout: PyTree) -> list[str]:
        """The group of each array: one group for all."""
        return [""] * len(jax.tree.leaves(layout))

    def laws(self, num: int) -> list[Distribution]:
        """The joint normal of all weights."""
        root = jnp.linalg.cholesky(self.covariance) if self.root is None else self.root
        return [dist.MultivariateNormal(jnp.zeros(len(root)), scale_tril=root)]


def _each(given: Any, check: Any) -> tuple[Array, ...]:
    """A tuple of checked matrices: a single one for all layers, or one per layer."""
    several = isinstance(given, list | tuple) and all(np.ndim(matrix) == 2 for matrix in given)
    return tuple(check(matrix) for matrix in given) if several else (check(given),)


def _check_factor(given: Any) -> Array:
    dtype = jax.dtypes.canonicalize_dtype(float)
    traced = isinstance(given, jax.core.Tracer)
    factor = jnp.asarray(given if traced else as_floats(given, "factor").astype(dtype), dtype)
    if factor.ndim != 2:
        raise InputError("a factor of shape (weights, rank)", f"shape {factor.shape}", "Give a matrix.")
    return factor
