"""Four problems whose posterior is known exactly: in closed form, by quadrature, or on a grid.

The truth is computed in NumPy and float64 from the textbook densities, not with the model's own code, so that each
checks the other.
"""

import dataclasses
from collections.abc import Callable
from functools import cache, wraps

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats
from scipy.optimize import minimize
from scipy.special import logsumexp

from tunbridge.core.data import Data
from tunbridge.core.declared import Count, checked
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Kind
from tunbridge.model.likelihoods import Bernoulli, Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP, Leaf, from_functions
from tunbridge.model.priors import Normal


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model and data, with exact properties of the posterior.

    Parameters
    ----------
    model, data
        The problem.
    x
        Inputs at which functions are compared, (points, features).
    mean, sd
        Posterior mean and standard deviation of the network's output at x, (points,).
    mode
        The network's output at x for the weights of highest posterior density, (points,); None if noise is unknown.
    log_evidence
        log p(y), all constants included.
    independent
        Standard deviations at x for independent weights with variances 1 / Lambda_ii, where Lambda is the posterior
        precision; None unless the posterior is normal.
    noise
        Posterior mean and standard deviation of the noise scale; None if it is known.
    draw
        ``draw(key, num)`` returns exact posterior draws.
    """

    model: Model
    data: Data
    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    mode: np.ndarray | None
    log_evidence: float
    draw: Callable[[Key, int], Params]
    noise: tuple[float, float] | None = None
    independent: np.ndarray | None = None

    def outputs(self, params: Params) -> np.ndarray:
        """The network's output at x for each draw of parameters, (draws, points)."""
        weights = jax.vmap(self.model.weights)(params)
        return np.asarray(jax.vmap(lambda w: self.model.network.apply(w, jnp.asarray(self.x)))(weights)[..., 0])


def _cached(make: Callable[[], Problem]) -> Callable[[], Problem]:
    """Make the problem once per precision."""
    made = cache(lambda _: make())
    return wraps(make)(lambda: made(jnp.result_type(float)))


class _Line:
    """Bayesian linear regression on (features, 1): p(w | y) = N(m, S) :cite:p:`bishop2006pattern`.

    sigma and tau may be arrays: all results then have their leading axes.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, sigma: float | np.ndarray, tau: float | np.ndarray):
        phi, (noise, scale) = _with_bias(x), (np.asarray(s)[..., None, None] for s in (sigma, tau))
        precision = phi.T @ phi / noise**2 + np.eye(phi.shape[1]) / scale**2
        self.cov = np.linalg.inv(precision)
        self.mean = self.cov @ phi.T @ y / noise[..., 0] ** 2
        marginal = noise**2 * np.eye(len(y)) + scale**2 * (phi @ phi.T)
        explained = np.linalg.solve(marginal, np.broadcast_to(y[:, None], (*marginal.shape[:-1], 1)))[..., 0] @ y
        self.log_evidence = -0.5 * (len(y) * np.log(2 * np.pi) + np.linalg.slogdet(marginal)[1] + explained)


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def _linear_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1701)
    x = rng.normal(size=(20, 2)) * [1.0, 2.0]
    y = x @ [1.0, -0.5] + 0.3 + 0.5 * rng.normal(size=20)
    return x, y, np.array([[0.0, 0.0], [1.0, 1.0], [-2.0, 3.0], [4.0, -4.0]])


def _linear_params(w: np.ndarray, scales: tuple = (), noise: tuple = ()) -> Params:
    """Parameters of MLP(()) from stacked weights (draws, 3)."""
    layer = {"weight": jnp.asarray(w[:, :2, None]), "bias": jnp.asarray(w[:, 2:])}
    return Params({"layers": [layer]}, tuple(map(jnp.asarray, scales)), tuple(map(jnp.asarray, noise)))


@_cached
def linear() -> Problem:
    """Linear regression with known noise: posterior in closed form."""
    x, y, test = _linear_data()
    sigma, tau = 0.5, 1.5
    truth, phi = _Line(x, y, sigma, tau), _with_bias(test)

    def draw(key: Key, num: int) -> Params:
        standard = np.asarray(jax.random.normal(key, (num, 3)), np.float64)
        return _linear_params(truth.mean + standard @ np.linalg.cholesky(truth.cov).T)

    mean = phi @ truth.mean
    return Problem(
        model=Model(MLP((), outputs=1), Normal(tau), Gaussian(sigma)),
        data=Data(x, y),
        x=test,
        mean=mean,
        sd=np.sqrt(np.sum(phi @ truth.cov * phi, axis=1)),
        mode=mean,
        log_evidence=truth.log_evidence,
        draw=draw,
        independent=np.sqrt(phi**2 @ (1.0 / np.diag(np.linalg.inv(truth.cov)))),
    )


@_cached
def linear_unknown() -> Problem:
    """Linear regression with unknown noise ~ Gamma(2, 2) and prior scale ~ HalfNormal(2): posterior by quadrature."""
    x, y, test = _linear_data()
    noise, scale = stats.gamma(2, scale=1 / 2), stats.halfnorm(scale=2)
    log_sigma, log_tau = np.linspace(-2.5, 1.0, 121), np.linspace(-4.0, 3.0, 121)
    nodes = np.array([(s, t) for s in log_sigma for t in log_tau])
    lines = _Line(x, y, *np.exp(nodes).T)
    density = (
        lines.log_evidence + noise.logpdf(np.exp(nodes[:, 0])) + scale.logpdf(np.exp(nodes[:, 1])) + nodes.sum(axis=1)
    )
    cell = np.array([log_sigma[1] - log_sigma[0], log_tau[1] - log_tau[0]])
    p, log_evidence = _normalised(density, float(np.log(cell).sum()))
    phi = _with_bias(test)
    means = lines.mean @ phi.T
    variances = np.sum(phi @ lines.cov * phi, axis=-1)
    mean = p @ means
    sigma = np.exp(nodes[:, 0])

    def draw(key: Key, num: int) -> Params:
        key_node, key_cell, key_w = jax.random.split(key, 3)
        chosen = np.asarray(jax.random.choice(key_node, len(p), (num,), p=jnp.asarray(p)))
        hyper = nodes[chosen] + cell * np.asarray(jax.random.uniform(key_cell, (num, 2), minval=-0.5, maxval=0.5))
        standard = np.asarray(jax.random.normal(key_w, (num, 3)), np.float64)
        fits = _Line(x, y, *np.exp(hyper).T)
        w = fits.mean + (np.linalg.cholesky(fits.cov) @ standard[..., None])[..., 0]
        return _linear_params(w / np.exp(hyper[:, 1:]), (hyper[:, 1],), (hyper[:, 0],))

    return Problem(
        model=Model(MLP((), outputs=1), Normal(dist.HalfNormal(2.0)), Gaussian(dist.Gamma(2.0, 2.0))),
        data=Data(x, y),
        x=test,
        mean=mean,
        sd=np.sqrt(p @ (variances + means**2) - mean**2),
        mode=None,
        log_evidence=log_evidence,
        draw=draw,
        noise=(float(p @ sigma), float(np.sqrt(p @ sigma**2 - (p @ sigma) ** 2))),
    )


def _normalised(log_density: np.ndarray, log_cell: float) -> tuple[np.ndarray, float]:
    total = logsumexp(log_density)
    return np.exp(log_density - total), float(total + log_cell)


def _on_grid(
    model: Model,
    data: Data,
    test: np.ndarray,
    log_density: Callable,
    function: Callable,
    start: list[float],
    width: float,
) -> Problem:
    """Problem with two weights, solved on a grid; `log_density` and `function` take weights (..., 2)."""
    axis = np.linspace(-width, width, 401)
    step = axis[1] - axis[0]
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    p, log_evidence = _normalised(log_density(grid), float(2 * np.log(step)))
    values = function(grid, test)
    mean = p @ values
    best = minimize(lambda w: -log_density(w[None])[0], start, tol=1e-12).x

    def draw(key: Key, num: int) -> Params:
        key_node, key_cell = jax.random.split(key)
        chosen = np.asarray(jax.random.choice(key_node, len(p), (num,), p=jnp.asarray(p)))
        offset = np.asarray(jax.random.uniform(key_cell, (num, 2), minval=-0.5, maxval=0.5)) * step
        return Params({"w": jnp.asarray(grid[chosen] + offset)})

    return Problem(
        model=model,
        data=data,
        x=test,
        mean=mean,
        sd=np.sqrt(p @ values**2 - mean**2),
        mode=function(best[None], test)[0],
        log_evidence=log_evidence,
        draw=draw,
    )


def _two_weights(key, _):
    return {"w": 0.5 * jax.random.normal(key, (2,))}


def _plane(weights, x):
    return x @ weights["w"][:, None]


def _unit(weights, x):
    return weights["w"][1] * jnp.tanh(weights["w"][0] * x)


@_cached
def logistic() -> Problem:
    """Logistic regression with 2 weights: posterior on a grid."""
    rng = np.random.default_rng(1702)
    x = rng.normal(size=(30, 2))
    y = (rng.uniform(size=30) < 1 / (1 + np.exp(-x @ [1.5, -1.0]))).astype(int)
    network = from_functions(_two_weights, _plane, {"w": Leaf("weight", inputs=(0,))})

    def log_density(w):
        logit = w @ x.T
        log_likelihood = np.sum(y * logit - np.logaddexp(0, logit), axis=1)
        return log_likelihood + stats.norm(0, 2).logpdf(w).sum(axis=1)

    return _on_grid(
        model=Model(network, Normal(2.0), Bernoulli()),
        data=Data(x, y),
        test=np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -3.0]]),
        log_density=log_density,
        function=lambda w, points: w @ points.T,
        start=[0.0, 0.0],
        width=8.0,
    )


@_cached
def tanh_unit() -> Problem:
    """A network of one tanh unit, f(x) = v tanh(u x), with two mirrored modes: posterior on a grid."""
    rng = np.random.default_rng(1703)
    x = rng.uniform(-2, 2, size=(15, 1))
    y = 1.2 * np.tanh(1.5 * x[:, 0]) + 0.3 * rng.normal(size=15)
    network = from_functions(_two_weights, _unit, {"w": Leaf("weight", inputs=(0,))})

    def function(w, points):
        return w[:, 1:] * np.tanh(w[:, :1] * points[:, 0][None])

    def log_density(w):
        log_likelihood = stats.norm(function(w, x), 0.3).logpdf(y[None]).sum(axis=1)
        return log_likelihood + stats.norm(0, 1.5).logpdf(w).sum(axis=1)

    return _on_grid(
        model=Model(network, Normal(1.5), Gaussian(0.3)),
        data=Data(x, y),
        test=np.array([[-3.0], [-0.5], [0.4], [1.0]]),
        log_density=log_density,
        function=function,
        start=[1.0, 1.0],
        width=8.0,
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "linear": linear,
    "linear_unknown": linear_unknown,
    "logistic": logistic,
    "tanh_unit": tanh_unit,
}
"""The name of each problem and the function that makes it."""


@checked
def deviation(problem: Problem, posterior: Posterior, kind: Kind, key: Key, num: Count = 4000) -> float:
    """Largest error of a posterior over the problem's inputs, in posterior standard deviations.

    `kind` says what is compared: the mean or the mode, and for a method that should match it, the spread too.
    """
    values = problem.outputs(posterior.sample(key, num)).astype(np.float64)
    centre = problem.mode if kind == "mode" else problem.mean
    if kind in ("none", "refused") or centre is None:
        return 0.0
    off = np.abs(values.mean(axis=0) - centre) / problem.sd
    if kind in ("exact", "biased", "diagonal"):
        sd = problem.independent if kind == "diagonal" else problem.sd
        off = np.maximum(off, np.abs(values.std(axis=0) / sd - 1.0))
    return float(off.max())
