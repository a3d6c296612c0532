"""Gaussian process regression: exact, and with inducing points for many rows."""

import abc
import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tinygp
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular
from tinygp.kernels import Kernel

from tunbridge.bench.baselines.processes.evidence import maximise, positive_leaves
from tunbridge.bench.baselines.processes.predictive import ProcessPredictive
from tunbridge.core.data import check_x
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key

_MOST_BYTES = 4 * 2**30
"""Memory limit for the matrices of a fit."""
_HELD = 6
"""Matrices that a fit holds at once, besides one per feature."""
_JITTER = 1e-10
"""Added to the covariance of inducing points, as a share of its mean."""
_ROWS = 1024
"""Rows predicted at once."""


@dataclasses.dataclass(frozen=True)
class FittedProcess:
    """A Gaussian process conditioned on data.

    Parameters
    ----------
    kernel, noise
        The kernel and the standard deviation of the noise, as fitted or as given.
    log_evidence
        log p(y), all constants included; for a sparse process a lower bound on it.
    """

    kernel: Kernel
    noise: float
    log_evidence: float
    centres: np.ndarray = dataclasses.field(repr=False)
    """The inputs in the kernel expansion of the mean: the training rows, or the inducing points."""
    minus: np.ndarray = dataclasses.field(repr=False)
    """Cholesky factor L: the covariance is k(x, x') - (L^-1 k)' (L^-1 k), plus the term of `plus`."""
    plus: np.ndarray | None = dataclasses.field(repr=False)
    """M in the term + (M^-1 k)' (M^-1 k), the uncertainty of f at the centres; None if L includes it."""
    alpha: np.ndarray = dataclasses.field(repr=False)
    """The mean is k(x, centres) alpha."""
    key: Key = dataclasses.field(repr=False)

    def predict(self, x: Any) -> ProcessPredictive:
        """Predictive of y at x, (points, features)."""
        rows = np.asarray(check_x(x), np.float64)
        if rows.shape[1:] != self.centres.shape[1:]:
            raise InputError(
                f"x of shape (points, {self.centres.shape[1]})", f"shape {rows.shape}", "Pass the same features."
            )
        with jax.enable_x64(True):
            parts = [
                _marginals(self.kernel, rows[start : start + _ROWS], *self._given)
                for start in range(0, len(rows), _ROWS)
            ]
        mean, variance = (np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(2))
        draw = partial(self.draw, rows)
        return ProcessPredictive(mean[:, None], variance[:, None], np.array([self.noise**2]), draw, self.key)

    def draw(self, x: Any, key: Key, num: int) -> np.ndarray:
        """Draws of the function, jointly over the points x, (num, points, 1)."""
        values, vectors = np.linalg.eigh(self.covariance(x))  # numerically rank-deficient where much is known
        spread = vectors * np.sqrt(np.maximum(values, 0.0))[None]
        standard = np.asarray(jax.random.normal(key, (num, len(values))), np.float64)
        return self.predict(x).mean[None] + (standard @ spread.T)[..., None]

    def covariance(self, x: Any) -> np.ndarray:
        """Posterior covariance of the function at x, (points, points)."""
        rows = np.asarray(check_x(x), np.float64)
        _refuse_large((len(rows), len(rows)), rows.shape[1], "Predict fewer points at once.")
        with jax.enable_x64(True):
            return np.asarray(_covariance(self.kernel, rows, *self._given[:-1]))

    @property
    def _given(self) -> tuple[Any, ...]:
        return self.centres, self.minus, self.plus, self.alpha


@jax.jit
def _marginals(kernel: Kernel, x: Array, centres: Array, minus: Array, plus: Array | None, alpha: Array) -> Any:
    cross = kernel(centres, x)
    variance = kernel(x) - jnp.sum(solve_triangular(minus, cross, lower=True) ** 2, axis=0)
    if plus is not None:
        variance += jnp.sum(solve_triangular(plus, cross, lower=True) ** 2, axis=0)
    return alpha @ cross, jnp.maximum(variance, 0.0)


@jax.jit
def _covariance(kernel: Kernel, x: Array, centres: Array, minus: Array, plus: Array | None) -> Array:
    cross = kernel(centres, x)
    known = solve_triangular(minus, cross, lower=True)
    covariance = kernel(x, x) - known.T @ known
    if plus is not None:
        left = solve_triangular(plus, cross, lower=True)
        covariance += left.T @ left
    return covariance


class _Rows(NamedTuple):
    x: Any
    y: Any
    centres: Any
    """The inputs in the kernel expansion of the mean."""


class _Process(Module):
    """Base of exact and sparse regression: a kernel, a noise scale, and their optimisation."""

    kernel: Kernel
    noise: float = eqx.field(default=0.1, converter=float)
    tune: bool = True
    restarts: int = 2

    @abc.abstractmethod
    def _centres(self, x: np.ndarray, key: Key) -> np.ndarray:
        """Return the centres of the kernel expansion; raise InputError if they are too many."""

    @staticmethod
    @abc.abstractmethod
    def _evidence(kernel: Kernel, noise: Array, rows: _Rows) -> Array:
        """Log p(y), or a lower bound on it."""

    @staticmethod
    @abc.abstractmethod
    def _condition(kernel: Kernel, noise: Array, rows: _Rows) -> tuple[Array, Array | None, Array]:
        """Return (minus, plus, alpha) of `FittedProcess`."""

    def fit(self, x: Any, y: Any, *, key: Key) -> FittedProcess:
        """Fit the process to x (points, features) and y (points,), in float64 whatever the precision of JAX.

        Parameters
        ----------
        x, y
            The rows, in units that suit the kernel; the process has mean zero, so centre y.
        key
            Key for the starting points of restarts, inducing points and draws.
        """
        rows, targets = np.asarray(check_x(x), np.float64), np.asarray(y, np.float64)
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
        if targets.shape != (len(rows),) or not np.isfinite(targets).all():
            raise InputError(f"finite y of shape ({len(rows)},)", f"shape {targets.shape}", "Fit one output at a time.")
        if self.noise <= 0:
            raise InputError("noise above 0", f"{self.noise}", "Write 1e-3 for almost noiseless rows.")
        key_centres, key_search, key_predict = jax.random.split(key, 3)
        with jax.enable_x64(True):
            start = positive_leaves((self.kernel, self.noise), refuse=self.tune)
            data = _Rows(rows, targets, self._centres(rows, key_centres))
            if self.tune:
                start = maximise(type(self)._evidence, start, data, key_search, self.restarts)
            kernel, noise = start
            evidence = jax.jit(type(self)._evidence)(kernel, noise, data)
            minus, plus, alpha = jax.tree.map(np.asarray, jax.jit(type(self)._condition)(kernel, noise, data))
        return FittedProcess(kernel, float(noise), float(evidence), data.centres, minus, plus, alpha, key_predict)


class ExactProcess(_Process):
    r"""Exact Gaussian process regression :cite:p:`rasmussen2006gaussian`: :math:`y \sim N(0, K + \sigma^2 I)`.

    Parameters
    ----------
    kernel
        A kernel of tinygp, or `wide_kernel` of a model.
    noise
        :math:`\sigma`.
    tune
        Whether to maximise the evidence over the noise and all parameters of the kernel, which must be positive; False
        keeps them as they are.
    restarts
        Number of further optimisation runs, from random points around the initial values.

    Examples
    --------
    >>> import jax
    >>> from tinygp.kernels import ExpSquared
    >>> process = ExactProcess(ExpSquared(1.0), noise=0.1, tune=False)
    >>> fitted = process.fit([[0.0], [1.0]], [0.0, 0.8], key=jax.random.key(0))
    >>> predictive = fitted.predict([[0.0], [0.5], [9.0]])
    >>> predictive.mean[:, 0].round(2).tolist(), predictive.std[:, 0].round(2).tolist()
    ([0.01, 0.44, 0.0], [0.14, 0.22, 1.0])
    """

    def _centres(self, x: np.ndarray, key: Key) -> np.ndarray:
        _refuse_large((len(x), len(x)), x.shape[1], "Use SparseProcess.")
        return x

    @staticmethod
    def _evidence(kernel, noise, rows):
        return tinygp.GaussianProcess(kernel, rows.x, diag=noise**2).log_probability(rows.y)

    @staticmethod
    def _condition(kernel, noise, rows):
        lower = jnp.linalg.cholesky(kernel(rows.x, rows.x) + noise**2 * jnp.eye(len(rows.x)))
        return lower, None, cho_solve((lower, True), rows.y)


class SparseProcess(_Process):
    r"""Gaussian process regression through inducing points :cite:p:`titsias2009variational`.

    Kernel and noise maximise the collapsed bound

    .. math::

        \log p(y) \ge \log N(y; 0, Q + \sigma^2 I) - \frac{1}{2 \sigma^2} \text{tr}(K - Q), \qquad
        Q = K_{fu} K_{uu}^{-1} K_{uf},

    in time linear in the number of rows. The inducing points are k-means centres of x.

    Parameters
    ----------
    kernel, noise, tune, restarts
        As for `ExactProcess`.
    inducing
        The number of inducing points.
    """

    inducing: int = 100

    def _centres(self, x: np.ndarray, key: Key) -> np.ndarray:
        from sklearn.cluster import KMeans

        _refuse_large((self.inducing, len(x)), x.shape[1], "Use fewer inducing points.")
        distinct = np.unique(x, axis=0)
        if len(distinct) <= self.inducing:
            return distinct
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        return KMeans(self.inducing, n_init=1, random_state=seed).fit(x).cluster_centers_

    @staticmethod
    def _evidence(kernel, noise, rows):
        _, a, b = _sparse(kernel, noise, rows)
        y, num = rows.y, len(rows.y)
        c = solve_triangular(b, a @ y, lower=True) / noise
        log_det = 2 * jnp.sum(jnp.log(jnp.diag(b))) + 2 * num * jnp.log(noise)
        fit = -0.5 * (num * jnp.log(2 * jnp.pi) + log_det + y @ y / noise**2 - c @ c)
        return fit - 0.5 * (jnp.sum(kernel(rows.x)) / noise**2 - jnp.sum(a**2))

    @staticmethod
    def _condition(kernel, noise, rows):
        minus, a, b = _sparse(kernel, noise, rows)
        c = solve_triangular(b, a @ rows.y, lower=True) / noise
        plus = minus @ b
        return minus, plus, solve_triangular(plus, c, lower=True, trans=1)


def _sparse(kernel: Kernel, noise: Array, rows: _Rows) -> tuple[Array, Array, Array]:
    """L with K_uu = L L', A = L^-1 K_uf / noise, and B with I + A A' = B B'."""
    inner = kernel(rows.centres, rows.centres)
    inner += _JITTER * jnp.mean(jnp.diag(inner)) * jnp.eye(len(inner))
    lower = jnp.linalg.cholesky(inner)
    a = solve_triangular(lower, kernel(rows.centres, rows.x), lower=True) / noise
    return lower, a, jnp.linalg.cholesky(jnp.eye(len(inner)) + a @ a.T)


def _refuse_large(shape: tuple[int, int], features: int, do: str) -> None:
    num_bytes = 8 * shape[0] * shape[1] * (_HELD + features)
    if num_bytes > _MOST_BYTES:
        raise InputError(
            f"matrices of at most {_MOST_BYTES / 2**30:.0f} GiB",
            f"{shape[0]:,} x {shape[1]:,} numbers, {num_bytes / 2**30:.1f} GiB with their gradients",
            do,
        )
