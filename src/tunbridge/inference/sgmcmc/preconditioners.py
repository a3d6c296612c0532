r"""Which directions are taken in larger steps: a diagonal A in :math:`w' = w + \eta A \nabla \log \pi + \dots`

Noise of covariance :math:`2 \eta A` goes with it, so a fixed A leaves the posterior as it is. One that follows the
chain does not, unless it stops: all here stop with warm-up unless they are told to go on.
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
    """The diagonal of A."""

    scale: Array
    root: Array
    r""":math:`A^{-1/2}`."""


def times(metric: Metric | None, vector: Array) -> Array:
    """A v; None is the identity."""
    return vector if metric is None else metric.scale * vector


def shaken(metric: Metric | None, noise: Array) -> Array:
    r""":math:`A^{-1/2} \xi`: noise of covariance :math:`A^{-1}`."""
    return noise if metric is None else metric.root * noise


class Preconditioner(Module):
    """How A is found: a memory that follows gradients of the log posterior."""

    @property
    def settles(self) -> bool:
        """Whether A stays as it is after warm-up."""
        return True

    def check(self, like: Params) -> None:
        """InputError if it does not fit unknowns of these shapes."""
        return

    @abc.abstractmethod
    def begin(self, like: Params, slope: Array, variance: Array) -> PyTree:
        """The memory before the first step: of unknowns of these shapes, a first gradient and the prior's variances."""

    @abc.abstractmethod
    def follow(self, memory: PyTree, slope: Array, adapts: Array) -> PyTree:
        """The memory after a gradient; `adapts` says whether there is warm-up."""

    @abc.abstractmethod
    def metric(self, memory: PyTree) -> Metric | None:
        """A; None is the identity."""

    def report(self, memory: PyTree) -> PyTree:
        """What a chain tells the others at a meeting."""
        return ()

    def meet(self, memory: PyTree, reports: PyTree) -> PyTree:
        """The memory after a meeting."""
        return memory


class Identity(Preconditioner):
    """All weights take the same step."""

    def begin(self, like: Params, slope: Array, variance: Array) -> PyTree:
        """Nothing to remember."""
        return ()

    def follow(self, memory: PyTree, slope: Array, adapts: Array) -> PyTree:
        """Nothing to remember."""
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
        """Unless it goes on forever."""
        return not self.forever

    def share(self, adapts: Array) -> Any:
        """What a gradient contributes to the mean."""
        return 1.0 - self.decay if self.forever else jnp.where(adapts, 1.0 - self.decay, 0.0)


class RMSprop(Running):
    r""":math:`A = 1 / (\sqrt v + \delta)`, v a running mean of squared gradients :cite:p:`li2016preconditioned`.

    Parameters
    ----------
    decay
        Of the running mean, a step.
    damping
        :math:`\delta`.
    forever
        Follow gradients after warm-up too, as :cite:t:`izmailov2021what` do. The draws are then of another
        distribution: the drift that a moving A asks for is left out.
    """

    decay: float = eqx.field(default=0.99, converter=float)
    damping: float = eqx.field(default=1e-7, converter=float)
    forever: bool = eqx.field(default=False, static=True)

    def begin(self, like: Params, slope: Array, variance: Array) -> Array:
        """The first gradient, squared."""
        return slope**2

    def follow(self, memory: Array, slope: Array, adapts: Array) -> Array:
        """The running mean."""
        return memory + self.share(adapts) * (slope**2 - memory)

    def metric(self, memory: Array) -> Metric:
        """Of the running mean."""
        return _inverse(jnp.sqrt(memory) + self.damping)


class Adam(Running):
    r""":math:`A = 1 / (\sqrt{\hat v} + \delta)`, v as in `RMSprop` but from 0, :math:`\hat v = v / (1 - \beta^t)`.

    The second half of Adam :cite:p:`kingma2015adam`, whose first is the momentum of `tunbridge.SGHMC`.

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

    def begin(self, like: Params, slope: Array, variance: Array) -> tuple[Array, Array]:
        """The first gradient, squared, and what a mean from 0 on lacks."""
        return (1.0 - self.decay) * slope**2, jnp.full((), 1.0, slope.dtype) * self.decay

    def follow(self, memory: tuple[Array, Array], slope: Array, adapts: Array) -> tuple[Array, Array]:
        """The running mean."""
        mean, lacks = memory
        share = self.share(adapts)
        return mean + share * (slope**2 - mean), lacks * (1.0 - share)

    def metric(self, memory: tuple[Array, Array]) -> Metric:
        """Of the corrected mean."""
        mean, lacks = memory
        return _inverse(jnp.sqrt(mean / (1.0 - lacks)) + self.damping)


class Gathered(NamedTuple):
    """What `Fisher` remembers."""

    mean: Array
    """Of squared gradients, agreed on."""
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

    def begin(self, like: Params, slope: Array, variance: Array) -> Gathered:
        """The first gradient, squared, where it is above the mean."""
        first = jnp.maximum(slope**2, jnp.mean(slope**2))
        return Gathered(first, jnp.zeros_like(slope), jnp.zeros((), slope.dtype), 1.0 / variance)

    def follow(self, memory: Gathered, slope: Array, adapts: Array) -> Gathered:
        """Squared gradients since the last meeting."""
        counts = adapts.astype(slope.dtype)
        return memory._replace(total=memory.total + counts * slope**2, num=memory.num + counts)

    def metric(self, memory: Gathered) -> Metric:
        """Of the mean agreed on."""
        return _inverse(jnp.maximum(memory.mean, memory.floor))

    def report(self, memory: Gathered) -> tuple[Array, Array]:
        """Squared gradients, and how many."""
        return memory.total, memory.num

    def meet(self, memory: Gathered, reports: tuple[Array, Array]) -> Gathered:
        """The mean over all chains."""
        total, num = (jnp.sum(part, axis=0) for part in reports)
        mean = jnp.where(num > 0, total / jnp.maximum(num, 1.0), memory.mean)
        return Gathered(mean, jnp.zeros_like(total), jnp.zeros_like(num), memory.floor)


def _factors(given: Mapping[str, float] | Sequence[tuple[str, float]]) -> dict[str, float]:
    return {path: float(factor) for path, factor in dict(given).items()}


class Groups(Preconditioner):
    """Another preconditioner whose steps are multiplied by a factor, a group of weights.

    Parameters
    ----------
    factors
        (beginning of a path, factor) pairs or a dict of them: ``{"weights/head": 0.3}`` multiplies the steps of all
        unknowns whose path (as in ``posterior.summary()``) begins so. The longest beginning that fits decides.
    inner
        What the factors multiply.
    """

    factors: Any = eqx.field(converter=_factors)
    inner: Preconditioner = Identity()

    def __check_init__(self):
        for path, factor in self.factors.items():
            if not factor > 0:
                raise InputError("factors above 0", f"{factor} for {path}", "Try 0.1.")

    @property
    def settles(self) -> bool:
        """As the inner one."""
        return self.inner.settles

    def check(self, like: Params) -> None:
        """InputError if a beginning fits no path."""
        self.inner.check(like)
        paths = [path for path, _ in flatten_with_paths(like)]
        for prefix in self.factors:
            if not any(path.startswith(prefix) for path in paths):
                raise InputError(f"beginnings of the paths {', '.join(paths)}", repr(prefix), "Name a group of these.")

    def begin(self, like: Params, slope: Array, variance: Array) -> tuple[Array, PyTree]:
        """A factor for each unknown."""

        def factor(path: str) -> Any:
            fitting = [prefix for prefix in self.factors if path.startswith(prefix)]
            return self.factors[max(fitting, key=len)] if fitting else 1.0

        leaves = [jnp.full(leaf.shape, factor(path), slope.dtype) for path, leaf in flatten_with_paths(like)]
        return ravel(leaves), self.inner.begin(like, slope, variance)

    def follow(self, memory: tuple[Array, PyTree], slope: Array, adapts: Array) -> tuple[Array, PyTree]:
        """What the inner one remembers."""
        return memory[0], self.inner.follow(memory[1], slope, adapts)

    def metric(self, memory: tuple[Array, PyTree]) -> Metric:
        """The inner one, times the factors."""
        factors, inner = memory[0], self.inner.metric(memory[1])
        root = jax.lax.rsqrt(factors)
        return Metric(factors, root) if inner is None else Metric(factors * inner.scale, root * inner.root)

    def report(self, memory: tuple[Array, PyTree]) -> PyTree:
        """What the inner one tells."""
        return self.inner.report(memory[1])

    def meet(self, memory: tuple[Array, PyTree], reports: PyTree) -> tuple[Array, PyTree]:
        """What the inner one hears."""
        return memory[0], self.inner.meet(memory[1], reports)


def _inverse(stiffness: Array) -> Metric:
    root = jnp.sqrt(stiffness)
    return Metric(1.0 / stiffness, root)
