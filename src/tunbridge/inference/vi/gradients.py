r"""Estimators of the gradient of an expectation over q by the parameters of q. All are unbiased.

Each says how a draw depends on q, how the log likelihood of a batch follows from it, and what is differentiated.
"""

import abc
import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.random import split
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.model.model import Model, Target
from tunbridge.model.networks.programs import perturbed, sites


class Gradient(Module):
    """An estimator of gradients by the parameters of q."""

    def check(self, family: Family, num_samples: int) -> None:
        """InputError if it cannot serve this family, or this number of draws."""

    def bind(self, model: Model, like: Params) -> Self:
        """The same with what depends on the model settled."""
        return self

    def draw(self, q: Gaussian, noise: tuple) -> Params:
        """The draw that some standard normal numbers make."""
        return q.place(noise)

    def seen(self, q: Gaussian) -> Gaussian:
        """Q as its own log density is evaluated with."""
        return q

    def log_likelihood(
        self, key: Key, target: Target, q: Gaussian, params: Params, noise: tuple, batch: Data
    ) -> Scalar:
        """Of a batch, rescaled to the data set."""
        return target.log_likelihood(params, batch)

    def log_q(self, q: Gaussian, params: Params) -> Scalar:
        """The log density of a draw, where `surrogate` needs it."""
        return jnp.zeros(())

    def surrogate(self, values: Array, log_q: Array) -> Array:
        """Numbers (draws,) with the values of the draws, whose gradients estimate that of the expectation."""
        return values


class Reparameterised(Gradient):
    r"""Through the draw :math:`w = \mu + R \varepsilon` itself :cite:p:`kingma2014autoencoding`."""


class StickTheLanding(Gradient):
    r"""Reparameterised, without the part of the gradient of :math:`\log q_\theta(w)` whose expectation is 0.

    Where q is the posterior its variance is 0 :cite:p:`roeder2017sticking`. It needs the KL estimated by draws,
    ``divergences.KL(closed=False)``: there is nothing to leave out of a closed form.
    """

    def seen(self, q: Gaussian) -> Gaussian:
        """With parameters that are held."""
        return jax.lax.stop_gradient(q)


class ScoreFunction(Gradient):
    r""":math:`(f(w_s) - b_s) \nabla \log q(w_s)`, b the mean over the other draws :cite:p:`kool2019buy`.

    It asks nothing of f but its value. Its variance is that of f, which grows with the data: for comparison.
    """

    def check(self, family: Family, num_samples: int) -> None:
        """Two draws at least."""
        if num_samples < 2:
            raise InputError(
                "num_samples of at least 2 for gradients.ScoreFunction, whose baseline is the mean of the others",
                f"{num_samples}",
                "Try num_samples=10.",
            )

    def draw(self, q: Gaussian, noise: tuple) -> Params:
        """Of which no gradient is taken."""
        return jax.lax.stop_gradient(q.place(noise))

    def log_q(self, q: Gaussian, params: Params) -> Scalar:
        """The log density of a draw."""
        return q.log_prob(params)

    def surrogate(self, values: Array, log_q: Array) -> Array:
        """With a gradient in log q alone."""
        held = jax.lax.stop_gradient(values)
        baseline = (jnp.sum(held) - held) / (len(held) - 1)
        return held + (held - baseline) * (log_q - jax.lax.stop_gradient(log_q))


class _Rows(Gradient):
    """Noise that differs between rows, for independent weights that meet data at one place."""

    leaves: eqx.AbstractVar[tuple[bool, ...]]

    @abc.abstractmethod
    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Parameters at the middle, and a tree of what lies beside the weights."""

    @abc.abstractmethod
    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """The network's, with noise of each row's own."""

    @property
    @abc.abstractmethod
    def once(self) -> bool:
        """Whether a weight may meet one position of a row only."""

    def check(self, family: Family, num_samples: int) -> None:
        """Families with a diagonal part only."""
        if not family.diagonal:
            raise InputError(
                f"a family with an independent part a weight for gradients.{type(self).__name__}",
                f"families.{type(family).__name__}",
                "Use gradients.Reparameterised().",
            )

    def bind(self, model: Model, like: Params) -> Self:
        """With the leaves that it can serve: all others are drawn once for all rows."""
        weights = jax.eval_shape(model.weights, like)
        found = sites.find(model.network.apply, weights, model.inputs)
        leaves = perturbed.eligible(found, weights, once=self.once)
        if not model.elementwise(like):
            leaves = (False,) * len(leaves)
        return dataclasses.replace(self, leaves=leaves)

    def log_likelihood(
        self, key: Key, target: Target, q: Gaussian, params: Params, noise: tuple, batch: Data
    ) -> Scalar:
        """With noise of each row's own."""
        model = target.model
        if not any(self.leaves):
            return target.log_likelihood(params, batch)
        middle, beside = self.besides(target, q, params, noise)
        drawn, centre = (jax.tree.flatten(model.weights(p)) for p in (params, middle))
        chosen = [c if own else d for c, d, own in zip(centre[0], drawn[0], self.leaves, strict=True)]
        weights = jax.tree.unflatten(drawn[1], chosen)
        spread = [b if own else None for b, own in zip(jax.tree.leaves(beside), self.leaves, strict=True)]
        outputs = self.outputs(key, model, weights, spread, batch.x)
        terms = model.likelihood.distribution(outputs, params.noise).log_prob(batch.y)
        return target.rescale(terms, batch)


class LocalReparameterised(_Rows):
    """Draws what each row's products give instead of the weights :cite:p:`kingma2015variational`.

    Rows have independent noise, so a batch's gradient varies less. For families with a diagonal part, which is what it
    draws. It holds for weights that meet one position of a row (dense layers); all others (convolutions, weights
    shared over time) are drawn once for all rows, as noise of each position's own would be wrong for them.
    """

    leaves: tuple[bool, ...] = eqx.field(default=(), static=True)

    @property
    def once(self) -> bool:
        """Yes."""
        return True

    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Middles, and variances of the weights around them."""
        middle, sds = q.split(noise)
        scaled = target.model.weights(params._replace(weights=sds.weights))
        return params._replace(weights=middle.weights), jax.tree.map(jnp.square, scaled)

    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """Draws of products, of all rows at once."""
        program = jax.make_jaxpr(model.network.apply)(weights, x)
        return perturbed.Local(program, key).outputs(weights, beside, x)


class Flipout(_Rows):
    """One deviation for a batch, with signs flipped at random row by row :cite:p:`wen2018flipout`.

    For weights of matrix products and convolutions; all others are drawn once for all rows.
    """

    leaves: tuple[bool, ...] = eqx.field(default=(), static=True)

    @property
    def once(self) -> bool:
        """No: a row has the same signs at all its positions."""
        return False

    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Middles, and the deviation of the weights from them."""
        middle = q.split(noise)[0].weights
        deviation = jax.tree.map(jnp.subtract, params.weights, middle)
        return params._replace(weights=middle), target.model.weights(params._replace(weights=deviation))

    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """Signs flipped row by row."""
        program = sites.find(model.network.apply, weights, model.inputs).program

        def one(key_row: Key, row: Array) -> Array:
            return perturbed.Flipped(program, key_row).outputs(weights, beside, row[None])

        return jax.vmap(one)(split(key, len(x)), x)
