"""A variational posterior: a normal distribution over all unknowns, and its evidence lower bound."""

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
from tunbridge.inference.posteriors import DRAWS, Symmetric
from tunbridge.inference.vi.divergences import KL
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.model.model import Target
from tunbridge.runtime import programs


class Bound(NamedTuple):
    """An evidence lower bound, its standard error over draws of q, and its parts."""

    value: float
    """ELBO = log likelihood - KL."""
    error: float
    log_likelihood: float
    """The expected log likelihood under q."""
    kl: float
    """The KL divergence from q to the prior."""


class VariationalGaussian(Symmetric):
    """A normal distribution over weights, unknown scales and noise, all on the real line.

    A prediction averages networks with weights drawn from q, in mirrored pairs.
    """

    q: Gaussian
    curve: dict[str, Array] | None = None
    """The objective during training, with a leading axis."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draws from q, with leading axis `num`."""
        return _draws(self.q, keys.split(key, num))

    def one(self) -> Params:
        """The mean of q."""
        return self.q.mean

    @property
    def num_parameters(self) -> int:
        """Number of parameters of q, twice the unknowns if they are independent."""
        return self.q.num_parameters

    def elbo(self, data: Data, *, key: Key | None = None, num: int = DRAWS) -> Bound:
        """Evidence lower bound on these data, estimated from `num` draws.

        The KL is in closed form as far as possible; the error of its sampled form at the same draws is used as a
        control variate. Where q is the posterior, all draws agree.

        Parameters
        ----------
        data
            All rows that q was fitted to.
        key
            Random key of the draws; None uses the posterior's own.
        num
            Number of draws, at least 2.
        """
        if num < 2:
            raise InputError("num of at least 2", f"{num}", "Its standard error needs several draws.")
        model, rows = self.model.bind(data)
        target = Target(model, float(rows.num))
        divergence = KL().bind(model, self.q.mean)
        fit, sampled, whole, direct = _terms(target, divergence, self.q, rows, self.key if key is None else key, num)
        kl = -(sampled + direct)
        value = fit - kl
        control = whole + kl  # its expectation is 0
        slope = jnp.cov(value, control)[0, 1] / jnp.maximum(jnp.var(control, ddof=1), jnp.finfo(control.dtype).tiny)
        value = value - slope * control
        return Bound(
            float(jnp.mean(value)), float(jnp.std(value, ddof=1) / num**0.5), float(jnp.mean(fit)), float(jnp.mean(kl))
        )


@once
def _draws(q: Gaussian, draw_keys: Key) -> Params:
    return jax.vmap(q.sample)(draw_keys)


@jax.jit(static_argnames="num")
def _terms(
    target: Target, divergence: KL, q: Gaussian, data: Data, key: Key, num: int
) -> tuple[Array, Array, Array, Array]:
    """Per draw: log likelihood, sampled part of log p - log q, and all of that; then the part in closed form."""

    def terms_of_draw(key_draw: Key) -> tuple[Array, Array, Array]:
        params = q.sample(key_draw)
        whole = target.log_prior(params) - q.log_prob(params)
        return target.log_likelihood(params, data), divergence.sampled(target, q, params), whole

    return *jax.lax.map(terms_of_draw, jax.random.split(key, num)), divergence.direct(target, q)
