"""Automatic differentiation variational inference: any family, for a model or for any log density."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution, biject_to, constraints

from tunbridge.core.data import Data
from tunbridge.core.declared import Count, Module, checked
from tunbridge.core.errors import InputError, NumericalError, Result
from tunbridge.core.tree import all_finite, strong
from tunbridge.core.types import Key, Params, Scalar
from tunbridge.inference.promises import Promises
from tunbridge.inference.vi.families import Diagonal, Family
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.variational import Variational
from tunbridge.model.networks.layout import Leaf
from tunbridge.runtime import programs
from tunbridge.runtime.loop import Options, run

_MODE_STEPS = 500
"""Number of L-BFGS steps towards the mode."""
_DRAWS = 1000
"""Number of draws that the bound is averaged over."""

Support = Any
"""Support of one unknown: a constraint, a distribution whose support it is, or either with a shape."""


class ADVI(Variational):
    r"""Automatic differentiation variational inference :cite:p:`kucukelbir2017automatic`.

    Unknowns are mapped to the real line by the transforms of their supports, Jacobians included; there q is normal, of
    any family. `fit` takes a model, as every method does; `approximate` takes any log density.

    Parameters
    ----------
    family
        Family of q: an object of `tunbridge.families`.
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import tunbridge as tb
    >>> y = jnp.array([1.2, 0.7, 1.9, 1.4])
    >>> def log_joint(v):
    ...     prior = dist.Normal(0.0, 10.0).log_prob(v["mu"]) + dist.HalfNormal(5.0).log_prob(v["sigma"])
    ...     return prior + dist.Normal(v["mu"], v["sigma"]).log_prob(y).sum()
    >>> unknowns = {"mu": dist.constraints.real, "sigma": dist.constraints.positive}
    >>> q = tb.ADVI(tb.families.Full(), train=tb.Train(200)).approximate(log_joint, unknowns, key=jax.random.key(0))
    >>> bool((q.sample(jax.random.key(1), 100)["sigma"] > 0).all())
    True
    """

    promises: ClassVar[Promises] = {  # mean-field
        "linear": ("diagonal", 0.12),
        "linear_unknown": ("mean", 0.2),
        "logistic": ("mean", 0.2),
        "tanh_unit": ("mean", 0.5),
    }

    family: Family = Diagonal()

    @property
    def form(self) -> Family:
        """The field `family`."""
        return self.family

    def approximate(
        self,
        log_density: Callable[[dict[str, Array]], Scalar],
        unknowns: Mapping[str, Support],
        *,
        key: Key,
        progress: bool = True,
    ) -> "DensityApproximation":
        """Fit q to a log density: the joint one of data and unknowns, up to a constant.

        Means start at the mode on the real line, which is found first, standard deviations at those implied by the
        curvature there; steps are in these units.

        Parameters
        ----------
        log_density
            Function of a dictionary of values. Constants that it leaves out are missing from the bound.
        unknowns
            Support of each unknown: a constraint of `numpyro.distributions.constraints`, or a distribution that has it;
            ``(constraint, shape)`` for an array.
        key
            Random key: the same key gives the same result.
        progress
            Show a progress bar, where there is a terminal.
        """
        supports = tuple((name, _support(name, given)) for name, given in unknowns.items())
        like = {
            name: _zeros(given, support) for (name, support), given in zip(supports, unknowns.values(), strict=True)
        }
        self.form.check(Params(like), _layout(like))
        density = _centred(log_density, supports, like)
        method = _OnDensity(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        method = dataclasses.replace(method, point=None)
        key_run, key_bound = jax.random.split(key)
        nothing = Data(np.zeros((1, 1)), np.zeros((1, 1)))
        (trace,) = run(method, density, nothing, self.train, key_run[None], Options(progress=progress))
        if not all_finite(trace.state.q):
            raise NumericalError(Result.NONFINITE_STATE, int(trace.state.step), 0, "There is no q.")
        return DensityApproximation(density, trace.state.q, *_bound(density, trace.state.q, key_bound))


class _OnDensity(Variational):
    """`ADVI` on a `_Density`, whose coordinates have the mode at 0 and curvature 1."""

    family: Family = Diagonal()

    @property
    def form(self) -> Family:
        """The field `family`."""
        return self.family

    def start(self, key: Key, target: Any, batch: Data) -> Params:
        """The mode, which is at 0."""
        return Params(jax.tree.map(jnp.zeros_like, target.centre))

    def around(self, key: Key, target: Any, params: Params, batch: Data) -> Gaussian:
        """Variational distribution around the mode, with the standard deviations that its curvature implies."""
        ones = jax.tree.map(jnp.ones_like, params)
        return self.form.around(key, params, ones, _layout(params.weights))


class _Density(Module):
    """A log density as a target, in coordinates around a centre."""

    function: Callable[[dict[str, Array]], Scalar] = eqx.field(static=True)
    supports: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    centre: dict[str, Array]
    scale: dict[str, Array]
    num: Any = 1.0

    def values(self, params: Params) -> tuple[dict[str, Array], Scalar]:
        """Values of the unknowns in their own units, and the log Jacobian."""
        total, values = jnp.zeros(()), {}
        for name, support in self.supports:
            real = self.centre[name] + self.scale[name] * params.weights[name]
            transform = biject_to(support)
            values[name] = transform(real)
            total += jnp.sum(transform.log_abs_det_jacobian(real, values[name])) + jnp.sum(jnp.log(self.scale[name]))
        return values, total

    def log_density(self, params: Params) -> Scalar:
        """Log density in these coordinates."""
        values, jacobian = self.values(params)
        return self.function(values) + jacobian

    def check(self, y: Array) -> Array:
        """Nothing to check: there are no rows."""
        return y

    def log_likelihood(self, params: Params, batch: Data) -> Scalar:
        """The whole log density."""
        return self.log_density(params)

    def log_prior(self, params: Params) -> Scalar:
        """0: all is in the log likelihood."""
        return jnp.zeros(())


class DensityApproximation(Module):
    """A normal q fitted to a log density of unknowns."""

    density: _Density
    q: Gaussian
    """On the real line, in coordinates with the mode at 0 and curvature 1."""
    elbo: Array
    """The evidence lower bound: at most the logarithm of the density's integral."""
    error: Array
    """Its standard error, from 1,000 draws."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> dict[str, Array]:
        """Draws of each unknown in its own units, with leading axis `num`."""
        return jax.vmap(lambda key_draw: self.density.values(self.q.sample(key_draw))[0])(jax.random.split(key, num))


def _support(name: str, given: Support) -> constraints.Constraint:
    entry = given[0] if isinstance(given, tuple) else given
    support = entry.support if isinstance(entry, Distribution) else entry
    if not isinstance(support, constraints.Constraint) or support.is_discrete:
        raise InputError(
            f"a continuous support of {name!r}, which a normal q on the real line can cover",
            repr(support)[:60],
            "Sum discrete unknowns out, or use a constraint such as constraints.positive.",
        )
    return support


def _zeros(given: Support, support: constraints.Constraint) -> Array:
    """Zeros on the real line, of the shape of an unknown."""
    entry, shape = given if isinstance(given, tuple) else (given, None)
    if shape is None:
        shape = entry.shape() if isinstance(entry, Distribution) else ()
    return jnp.zeros(biject_to(support).inverse_shape(tuple(shape)))


def _layout(like: dict[str, Array]) -> dict[str, Leaf]:
    return {name: Leaf("unknown") for name in like}


def _centred(function: Callable[[dict[str, Array]], Scalar], supports: tuple, like: dict[str, Array]) -> _Density:
    """The density in coordinates with the mode at 0 and curvature 1 there; unchanged if no mode is found."""
    ones = jax.tree.map(jnp.ones_like, like)
    plain = _Density(function, supports, like, ones)
    value = plain.log_density(Params(like))
    if jnp.shape(value) != () or not jnp.isfinite(value):
        raise InputError(
            "a finite number as log density where all unknowns are 0 on the real line",
            f"{value}",
            "Sum over data, and check the supports.",
        )
    flat, unravel = ravel_pytree(like)

    def loss(real: Array) -> Scalar:
        return -plain.log_density(Params(unravel(real)))

    mode, curvature = _mode(loss, flat)
    good = all_finite((mode, curvature))
    centre = unravel(mode if good else flat)
    scale = unravel(jnp.where(good & (curvature > 0), curvature, 1.0) ** -0.5)
    return strong(_Density(function, supports, centre, scale))


def _mode(loss: Callable[[Array], Scalar], start: Array) -> tuple[Array, Array]:
    """Minimum of a loss by L-BFGS, and the diagonal of its Hessian there."""
    optimiser = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(loss)

    def iteration(_: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        place, memory = carry
        value, gradient = value_and_gradient(place, state=memory)
        move, memory = optimiser.update(gradient, memory, place, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(place, move), memory

    @jax.jit
    def search(start: Array) -> tuple[Array, Array]:
        place, _ = jax.lax.fori_loop(0, _MODE_STEPS, iteration, (start, optimiser.init(start)))
        unit = jnp.eye(len(start), dtype=start.dtype)
        curvature = jax.lax.map(lambda e: jax.jvp(jax.grad(loss), (place,), (e,))[1] @ e, unit)
        return place, curvature

    return search(start)


@jax.jit
def _bound(density: _Density, q: Gaussian, key: Key) -> tuple[Array, Array]:
    def log_weight(key_draw: Key) -> Array:
        draw = q.sample(key_draw)
        return density.log_density(draw) - q.log_prob(draw)

    values = jax.lax.map(log_weight, jax.random.split(key, _DRAWS))
    return jnp.mean(values), jnp.std(values, ddof=1) / _DRAWS**0.5
