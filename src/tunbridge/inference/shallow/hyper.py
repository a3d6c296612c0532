"""Updates of a shallow network's unknown numbers and noise: conditional draws where conjugate, else slice sampling."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from blackjax.mcmc import slice as slices
from jax import Array
from jax.scipy.stats import norm
from numpyro.distributions import Distribution, biject_to

from tunbridge.core.types import Key, Scalar
from tunbridge.inference.shallow import conditionals
from tunbridge.inference.shallow.conditionals import Beta, Gamma, InverseGamma, Normal, VectorNormal, Wishart
from tunbridge.inference.shallow.form import Form, Unknowns
from tunbridge.model import transforms
from tunbridge.model.priors.exchangeable import Exchangeable, gathered, spread
from tunbridge.model.priors.roots import RootInverseGamma

Law = Beta | Gamma | InverseGamma | Normal | VectorNormal | Wishart


def update(key: Key, form: Form, unknowns: Unknowns, residuals: Array, weights: Array) -> Unknowns:
    """Draw each unknown number of the prior, and the noise if it is unknown, given all other unknowns.

    The weights stay as they are; raw coordinates of units in use follow the numbers. All gamma variables are drawn in
    one call, which is what takes longest to compile: their concentrations do not depend on the values of unknowns.

    Parameters
    ----------
    residuals, weights
        y - f(x), and the row weights, (points,).
    """
    held, numbers = _Weights(unknowns), dict(unknowns.numbers)
    priors = {name: given for name, given in sorted(form.prior.numbers.items()) if isinstance(given, Distribution)}
    of_noise = _noise(form.likelihood.scale, residuals, weights)
    laws = [*(held.law(name, given, numbers) for name, given in priors.items()), of_noise]
    key_gammas, key_noise, *key_numbers = jax.random.split(key, 2 + len(priors))
    *gammas, gammas_noise = _standard_gammas(key_gammas, [_concentrations(law) for law in laws])
    for (name, given), key_number, gamma in zip(priors.items(), key_numbers, gammas, strict=True):
        law = held.law(name, given, numbers)
        if law is not None:
            numbers[name] = _drawn(key_number, law, gamma)
            continue

        def log_density(value: Array, name: str = name) -> Scalar:
            return held.log_density(numbers | {name: value}, form.prior)

        numbers[name] = sliced(key_number, given, numbers[name], log_density)
    sigma = unknowns.sigma
    if of_noise is not None:
        sigma = jnp.sqrt(_drawn(key_noise, of_noise, gammas_noise))
    elif isinstance(form.likelihood.scale, Distribution):

        def log_likelihood(sigma: Array) -> Scalar:
            return jnp.sum(weights * norm.logpdf(residuals, 0.0, sigma.reshape(())))

        sigma = sliced(key_noise, form.likelihood.scale, sigma, log_likelihood)
    return held.under(numbers)._replace(sigma=sigma.reshape(()))


def sliced(key: Key, prior: Distribution, value: Array, log_likelihood: Callable[[Array], Scalar]) -> Array:
    """The value of an unknown after a sweep of slice sampling over its real coordinates."""
    to_value, start = biject_to(prior.support), transforms.to_real(prior, jnp.broadcast_to(value, prior.shape()))

    def log_density(u: Array) -> Scalar:
        u = u.reshape(start.shape)
        return transforms.log_prob(prior, (u,)) + log_likelihood(to_value(u))

    state = slices.init(jnp.ravel(start), log_density)
    moved, _ = slices.build_coordinate_kernel(slices.stepping_out)(key, state, log_density)
    return to_value(moved.position.reshape(start.shape))


def draw_wishart(key: Key, law: Wishart, gammas: Array) -> Array:
    """A precision matrix from its law, by Bartlett's decomposition with given standard gamma variables."""
    normal = jnp.tril(jax.random.normal(key, law.rate.shape), -1)
    # rate = R R', so R'^-1 A A' R^-1 has mean concentration * rate^-1
    chi = normal + jnp.diag(jnp.sqrt(2.0 * gammas))
    root = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(law.rate), chi, trans=1, lower=True)
    return root @ root.T


class _Weights:
    """Weights in natural units, held while the numbers of their prior change."""

    def __init__(self, unknowns: Unknowns):
        numbers = unknowns.numbers
        self.unknowns, self.used = unknowns, unknowns.used.astype(unknowns.output.dtype)
        self.output = numbers["output_mean"] + jnp.sqrt(numbers["output_variance"]) * unknowns.output
        self.hidden = self._mean(numbers) + spread(numbers["hidden_precision"], unknowns.hidden)
        self.linear = jnp.sqrt(numbers["linear_variance"]) * unknowns.linear

    def _mean(self, numbers: dict[str, Array]) -> Array:
        return jnp.broadcast_to(numbers["hidden_mean"], self.unknowns.hidden.shape[:1])[:, None]

    def deviations(self, numbers: dict[str, Array]) -> Array:
        """Hidden weights of the units minus their means, (1 + features, units)."""
        return self.hidden - self._mean(numbers)

    def log_density(self, numbers: dict[str, Array], prior: Exchangeable) -> Scalar:
        """Log density of the weights in use, and log probability of their number, given the numbers."""
        size, units = self.hidden.shape[0], jnp.sum(self.used)
        log_root = size * jnp.log(numbers["hidden_precision"])
        if jnp.ndim(numbers["hidden_precision"]):
            log_root = jnp.linalg.slogdet(numbers["hidden_precision"])[1]
        whitened = gathered(numbers["hidden_precision"], self.deviations(numbers))
        hidden = 0.5 * units * log_root - 0.5 * jnp.sum(self.used[None] * jnp.square(whitened))
        scale = jnp.sqrt(numbers["output_variance"])
        output = jnp.sum(self.used * norm.logpdf(self.output, numbers["output_mean"], scale))
        linear = jnp.sum(norm.logpdf(self.linear, 0.0, jnp.sqrt(numbers["linear_variance"])))
        count = prior.log_count(self.unknowns.number, numbers["alpha"]) if "alpha" in numbers else 0.0
        return hidden + output + linear + count

    def law(self, name: str, given: Distribution, numbers: dict[str, Array]) -> Law | None:
        """The conditional distribution of one number, or None if its prior is not conjugate."""
        used, plain = self.used, _plain(given)
        if name == "output_mean" and isinstance(plain, Normal):
            return conditionals.mean(plain, self.output, used, numbers["output_variance"])
        if name == "output_variance" and isinstance(plain, InverseGamma):
            return conditionals.variance(plain, self.output - numbers["output_mean"], used)
        if name == "linear_variance" and isinstance(plain, InverseGamma):
            return conditionals.variance(plain, self.linear, jnp.ones_like(self.linear))
        if name == "hidden_mean" and isinstance(plain, Normal):
            size, precision = self.hidden.shape[0], numbers["hidden_precision"]
            full = precision if jnp.ndim(precision) else precision * jnp.eye(size)
            whole = Normal(*(jnp.broadcast_to(part, (size,)) for part in plain))
            return conditionals.vector_mean(whole, self.hidden, used, full)
        if name == "hidden_precision" and isinstance(plain, Gamma):
            deviations = self.deviations(numbers)
            return conditionals.precision(plain, deviations, jnp.broadcast_to(used[None], deviations.shape))
        if name == "hidden_precision" and isinstance(plain, Wishart):
            return conditionals.precision_matrix(plain, self.deviations(numbers), used)
        if name == "alpha" and isinstance(plain, Beta):
            return conditionals.inclusion(plain, self.unknowns.number, self.output.shape[0])
        return None

    def under(self, numbers: dict[str, Array]) -> Unknowns:
        """The unknowns with these numbers and the same weights; units left out keep their raw coordinates."""
        was, used = self.unknowns, self.unknowns.used
        output = (self.output - numbers["output_mean"]) / jnp.sqrt(numbers["output_variance"])
        hidden = gathered(numbers["hidden_precision"], self.deviations(numbers))
        return was._replace(
            hidden=jnp.where(used[None], hidden, was.hidden),
            output=jnp.where(used, output, was.output),
            linear=self.linear / jnp.sqrt(numbers["linear_variance"]),
            numbers=numbers,
        )


def _plain(given: Distribution) -> Law | None:
    """The prior of a number as one of the laws here; None for another."""
    while isinstance(given, dist.ExpandedDistribution | dist.Independent):
        given = given.base_dist
    if isinstance(given, dist.Normal):
        return Normal(jnp.asarray(given.loc), jnp.square(given.scale))
    if isinstance(given, dist.InverseGamma):
        return InverseGamma(jnp.asarray(given.concentration), jnp.asarray(given.rate))
    if isinstance(given, dist.Gamma):
        return Gamma(jnp.asarray(given.concentration), jnp.asarray(given.rate))
    if isinstance(given, dist.Beta):
        return Beta(given.concentration1, given.concentration0)
    if isinstance(given, dist.Wishart):
        rate = jax.scipy.linalg.cho_solve((given.scale_tril, True), jnp.eye(given.scale_tril.shape[0]))
        return Wishart(jnp.asarray(given.concentration), rate)
    return None


def _noise(scale: Any, residuals: Array, weights: Array) -> InverseGamma | None:
    """The conditional distribution of the noise variance, or None if it is known or its prior is not conjugate."""
    if not isinstance(scale, RootInverseGamma):
        return None
    prior = InverseGamma(jnp.reshape(scale.concentration, ()), jnp.reshape(scale.rate, ()))
    return conditionals.variance(prior, residuals, weights)


def _concentrations(law: Law | None) -> Array:
    """Concentrations of the standard gamma variables that a draw of this law is made of."""
    match law:
        case InverseGamma(concentration, _) | Gamma(concentration, _):
            return concentration[None]
        case Wishart(concentration, rate):
            return 0.5 * (concentration - jnp.arange(rate.shape[0]))
        case Beta(one, zero):
            return jnp.stack([jnp.asarray(one), jnp.asarray(zero)])
        case _:
            return jnp.zeros(0)


def _standard_gammas(key: Key, concentrations: list[Array]) -> list[Array]:
    """Standard gamma variables of each law, in one call."""
    whole = jnp.concatenate(concentrations)
    drawn = jax.random.gamma(key, whole) if whole.size else whole
    return jnp.split(drawn, np.cumsum([part.size for part in concentrations])[:-1])


def _drawn(key: Key, law: Law, gammas: Array) -> Array:
    """A draw of a law, from a key for normal variables and from standard gamma variables."""
    match law:
        case Normal(mean, variance):
            return mean + jnp.sqrt(variance) * jax.random.normal(key)
        case VectorNormal(mean, precision):
            return mean + spread(precision, jax.random.normal(key, (mean.size, 1)))[:, 0]
        case InverseGamma(_, rate):
            return rate / gammas[0]
        case Gamma(_, rate):
            return gammas[0] / rate
        case Wishart():
            return draw_wishart(key, law, gammas)
        case Beta():
            share = gammas[0] / jnp.sum(gammas)
            edge = jnp.finfo(share.dtype)  # a share that rounds to 0 or 1 has no logit
            return jnp.clip(share, edge.tiny, 1.0 - edge.epsneg)
