"""`Variational`: maximises a bound over q, for any family, divergence, gradient estimator and KL weights."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.random import split
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.point.descent import Info, adam
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import shapes
from tunbridge.inference.vi.around import AroundPoint
from tunbridge.inference.vi.divergences import KL, Divergence
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.gradients import Gradient, StickTheLanding
from tunbridge.inference.vi.klweights import KLWeights, Uniform
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace
from tunbridge.runtime.patience import Patience

_ROOMS = {"divergence": "divergences", "gradient": "gradients", "kl_weights": "klweights"}


class VariationalState(NamedTuple):
    """State of a fit: q, the optimiser's state, the step count and patience."""

    q: Gaussian
    optimiser: PyTree
    step: Array
    patience: PyTree
    """A `Patience` if one is requested, else ()."""


class Variational(AroundPoint):
    r"""Maximises the evidence lower bound over a family of normal distributions of all unknowns.

    .. math::

        \frac{N}{n} \sum_{i \in \text{batch}} E_q[\log p(y_i \mid x_i, w)] - M \pi_b \, \text{KL}(q \,\|\, p)

    for batch b of the M batches of an epoch. By default the KL is estimated with the same draws as the likelihood, by
    gradients that vanish where q equals the posterior. The fields are described in `tunbridge.MeanField`.
    """

    gradient: Gradient = eqx.field(default=StickTheLanding(), kw_only=True)
    divergence: Divergence = eqx.field(default=KL(closed=False), kw_only=True)
    kl_weights: KLWeights = eqx.field(default=Uniform(), kw_only=True)
    step_size: float = eqx.field(default=1e-2, converter=float, kw_only=True)
    optimiser: Callable[[Any], optax.GradientTransformation] = eqx.field(default=adam, static=True, kw_only=True)

    def __check_init__(self):
        kinds = {"gradient": Gradient, "divergence": Divergence, "kl_weights": KLWeights}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise InputError(f"{name}= as an object of tunbridge.{_ROOMS[name]}", repr(value)[:60], "Leave it out.")
        self.gradient.check(self.form, self.num_samples)

    def bind(self, model: Model) -> Self:
        """The method with its gradient estimator and its divergence bound to the model."""
        like = shapes(model)
        gradient, divergence = self.gradient.bind(model, like), self.divergence.bind(model, like)
        return dataclasses.replace(self, gradient=gradient, divergence=divergence)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> VariationalState:
        """Initial state: q around the parameters, and the optimiser's state."""
        q = self.around(key, target, params, batch)
        patience = () if self.train.patience is None else Patience.fresh()
        return strong(VariationalState(q, self._optax(0.0).init(q), jnp.zeros((), jnp.int32), patience))

    def step(self, key: Key, target: Target, state: VariationalState, batch: Data) -> tuple[VariationalState, Info]:
        """Take one step of the optimiser."""
        loss, gradient = self.loss_and_gradient(key, target, state.q, batch, self.share(target, batch, state.step))
        optimiser = self._optax(self.decay(state.step / self.train.steps))
        updates, memory = optimiser.update(gradient, state.optimiser, state.q)
        q = optax.apply_updates(state.q, updates)
        patience = state.patience.after(loss, state.step < 0) if state.patience else ()
        fresh = VariationalState(q, memory, state.step + 1, patience)
        if patience:
            fresh = jax.lax.cond(self.done(state), lambda: state, lambda: fresh)
        return fresh, Info.of(loss)

    def share(self, target: Target, batch: Data, step: Array) -> Array:
        r""":math:`M \pi_b`, the factor on the KL at a step."""
        num = jnp.ceil(target.num / batch.num)
        return num * self.kl_weights.share(jnp.mod(step, num.astype(step.dtype)), num)

    def loss_and_gradient(
        self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array
    ) -> tuple[Scalar, Gaussian]:
        """Minus the bound / N from some draws, and its gradient with respect to the parameters of q."""
        return jax.value_and_grad(lambda q: -self.bound(key, target, q, batch, share) / target.num)(q)

    def bound(self, key: Key, target: Target, q: Gaussian, batch: Data, share: Array) -> Scalar:
        """An estimate of the bound for the whole data set from one batch and `num_samples` draws."""

        def terms_of_draw(key_draw: Key) -> tuple[Scalar, Scalar]:
            key_noise, key_rows = split(key_draw, 2)
            noise = q.noise(key_noise)
            params = self.gradient.draw(q, noise)
            fit = self.gradient.log_likelihood(key_rows, target, q, params, noise, batch)
            sampled = self.divergence.sampled(target, self.gradient.seen(q), params)
            return fit + share * sampled, self.gradient.log_q(q, params)

        if self.num_samples == 1:
            values, log_q = jax.tree.map(lambda leaf: leaf[None], terms_of_draw(key))
        else:
            values, log_q = jax.vmap(terms_of_draw)(split(key, self.num_samples))
        log_weights = self.gradient.surrogate(values, log_q) + share * self.divergence.direct(target, q)
        return self.divergence.bound(log_weights)

    def done(self, state: VariationalState) -> bool | Array:
        """Whether patience has run out."""
        return state.patience.since >= self.train.patience if state.patience else False

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """The posterior with the last q."""
        (trace,) = traces
        return self.reached(model, key, trace, trace.state.q)

    def _optax(self, factor: Any) -> optax.GradientTransformation:
        return self.optimiser(self.step_size * factor)
