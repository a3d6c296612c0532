"""A variational posterior: a normal distribution over everything unknown, and its evidence lower bound."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core import keys
from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.posteriors import DRAWS, Posterior
from tunbridge.inference.vi.divergences import KL
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.model.model import Target


class Bound(NamedTuple):
    """An evidence lower bound, its standard error over draws of q, and its parts."""

    value: float
    """ELBO = log likelihood - KL."""
    error: float
    log_likelihood: float
    """Expected under q."""
    kl: float
    """From q to the prior."""


class VariationalGaussian(Posterior):
    """A normal distribution over weights, unknown scales and noise, all on the real line.

    A prediction averages networks with drawn weights: any number of them.
    """

    q: Gaussian
    curve: dict[str, Array] | None = None
    """The objective along the way, with a leading axis."""

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Draws of q."""
        return _draws(self.q, keys.split(key, num))

    def components(self, key: Key, num: int | None) -> Params:
        """`num` draws, 100 unless told."""
        return self.sample(key, DRAWS if num is None else num)

    def one(self) -> Params:
        """The mean."""
        return self.q.mean

    @property
    def num_parameters(self) -> int:
        """How many numbers describe q: twice the unknowns if they are independent."""
        return self.q.num_parameters

    def elbo(self, data: Data, *, key: Key | None = None, num: int = DRAWS) -> Bound:
        """The evidence lower bound on these data, from `num` draws.

        The KL as far as it has a closed form, less what its sampled form is off by at the same draws (a control
        variate): where q is the posterior all draws agree.

        Parameters
        ----------
        data
            The rows that it was fitted to: all of them.
        key
            Of the draws; None uses the posterior's own.
        num
            Of draws, at least 2.
        """
        if num < 2:
            raise InputError("num of at least 2", f"{num}", "Its standard error needs several draws.")
        model, rows = self.model.bind(data)
        target = Target(model, float(rows.num))
        divergence = KL().bind(model, self.q.mean)
        fit, rest, whole, direct = _terms(target, divergence, self.q, rows, self.key if key is None else key, num)
        kl = -(rest + direct)
        value = fit - kl
        known = whole + kl  # of expectation 0
        slope = jnp.cov(value, known)[0, 1] / jnp.maximum(jnp.var(known, ddof=1), jnp.finfo(known.dtype).tiny)
        value = value - slope * known
        return Bound(
            float(jnp.mean(value)), float(jnp.std(value, ddof=1) / num**0.5), float(jnp.mean(fit)), float(jnp.mean(kl))
        )


@once
def _draws(q: Gaussian, own: Key) -> Params:
    return jax.vmap(q.sample)(own)


@jax.jit(static_argnames="num")
def _terms(
    target: Target, divergence: KL, q: Gaussian, data: Data, key: Key, num: int
) -> tuple[Array, Array, Array, Array]:
    """Of each draw the log likelihood, what it tells of log p - log q, and all of that; what has a closed form."""

    def one(key_draw: Key) -> tuple[Array, Array, Array]:
        params = q.sample(key_draw)
        whole = target.log_prior(params) - q.log_prob(params)
        return target.log_likelihood(params, data), divergence.sampled(target, q, params), whole

    return *jax.lax.map(one, jax.random.split(key, num)), divergence.direct(target, q)
