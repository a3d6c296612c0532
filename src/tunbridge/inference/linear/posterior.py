"""`LinearLayer`: the exact posterior of a last layer above fixed features."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Stream, check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_data
from tunbridge.core.types import Key, Params, Predictive, PyTree
from tunbridge.inference.linear import evidence, features
from tunbridge.inference.linear.conjugate import Family, NormalInverseGamma
from tunbridge.inference.linear.moments import Moments, Solved
from tunbridge.inference.posteriors import DRAWS, Posterior
from tunbridge.model import transforms
from tunbridge.model.model import Model
from tunbridge.predict.linearised import NormalPredictive
from tunbridge.predict.parts import Parts
from tunbridge.predict.student import StudentPredictive
from tunbridge.runtime import programs


class LinearLayer(Posterior):
    r"""The exact posterior of a last layer above fixed features :math:`\phi(x)`.

    .. math::

        w_j \mid \sigma^2, y \sim N(m_j, \sigma^2 (\Phi^\top \Phi + D_j)^{-1}), \qquad
        m_j = (\Phi^\top \Phi + D_j)^{-1} \Phi^\top y_j

    with :math:`\sigma^2` known, or integrated out: then y is Student's t. Predictions have closed forms; a draw is a
    whole network, as needed for Thompson sampling.

    Parameters
    ----------
    params
        Point values of all parameters, with the last layer at its posterior mean.
    family
        The conjugate prior, from `tunbridge.conjugate`.
    moments
        Sums over all rows so far.
    solved
        The posterior of the weights given `moments`.
    noise
        The variance of the noise, one value or one per output: known, or :math:`1 / E[\sigma^{-2} \mid y]`.
    log_evidence
        Log p(y | features), exact, at these prior scales.
    """

    params: Params
    family: Family
    moments: Moments
    solved: Solved
    noise: np.ndarray
    log_evidence: np.ndarray

    @staticmethod
    def given(model: Model, key: Key, params: Params, family: Family, moments: Moments, **rest: Any) -> "LinearLayer":
        """Return the posterior given the features, prior scales and noise of `params`, from sums over rows."""
        weights = model.weights(params)
        variances, noise = evidence.beliefs(model, weights, params.scales, params.noise).numbers()
        solved = evidence.condition(family, moments, variances, noise)
        value = np.asarray(family.log_evidence(moments, solved, noise))
        noise = 1.0 / family.precision(moments, solved, noise)
        if family.integrates:
            params = _with_noise(model, params, jnp.asarray(noise))
        params = _with_mean(model, params, jnp.asarray(solved.mean))
        return LinearLayer(model, key, params, family, moments, solved, noise, value, **rest)

    def update(self, data: Any) -> "LinearLayer":
        """Return the posterior after more rows, with features, prior scales and known noise unchanged; no training.

        Updating in several portions gives the same result as updating with all rows at once.
        """
        data = as_data(data)
        rows = data.first if isinstance(data, Stream) else data
        weights = self.model.weights(self.params)
        self.model.check_inputs(weights, rows.x, self.model.likelihood.num_outputs(self.model.likelihood.check(rows.y)))
        moments = self.moments + features.gather(self.model, weights, data)
        rest = {"notes": self.notes, "provenance": self.provenance}
        return LinearLayer.given(self.model, self.key, self.params, self.family, moments, **rest)

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw the last layer, and the noise if it is integrated out; all else is the same in each draw."""
        key_noise, key_weights = jax.random.split(key)
        noise = jnp.broadcast_to(jnp.asarray(self.noise), (num, len(self.noise)))
        if isinstance(self.family, NormalInverseGamma):
            shape, rate = map(jnp.asarray, self.family.updated(self.moments, self.solved, self.noise))
            noise = rate[None] / jax.random.gamma(key_noise, shape, noise.shape)
        mean, roots = self.solved.mean, self.solved.roots
        return _draws(self.model, self.params, self.family.integrates, mean, roots, noise, key_weights)

    def components(self, key: Key, num: int | None) -> Params:
        """Return `num` draws, by default 100."""
        return self.sample(key, DRAWS if num is None else num)

    @checked
    @programs.unforked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x in closed form; see `Posterior.predict`."""
        if num is not None:
            raise InputError("no num= where the answer has a closed form", f"num={num}", "Leave it out.")
        x = check_x(x)
        draws = self.pushed(x, self.key if key is None else key, None)
        function = partial(_moments, self.model, self.model.weights(self.params), self.solved.roots)
        mean, spread = features.blockwise(function, x, self.solved.roots.shape[0] * self.solved.roots.shape[1])
        if isinstance(self.family, NormalInverseGamma):
            updated = self.family.updated(self.moments, self.solved, self.noise)
            return StudentPredictive(draws, mean, 1.0 + spread.astype(np.float64), *updated)
        noise = np.broadcast_to(self.noise[None], mean.shape)
        covariance = (noise * spread)[:, :, None] * np.eye(mean.shape[1])[None]
        return NormalPredictive(draws, *jax.device_put((mean, covariance, noise)))

    @checked
    @programs.unforked
    def features(self, x: Any) -> np.ndarray:
        """Inputs of the last layer at x, (points, features); the last is the constant, if the layer has a bias."""
        function = partial(features.evaluate, self.model, self.model.weights(self.params))
        _, phi = features.blockwise(function, check_x(x), len(self.solved.mean))
        return phi[:, 0]

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """As `Posterior.prepared`, in one pass: outputs, and their variances in closed form."""
        noise = self.family.variance(self.moments, self.solved, self.noise)
        return _at_once, (self.model, self.model.weights(self.params), self.solved.roots, noise)


def _at_once(state: tuple[Model, PyTree, Array, Array], x: Array) -> Parts:
    model, weights, roots, noise = state
    mean, spread = _moments(model, weights, roots, x)
    noise = jnp.broadcast_to(jnp.broadcast_to(noise, mean.shape[1:])[None], mean.shape)
    return Parts(mean, noise, noise * spread)


@jax.jit
def _moments(model: Model, weights: PyTree, roots: Array, x: Array) -> tuple[Array, Array]:
    r"""The outputs' mean, and :math:`\phi^\top (\Phi^\top \Phi + D)^{-1} \phi`, (rows, outputs) each."""
    outputs, phi = features.evaluate(model, weights, x)
    spread = jnp.sum(jnp.einsum("na,jab->njb", phi[:, 0], roots) ** 2, axis=2)
    return outputs, jnp.broadcast_to(spread, outputs.shape)


@partial(jax.jit, static_argnums=2)
def _draws(model: Model, params: Params, noisy: bool, mean: Array, roots: Array, noise: Array, key: Key) -> Params:
    """One draw for each noise variance, (draws, 1 or outputs); if `noisy`, these become the draws' unknown noise."""
    weights = model.weights(params)
    index = features.last(model, weights).index
    z = jax.random.normal(key, (len(noise), *mean.T.shape), mean.dtype)

    def draw(variance: Array, z: Array) -> Params:
        drawn = mean + jnp.sqrt(variance)[None] * jnp.sum(roots * z[:, None], axis=2).T
        with_noise = _with_noise(model, params, variance) if noisy else params
        return _raw(model, with_noise, features.with_layer(weights, index, drawn))

    return jax.vmap(draw)(noise, z)


@jax.jit
def _with_mean(model: Model, params: Params, mean: Array) -> Params:
    """The parameters with the last layer at its posterior mean."""
    weights = model.weights(params)
    return _raw(model, params, features.with_layer(weights, features.last(model, weights).index, mean))


def _with_noise(model: Model, params: Params, variance: Array) -> Params:
    """The parameters with their unknown noise set to this variance."""
    likelihood: Any = model.likelihood
    (prior,) = transforms.unknowns(likelihood.numbers)
    return params._replace(noise=(transforms.to_real(prior, jnp.sqrt(variance).reshape(prior.shape())),))


def _raw(model: Model, params: Params, weights: Any) -> Params:
    """The parameters with these network weights, in the prior's raw coordinates."""
    return params._replace(weights=model.prior.raw(weights, params.scales, model.network.layout(weights)))
