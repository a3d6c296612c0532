"""Metropolis-Hastings: a proposal, and the rule by which it is accepted."""

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.mcmc import metrics as kinetics
from blackjax.mcmc import random_walk
from blackjax.mcmc.random_walk import RWState
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree, Scalar
from tunbridge.inference.mcmc.adaptive import Adaptive, Density
from tunbridge.inference.mcmc.mass import LowRank
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import Info
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Trace

_BEST = 2.38
"""The optimal step in d dimensions is this over the square root of d, in standard deviations of a normal target."""


@runtime_checkable
class Proposal(Protocol):
    """A proposal distribution. Positions hold all unknowns in one vector."""

    def sample(self, key: Key, position: Array) -> Array:
        """Draw a proposed position."""
        ...

    def log_density(self, new: Array, old: Array) -> Scalar | None:
        """Log q(new | old), up to a constant; None where it equals log q(old | new)."""
        ...


class NormalSteps(Module):
    """Normal steps, a symmetric proposal."""

    step_size: Array
    inverse_mass: PyTree

    def sample(self, key: Key, position: Array) -> Array:
        r"""Draw :math:`w + \epsilon M^{-1/2} z`."""
        metric = kinetics.default_metric(self.inverse_mass)
        return position + self.step_size * jax.grad(metric.kinetic_energy)(metric.sample_momentum(key, position))

    def log_density(self, new: Array, old: Array) -> None:
        """None: the proposal is symmetric."""
        return


def metropolis(key: Key, density: Density, chain: RWState, proposal: Proposal) -> tuple[RWState, Array]:
    r"""Return the chain after one transition, and the acceptance probability.

    .. math::

        \min\Big(1, \frac{\pi(w') \, q(w \mid w')}{\pi(w) \, q(w' \mid w)}\Big)
    """

    def log_q(old: RWState, new: RWState) -> Any:
        return proposal.log_density(new.position, old.position)

    symmetric = proposal.log_density(chain.position, chain.position) is None
    kernel = random_walk.build_rmh()
    moved, info = kernel(key, chain, density, proposal.sample, None if symmetric else log_q)
    return moved, info.acceptance_rate


class RandomWalk(Adaptive):
    r"""Metropolis-Hastings :cite:p:`hastings1970monte`, by default a random walk with normal steps.

    A position :math:`w' \sim q(\cdot \mid w)` is proposed and accepted with probability

    .. math::

        \min\Big(1, \frac{\pi(w') \, q(w \mid w')}{\pi(w) \, q(w' \mid w)}\Big).

    Normal steps :math:`w' = w + \epsilon M^{-1/2} z` are symmetric, so that q drops out. No gradients are needed, at
    the cost of a chain that takes about d times as many steps, d the number of unknowns: for small problems, and as a
    baseline.

    Parameters
    ----------
    step_size
        Size of the normal steps, in posterior standard deviations; None tunes it to `acceptance`.
    acceptance
        Acceptance rate that the step size is tuned to; None is 0.234, or 0.44 in one dimension
        :cite:p:`roberts2001optimal`.
    mass
        Family of M: `tb.mass.Diagonal` or `Dense`.
    proposal
        Replaces the normal steps: an equinox Module with ``sample(key, position)``, which returns a new position, and
        ``log_density(new, old)``, which returns :math:`\log q(\text{new} \mid \text{old})` or, if q is symmetric, None.
        It is not tuned.
    run
        Length of the run. Steps are cheap and small: keep one of several.

    Examples
    --------
    Steps that grow with the distance from 0 are not symmetric:

    >>> import equinox as eqx, jax, jax.numpy as jnp
    >>> class Stretch(eqx.Module):
    ...     def sample(self, key, position):
    ...         return position * jnp.exp(0.5 * jax.random.normal(key))
    ...     def log_density(self, new, old):
    ...         return -jnp.log(jnp.abs(new[0])) - 2.0 * jnp.log(new[0] / old[0]) ** 2
    >>> RandomWalk(proposal=Stretch()).proposal
    Stretch()
    """

    promises: ClassVar[Promises] = {
        "linear": ("exact", 0.12),
        "linear_unknown": ("exact", 0.15),
        "logistic": ("exact", 0.12),
        "tanh_unit": ("exact", 0.25),
    }

    proposal: Any = None
    run: Run = Run(warmup=5000, draws=1000, thin=20)

    def __check_init__(self):
        if self.proposal is not None and not isinstance(self.proposal, Proposal):
            raise InputError(
                "proposal= with the methods sample(key, position) and log_density(new, old)",
                repr(self.proposal)[:60],
                "Write both; log_density may return None if the proposal is symmetric.",
            )
        if self.proposal is not None and not isinstance(self.proposal, eqx.Module):
            raise InputError(
                "proposal= as an equinox Module", type(self.proposal).__name__, "Derive its class from eqx.Module."
            )
        if self.proposal is not None and (self.step_size is not None or self.acceptance is not None):
            raise InputError("proposal=, or step_size= and acceptance=", "both", "Let the proposal hold its own step.")
        if isinstance(self.mass, LowRank):
            raise InputError(
                "mass= tb.mass.Diagonal() or Dense()", "LowRank, which needs gradients", "Use one of these."
            )

    @property
    def gradients_per_step(self) -> int | None:
        """One evaluation of the density."""
        return 1

    def begin(self, key, density, position, variance):
        """Initial chain, and the optimal step size for a posterior as wide as the prior."""
        first = _BEST / jnp.sqrt(jnp.asarray(position.shape[0], position.dtype))
        return random_walk.init(position, density), first

    def gradient(self, chain: RWState) -> Array:
        """Zeros: there are no gradients."""
        return jnp.zeros_like(chain.position)

    def wanted(self, num: int) -> Any:
        """`acceptance` if given, else 0.234, or 0.44 in one dimension."""
        if self.acceptance is not None:
            return self.acceptance
        return 0.44 if num == 1 else 0.234

    def move(self, key, density, chain, step_size, inverse_mass):
        """Return the chain after one proposal, and its `Info`."""
        proposal = NormalSteps(step_size, inverse_mass) if self.proposal is None else self.proposal
        moved, acceptance = metropolis(key, density, chain, proposal)
        nan = jnp.full_like(moved.logdensity, jnp.nan)
        return moved, Info.of(moved.logdensity, acceptance, jnp.asarray(False), nan, 1)

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """The tuned step size, or the name of the proposal."""
        return super().notes(traces) if self.proposal is None else (f"Proposals of {type(self.proposal).__name__}.",)
