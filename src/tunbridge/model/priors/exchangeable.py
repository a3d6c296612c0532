"""The hierarchical prior of a shallow network: exchangeable hidden units, as many as the data ask for."""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.declared import as_floats
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.priors.base import NORMAL, AbstractPrior, draw


def _positive(name: str) -> Any:
    return lambda value: transforms.check_positive(value, name)


def _real(name: str) -> Any:
    """Converter of a field: numbers become floats, distributions stay."""

    def converted(value: Any) -> Any:
        if isinstance(value, Distribution | Array):
            return value
        numbers = as_floats(value, name)
        if not np.isfinite(numbers).all():
            raise InputError(f"a finite {name}", f"{value}", "Give a number, or a numpyro distribution.")
        return float(numbers) if numbers.ndim == 0 else jnp.asarray(numbers)

    return converted


class Exchangeable(AbstractPrior):
    r"""Exchangeable hidden units of `networks.Shallow`, with unknown means and variances, and perhaps unknown number.

    .. math::

        \beta_j \sim N(\mu_\beta, \sigma_\beta^2), \quad \gamma_j \sim N(\mu_\gamma, \Lambda^{-1}), \quad
        a \sim N(0, \sigma_a^2 I), \quad \Pr(M > m \mid M \geq m) = \alpha

    the prior of :cite:t:`mueller1998issues`. Each number may be known, or unknown with a numpyro distribution as its
    prior. The raw coordinates are those of standard normal weights: non-centred. Units that are left out keep raw
    coordinates, from their prior, and their :math:`\beta_j` is 0, so that all draws have one shape.

    Parameters
    ----------
    output_mean, output_variance
        :math:`\mu_\beta` and :math:`\sigma_\beta^2`; conjugate priors are ``dist.Normal`` and ``dist.InverseGamma``.
    hidden_mean
        :math:`\mu_\gamma`: one number for all entries, or one per entry of :math:`\gamma_j`, bias first. The prior of
        one unknown number is that of each entry; ``dist.Normal`` is conjugate.
    hidden_precision
        :math:`\Lambda`: a number times the identity, a matrix, or unknown. ``dist.Gamma`` (of the number) and
        ``dist.Wishart`` (of the matrix, bias first) are conjugate.
    linear_variance
        :math:`\sigma_a^2`, the variance of the linear part's weights; ``dist.InverseGamma`` is conjugate.
    alpha
        Probability of one more unit, a number below 1 or ``dist.Beta``: the number of units M is then unknown, from 0
        to the network's units, and geometric up to there. None uses all units.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from tunbridge import priors
    >>> prior = priors.Exchangeable(output_variance=dist.InverseGamma(2.0, 1.0), alpha=0.5)
    """

    output_mean: Any = eqx.field(default=0.0, converter=_real("output_mean"))
    output_variance: Any = eqx.field(default=1.0, converter=_positive("output_variance"))
    hidden_mean: Any = eqx.field(default=0.0, converter=_real("hidden_mean"))
    hidden_precision: Any = eqx.field(default=1.0, converter=_real("hidden_precision"))
    linear_variance: Any = eqx.field(default=1.0, converter=_positive("linear_variance"))
    alpha: Any = None
    units: int | None = eqx.field(static=True, default=None)
    """Number of units that the network has; set when the prior is bound."""

    def __check_init__(self):
        if self.alpha is None or isinstance(self.alpha, jax.core.Tracer | Distribution):
            inside = not isinstance(self.alpha, Distribution) or _in_unit_interval(self.alpha)
        else:
            number = as_floats(self.alpha, "alpha")
            inside = bool(number.ndim == 0 and 0.0 < number < 1.0)
        if not inside:
            raise InputError(
                "alpha between 0 and 1, or a distribution of it", f"{self.alpha}", "Give 0.5 or dist.Beta(1.0, 1.0)."
            )

    @property
    def gaussian(self) -> bool:
        """True, as raw coordinates are standard normal."""
        return True

    @property
    def discrete(self) -> bool:
        """Whether the number of units is unknown."""
        return self.alpha is not None

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the prior by name, known or unknown, as a spec of `tunbridge.model.transforms`."""
        names = ("output_mean", "output_variance", "hidden_mean", "hidden_precision", "linear_variance", "alpha")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def bind(self, weights: PyTree, layout: PyTree) -> Self:
        """Return the prior that knows the number of units; InputError unless the network is `networks.Shallow`."""
        if not isinstance(weights, dict) or set(weights) - {"linear"} != {"hidden", "output"}:
            raise InputError("the weights of networks.Shallow", "others", "Use networks.Shallow, or priors.Normal.")
        features, units = weights["hidden"]["weight"].shape
        mean, size = self.hidden_mean, features + 1
        if isinstance(mean, Distribution) and mean.shape() == ():
            mean = mean.expand((size,))
        _check_shape(mean, "hidden_mean", ((), (size,)))
        _check_shape(self.hidden_precision, "hidden_precision", ((), (size, size)))
        precision = self.hidden_precision
        if not isinstance(precision, Distribution):
            _check_definite(precision)
        elif precision.shape() == ():
            transforms.check_positive(precision, "hidden_precision")
        for name in ("output_mean", "output_variance", "linear_variance", "alpha"):
            _check_shape(getattr(self, name), name, ((),))
        return dataclasses.replace(self, hidden_mean=mean, units=units)

    def known(self, scales: PyTree) -> dict[str, Any]:
        """The numbers of the prior by name, unknown ones at their values."""
        return transforms.values(self.numbers, self._real(scales))

    def count(self, scales: PyTree) -> Array | int:
        """The number of units in use."""
        return scales[-1] if self.discrete else self._bound_units()

    def with_count(self, real: tuple[Array, ...], count: Array | None) -> PyTree:
        """Scales from the real coordinates of unknown numbers and the number of units."""
        return (*real, count) if self.discrete else tuple(real)

    def log_count(self, count: Any, alpha: Any) -> Array:
        r"""Log probability of the number of units: :math:`\alpha^m (1 - \alpha)`, and :math:`\alpha^m` at the most."""
        return count * jnp.log(alpha) + jnp.where(count < self._bound_units(), jnp.log1p(-alpha), 0.0)

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights: means plus standard deviations times raw coordinates, with coefficients 0 of units left out."""
        numbers, used = self.known(scales), self._used(scales, raw)
        entries = jnp.broadcast_to(numbers["hidden_mean"], joined(raw["hidden"]).shape[:1])[:, None]
        hidden = entries + spread(numbers["hidden_precision"], joined(raw["hidden"]))
        output = numbers["output_mean"] + jnp.sqrt(numbers["output_variance"]) * raw["output"]["weight"]
        weights = {"hidden": parted(hidden), "output": {"weight": jnp.where(used, output, 0.0)}}
        if "linear" in raw:
            weights["linear"] = jax.tree.map(lambda a: jnp.sqrt(numbers["linear_variance"]) * a, raw["linear"])
        return weights

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates from weights; those of coefficients of units left out are 0."""
        numbers, used = self.known(scales), self._used(scales, weights)
        entries = joined(weights["hidden"])
        centred = entries - jnp.broadcast_to(numbers["hidden_mean"], entries.shape[:1])[:, None]
        output = (weights["output"]["weight"] - numbers["output_mean"]) / jnp.sqrt(numbers["output_variance"])
        raw = {
            "hidden": parted(gathered(numbers["hidden_precision"], centred)),
            "output": {"weight": jnp.where(used, output, 0.0)},
        }
        if "linear" in weights:
            raw["linear"] = jax.tree.map(lambda a: a / jnp.sqrt(numbers["linear_variance"]), weights["linear"])
        return raw

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates: standard normal."""
        return jnp.sum(NORMAL.log_prob(ravel(raw)))

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of the unknown numbers, and log probability of the number of units if it is unknown."""
        density = transforms.log_prob(self.numbers, self._real(scales), jacobian=jacobian)
        if not self.discrete:
            return density
        return density + self.log_count(scales[-1], self.known(scales)["alpha"])

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, scales) from the prior."""
        key_raw, key_numbers, key_count = jax.random.split(key, 3)
        real = transforms.sample(self.numbers, key_numbers)
        raw = draw(NORMAL, key_raw, like)
        if not self.discrete:
            return raw, real
        alpha = transforms.values(self.numbers, real)["alpha"]
        longest = jnp.floor(jnp.log1p(-jax.random.uniform(key_count)) / jnp.log(alpha))
        return raw, self.with_count(real, jnp.minimum(longest, 1.0 * self._most(like)))

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """The unknown numbers at the medians of their priors, and the median number of units."""
        real = transforms.median(self.numbers)
        if not self.discrete:
            return real
        alpha = transforms.values(self.numbers, real)["alpha"]
        median = jnp.floor(jnp.log(0.5) / jnp.log(jnp.asarray(alpha)))
        return self.with_count(real, jnp.minimum(median, 1.0 * self._most(like)))

    def values(self, scales: PyTree) -> PyTree:
        """Values of the unknown numbers by name, and the number of units if it is unknown."""
        unknown = {name: value for name, value in self.numbers.items() if isinstance(value, Distribution)}
        natural = dict(zip(sorted(unknown), transforms.natural(unknown, self._real(scales)), strict=True))
        return natural | ({"units": scales[-1]} if self.discrete else {})

    def _real(self, scales: PyTree) -> tuple[Array, ...]:
        return tuple(scales[:-1] if self.discrete else scales)

    def _most(self, like: PyTree) -> int:
        return _units(like) if self.units is None else self.units

    def _used(self, scales: PyTree, weights: PyTree) -> Array:
        units = _units(weights)
        return (jnp.arange(units) < (scales[-1] if self.discrete else units))[:, None]

    def _bound_units(self) -> int:
        if self.units is None:
            raise InputError("a prior bound to its network", "one that is not", "Call model.bind(data) first.")
        return self.units


def _units(weights: PyTree) -> int:
    return weights["output"]["weight"].shape[0]


def joined(layer: PyTree) -> Array:
    """Weights of the hidden units as a matrix (1 + features, units), biases first."""
    return jnp.concatenate([layer["bias"][None], layer["weight"]])


def parted(matrix: Array) -> PyTree:
    """The inverse of `joined`."""
    return {"bias": matrix[0], "weight": matrix[1:]}


def spread(precision: Array, r: Array) -> Array:
    r"""Columns :math:`\Lambda^{-1/2} r`, for a precision matrix or a number times the identity."""
    if jnp.ndim(precision) == 0:
        return r / jnp.sqrt(precision)
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(precision), r, trans=1, lower=True)


def gathered(precision: Array, columns: Array) -> Array:
    """The inverse of `spread`."""
    if jnp.ndim(precision) == 0:
        return columns * jnp.sqrt(precision)
    return jnp.linalg.cholesky(precision).T @ columns


def _check_shape(value: Any, name: str, allowed: tuple[tuple[int, ...], ...]) -> None:
    shape = value.shape() if isinstance(value, Distribution) else np.shape(value)
    if shape not in allowed:
        expected = " or ".join(map(str, allowed))
        raise InputError(f"{name} of shape {expected}, with the bias first", f"shape {shape}", f"Change {name}.")


def _check_definite(precision: Any) -> None:
    if not isinstance(precision, jax.core.Tracer):
        matrix = np.atleast_2d(np.asarray(precision))
        if not (np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min() > 0.0):
            raise InputError("hidden_precision above 0", f"{precision}", "Give a symmetric positive definite matrix.")


def _in_unit_interval(prior: Distribution) -> bool:
    return not np.any(prior.support(np.array([-0.5, 1.5], np.float32)))
