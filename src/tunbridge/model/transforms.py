"""Unknown hyperparameters as coordinates on the real line.

In place of a number, a numpyro distribution may be given: the number is then unknown, with that prior.
A *spec* is a pytree of such entries. Its unknowns are a tuple with one real array per unknown entry, in order;
() if everything is known.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, ExpandedDistribution, HalfCauchy, Independent, biject_to

from tunbridge.core.declared import is_real, shown
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree


def _is_unknown(entry: PyTree) -> bool:
    return isinstance(entry, Distribution)


def unknowns(spec: PyTree) -> list[Distribution]:
    """Priors of the unknown entries, in order."""
    return [entry for entry in jax.tree.leaves(spec, is_leaf=_is_unknown) if _is_unknown(entry)]


def values(spec: PyTree, real: tuple[Array, ...]) -> PyTree:
    """The spec with each unknown replaced by its value at the real coordinates."""
    coordinates = iter(real)

    def value_of(entry):
        return biject_to(entry.support)(next(coordinates)) if _is_unknown(entry) else entry

    return jax.tree.map(value_of, spec, is_leaf=_is_unknown)


def natural(spec: PyTree, real: tuple[Array, ...]) -> tuple[Array, ...]:
    """Values of the unknown entries alone, at the real coordinates."""
    return tuple(biject_to(prior.support)(u) for prior, u in zip(unknowns(spec), real, strict=True))


def log_prob(spec: PyTree, real: tuple[Array, ...], *, jacobian: bool = True) -> Array:
    """Log prior density of the unknowns: the sum of log p(value), and of log |d value / d real| if `jacobian`."""
    total = jnp.zeros(())
    for prior, u in zip(unknowns(spec), real, strict=True):
        if isinstance(prior, HalfCauchy):
            total += _log_half_cauchy(u - jnp.log(prior.scale)) - (0.0 if jacobian else jnp.sum(u))
            continue
        transform = biject_to(prior.support)
        value = transform(u)
        total += jnp.sum(prior.log_prob(value))
        if jacobian:
            total += jnp.sum(transform.log_abs_det_jacobian(u, value))
    return total


def _log_half_cauchy(u: Array) -> Array:
    r"""Sum of log densities of the logarithm of a half-Cauchy variable, :math:`1 / (\pi \cosh u)`.

    Squaring the variable itself would overflow where its logarithm is above 44.
    """
    absolute = jnp.abs(u)
    return jnp.sum(jnp.log(2.0 / jnp.pi) - absolute - jnp.log(1.0 + jnp.exp(-2.0 * absolute)))


def sample(spec: PyTree, key: Key) -> tuple[Array, ...]:
    """Draw the unknowns from their priors; returns real coordinates."""
    priors = unknowns(spec)
    keys = jax.random.split(key, max(len(priors), 1))
    return tuple(to_real(prior, prior.sample(k)) for prior, k in zip(priors, keys, strict=False))


def median(spec: PyTree) -> tuple[Array, ...]:
    """Real coordinates of the unknowns' prior medians, by bisection of the cumulative distribution function."""
    return tuple(_median(prior) for prior in unknowns(spec))


def _median(prior: Distribution) -> Array:
    if isinstance(prior, ExpandedDistribution | Independent):
        return jnp.broadcast_to(_median(prior.base_dist), prior.shape())
    transform = biject_to(prior.support)

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        below = prior.cdf(transform(middle)) < 0.5
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    try:
        edge = jnp.full(prior.batch_shape, 80.0)
        low, high = jax.lax.fori_loop(0, 60, halve, (-edge, edge))
    except NotImplementedError:
        raise InputError(
            "a prior with a cumulative distribution function, so that a point method can use its median",
            f"{type(prior).__name__}",
            "Give a number instead, or use a method that samples this unknown.",
        ) from None
    return 0.5 * (low + high)


def real(spec: PyTree, given: PyTree) -> tuple[Array, ...]:
    """Real coordinates of the unknowns from a tree with a value for each entry: the inverse of `values`."""
    entries = jax.tree.leaves(spec, is_leaf=_is_unknown)
    pairs = zip(entries, jax.tree.leaves(given), strict=True)
    return tuple(to_real(entry, value) for entry, value in pairs if _is_unknown(entry))


def to_real(prior: Distribution, value: Array) -> Array:
    """Real coordinate of a value."""
    coordinate = biject_to(prior.support).inv(value)
    return jax.lax.convert_element_type(coordinate, jnp.result_type(float))


def check_positive(spec: PyTree, name: str) -> PyTree:
    """Return the spec with its numbers as floats; InputError unless all are positive. Nothing is compiled."""

    def checked(entry):
        if _is_unknown(entry):
            if np.any(entry.support(np.full(entry.shape(), -1.0, np.float32))):
                raise InputError(
                    f"a prior on {name} that allows positive values only",
                    type(entry).__name__,
                    "Use dist.HalfNormal, dist.Gamma, dist.LogNormal or the like.",
                )
            return entry
        if not is_real(entry):
            raise InputError(
                f"{name} as a positive number or a numpyro distribution",
                shown(entry),
                "Write a number for a known value, dist.HalfNormal(1.0) or the like for an unknown one.",
            )
        if isinstance(entry, int | float):
            entry = float(entry)
        if isinstance(entry, jax.core.Tracer):
            return entry
        if not ((np.asarray(entry) > 0) & np.isfinite(np.asarray(entry))).all():
            raise InputError(f"a finite {name} above 0", f"{entry}", "Give a positive number.")
        return entry

    return jax.tree.map(checked, spec, is_leaf=_is_unknown)


def check_number(value: PyTree, name: str) -> PyTree:
    """Return a known positive number; InputError if it is unknown or not positive."""
    if _is_unknown(value):
        raise InputError(f"{name} as a number", type(value).__name__, f"Give {name} a value: it cannot be unknown.")
    return check_positive(value, name)


def divided(spec: PyTree, scale: Array) -> PyTree:
    """The spec with its known numbers divided by `scale`; priors stay unchanged."""
    return jax.tree.map(
        lambda entry: entry if _is_unknown(entry) else jnp.asarray(entry) / scale, spec, is_leaf=_is_unknown
    )


def shapes(spec: PyTree) -> list[tuple[int, ...]]:
    """Shape of each entry, known or unknown."""
    return [
        entry.shape() if _is_unknown(entry) else jnp.shape(entry)
        for entry in jax.tree.leaves(spec, is_leaf=_is_unknown)
    ]
