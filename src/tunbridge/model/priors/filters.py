"""Priors for convolutions: one scale per filter, and smooth filters."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.tree import paths
from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import FanIn, dependent, fan_in
from tunbridge.model.priors.delegating import Delegating
from tunbridge.model.priors.grouped import Factor, Grouped
from tunbridge.model.priors.matrix import factor_of, squared_distances
from tunbridge.model.priors.normal import Normal


class Filters(Grouped):
    """One scale per filter, and correlated neighbouring weights of a window."""

    scale: Any
    length: Any = None

    def factors(self) -> dict[str, Factor]:
        """One scale per filter, divided by the root of the fan-in."""
        return {"filter": Factor(FanIn(self.scale), "outputs")}

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights: smoothed raw coordinates times their scales."""
        return super().weights(self._windows(raw, layout, lambda root, flat: root @ flat), scales, layout)

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates: the inverse of `weights`."""
        return self._windows(super().raw(weights, scales, layout), layout, _solve)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight, its squared scale; InputError if the weights of a window are correlated."""
        self._refuse_correlated()
        return super().variances(raw, scales, layout)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight relative to its peak; InputError if the weights of a window are correlated."""
        self._refuse_correlated()
        return super().log_heights(raw, scales, layout)

    def _refuse_correlated(self) -> None:
        if self.length is not None:
            raise dependent("FilterGroups of a length")

    def _windows(self, tree: PyTree, layout: PyTree, act: Any) -> PyTree:
        """Apply `act` to each window, given the Cholesky factor of the covariance over its positions."""
        if self.length is None:
            return tree

        def apply(leaf: Array, role: axes.Leaf) -> Array:
            window = tuple(leaf.shape[axis] for axis in role.shared)
            first = jnp.moveaxis(leaf, role.shared, tuple(range(len(window))))
            root = factor_of(jnp.exp(-squared_distances(window) / (2.0 * self.length**2)))
            result = act(root.astype(leaf.dtype), first.reshape(math.prod(window), -1)).reshape(first.shape)
            return jnp.moveaxis(result, tuple(range(len(window))), role.shared)

        return jax.tree.map(apply, tree, layout)


def _solve(root: Array, flat: Array) -> Array:
    return jax.scipy.linalg.solve_triangular(root, flat, lower=True)


class FilterGroups(Delegating):
    r"""A scale for each filter of a convolution, and smooth filters.

    The weights of filter *o* are :math:`w_o = \tau_o K^{1/2} r / \sqrt{\text{fan-in}}`. A small :math:`\tau_o` switches
    the whole filter off; with a length :math:`\ell` the weights at positions *p, q* of a window have correlation
    :math:`\exp(-\lVert p - q \rVert^2 / 2\ell^2)`, so that filters are smooth :cite:p:`fortuin2022bayesian`.

    Parameters
    ----------
    scale
        The prior of :math:`\tau_o`.
    length
        :math:`\ell` in pixels; None for independent weights.
    rest
        The prior of all weights other than convolution kernels.
    """

    scale: Any = eqx.field(
        default_factory=lambda: dist.HalfCauchy(1.0), converter=lambda scale: transforms.check_positive(scale, "scale")
    )
    length: Any = eqx.field(
        default=None, converter=lambda length: None if length is None else transforms.check_number(length, "length")
    )
    rest: Any = eqx.field(default_factory=lambda: Normal(fan_in(1.0)))

    def parts(self) -> dict[str, Any]:
        """The priors of the filters and of the rest."""
        return {"filters": Filters(self.scale, self.length), "rest": self.rest}

    def with_parts(self, parts: dict[str, Any]) -> "FilterGroups":
        """Return the same prior with another one for the rest."""
        return FilterGroups(self.scale, self.length, parts["rest"])

    def assign(self, layout: PyTree) -> list[str]:
        """Name of each array's part: "filters" for convolution kernels, "rest" for all others."""
        axes.require_known(layout, "priors.FilterGroups")
        owners = ["filters" if role.shared else "rest" for role in jax.tree.leaves(layout)]
        if "filters" not in owners:
            raise InputError(
                "the kernel of a convolution among the weights", ", ".join(paths(layout)), "Use priors.GroupHorseshoe."
            )
        return owners
