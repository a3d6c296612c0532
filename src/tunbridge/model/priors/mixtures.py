"""Mixtures of a wide and a narrow normal, and the probability that a weight belongs to either."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.priors.base import NORMAL, AbstractPrior, draw, log_height_of, total


def _share(share: float | Distribution) -> Any:
    if not isinstance(share, Distribution | jax.Array | jax.core.Tracer) and not 0.0 < float(share) < 1.0:
        raise InputError("a share between 0 and 1", f"{share}", "Write 0.5 for one half.")
    return share if isinstance(share, Distribution) else transforms.check_number(share, "share")


def _scale(name: str) -> Callable[[float], Any]:
    def converter(scale: float) -> Any:
        return transforms.check_number(scale, name)

    return converter


def _check_order(small: Any, large: Any, name: str, other: str) -> None:
    if not isinstance(small, jax.core.Tracer) and not isinstance(large, jax.core.Tracer) and not small < large:
        raise InputError(f"{name} below {other}", f"{small} and {large}", "Exchange them.")


class _Mixture(NamedTuple):
    """Distribution of one weight."""

    share: Any
    wide: Any
    narrow: Any

    def parts(self, w: Array) -> tuple[Array, Array]:
        """Log density of each component, weighted by its share."""
        wide = jnp.log(self.share) + dist.Normal(0.0, self.wide, validate_args=False).log_prob(w)
        return wide, jnp.log1p(-self.share) + dist.Normal(0.0, self.narrow, validate_args=False).log_prob(w)

    def log_probs(self, w: Array) -> Array:
        """Log density of each weight of an array."""
        wide, narrow = self.parts(w)
        return wide + jnp.log(1.0 + jnp.exp(narrow - wide))  # narrow - wide is largest at 0

    def log_prob(self, weights: PyTree) -> Scalar:
        """Log density of all weights."""
        return total(jax.tree.map(lambda leaf: jnp.sum(self.log_probs(leaf)), weights))

    def log_heights(self, weights: PyTree) -> PyTree:
        """Log density of each weight relative to the peak of the normal of its variance."""
        return jax.tree.map(lambda w, v: log_height_of(self.log_probs(w), v), weights, self.variances(weights))

    def variances(self, weights: PyTree) -> PyTree:
        """Variance of each weight: its inverse averages both precisions by their probability given the value."""

        def variance(leaf: Array) -> Array:
            wide, narrow = self.parts(leaf)
            odds = wide - narrow
            return 1.0 / (jax.nn.sigmoid(odds) / self.wide**2 + jax.nn.sigmoid(-odds) / self.narrow**2)

        return jax.tree.map(variance, weights)

    def draw(self, key: Key, like: PyTree) -> PyTree:
        """Draw a tree of independent weights."""
        key_part, key_normal = jax.random.split(key)
        chosen = draw(dist.Uniform(), key_part, like)
        return jax.tree.map(
            lambda u, r: jnp.where(u < self.share, self.wide, self.narrow) * r, chosen, draw(NORMAL, key_normal, like)
        )


class TwoNormals(AbstractPrior):
    r"""Independent weights from a wide or a narrow normal.

    :math:`p(w) = \pi N(w; 0, \sigma_1^2) + (1 - \pi) N(w; 0, \sigma_2^2)`. The scale mixture of Bayes by Backprop
    :cite:p:`blundell2015weight`: a wide part for the weights in use, a narrow one for the rest. (For an unknown common
    scale write ``Hierarchical(TwoNormals(...), dist.HalfNormal(1.0))``.)

    Parameters
    ----------
    share
        :math:`\pi`, the share of the wide component.
    wide, narrow
        :math:`\sigma_1` and :math:`\sigma_2`.
    """

    share: Any = eqx.field(default=0.5, converter=_share)
    wide: Any = eqx.field(default=1.0, converter=_scale("wide"))
    narrow: Any = eqx.field(default=0.0025, converter=_scale("narrow"))

    def __check_init__(self):
        if isinstance(self.share, Distribution):
            raise InputError("a known share", type(self.share).__name__, "Use SpikeAndSlab for an unknown one.")
        _check_order(self.narrow, self.wide, "narrow", "wide")

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of the weights, with their components summed out."""
        return self._law().log_prob(raw)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight: the inverse of its expected precision given its value."""
        return self._law().variances(raw)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight relative to the peak of the normal of its variance."""
        return self._law().log_heights(raw)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (weights, ()) from the prior."""
        return self._law().draw(key, like), ()

    def _law(self) -> _Mixture:
        return _Mixture(self.share, self.wide, self.narrow)


class SpikeAndSlab(AbstractPrior):
    r"""Weights that are in use or not: :math:`w \mid \gamma = 1 \sim N(0, \sigma^2)` else :math:`N(0, \epsilon^2)`.

    One :math:`\gamma \sim \text{Bernoulli}(\pi)` per weight is summed out, so that gradient-based methods can be used;
    a spike of positive width makes that possible :cite:p:`george1993variable`. `inclusion` recovers the probability
    of :math:`\gamma = 1`.

    Parameters
    ----------
    share
        :math:`\pi`, the share of weights in use: a number, or a distribution (``dist.Beta(1.0, 9.0)``) if it is
        unknown.
    slab, spike
        :math:`\sigma` and :math:`\epsilon`. A weight counts as in use from about
        :math:`\epsilon \sqrt{2 \log(\sigma / \epsilon)}` on.
    """

    share: Any = eqx.field(default=0.1, converter=_share)
    slab: Any = eqx.field(default=1.0, converter=_scale("slab"))
    spike: Any = eqx.field(default=0.02, converter=_scale("spike"))

    def __check_init__(self):
        _check_order(self.spike, self.slab, "spike", "slab")

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of the weights given the share, with their components summed out."""
        return self._given(scales).log_prob(raw)

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variance of each weight: the inverse of its expected precision given its value and the share."""
        return self._given(scales).variances(raw)

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight given the share, relative to the peak of the normal of its variance."""
        return self._given(scales).log_heights(raw)

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of an unknown share, on the real line if `jacobian`."""
        return transforms.log_prob(self.share, scales, jacobian=jacobian)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw the weights, and the share where it is unknown."""
        key_share, key_weights = jax.random.split(key)
        scales = transforms.sample(self.share, key_share)
        return self._given(scales).draw(key_weights, like), scales

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """An unknown share at the median of its prior."""
        return transforms.median(self.share)

    def values(self, scales: PyTree) -> PyTree:
        """Value of an unknown share."""
        return transforms.natural(self.share, scales)

    def inclusion(self, weights: PyTree, scales: PyTree = ()) -> PyTree:
        """Probability that each weight is in use, given its value; average it over posterior draws."""
        law = self._given(scales)

        def probability(leaf: Array) -> Array:
            slab, spike = law.parts(leaf)
            return jax.nn.sigmoid(slab - spike)

        return jax.tree.map(probability, weights)

    def _given(self, scales: PyTree) -> _Mixture:
        return _Mixture(transforms.values(self.share, scales), self.slab, self.spike)
