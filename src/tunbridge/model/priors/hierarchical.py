"""An unknown scale in front of any prior."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Prior, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.priors.base import AbstractPrior, as_scale, check_scale, deviations


class Hierarchical(AbstractPrior):
    r"""Any prior with an unknown scale in front: :math:`w = \tau v` with *v* under that prior.

    The raw coordinates are those of *v*: non-centred. Independent priors take an unknown scale by themselves,
    ``Normal(dist.HalfNormal(1.0))``; `Hierarchical` gives one to any other prior.

    Parameters
    ----------
    prior
        The prior of *v*.
    scale
        The prior of :math:`\tau`, or a sequence with one per layer; `fan_in` divides by the root of the fan-in.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from tunbridge import priors
    >>> prior = priors.Hierarchical(priors.TwoNormals(0.5, 1.0, 0.01), dist.HalfCauchy(1.0))
    """

    prior: Prior
    scale: Any = eqx.field(converter=as_scale)

    def __check_init__(self):
        if not transforms.unknowns(self.scale):
            raise InputError("an unknown scale", f"{self.scale}", "Write a distribution, as dist.HalfNormal(1.0).")

    @property
    def proper(self) -> bool:
        """Whether the prior of *v* is proper."""
        return self.prior.proper

    @property
    def gaussian(self) -> bool:
        """Whether the raw coordinates of *v* are normal."""
        return self.prior.gaussian

    @property
    def discrete(self) -> bool:
        """Whether the prior of *v* has an unknown whole number."""
        return self.prior.discrete

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return the prior with that of *v* bound; InputError unless the scales fit the layers."""
        check_scale(self.scale, layout)
        return Hierarchical(self.prior.bind(weights, layout), self.scale)

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        r"""Weights, :math:`\tau v`."""
        return jax.tree.map(
            jnp.multiply, self.prior.weights(raw, scales["inner"], layout), self._deviations(raw, scales, layout)
        )

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates: the inverse of `weights`."""
        v = jax.tree.map(jnp.divide, weights, self._deviations(weights, scales, layout))
        return self.prior.raw(v, scales["inner"], layout)

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates under the prior of *v*."""
        return self.prior.log_prob(raw, scales["inner"], layout)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        r"""Variance of each weight: :math:`\tau^2` times that of *v*."""
        return jax.tree.map(
            lambda v, s: jnp.square(s) * v,
            self.prior.variances(raw, scales["inner"], layout),
            self._deviations(raw, scales, layout),
        )

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight relative to its normal's peak: that of *v*, which has the same."""
        return self.prior.log_heights(raw, scales["inner"], layout)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of all unknown scales."""
        inner = self.prior.log_hyper(scales["inner"], jacobian=jacobian)
        return transforms.log_prob(self.scale, scales["scale"], jacobian=jacobian) + inner

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales) from the prior."""
        key_scale, key_prior = jax.random.split(key)
        raw, inner = self.prior.sample(key_prior, like, layout)
        return raw, {"inner": inner, "scale": transforms.sample(self.scale, key_scale)}

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """All unknown scales at the medians of their priors."""
        return {"inner": self.prior.median_scales(like, layout), "scale": transforms.median(self.scale)}

    def values(self, scales: PyTree) -> PyTree:
        """Values of all unknown scales, in their natural units."""
        return {"inner": self.prior.values(scales["inner"]), "scale": transforms.natural(self.scale, scales["scale"])}

    def marginal(self) -> Prior:
        """Return the prior with the scales of *v* integrated out where that has a closed form."""
        return Hierarchical(self.prior.marginal(), self.scale)

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """Corners of the prior of *v*."""
        return self.prior.corners(raw, scales["inner"], layout)

    def _deviations(self, like: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        return deviations(transforms.values(self.scale, scales["scale"]), like, layout)
