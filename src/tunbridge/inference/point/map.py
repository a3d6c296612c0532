"""The posterior mode, by any optimiser."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError, Result
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.base import Iterative
from tunbridge.inference.point import holdout
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace, Train
from tunbridge.runtime.schedules import Cosine

_HELD_OUT = 0.2
_SMOOTHING = 0.95
_NOISE_STEPS, _NOISE_STEP_SIZE = 200, 0.1


def adam(step_size: Any) -> optax.GradientTransformation:
    """Adam that forgets squared gradients within 100 steps instead of 1,000.

    The large gradients of the first steps would otherwise hold back the last ones: on the exact problems 2,000 steps
    of optax's default end up to 0.1 posterior standard deviations from the mode, these within 2e-6.
    """
    return optax.adam(step_size, b2=0.99)


class State(NamedTuple):
    """What the next step needs."""

    params: Params
    optimiser: PyTree
    step: Array
    holdout: PyTree
    """(key, threshold) of the held-out rows where noise is unknown, else ()."""
    patience: PyTree
    """(smoothed objective, its least, steps since) where patience is asked for, else ()."""


class Info(NamedTuple):
    """What a reader may want to know of a step."""

    result: Array
    loss: Array
    """-log posterior density / N, up to a constant."""


class MAP(Iterative):
    r"""The maximum a posteriori estimate.

    .. math::

        \hat w = \arg\max_w \frac{N}{n} \sum_{i \in \text{batch}} \log p(y_i \mid x_i, w) + \log p(w)

    With a normal prior of scale :math:`s` it is weight decay: the objective divided by N is the mean negative log
    likelihood plus :math:`\lVert w \rVert^2 / (2 N s^2)`.

    Unknown prior scales are held at their medians. Unknown noise is never maximised together with the weights (a
    network that interpolates would send it to zero): during the first half of the steps the weights learn from four
    fifths of the rows, and the noise from the residuals of the rest; then the noise stays, and the weights are
    refitted to all rows.

    Parameters
    ----------
    step_size
        Of the first step; in the units of the optimiser.
    optimiser
        A function of the step size that gives an optax transformation: ``optax.adam``, ``optax.sgd``,
        ``optax.lbfgs``, or your own. It is compared by identity, so define it once.
    decay
        How the step size falls: a schedule from `tunbridge.schedules`.
    train
        How long.
    """

    step_size: float = eqx.field(default=1e-2, converter=float)
    optimiser: Callable[[Any], optax.GradientTransformation] = eqx.field(default=adam, static=True)
    decay: Callable[[Array], Array] = Cosine()
    train: Train = Train()

    def __check_init__(self):
        if not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Try 0.01.")
        if not callable(self.optimiser):
            raise InputError(
                "optimiser= as a function of the step size",
                f"{type(self.optimiser).__name__}",
                "Pass optax.adam, not optax.adam(1e-3); give the number as step_size=.",
            )

    @property
    def duration(self) -> Train:
        """How long it trains."""
        return self.train

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> State:
        """The optimiser's state, the held-out rows, and noise to begin with."""
        held: PyTree = ()
        if params.noise:
            held = (key, holdout.threshold(holdout.mark(key, batch), _HELD_OUT))
            params = params._replace(noise=_noise_of_residuals(target, params, batch, _held(held, batch)))
        patience = () if self.train.patience is None else (jnp.inf, jnp.inf, 0)
        state = State(params, self._optax(0.0).init(_free(params)), jnp.zeros((), jnp.int32), held, patience)
        return strong(state)

    def step(self, key: Key, target: Target, state: State, batch: Data) -> tuple[State, Info]:
        """One step of the optimiser."""
        phases = 2 if state.holdout else 1
        length = jnp.ceil(self.train.steps / phases)
        refit = state.step >= (phases - 1) * length

        def objective(free):
            params = state.params._replace(weights=free[0], noise=free[1])
            if not state.holdout:
                return -(target.log_likelihood(params, batch) + target.log_prior_weights(params)) / target.num
            held = _held(state.holdout, batch) & ~refit
            return _held_out_objective(target, params, batch, held)

        free = _free(state.params)
        loss, slope = jax.value_and_grad(objective)(free)
        optimiser = self._optax(self.decay((state.step % length) / length))
        updates, memory = optimiser.update(slope, state.optimiser, free, value=loss, grad=slope, value_fn=objective)
        updates = (updates[0], jax.tree.map(lambda u: jnp.where(refit, 0.0, u), updates[1]))
        weights, noise = optax.apply_updates(free, updates)
        params = state.params._replace(weights=weights, noise=noise)
        patience = self._wait(state.patience, loss, refit)
        fresh = State(params, memory, state.step + 1, state.holdout, patience)
        if state.patience:
            fresh = jax.lax.cond(self.done(state), lambda: state, lambda: fresh)
        result = jnp.where(jnp.isfinite(loss), Result.SUCCESSFUL, Result.NONFINITE_OBJECTIVE)
        return fresh, Info(result.astype(jnp.int32), loss)

    def done(self, state: State) -> bool | Array:
        """Whether patience has run out."""
        return state.patience[2] >= self.train.patience if state.patience else False

    def keep(self, state: State) -> PyTree:
        """Nothing: the last state is what counts."""
        return ()

    def posterior(self, model: Model, traces: list[Trace], key: Key) -> Posterior:
        """A point at the last state."""
        (trace,) = traces
        return Point(model, key, trace.state.params, trace.info, notes=self._notes(trace))

    def _optax(self, factor: Any) -> optax.GradientTransformationExtraArgs:
        return optax.with_extra_args_support(self.optimiser(self.step_size * factor))

    def _wait(self, patience: PyTree, loss: Array, refit: Array) -> PyTree:
        if not patience:
            return ()
        smooth, least, since = patience
        smooth = jnp.where(jnp.isinf(smooth), loss, _SMOOTHING * smooth + (1 - _SMOOTHING) * loss)
        falls = (smooth < least - 1e-5 * jnp.maximum(1.0, jnp.abs(least))) | jnp.isinf(least) | ~refit
        return smooth, jnp.where(falls, smooth, least), jnp.where(falls, 0, since + 1)

    def _notes(self, trace: Trace) -> tuple[str, ...]:
        params, notes = trace.state.params, []
        if params.scales:
            notes.append("Unknown prior scales were held at the medians of their priors.")
        if params.noise:
            notes.append("Noise was measured on held-out rows, then the weights were refitted to all rows.")
        if trace.step < self.train.steps:
            notes.append(f"Stopped after {trace.step} of {self.train.steps} steps.")
        return tuple(notes)


def _free(params: Params) -> tuple[PyTree, PyTree]:
    """What is optimised: weights and noise. Prior scales are held."""
    return params.weights, params.noise


def _held(state: PyTree, batch: Data) -> Array:
    key, threshold = state
    return holdout.mark(key, batch) <= threshold


def _held_out_objective(target: Target, params: Params, batch: Data, held: Array) -> Array:
    """Weights learn from the rows that are not held out, noise from those that are; neither sees the other's."""
    likelihood, outputs = target.model.likelihood, target.model.outputs(params, batch.x)
    of_weights = likelihood.distribution(outputs, jax.lax.stop_gradient(params.noise)).log_prob(batch.y)
    of_noise = likelihood.distribution(jax.lax.stop_gradient(outputs), params.noise).log_prob(batch.y)
    terms = jnp.where(held, of_noise, of_weights)
    log_prior = target.log_prior_weights(params) + likelihood.log_noise(params.noise, jacobian=False)
    return -(target.rescale(terms, batch) + log_prior) / target.num


def _noise_of_residuals(target: Target, params: Params, batch: Data, held: Array) -> PyTree:
    """The noise that best explains the held-out residuals of the network as it stands."""
    likelihood, outputs = target.model.likelihood, target.model.outputs(params, batch.x)
    adam = optax.adam(_NOISE_STEP_SIZE)

    def objective(noise):
        terms = likelihood.distribution(outputs, noise).log_prob(batch.y)
        log_prior = likelihood.log_noise(noise, jacobian=False)
        return -(target.rescale(jnp.where(held, terms, 0.0), batch) + log_prior) / target.num

    def step(_, loop):
        noise, memory = loop
        updates, memory = adam.update(jax.grad(objective)(noise), memory, noise)
        return optax.apply_updates(noise, updates), memory

    start = likelihood.median_noise()
    return jax.lax.fori_loop(0, _NOISE_STEPS, step, (start, adam.init(start)))[0]
