"""From a trained network and its data to a posterior in one call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import checked
from tunbridge.core.loaders import as_data
from tunbridge.core.names import METHODS
from tunbridge.core.types import Key, Likelihood, Params, Prior
from tunbridge.inference.base import Method
from tunbridge.inference.point import masks
from tunbridge.inference.point.dropout import MCDropout
from tunbridge.inference.point.ensemble import Ensemble
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks.adapters.module import from_module
from tunbridge.model.priors import Normal, fan_in


@checked
def to_bayesian(
    module: Any,
    data: Any,
    method: str | Method = "mcdropout",
    *,
    key: Key,
    prior: Prior | None = None,
    likelihood: Likelihood | None = None,
    **options: Any,
) -> Posterior:
    """Return a posterior for a network trained elsewhere; the fit starts from its weights.

    Members of an ensemble must start at different points, so they are initialised at random instead.

    Parameters
    ----------
    module
        An Equinox, Flax, Keras or PyTorch module.
    data
        The training data, in the units that the network expects and in any form that `Method.fit` accepts.
    method
        A name in `tunbridge.METHODS`, or a method.
    key
        Random key; decides everything random.
    prior
        None is ``Normal(fan_in(1.0))``.
    likelihood
        None chooses by the data. Integer labels are classes, with one output (logit) of the network per class, or a
        single one for two classes; other targets have normal noise of unknown scale, around sd(y) (for a loader, the
        sd of its first batch).
    options
        Passed on to `Method.fit`.

    Examples
    --------
    >>> import equinox as eqx, jax, tunbridge as tb
    >>> module = eqx.nn.MLP(1, 1, 20, 1, key=jax.random.key(0))
    >>> data = tb.datasets.curve(jax.random.key(1), 40)
    >>> quick = tb.MCDropout(train=tb.Train(20))
    >>> noise = tb.likelihoods.Gaussian(0.1)
    >>> tb.to_bayesian(module, data, quick, key=jax.random.key(2), likelihood=noise).predict(data.x).epistemic.shape
    (40, 1)
    """
    data = as_data(data)
    rows = data.first if isinstance(data, Stream) else data
    network = from_module(module, rows.x[:1])
    chosen = METHODS[method]() if isinstance(method, str) else method
    labels = rows.y.ndim == 1 and jnp.issubdtype(rows.y.dtype, jnp.integer)
    weights = network.weights  # type: ignore[attr-defined]
    if likelihood is None:
        outputs = jax.eval_shape(network.apply, weights, rows.x[:1]).shape[-1]
        classes = Bernoulli() if outputs == 1 else Categorical(outputs)
        likelihood = classes if labels else Gaussian(dist.Gamma(0.5, 1.0 / jnp.maximum(jnp.std(rows.y), 1e-30)))
    model = Model(network, Normal(fan_in(1.0)) if prior is None else prior, likelihood)
    if isinstance(chosen, Ensemble):
        return chosen.fit(model, data, key=key, **options)
    return chosen.fit(model, data, key=key, init=_start(chosen, model, weights, rows), **options)


def _start(method: Method, model: Model, weights: Any, data: Data) -> Params:
    """Return the module's weights in the prior's raw coordinates, with the prior's scales at their medians.

    For dropout, the weights are divided by the keep probability, so that on average the module's weights remain.
    """
    bound, _ = model.bind(data)
    layout = bound.network.layout(weights)
    scales = bound.prior.median_scales(weights, layout)
    params = Params(bound.prior.raw(weights, scales, layout), scales)
    if not isinstance(method, MCDropout):
        return params
    rates = masks.place(bound, weights, method.rate, method.input_rate)
    return masks.apply(bound, params, tuple(None if rate is None else 1.0 / (1.0 - rate) for rate in rates))
