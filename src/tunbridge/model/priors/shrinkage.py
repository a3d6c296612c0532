"""Priors with one scale per weight or unit: scale mixtures of normals, and horseshoes."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import Prior
from tunbridge.model import transforms
from tunbridge.model.priors.base import FanIn, as_scale
from tunbridge.model.priors.grouped import Factor, Grouped
from tunbridge.model.priors.hierarchical import Hierarchical
from tunbridge.model.priors.tails import Laplace, StudentT


def _one_scale(scale: Any) -> Any:
    if isinstance(scale, list | tuple):
        raise InputError("one scale for all layers", f"{len(scale)}", "Use ByPath for one prior per layer.")
    return as_scale(scale)


def _slab(slab: Any) -> Any:
    return None if slab is None else transforms.check_positive(slab, "slab")


class ScaleMixture(Grouped):
    r"""Normal weights, each with a scale of its own: :math:`w = s z r,\; r \sim N(0, 1),\; z \sim p(z)`.

    ================================================= ================================================
    ``ScaleMixture(dist.InverseGamma(a, b), True)``   Student-t with 2a degrees of freedom, scale
                                                      :math:`s\sqrt{b/a}`
    ``ScaleMixture(dist.Exponential(rate), True)``    Laplace of scale :math:`s / \sqrt{2\,\text{rate}}`
    ``ScaleMixture(dist.HalfCauchy(1.0))``            the local part of the horseshoe
    ================================================= ================================================

    Samplers move *z* with the weights, non-centred. Point estimates use the marginal where it has a closed form (the
    first two; :cite:p:`andrews1974scale`).

    Parameters
    ----------
    mixing
        The law of *z*, a numpyro distribution over positive numbers.
    squared
        Whether `mixing` is the law of :math:`z^2`.
    scale
        *s*, shared by all weights; as for `Normal`, but one scale for all layers.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> t = ScaleMixture(dist.InverseGamma(2.0, 3.0), squared=True)
    >>> float(t.marginal().df)
    4.0
    """

    mixing: Any = eqx.field(converter=lambda mixing: transforms.check_positive(mixing, "mixing"))
    squared: bool = eqx.field(default=False, static=True)
    scale: Any = eqx.field(default=1.0, converter=_one_scale)

    def __check_init__(self):
        if not isinstance(self.mixing, Distribution) or self.mixing.shape() != ():
            raise InputError(
                "mixing= as one numpyro distribution", f"{self.mixing}", "Write dist.HalfCauchy(1.0), say."
            )

    def factors(self) -> dict[str, Factor]:
        """One scale for all weights, and one per weight."""
        return {"common": Factor(self.scale), "local": Factor(self.mixing, "weight", self.squared)}

    def marginal(self) -> Prior:
        """Student-t or Laplace prior, where *z* can be integrated out in closed form; else self."""
        if self.squared and isinstance(self.mixing, dist.InverseGamma):
            a, b = self.mixing.concentration, self.mixing.rate
            return self._of_all(lambda scale: StudentT(2.0 * a, scale), jnp.sqrt(b / a))
        if self.squared and isinstance(self.mixing, dist.Exponential):
            return self._of_all(Laplace, 1.0 / jnp.sqrt(2.0 * self.mixing.rate))
        return self

    def _of_all(self, law: Callable[[Any], Prior], factor: Array) -> Prior:
        """The prior `law`, with its scale multiplied by the one that all weights share."""
        if transforms.unknowns(self.scale):
            return Hierarchical(law(factor), self.scale)
        return law(FanIn(self.scale.scale * factor) if isinstance(self.scale, FanIn) else self.scale * factor)


class Horseshoe(Grouped):
    r"""Normal weights with a half-Cauchy scale each, the horseshoe.

    :math:`w = \tau \lambda r` with one :math:`\lambda \sim C^+(0, 1)` per weight. With :math:`\tau = 1` and unit noise,
    :math:`\kappa = 1 / (1 + \lambda^2) \sim \text{Beta}(\frac12, \frac12)` says how much a weight is shrunk: nearly
    fully or hardly at all, a density shaped like a horseshoe :cite:p:`carvalho2010horseshoe`. With a slab of width *c*
    the largest weights are regularised as by :math:`N(0, c^2)`,
    :math:`\tilde\lambda^2 = c^2 \lambda^2 / (c^2 + \tau^2 \lambda^2)` :cite:p:`piironen2017sparsity`: samplers need it
    where the data say little about some weights.

    Parameters
    ----------
    scale
        :math:`\tau`: a number or a distribution, or `fan_in` of either.
    slab
        *c*: a number, a distribution, or None for no slab.
    """

    scale: Any = eqx.field(default_factory=lambda: dist.HalfCauchy(1.0), converter=_one_scale)
    slab: Any = eqx.field(default=None, converter=_slab)

    def factors(self) -> dict[str, Factor]:
        """One scale for all weights, one per weight, and the slab."""
        return _factors(self.scale, "weight", self.slab)

    def combine(self, values: dict[str, Array]) -> Array:
        """Product of the common and local scales, bounded by the slab."""
        return _held(values)


class GroupHorseshoe(Grouped):
    r"""A horseshoe over units: all weights of a unit share one :math:`\lambda`, so whole units can be left unused.

    Used to choose the size of a network :cite:p:`louizos2017bayesian,ghosh2018structured`.

    Parameters
    ----------
    scale, slab
        As for `Horseshoe`.
    over
        "inputs": weights that leave one unit share a scale, and all biases of a layer share one; "outputs": weights
        that enter one unit (or filter) share a scale, and its bias has its own.
    """

    scale: Any = eqx.field(default_factory=lambda: dist.HalfCauchy(1.0), converter=_one_scale)
    slab: Any = eqx.field(default=None, converter=_slab)
    over: Literal["inputs", "outputs"] = eqx.field(default="inputs", static=True)

    def factors(self) -> dict[str, Factor]:
        """One scale for all weights, one per unit, and the slab."""
        return _factors(self.scale, self.over, self.slab)

    def combine(self, values: dict[str, Array]) -> Array:
        """Product of the common and local scales, bounded by the slab."""
        return _held(values)


def _factors(scale: Any, over: Any, slab: Any) -> dict[str, Factor]:
    factors = {"common": Factor(scale), "local": Factor(dist.HalfCauchy(1.0), over)}
    return factors if slab is None else factors | {"slab": Factor(slab)}


def _held(values: dict[str, Array]) -> Array:
    free = values["common"] * values["local"]
    if "slab" not in values:
        return free
    return free / jnp.sqrt(1.0 + (free / values["slab"]) ** 2)
