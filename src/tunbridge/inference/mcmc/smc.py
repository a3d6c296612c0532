"""Sequential Monte Carlo: particles that move from the prior to the posterior in stages."""

from typing import ClassVar, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.smc import ess as effective
from blackjax.smc import resampling, solver
from jax import Array
from jax.scipy.special import logsumexp

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, Result
from tunbridge.core.tree import ravel, unravel
from tunbridge.core.types import Key, Params
from tunbridge.inference.base import Iterative
from tunbridge.inference.mcmc.adaptive import Density
from tunbridge.inference.posteriors import Draws
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import shapes
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Train
from tunbridge.runtime.loop import Options, Trace

_LENGTH = 1.5
"""Mean length of a trajectory, in standard deviations of the particles: about a quarter period."""
_MOST_STEPS = 64
"""Largest number of leapfrog steps per trajectory."""


class SMCState(NamedTuple):
    """Particles, how far they have come, the log evidence so far, and their step size."""

    particles: Array
    """(particles, unknowns), equally weighted."""
    exponent: Array
    """Power of the likelihood in the density that they are drawn from: 0 is the prior, 1 the posterior."""
    log_evidence: Array
    step_size: Array


class Info(NamedTuple):
    """Statistics of one stage."""

    result: Array
    exponent: Array
    acceptance: Array
    log_evidence: Array


class TemperedSMC(Iterative):
    r"""Sequential Monte Carlo on tempered posteriors :cite:p:`delmoral2006sequential`.

    Particles drawn from the prior pass through the densities :math:`p(w) \, p(y \mid w)^{\lambda}`, with
    :math:`\lambda` growing from 0 to 1. In each stage :math:`\lambda` grows until the weights
    :math:`p(y \mid w)^{\Delta\lambda}` have the requested effective sample size; particles are resampled by their
    weights, and each is moved by a few Hamiltonian trajectories for the new density, preconditioned with the
    particles' variance. Modes that are far apart keep their shares, and the product of the mean weights estimates the
    evidence, `Draws.log_evidence`.

    Parameters
    ----------
    particles
        Number of particles. The standard error of the log evidence falls as one over its square root.
    mutations
        Trajectories per stage.
    ess
        Effective sample size of a stage's weights, as a share of the particles: nearer to 1 takes more stages.
    acceptance
        Acceptance rate of trajectories that the step size is tuned to from stage to stage.
    stages
        Largest number of stages: a run that has not reached the posterior by then is an error.
    """

    promises: ClassVar[Promises] = {  # 2,000 particles
        "linear": ("exact", 0.15),
        "linear_unknown": ("exact", 0.15),
        "logistic": ("exact", 0.15),
        "tanh_unit": ("exact", 0.15),
    }

    particles: int = eqx.field(static=True, default=2000)
    mutations: int = eqx.field(static=True, default=5)
    ess: float = eqx.field(default=0.8, converter=float)
    acceptance: float = eqx.field(default=0.8, converter=float)
    stages: int = 500

    def __check_init__(self):
        for name, least in (("particles", 2), ("mutations", 1), ("stages", 1)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise InputError(f"{name} as a whole number of at least {least}", f"{number}", f"Change {name}.")
        for name in ("ess", "acceptance"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InputError(f"{name} between 0 and 1", f"{getattr(self, name)}", "Try 0.8.")

    @property
    def duration(self) -> Train:
        """At most `stages` steps, each a stage on all the data."""
        return Train(steps=self.stages)

    @property
    def gradients_per_step(self) -> int | None:
        """None, as trajectories differ in their number of steps."""
        return None

    def within(self, gradients: int, rows: int) -> "TemperedSMC":
        """Return the method itself: how many stages there are depends on the posterior."""
        return self

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError for a stream, which lacks the likelihood of all rows, or for a start other than the prior."""
        if isinstance(data, Stream):
            raise InputError("all rows in memory, as tb.Data", "a stream of batches", "Use a method with batch_size=.")
        if options.init is not None:
            raise InputError("no init=", type(options.init).__name__, "Leave it out: particles start at the prior.")

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> SMCState:
        """Initial state: particles drawn from the prior."""

        def draw(key_draw: Key) -> Array:
            return ravel(target.model.sample_params(key_draw, batch.x))

        particles = jax.vmap(draw)(jax.random.split(key, self.particles))
        zero = jnp.zeros((), particles.dtype)
        return SMCState(particles, zero, zero, zero + particles.shape[1] ** -0.25)

    def step(self, key: Key, target: Target, state: SMCState, batch: Data) -> tuple[SMCState, Info]:
        """Run one stage; do nothing once the posterior is reached."""

        def stay() -> tuple[SMCState, Info]:
            info = Info(jnp.asarray(Result.SUCCESSFUL, jnp.int32), state.exponent, zero, state.log_evidence)
            return state, info

        zero = jnp.zeros_like(state.exponent)
        return jax.lax.cond(self.done(state), stay, lambda: self._stage(key, target, state, batch))

    def _stage(self, key: Key, target: Target, state: SMCState, batch: Data) -> tuple[SMCState, Info]:
        like, (key_choice, key_moves) = shapes(target.model), jax.random.split(key)

        def log_likelihood(position: Array) -> Array:
            return target.log_likelihood(unravel(like, position), batch)

        terms = jax.vmap(log_likelihood)(state.particles)
        terms = jnp.where(jnp.isnan(terms), -jnp.inf, terms)
        left = 1.0 - state.exponent
        grows = effective.ess_solver(lambda _: terms, state.particles, self.ess, left, solver.dichotomy)
        exponent = jnp.where(grows < left, state.exponent + grows, 1.0)
        log_weights = grows * terms
        total = logsumexp(log_weights)
        chosen = resampling.systematic(key_choice, jnp.exp(log_weights - total), self.particles)

        def density(position: Array) -> Array:
            params = unravel(like, position)
            return target.log_prior(params) + exponent * target.log_likelihood(params, batch)

        particles, step_size, acceptance = self._move(key_moves, density, state.particles[chosen], state.step_size)
        log_evidence = state.log_evidence + total - jnp.log(jnp.asarray(self.particles, total.dtype))
        sound = jnp.isfinite(log_evidence) & jnp.all(jnp.isfinite(particles))
        result = jnp.where(sound, Result.SUCCESSFUL, Result.NONFINITE_DENSITY).astype(jnp.int32)
        return SMCState(particles, exponent, log_evidence, step_size), Info(result, exponent, acceptance, log_evidence)

    def _move(self, key: Key, density: Density, particles: Array, step_size: Array) -> tuple[Array, Array, Array]:
        """Particles after trajectories, the step size tuned after each of these, and the last acceptance rate."""
        kernel = blackjax.hmc.build_kernel()
        spread = jnp.var(particles, axis=0)
        variance = jnp.where(spread > 0, spread, 1.0)

        def mutate(carry, key_mutation):
            chains, step_size = carry
            key_length, key_kernel = jax.random.split(key_mutation)
            length = _LENGTH * jax.random.uniform(key_length, (), step_size.dtype, 0.5, 1.5)
            num = jnp.clip(jnp.ceil(length / step_size), 1, _MOST_STEPS).astype(jnp.int32)
            keys = jax.random.split(key_kernel, self.particles)
            chains, info = jax.vmap(lambda k, c: kernel(k, c, density, step_size, variance, num))(keys, chains)
            acceptance = jnp.mean(info.acceptance_rate)
            return (chains, step_size * jnp.exp(acceptance - self.acceptance)), acceptance

        chains = jax.vmap(lambda position: blackjax.hmc.init(position, density))(particles)
        keys = jax.random.split(key, self.mutations)
        (chains, step_size), acceptance = jax.lax.scan(mutate, (chains, step_size), keys)
        return chains.position, step_size, acceptance[-1]

    def done(self, state: SMCState) -> Array:
        """Whether the particles are draws from the posterior."""
        return state.exponent >= 1.0

    def keep(self, target: Target, state: SMCState) -> Array:
        """The power of the likelihood that is reached."""
        return state.exponent

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Draws:
        """The particles as draws, with the log evidence."""
        state = traces[0].state
        if not self.done(state):
            raise InputError(
                "a run that reaches the posterior",
                f"one that was stopped at the power {float(state.exponent):.2g} of the likelihood",
                "Give it more time or stages, or resume it from its checkpoint.",
            )
        note = f"Log evidence {float(state.log_evidence):.2f}, from {self.particles} particles."
        return Draws(model, key, unravel(shapes(model), state.particles), state.log_evidence, notes=(note,))
