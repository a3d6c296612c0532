"""Elliptical slice sampling: weights with a normal prior move on ellipses, other unknowns along their axes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc import elliptical_slice, slice
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, Params
from tunbridge.inference.sampler import Info, Sampler, shapes
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Options, Run


class EllipticalState(NamedTuple):
    """What the next step needs."""

    position: Array
    log_density: Array


class EllipticalSlice(Sampler):
    r"""Elliptical slice sampling :cite:p:`murray2010elliptical`, for normal priors.

    With :math:`\nu` drawn from the prior of the weights, the chain moves to a point of the ellipse
    :math:`w \cos\theta + \nu \sin\theta` whose likelihood is above a random level. There is no step size, no gradient
    and no rejection. Unknown noise and prior scales are then moved one by one, given the weights, by slice sampling
    :cite:p:`neal2003slice` on the real line. Both leave the posterior as it is.

    It does best where the likelihood says little more than the prior: many weak data, few unknowns.

    Parameters
    ----------
    run
        How long. There is nothing to tune: warm-up is for the chain to arrive.
    """

    run: Run = Run(warmup=1000, draws=1000, thin=10)

    @property
    def gradients_per_step(self) -> int | None:
        """Densities until a point on the ellipse is accepted."""
        return None

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """What has no ellipse."""
        super().check(model, data, options)
        if not model.prior.gaussian:
            raise InputError(
                "a prior that is normal given its scales", type(model.prior).__name__, "Use tb.NUTS(), say."
            )
        if self.run.temperature != 1.0:
            raise InputError("a temperature of 1", f"{self.run.temperature}", "Use tb.NUTS(), say.")

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> EllipticalState:
        """The density where the chain starts."""
        return EllipticalState(ravel(params), target.log_density(params, batch))

    def step(self, key: Key, target: Target, state: EllipticalState, batch: Data) -> tuple[EllipticalState, Info]:
        """Weights given the rest, then the rest given the weights."""
        like = shapes(target.model)
        num = size(like.weights)
        key_weights, key_rest = jax.random.split(key)
        weights, rest = state.position[:num], state.position[num:]
        weights, turns = _turn(key_weights, target, like, weights, rest, batch)

        def density(rest: Array) -> Array:
            return target.log_density(unravel(like, jnp.concatenate([weights, rest])), batch)

        moved = slice.init(rest, density)
        if rest.shape[0]:
            moved, swept = slice.build_coordinate_kernel(slice.stepping_out)(key_rest, moved, density)
            turns += swept.num_expansions + swept.num_shrink + 2 * rest.shape[0]
        nan = jnp.full_like(moved.logdensity, jnp.nan)
        info = Info.of(moved.logdensity, nan, jnp.asarray(False), nan, turns + 2)
        return EllipticalState(jnp.concatenate([weights, moved.position]), moved.logdensity), info


def _turn(key: Key, target: Target, like: Params, weights: Array, rest: Array, batch: Data) -> tuple[Array, Array]:
    """A point on an ellipse through the weights and a draw from their prior, and how many points were tried.

    Likelihoods are relative to the current one: the level to be above is then below 0, however large they are.
    """
    model = target.model

    def likelihood(weights: Array) -> Array:
        return target.log_likelihood(unravel(like, jnp.concatenate([weights, rest])), batch)

    now = likelihood(weights)

    def relative(weights: Array) -> Array:
        found = likelihood(weights) - now
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    def from_prior(key: Key, _: Array) -> Array:
        raw, _ = model.prior.sample(key, like.weights, model.network.layout(like.weights))
        return ravel(raw)

    mean = jnp.zeros((), weights.dtype)
    move = elliptical_slice.elliptical_proposal(relative, from_prior, mean)
    moved, info = move(key, elliptical_slice.EllipSliceState(weights, jnp.zeros_like(now)))
    return moved.position, info.subiter
