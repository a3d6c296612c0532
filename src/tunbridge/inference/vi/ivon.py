"""Improved variational online Newton: a natural gradient at the cost of Adam."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.random import normal, split
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, Scalar
from tunbridge.inference.point.descent import Info
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.inference.vi import families
from tunbridge.inference.vi.around import AroundPoint
from tunbridge.inference.vi.families import Family
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace

_FORGETS = 1000
"""At step t at least 1 / (t + this) of h is replaced, so that little of its initial value remains."""


class IVONState(NamedTuple):
    """State of a fit: mean, curvature, momentum and step count."""

    mean: Params
    hessian: Params
    """h: the curvature of -log posterior / N along each axis, averaged over q."""
    momentum: Params
    """g."""
    step: Array


class IVON(AroundPoint):
    r"""Mean-field by natural gradient :cite:p:`shen2024variational`: one gradient per step, no backward pass for sigma.

    With :math:`\ell = -\log p(y, w) / N` at a draw :math:`w = m + \sigma \varepsilon`,
    :math:`\sigma = (N h)^{-1/2}`,

    .. math::

        \hat h &= \nabla \ell \, \varepsilon / \sigma, \qquad g \leftarrow \beta_1 g + (1 - \beta_1) \nabla \ell \\
        h &\leftarrow \beta_2 h + (1 - \beta_2) \hat h
        + \tfrac12 (1 - \beta_2)^2 (h - \hat h)^2 / h, \qquad m \leftarrow m - \alpha \, g / h.

    At step t at least 1 / (t + 1000) of h is replaced. The prior is part of :math:`\ell`, so any prior will do; unknown
    noise and prior scales are part of q.

    Parameters
    ----------
    step_size
        :math:`\alpha`: 1 is a Newton step.
    beta_1, beta_2
        Decay of g and of h: how much of each is kept per step.
    reach
        Largest move of a mean per step, in its standard deviations.
    num_samples, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    promises: ClassVar[Promises] = {  # independent weights
        "linear": ("diagonal", 0.12),
        "linear_unknown": ("mean", 0.2),
        "logistic": ("mean", 0.2),
        "tanh_unit": ("mean", 0.5),
    }
    spreads: ClassVar[Spreads] = {"numbers": (1.0, 3.3), "classes": (1.1, 1.3)}

    step_size: float = eqx.field(default=0.1, converter=float, kw_only=True)
    beta_1: float = eqx.field(default=0.9, converter=float, kw_only=True)
    beta_2: float = eqx.field(default=0.9999, converter=float, kw_only=True)
    reach: float = eqx.field(default=1.0, converter=float, kw_only=True)

    def __check_init__(self):
        if not (0 <= self.beta_1 < 1 and 0 <= self.beta_2 < 1 and self.reach > 0):
            raise InputError(
                "beta_1 and beta_2 in [0, 1), and reach above 0",
                f"{self.beta_1}, {self.beta_2} and {self.reach}",
                "Leave them out for the defaults.",
            )

    @property
    def form(self) -> Family:
        """A diagonal covariance, of independent unknowns."""
        return families.Diagonal()

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> IVONState:
        """Initial state: the parameters, and the curvature there."""
        q = self.around(key, target, params, batch)
        hessian = jax.tree.map(lambda v: 1.0 / (target.num * v), q.variance())
        zeros = jax.tree.map(jnp.zeros_like, params)
        return strong(IVONState(params, hessian, zeros, jnp.zeros((), jnp.int32)))

    def step(self, key: Key, target: Target, state: IVONState, batch: Data) -> tuple[IVONState, Info]:
        """Take one natural-gradient step."""
        if self.num_samples == 1:
            loss, gradient, curvature = self._draw(key, target, state, batch)
        else:
            keys = split(key, self.num_samples)
            each = jax.vmap(lambda key_draw: self._draw(key_draw, target, state, batch))(keys)
            loss, gradient, curvature = jax.tree.map(lambda leaf: jnp.mean(leaf, 0), each)
        fresh = jnp.maximum(1.0 - self.beta_2, 1.0 / (state.step + _FORGETS))
        kept = 1.0 - fresh
        momentum = jax.tree.map(lambda g, d: self.beta_1 * g + (1.0 - self.beta_1) * d, state.momentum, gradient)
        hessian = jax.tree.map(
            lambda h, d: kept * h + fresh * d + 0.5 * jnp.square(fresh * (h - d)) / h, state.hessian, curvature
        )
        rate = self.step_size * self.decay(state.step / self.train.steps)
        whole = 1.0 - self.beta_1 ** (state.step + 1.0)

        def moved(m: Array, g: Array, h: Array) -> Array:
            most = self.reach * jax.lax.rsqrt(target.num * h)
            return m - rate * jnp.clip(g / (whole * h), -most, most)

        mean = jax.tree.map(moved, state.mean, momentum, hessian)
        return IVONState(mean, hessian, momentum, state.step + 1), Info.of(loss)

    def _draw(self, key: Key, target: Target, state: IVONState, batch: Data) -> tuple[Scalar, Params, Params]:
        """Loss at a draw, its gradient, and the curvature estimated from the draw."""
        leaves, structure = jax.tree.flatten(state.mean)
        keys = jax.tree.unflatten(structure, list(split(key, len(leaves))))
        noise = jax.tree.map(lambda k, m: normal(k, m.shape, m.dtype), keys, state.mean)
        sds = jax.tree.map(lambda h: jax.lax.rsqrt(target.num * h), state.hessian)
        drawn = jax.tree.map(lambda m, s, e: m + s * e, state.mean, sds, noise)
        loss, gradient = jax.value_and_grad(lambda w: -target.log_density(w, batch) / target.num)(drawn)
        return loss, gradient, jax.tree.map(lambda d, e, s: d * e / s, gradient, noise, sds)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Normal posterior around the last mean."""
        (trace,) = traces
        sds = jax.tree.map(lambda h: (data.num * h) ** -0.5, trace.state.hessian)
        layout = model.network.layout(trace.state.mean.weights)
        return self.reached(model, key, trace, self.form.around(key, trace.state.mean, sds, layout))
