"""`Model`, and its log posterior `Target`: the only place that rescales minibatches and applies a temperature."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import tables
from tunbridge.core.compiling import once
from tunbridge.core.data import Data, check_x
from tunbridge.core.declared import Module, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
from tunbridge.core.provenance import describe
from tunbridge.core.types import Key, Likelihood, Network, Params, Prior, PyTree, Scalar
from tunbridge.model.networks.architectures.offset import Offset

_MOST_SHOWN = 300
"""Maximum number of characters of a part's description in a notebook."""


class Model(Module):
    """A Bayesian model: a network, a prior over its weights and a likelihood of y given its outputs.

    Parameters
    ----------
    network, prior, likelihood
        From `tunbridge.networks`, `tunbridge.priors`, `tunbridge.likelihoods`, or any object with the same methods.

    Examples
    --------
    >>> import tunbridge as tb
    >>> model = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    """

    network: Network
    prior: Prior
    likelihood: Likelihood
    inputs: jax.ShapeDtypeStruct | None = eqx.field(static=True, kw_only=True, default=None)
    """Shape and dtype of one row of x; None until the model is bound to data."""

    def _repr_html_(self) -> str:
        parts = {"network": self.network, "prior": self.prior, "likelihood": self.likelihood}
        rows = [{"": name, "value": describe(part)[:_MOST_SHOWN]} for name, part in parts.items()]
        return tables.to_html(rows, type(self).__name__)

    @checked
    def bind(self, data: Any) -> tuple["Model", Data]:
        """Return the model bound to the data, and the data in the form that it scores; InputError if they do not fit.

        The data are `Data` or a pair (x, y). The network is evaluated on shapes only.
        """
        data = as_table(data)
        y = self.likelihood.check(data.y)
        likelihood = self.likelihood.bind(y)
        num = likelihood.num_outputs(y)
        network = self.network.with_outputs(num)
        row = jax.ShapeDtypeStruct(data.x.shape[1:], data.x.dtype)
        model = dataclasses.replace(self, network=network, likelihood=likelihood, inputs=row)
        weights = jax.eval_shape(model.network.init, jax.random.key(0), data.x)
        prior = model.prior.given(network, data).bind(weights, network.layout(weights))
        model = dataclasses.replace(model, prior=prior)
        model.check_inputs(weights, data.x, num)
        return model, Data(data.x, y, data.weight)

    def marginal(self) -> "Model":
        """The model with prior scales integrated out where that has a closed form."""
        return dataclasses.replace(self, prior=self.prior.marginal())

    def example(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of an x with a single row."""
        if self.inputs is None:
            raise InputError("a model that is bound to data", "one that is not", "Call model.bind(data) first.")
        return jax.ShapeDtypeStruct((1, *self.inputs.shape), self.inputs.dtype)

    def check_inputs(self, weights: PyTree, x: Any, num: int | None = None) -> None:
        """Raise InputError unless x has rows like the data's and the network maps it to outputs (points, num)."""
        if self.inputs is not None and x.shape[1:] != self.inputs.shape:
            raise InputError(
                f"x of shape {_rows(self.inputs.shape)}, as the model was trained on",
                f"shape {x.shape}",
                "Pass the features it was trained for, in the same order.",
            )
        if isinstance(self.network, Offset):
            self.network.check(x)
        try:
            shape = jax.eval_shape(_applied, self.network, weights, x).shape
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                "x with the features that the network takes",
                f"shape {x.shape}, and from the network: {str(error).splitlines()[0]}",
                "Pass the features it was made for, in the same order.",
            ) from error
        expected = (x.shape[0], num if num is not None else shape[-1])
        if shape != expected:
            raise InputError(
                f"outputs of shape {expected} for {type(self.likelihood).__name__}",
                f"shape {shape}",
                "Change the network's outputs: they must be a matrix, even if there is only one output.",
            )

    def weights(self, params: Params) -> PyTree:
        """Weights of the network, from the prior's raw coordinates."""
        return self.prior.weights(params.weights, params.scales, self.network.layout(params.weights))

    def elementwise(self, like: Params) -> bool:
        """Whether each weight is its own raw coordinate times a factor; `like` has the parameters' shapes."""
        rng = np.random.default_rng(0)
        params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), like)
        mask = jax.tree.map(lambda leaf: (rng.normal(size=leaf.shape) > 0).astype(leaf.dtype), like.weights)
        masked = params._replace(weights=jax.tree.map(np.multiply, params.weights, mask))
        weights_masked, weights = (_weights(self, coordinates) for coordinates in (masked, params))
        close = jax.tree.map(
            lambda a, b, on: np.allclose(a, on * np.asarray(b), rtol=1e-4, atol=1e-6), weights_masked, weights, mask
        )
        return all(jax.tree.leaves(close))

    def independent_normal(self, like: Params) -> bool:
        """Whether raw coordinates are independent and normal given the scales; `like` has the parameters' shapes."""
        layout = self.network.layout(like.weights)
        try:
            jax.eval_shape(lambda p: self.prior.variances(p.weights, p.scales, layout), like)
        except InputError:
            return False
        return self.prior.gaussian

    def outputs(self, params: Params, x: Array) -> Array:
        """The network's outputs (points, outputs)."""
        return self.network.apply(self.weights(params), x)

    def log_likelihood(self, params: Params, x: Array, y: Array) -> Array:
        """Log likelihood log p(y | x, params) of each point, (points,)."""
        return self.likelihood.distribution(self.outputs(params, x), params.noise).log_prob(y)

    def sample_params(self, key: Key, x: Array | jax.ShapeDtypeStruct) -> Params:
        """Draw all parameters (weights, scales and noise) from their priors."""
        key_weights, key_noise = jax.random.split(key)
        like = jax.eval_shape(self.network.init, key_weights, x)
        raw, scales = self.prior.sample(key_weights, like, self.network.layout(like))
        return Params(raw, scales, self.likelihood.sample_noise(key_noise))

    @checked
    def sample(self, key: Key, x: Array) -> tuple[Params, Array]:
        """Draw from the prior predictive: all parameters, and y at x."""
        rows = x if isinstance(x, jax.core.Tracer) else jnp.asarray(check_x(x))
        key_params, key_y = jax.random.split(key)
        params = self.sample_params(key_params, rows)
        return params, self.likelihood.distribution(self.outputs(params, rows), params.noise).sample(key_y)


@once
@jax.jit
def _applied(network: Network, weights: PyTree, x: Any) -> Array:
    """The network's outputs; jitted because then its shapes are inferred once."""
    return network.apply(weights, x)


def _weights(model: Model, params: Params) -> PyTree:
    return model.weights(params)


def _rows(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['points', *map(str, shape)])})"


class Target(Module):
    r"""The unnormalised log posterior that every method works on.

    .. math::

        \log \pi(\theta) = \frac1T \Big( \frac{N}{n} \sum_{i \in \text{batch}} \log p(y_i \mid x_i, \theta)
        + \log p(\theta) - \log J(\theta) \Big) + \log J(\theta)

    *J* is the Jacobian of the map from the real line to scales and noise in the units of their priors. It is not
    tempered: in these units and the prior's raw coordinates of the weights, the density is that of the posterior to
    the power of 1 / T, whatever the map.

    Parameters
    ----------
    model
        Bound to its data.
    num
        N, the number of rows in the data set.
    temperature
        T, which divides log likelihood and log prior alike; it is applied here and nowhere else.
    """

    model: Model
    num: float | Array
    temperature: float | Array = 1.0
    tempered: bool = eqx.field(init=False, static=True)
    """False for the number 1, where tempering makes no difference and the Jacobian need not be set apart."""

    def __post_init__(self):
        self.tempered = not (isinstance(self.temperature, int | float) and self.temperature == 1)

    def check(self, y: Array) -> Array:
        """Return a batch's targets in the form that is scored; InputError if they cannot be."""
        return self.model.likelihood.check(y)

    def log_likelihood(self, params: Params, batch: Data) -> Scalar:
        """The batch's log likelihood, rescaled to the whole data set."""
        terms = self.model.log_likelihood(params, batch.x, batch.y)
        return self.rescale(terms, batch)

    def rescale(self, terms: Array, batch: Data) -> Scalar:
        """N/n times the weighted sum of terms (points,)."""
        weighted = terms if batch.weight is None else terms * batch.weight
        return self.num / batch.num * jnp.sum(weighted)

    def log_prior(self, params: Params) -> Scalar:
        """Log prior density of weights, scales and noise, including Jacobians."""
        return self.log_prior_weights(params) + self.log_hyper(params)

    def log_hyper(self, params: Params) -> Scalar:
        """Log prior density of scales and noise, including Jacobians."""
        return self.model.prior.log_hyper(params.scales) + self.model.likelihood.log_noise(params.noise)

    def log_prior_weights(self, params: Params) -> Scalar:
        """Log prior density of the weights given the scales, in raw coordinates."""
        layout = self.model.network.layout(params.weights)
        return self.model.prior.log_prob(params.weights, params.scales, layout)

    def log_jacobian(self, params: Params) -> Scalar:
        """Log determinant of the map from the real line to scales and noise in the units of their priors."""
        prior, likelihood = self.model.prior, self.model.likelihood
        natural = prior.log_hyper(params.scales, jacobian=False) + likelihood.log_noise(params.noise, jacobian=False)
        return self.log_hyper(params) - natural

    def log_posterior(self, log_likelihood: Scalar, params: Params) -> Scalar:
        """Tempered log posterior, unnormalised, given the log likelihood of all rows."""
        total = log_likelihood + self.log_prior(params)
        if not self.tempered:
            return total / self.temperature
        jacobian = self.log_jacobian(params)
        return (total - jacobian) / self.temperature + jacobian

    def log_density(self, params: Params, batch: Data) -> Scalar:
        """Tempered log posterior, unnormalised, estimated from a batch."""
        return self.log_posterior(self.log_likelihood(params, batch), params)
