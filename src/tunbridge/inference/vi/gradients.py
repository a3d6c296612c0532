r"""Unbiased estimators of the gradient of an expectation over q with respect to the parameters of q.

Each defines how a draw depends on q, how the batch log likelihood is computed from it, and which surrogate is
differentiated.
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
    """An estimator of gradients with respect to the parameters of q."""

    def check(self, family: Family, num_samples: int) -> None:
        """InputError if it does not support this family, or this number of draws."""

    def bind(self, model: Model, like: Params) -> Self:
        """The estimator bound to the model: whatever depends on the model is set."""
        return self

    def draw(self, q: Gaussian, noise: tuple) -> Params:
        """Draw from q that this standard normal noise gives."""
        return q.place(noise)

    def seen(self, q: Gaussian) -> Gaussian:
        """The q whose log density is evaluated at a draw."""
        return q

    def log_likelihood(
        self, key: Key, target: Target, q: Gaussian, params: Params, noise: tuple, batch: Data
    ) -> Scalar:
        """Log likelihood of a batch, rescaled to the data set."""
        return target.log_likelihood(params, batch)

    def log_q(self, q: Gaussian, params: Params) -> Scalar:
        """Log density of a draw, where `surrogate` needs it, else 0."""
        return jnp.zeros(())

    def surrogate(self, values: Array, log_q: Array) -> Array:
        """Surrogates (draws,) equal to `values`, whose gradients estimate the gradient of the expectation."""
        return values


class Reparameterised(Gradient):
    r"""Gradients through the draw :math:`w = \mu + R \varepsilon` itself :cite:p:`kingma2014autoencoding`."""


class StickTheLanding(Gradient):
    r"""Reparameterised, without the part of the gradient of :math:`\log q_\theta(w)` whose expectation is 0.

    Where q is the posterior, its variance is 0 :cite:p:`roeder2017sticking`. It needs a KL estimated from draws,
    ``divergences.KL(closed=False)``: a closed form contains no such part.
    """

    def seen(self, q: Gaussian) -> Gaussian:
        """The distribution q with its parameters held constant."""
        return jax.lax.stop_gradient(q)


class ScoreFunction(Gradient):
    r"""Score function: :math:`(f(w_s) - b_s) \nabla \log q(w_s)`, b the mean of the other draws :cite:p:`kool2019buy`.

    It needs only the values of f. Its variance is that of f, which grows with the data: for comparison.
    """

    def check(self, family: Family, num_samples: int) -> None:
        """InputError for fewer than two draws."""
        if num_samples < 2:
            raise InputError(
                "num_samples of at least 2 for gradients.ScoreFunction, whose baseline is the mean of the other draws",
                f"{num_samples}",
                "Try num_samples=10.",
            )

    def draw(self, q: Gaussian, noise: tuple) -> Params:
        """Draw of which no gradient is taken."""
        return jax.lax.stop_gradient(q.place(noise))

    def log_q(self, q: Gaussian, params: Params) -> Scalar:
        """Log density of a draw."""
        return q.log_prob(params)

    def surrogate(self, values: Array, log_q: Array) -> Array:
        """Surrogates whose gradient is through log q alone."""
        held = jax.lax.stop_gradient(values)
        baseline = (jnp.sum(held) - held) / (len(held) - 1)
        return held + (held - baseline) * (log_q - jax.lax.stop_gradient(log_q))


class _Rows(Gradient):
    """Noise that differs between rows, for independent weights that meet data in one place of the network."""

    leaves: eqx.AbstractVar[tuple[bool, ...]]

    @abc.abstractmethod
    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Parameters with central weights, and a tree of what is added to these weights as noise."""

    @abc.abstractmethod
    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """Outputs of the network, with separate noise for each row."""

    @property
    @abc.abstractmethod
    def once(self) -> bool:
        """Whether a weight may meet only one position of a row."""

    def check(self, family: Family, num_samples: int) -> None:
        """InputError for a family without a diagonal part."""
        if not family.diagonal:
            raise InputError(
                f"a family with an independent part per weight for gradients.{type(self).__name__}",
                f"families.{type(family).__name__}",
                "Use gradients.Reparameterised().",
            )

    def bind(self, model: Model, like: Params) -> Self:
        """The estimator with the leaves that it supports; all others are drawn once for all rows."""
        weights = jax.eval_shape(model.weights, like)
        network_sites = sites.find(model.network.apply, weights, model.inputs)
        leaves = perturbed.eligible(network_sites, weights, once=self.once)
        if not model.elementwise(like):
            leaves = (False,) * len(leaves)
        return dataclasses.replace(self, leaves=leaves)

    def log_likelihood(
        self, key: Key, target: Target, q: Gaussian, params: Params, noise: tuple, batch: Data
    ) -> Scalar:
        """Log likelihood of a batch, rescaled to the data set, with separate noise for each row."""
        model = target.model
        if not any(self.leaves):
            return target.log_likelihood(params, batch)
        middle, beside = self.besides(target, q, params, noise)
        drawn, centre = (jax.tree.flatten(model.weights(p)) for p in (params, middle))
        chosen = [c if by_row else d for c, d, by_row in zip(centre[0], drawn[0], self.leaves, strict=True)]
        weights = jax.tree.unflatten(drawn[1], chosen)
        spread = [b if by_row else None for b, by_row in zip(jax.tree.leaves(beside), self.leaves, strict=True)]
        outputs = self.outputs(key, model, weights, spread, batch.x)
        terms = model.likelihood.distribution(outputs, params.noise).log_prob(batch.y)
        return target.rescale(terms, batch)


class LocalReparameterised(_Rows):
    """Draws each row's products with the weights, not the weights :cite:p:`kingma2015variational`.

    Rows have independent noise, so a batch's gradient varies less. For families with a diagonal part, the part that is
    drawn this way. It applies to weights that meet one position of a row (dense layers); all others (convolutions,
    weights shared over time) are drawn once for all rows, as separate noise at each position would be wrong for them.
    """

    leaves: tuple[bool, ...] = eqx.field(default=(), static=True)

    @property
    def once(self) -> bool:
        """True, as a weight may meet only one position of a row."""
        return True

    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Parameters with central weights, and the variances of the weights around them."""
        middle, sds = q.split(noise)
        scaled = target.model.weights(params._replace(weights=sds.weights))
        return params._replace(weights=middle.weights), jax.tree.map(jnp.square, scaled)

    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """Outputs from draws of the products, all rows at once."""
        program = jax.make_jaxpr(model.network.apply)(weights, x)
        return perturbed.Local(program, key).outputs(weights, beside, x)


class Flipout(_Rows):
    """One deviation per batch, with signs flipped at random row by row :cite:p:`wen2018flipout`.

    For weights of matrix products and convolutions; all others are drawn once for all rows.
    """

    leaves: tuple[bool, ...] = eqx.field(default=(), static=True)

    @property
    def once(self) -> bool:
        """False, as a row has the same signs at all its positions."""
        return False

    def besides(self, target: Target, q: Gaussian, params: Params, noise: tuple) -> tuple[Params, Any]:
        """Parameters with central weights, and the deviation of the weights from them."""
        middle = q.split(noise)[0].weights
        deviation = jax.tree.map(jnp.subtract, params.weights, middle)
        return params._replace(weights=middle), target.model.weights(params._replace(weights=deviation))

    def outputs(self, key: Key, model: Model, weights: PyTree, beside: list[Array | None], x: Array) -> Array:
        """Outputs with the signs of the deviation flipped row by row."""
        program = sites.find(model.network.apply, weights, model.inputs).program

        def outputs_of_row(key_row: Key, row: Array) -> Array:
            return perturbed.Flipped(program, key_row).outputs(weights, beside, row[None])

        return jax.vmap(outputs_of_row)(split(key, len(x)), x)
