"""Unknown numbers on the real line.

Where a number stands, a numpyro distribution may stand instead: the number is then unknown, with that prior.
A *spec* is a pytree of such entries. Its unknowns are a tuple, one real array an unknown entry, in order;
() where all is known.
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
    """The priors of the entries that are unknown."""
    return [entry for entry in jax.tree.leaves(spec, is_leaf=_is_unknown) if _is_unknown(entry)]


def values(spec: PyTree, real: tuple[Array, ...]) -> PyTree:
    """The spec with each unknown replaced by its value at the real coordinates."""
    rest = iter(real)

    def one(entry):
        return biject_to(entry.support)(next(rest)) if _is_unknown(entry) else entry

    return jax.tree.map(one, spec, is_leaf=_is_unknown)


def natural(spec: PyTree, real: tuple[Array, ...]) -> tuple[Array, ...]:
    """The values of the unknowns alone."""
    return tuple(biject_to(prior.support)(u) for prior, u in zip(unknowns(spec), real, strict=True))


def log_prob(spec: PyTree, real: tuple[Array, ...], *, jacobian: bool = True) -> Array:
    """Log p of the unknowns: sum of log p(value), and of log |d value / d real| with the Jacobian."""
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

    The square of the variable itself would overflow where its logarithm is above 44.
    """
    away = jnp.abs(u)
    return jnp.sum(jnp.log(2.0 / jnp.pi) - away - jnp.log(1.0 + jnp.exp(-2.0 * away)))


def sample(spec: PyTree, key: Key) -> tuple[Array, ...]:
    """A draw of the unknowns from their priors, as real coordinates."""
    priors = unknowns(spec)
    keys = jax.random.split(key, max(len(priors), 1))
    return tuple(to_real(prior, prior.sample(k)) for prior, k in zip(priors, keys, strict=False))


def median(spec: PyTree) -> tuple[Array, ...]:
    """The unknowns at the medians of their priors, found by bisection of the distribution function."""
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
            "a prior with a distribution function, whose median a point method can hold",
            f"{type(prior).__name__}",
            "Give a number instead, or use a method that samples this unknown.",
        ) from None
    return 0.5 * (low + high)


def to_real(prior: Distribution, value: Array) -> Array:
    """The real coordinate of a value."""
    coordinate = biject_to(prior.support).inv(value)
    return jax.lax.convert_element_type(coordinate, jnp.result_type(float))


def check_positive(spec: PyTree, name: str) -> PyTree:
    """The spec with its numbers as floats; InputError where one is not positive. It compiles nothing."""

    def one(entry):
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
        if not (np.asarray(entry) > 0).all():
            raise InputError(f"{name} above 0", f"{entry}", "Give a positive number.")
        return entry

    return jax.tree.map(one, spec, is_leaf=_is_unknown)


def check_number(value: PyTree, name: str) -> PyTree:
    """A positive number that is known; InputError if it is not."""
    if _is_unknown(value):
        raise InputError(f"{name} as a number", type(value).__name__, f"Give {name} a value: it cannot be unknown.")
    return check_positive(value, name)


def divided(spec: PyTree, scale: Array) -> PyTree:
    """The spec with its known numbers divided; priors stay as they are."""
    return jax.tree.map(
        lambda entry: entry if _is_unknown(entry) else jnp.asarray(entry) / scale, spec, is_leaf=_is_unknown
    )


def shapes(spec: PyTree) -> list[tuple[int, ...]]:
    """The shape of each entry, known or not."""
    return [
        entry.shape() if _is_unknown(entry) else jnp.shape(entry)
        for entry in jax.tree.leaves(spec, is_leaf=_is_unknown)
    ]
