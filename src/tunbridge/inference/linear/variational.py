"""`VariationalLayer`: a normal distribution of last-layer weights above trained features."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.special import entr

from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params, Predictive, PyTree
from tunbridge.inference.linear import bound, features
from tunbridge.inference.posteriors import DRAWS, Posterior
from tunbridge.model.likelihoods.gaussian import Gaussian
from tunbridge.model.model import Model
from tunbridge.predict.linearised import LinkedPredictive, NormalPredictive
from tunbridge.predict.links import Link, Quadrature
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.parts import Parts
from tunbridge.runtime import programs


class VariationalLayer(Posterior):
    r"""Normal weights :math:`w_j \sim N(m_j, S_j)` of each output j above fixed features :math:`\phi(x)`.

    Outputs are normal with mean :math:`m_j^\top \phi` and variance :math:`\phi^\top S_j \phi`. With normal noise a
    prediction is normal, and uncertain noise enters by its mean variance; for classes, a link gives the probabilities.
    A draw is a whole network.

    Parameters
    ----------
    params
        Point values of all parameters, with the last layer at its mean.
    roots
        Square roots of :math:`S_j`, (outputs, features, features); the last feature may be the constant.
    width
        The standard deviation of unknown noise on the real line, else ().
    link
        From normal outputs to class probabilities, from `tunbridge.links`.
    curve
        The optimiser's statistics by name, over the training steps (leading axis).
    """

    params: Params
    roots: Array
    width: PyTree = ()
    link: Link = Quadrature()
    curve: dict[str, Array] | None = None

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw the last layer, and the noise if it is unknown; all else is the same in each draw."""
        return _draws(self.model, self.params, self.roots, self.width, jax.random.split(key, num))

    def one(self) -> Params:
        """Return the network with the last layer at its mean."""
        return self.params

    def components(self, key: Key, num: int | None) -> Params:
        """Return `num` draws, by default 100."""
        return self.sample(key, DRAWS if num is None else num)

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """Return the outputs at x of drawn networks, computed on first use."""
        self.model.check_inputs(self.model.weights(self.params), x)
        return Outputs(self.model, lambda: self.components(key, num), x)

    @checked
    @programs.unforked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x in closed form; see `Posterior.predict`."""
        if num is not None:
            raise InputError("no num= where the answer has a closed form", f"num={num}", "Leave it out.")
        x = check_x(x)
        draws = self.pushed(x, self.key if key is None else key, None)
        answers = features.blockwise(partial(_answers, self._state), x, self.roots.shape[0] * self.roots.shape[1])
        if isinstance(self.model.likelihood, Gaussian):
            mean, spread, noise = answers
            return NormalPredictive(draws, *jax.device_put((mean, _diagonal(spread), noise)))
        return LinkedPredictive(draws, *jax.device_put(answers))

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """As `Posterior.prepared`, in one pass: outputs, and their variances in closed form."""
        return _at_once, self._state

    @property
    def _state(self) -> tuple[Model, Params, Array, PyTree, Link]:
        return self.model, self.params, self.roots, self.width, self.link


@jax.jit
def _answers(state: tuple[Model, Params, Array, PyTree, Link], x: Array) -> tuple[Array, ...]:
    """For real y: mean and variance of the outputs, and noise variance; for classes: probabilities from the link."""
    model, params, roots, width, link = state
    outputs, phi = features.evaluate(model, model.weights(params), x)
    spread = bound.spreads(roots, phi[:, 0])
    if isinstance(model.likelihood, Gaussian):
        sigma = bound.sigmas(model.likelihood, params.noise, width, outputs)
        return outputs, spread, bound.averaged(sigma**2)
    likelihood: Any = model.likelihood
    return link.probs(*likelihood.logits(outputs, _diagonal(spread), params.noise))


def _at_once(state: tuple[Model, Params, Array, PyTree, Link], x: Array) -> Parts:
    answers = _answers(state, x)
    if isinstance(state[0].likelihood, Gaussian):
        mean, spread, noise = answers
        return Parts(mean, noise, spread)
    probs, aleatoric = answers
    return Parts(probs, aleatoric, jnp.maximum(jnp.sum(entr(probs), axis=-1) - aleatoric, 0.0))


def _diagonal(spread: Any) -> Any:
    """Variances (points, outputs) as covariances (points, outputs, outputs)."""
    return spread[:, :, None] * np.eye(spread.shape[1], dtype=spread.dtype)[None]


@jax.jit
def _draws(model: Model, params: Params, roots: Array, width: PyTree, keys: Array) -> Params:
    weights, layout = model.weights(params), model.network.layout(params.weights)
    index = features.last(model, weights).index
    mean = ravel_pytree(weights)[0][index]

    def draw(key: Key) -> Params:
        key_layer, key_noise = jax.random.split(key)
        z = jax.random.normal(key_layer, roots.shape[:2], roots.dtype)
        drawn = features.with_layer(weights, index, mean + jnp.einsum("jab,jb->aj", roots, z))
        noise, unravel = ravel_pytree(params.noise)
        moved = noise + ravel_pytree(width)[0] * jax.random.normal(key_noise, noise.shape, noise.dtype)
        return Params(model.prior.raw(drawn, params.scales, layout), params.scales, unravel(moved))

    return jax.vmap(draw)(keys)
