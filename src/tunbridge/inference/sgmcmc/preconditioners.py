r"""Preconditioners: a diagonal A in :math:`w' = w + \eta A \nabla \log \pi + \dots`, a step size per unknown.

The injected noise has covariance :math:`2 \eta A`, so a fixed A leaves the posterior invariant. One that keeps
adapting to the chain does not: all preconditioners here stop adapting after warm-up, unless ``forever`` is set.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths, ravel
from tunbridge.core.types import Params, PyTree

__all__ = ["Adam", "Fisher", "Groups", "Identity", "Metric", "Preconditioner", "RMSprop"]


class Metric(NamedTuple):
    """The diagonal of A, and of its inverse square root."""

    scale: Array
    root: Array
    r""":math:`A^{-1/2}`."""


def times(metric: Metric | None, vector: Array) -> Array:
    """A v, with None for the identity."""
    return vector if metric is None else metric.scale * vector


def shaken(metric: Metric | None, noise: Array) -> Array:
    r""":math:`A^{-1/2} \xi`: noise of covariance :math:`A^{-1}`."""
    return noise if metric is None else metric.root * noise


class Preconditioner(Module):
    """An estimator of A: a memory that is updated with gradients of the log posterior."""

    @property
    def settles(self) -> bool:
        """Whether A is fixed after warm-up."""
        return True

    def check(self, like: Params) -> None:
        """InputError if it does not fit unknowns of these shapes."""
        return

    @abc.abstractmethod
    def begin(self, like: Params, gradient: Array, variance: Array) -> PyTree:
        """Memory before the first step, from the unknowns' shapes, a first gradient and the prior's variances."""

    @abc.abstractmethod
    def follow(self, memory: PyTree, gradient: Array, adapts: Array) -> PyTree:
        """Memory after a gradient; `adapts` says whether warm-up still lasts."""

    @abc.abstractmethod
    def metric(self, memory: PyTree) -> Metric | None:
        """A, or None for the identity."""

    def report(self, memory: PyTree) -> PyTree:
        """What a chain contributes to a meeting."""
        return ()

    def meet(self, memory: PyTree, reports: PyTree) -> PyTree:
        """Memory after a meeting."""
        return memory


class Identity(Preconditioner):
    """All unknowns have the same step size."""

    def begin(self, like: Params, gradient: Array, variance: Array) -> PyTree:
        """Empty: nothing is remembered."""
        return ()

    def follow(self, memory: PyTree, gradient: Array, adapts: Array) -> PyTree:
        """Empty: nothing is remembered."""
        return memory

    def metric(self, memory: PyTree) -> Metric | None:
        """The identity."""
        return None


class Running(Preconditioner):
    """A running mean of squared gradients."""

    decay: eqx.AbstractVar[float]
    damping: eqx.AbstractVar[float]
    forever: eqx.AbstractVar[bool]

    def __check_init__(self):
        if not 0.0 <= self.decay < 1.0:
            raise InputError("a decay from 0 to below 1", f"{self.decay}", "Try 0.99.")
        if not self.damping >= 0:
            raise InputError("a damping of at least 0", f"{self.damping}", "Try 1e-7.")

    @property
    def settles(self) -> bool:
        """True unless `forever` is set."""
        return not self.forever

    def share(self, adapts: Array) -> Any:
        """Weight of a new gradient in the running mean."""
        return 1.0 - self.decay if self.forever else jnp.where(adapts, 1.0 - self.decay, 0.0)


class RMSprop(Running):
    r""":math:`A = 1 / (\sqrt v + \delta)`, v a running mean of squared gradients :cite:p:`li2016preconditioned`.

    Parameters
    ----------
    decay
        Decay of the running mean, per step.
    damping
        :math:`\delta`.
    forever
        Keep adapting after warm-up, as :cite:t:`izmailov2021what` do. The draws then follow another distribution: the
        drift term that a varying A requires is left out.
    """

    decay: float = eqx.field(default=0.99, converter=float)
    damping: float = eqx.field(default=1e-7, converter=float)
    forever: bool = eqx.field(default=False, static=True)

    def begin(self, like: Params, gradient: Array, variance: Array) -> Array:
        """Square of the first gradient."""
        return gradient**2

    def follow(self, memory: Array, gradient: Array, adapts: Array) -> Array:
        """Updated running mean."""
        return memory + self.share(adapts) * (gradient**2 - memory)

    def metric(self, memory: Array) -> Metric:
        """A from the running mean."""
        return _inverse(jnp.sqrt(memory) + self.damping)


class Adam(Running):
    r""":math:`A = 1 / (\sqrt{\hat v} + \delta)`, v as in `RMSprop`, started at 0, :math:`\hat v = v / (1 - \beta^t)`.

    This is the second moment of Adam :cite:p:`kingma2015adam`; its first is the momentum of `tunbridge.SGHMC`.

    Parameters
    ----------
    decay
        :math:`\beta`.
    damping
        :math:`\delta`.
    forever
        As in `RMSprop`.
    """

    decay: float = eqx.field(default=0.999, converter=float)
    damping: float = eqx.field(default=1e-8, converter=float)
    forever: bool = eqx.field(default=False, static=True)

    def begin(self, like: Params, gradient: Array, variance: Array) -> tuple[Array, Array]:
        """Running mean after the first gradient, and the weight that it lacks for having started at 0."""
        return (1.0 - self.decay) * gradient**2, jnp.full((), 1.0, gradient.dtype) * self.decay

    def follow(self, memory: tuple[Array, Array], gradient: Array, adapts: Array) -> tuple[Array, Array]:
        """Updated running mean."""
        mean, lacks = memory
        share = self.share(adapts)
        return mean + share * (gradient**2 - mean), lacks * (1.0 - share)

    def metric(self, memory: tuple[Array, Array]) -> Metric:
        """A from the bias-corrected mean."""
        mean, lacks = memory
        return _inverse(jnp.sqrt(mean / (1.0 - lacks)) + self.damping)


class Gathered(NamedTuple):
    """Memory of `Fisher`."""

    mean: Array
    """Mean of squared gradients that the chains agreed on."""
    total: Array
    num: Array
    floor: Array


class Fisher(Preconditioner):
    r""":math:`A = 1 / \operatorname{E} g^2`, the inverse of the diagonal of the empirical Fisher matrix.

    Under the posterior :math:`\operatorname{E} g g^\top` is the mean curvature plus the covariance of the gradient's
    noise, so that neither curvature nor noise exceeds 1 in the units of A, whatever the units of the data. Chains pool
    their squared gradients when they meet in warm-up; A is fixed from the last meeting on. It is at most the
    prior's variance.
    """

    def begin(self, like: Params, gradient: Array, variance: Array) -> Gathered:
        """Memory with the square of the first gradient, raised to its mean where below."""
        first = jnp.maximum(gradient**2, jnp.mean(gradient**2))
        return Gathered(first, jnp.zeros_like(gradient), jnp.zeros((), gradient.dtype), 1.0 / variance)

    def follow(self, memory: Gathered, gradient: Array, adapts: Array) -> Gathered:
        """Memory with one more squared gradient since the last meeting."""
        counts = adapts.astype(gradient.dtype)
        return memory._replace(total=memory.total + counts * gradient**2, num=memory.num + counts)

    def metric(self, memory: Gathered) -> Metric:
        """A from the mean that the chains agreed on."""
        return _inverse(jnp.maximum(memory.mean, memory.floor))

    def report(self, memory: Gathered) -> tuple[Array, Array]:
        """Sum of squared gradients, and their number."""
        return memory.total, memory.num

    def meet(self, memory: Gathered, reports: tuple[Array, Array]) -> Gathered:
        """Memory with the mean over all chains."""
        total, num = (jnp.sum(part, axis=0) for part in reports)
        mean = jnp.where(num > 0, total / jnp.maximum(num, 1.0), memory.mean)
        return Gathered(mean, jnp.zeros_like(total), jnp.zeros_like(num), memory.floor)


def _factors(given: Mapping[str, float] | Sequence[tuple[str, float]]) -> dict[str, float]:
    return {path: float(factor) for path, factor in dict(given).items()}


class Groups(Preconditioner):
    """Another preconditioner with its step sizes multiplied by one factor per group of weights.

    Parameters
    ----------
    factors
        (path prefix, factor) pairs or a dict of them: ``{"weights/head": 0.3}`` multiplies the step sizes of all
        unknowns whose path (as in ``posterior.summary()``) has this prefix. The longest matching prefix decides.
    inner
        The preconditioner that the factors multiply.
    """

    factors: Any = eqx.field(converter=_factors)
    inner: Preconditioner = Identity()

    def __check_init__(self):
        for path, factor in self.factors.items():
            if not factor > 0:
                raise InputError("factors above 0", f"{factor} for {path}", "Try 0.1.")

    @property
    def settles(self) -> bool:
        """Whether the inner preconditioner is fixed after warm-up."""
        return self.inner.settles

    def check(self, like: Params) -> None:
        """InputError if a prefix matches no path."""
        self.inner.check(like)
        paths = [path for path, _ in flatten_with_paths(like)]
        for prefix in self.factors:
            if not any(path.startswith(prefix) for path in paths):
                raise InputError(f"prefixes of the paths {', '.join(paths)}", repr(prefix), "Name a group of these.")

    def begin(self, like: Params, gradient: Array, variance: Array) -> tuple[Array, PyTree]:
        """A factor for each unknown, and the memory of the inner preconditioner."""

        def factor(path: str) -> Any:
            fitting = [prefix for prefix in self.factors if path.startswith(prefix)]
            return self.factors[max(fitting, key=len)] if fitting else 1.0

        leaves = [jnp.full(leaf.shape, factor(path), gradient.dtype) for path, leaf in flatten_with_paths(like)]
        return ravel(leaves), self.inner.begin(like, gradient, variance)

    def follow(self, memory: tuple[Array, PyTree], gradient: Array, adapts: Array) -> tuple[Array, PyTree]:
        """Updated memory of the inner preconditioner."""
        return memory[0], self.inner.follow(memory[1], gradient, adapts)

    def metric(self, memory: tuple[Array, PyTree]) -> Metric:
        """A of the inner preconditioner, times the factors."""
        factors, inner = memory[0], self.inner.metric(memory[1])
        root = jax.lax.rsqrt(factors)
        return Metric(factors, root) if inner is None else Metric(factors * inner.scale, root * inner.root)

    def report(self, memory: tuple[Array, PyTree]) -> PyTree:
        """What the inner preconditioner contributes to a meeting."""
        return self.inner.report(memory[1])

    def meet(self, memory: tuple[Array, PyTree], reports: PyTree) -> tuple[Array, PyTree]:
        """Memory of the inner preconditioner after a meeting."""
        return memory[0], self.inner.meet(memory[1], reports)


def _inverse(stiffness: Array) -> Metric:
    root = jnp.sqrt(stiffness)
    return Metric(1.0 / stiffness, root)
