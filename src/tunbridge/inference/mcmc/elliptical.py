"""Elliptical slice sampling: weights with a normal prior move on ellipses, other unknowns one by one."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc import elliptical_slice, slice
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, Params
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info, Sampler, check_untempered, shapes
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Options


class EllipticalState(NamedTuple):
    """Position of a chain, and the log density there."""

    position: Array
    log_density: Array


class EllipticalSlice(Sampler):
    r"""Elliptical slice sampling :cite:p:`murray2010elliptical`, for normal priors.

    With :math:`\nu` drawn from the prior of the weights, the chain moves to a point of the ellipse
    :math:`w \cos\theta + \nu \sin\theta` whose likelihood is above a random level. There is no step size, no gradient
    and no rejection. Unknown noise and prior scales are then updated one by one, given the weights, by slice sampling
    :cite:p:`neal2003slice` on the real line. Both updates leave the posterior invariant.

    It works best where the likelihood adds little to the prior: many weakly informative data, few unknowns.

    Parameters
    ----------
    run
        Length of the run. Nothing is tuned: warm-up only lets the chain reach the posterior.
    """

    promises: ClassVar[Promises] = {
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.12),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.15),
    }

    run: Run = Run(warmup=1000, draws=1000, thin=10)

    @property
    def gradients_per_step(self) -> int | None:
        """None, as densities are evaluated until a point on the ellipse is accepted."""
        return None

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError unless the prior is normal given its scales and the temperature is 1."""
        super().check(model, data, options)
        if not model.prior.gaussian:
            raise InputError(
                "a prior that is normal given its scales", type(model.prior).__name__, "Use tb.NUTS(), say."
            )
        check_untempered(self.run)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> EllipticalState:
        """Initial state, with the log density at the start."""
        return EllipticalState(ravel(params), target.log_density(params, batch))

    def step(self, key: Key, target: Target, state: EllipticalState, batch: Data) -> tuple[EllipticalState, Info]:
        """Update the weights given the rest, then the rest given the weights."""
        like = shapes(target.model)
        num = size(like.weights)
        key_weights, key_rest = jax.random.split(key)
        weights, rest = state.position[:num], state.position[num:]
        weights, evaluations = _move_on_ellipse(key_weights, target, like, weights, rest, batch)

        def density(rest: Array) -> Array:
            return target.log_density(unravel(like, jnp.concatenate([weights, rest])), batch)

        moved = slice.init(rest, density)
        if rest.shape[0]:
            moved, swept = slice.build_coordinate_kernel(slice.stepping_out)(key_rest, moved, density)
            evaluations += swept.num_expansions + swept.num_shrink + 2 * rest.shape[0]
        nan = jnp.full_like(moved.logdensity, jnp.nan)
        info = Info.of(moved.logdensity, nan, jnp.asarray(False), nan, evaluations + 2)
        return EllipticalState(jnp.concatenate([weights, moved.position]), moved.logdensity), info


def _move_on_ellipse(
    key: Key, target: Target, like: Params, weights: Array, rest: Array, batch: Data
) -> tuple[Array, Array]:
    """Return a point on an ellipse through the weights and a draw from their prior, and how many points were tried.

    Log likelihoods are taken relative to the current one, so that the slice level is below 0 however large they are.
    """
    model = target.model

    def likelihood(weights: Array) -> Array:
        return target.log_likelihood(unravel(like, jnp.concatenate([weights, rest])), batch)

    now = likelihood(weights)

    def relative(weights: Array) -> Array:
        log_ratio = likelihood(weights) - now
        return jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)

    def from_prior(key: Key, _: Array) -> Array:
        raw, _ = model.prior.sample(key, like.weights, model.network.layout(like.weights))
        return ravel(raw)

    mean = jnp.zeros((), weights.dtype)
    move = elliptical_slice.elliptical_proposal(relative, from_prior, mean)
    moved, info = move(key, elliptical_slice.EllipSliceState(weights, jnp.zeros_like(now)))
    return moved.position, info.subiter
