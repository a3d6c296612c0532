"""The variational Bayesian last layer: features and a normal last layer, trained together."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tunbridge.core import memory
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.base import first_rows
from tunbridge.inference.linear import bound, door, features
from tunbridge.inference.linear.bound import Layer
from tunbridge.inference.linear.variational import VariationalLayer
from tunbridge.inference.point import noise
from tunbridge.inference.point.descent import Descent, DescentState, Info
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.model import transforms
from tunbridge.model.likelihoods.categorical import Categorical
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Options, Trace

_COPIES = 8
"""Number of arrays of the size of the covariances that training holds at once."""


class VBLL(Descent):
    r"""The variational Bayesian last layer :cite:p:`harrison2024variational`.

    The weights of the last layer are normal, :math:`q(w_j) = N(m_j, S_j)` with a dense covariance per output; all
    weights below, :math:`\theta`, are a point estimate. Both are trained together, on a bound that needs no sampling,

    .. math::

        \frac{N}{n} \sum_{i \in \text{batch}} \mathbb{E}_q \log p(y_i \mid w^\top \phi_\theta(x_i))
        - \text{KL}\big(q(w) \,\Vert\, p(w)\big) + \log p(\theta),

    where the expectation is exact for `likelihoods.Gaussian`, and Jensen's lower bound for `Categorical` and
    `Bernoulli`. The prior of the last layer has to be normal and independent. Without hidden layers and with known
    normal noise, q is the exact posterior.

    Unknown prior scales are held at their medians. Unknown noise has a normal q on the real line, which does not
    maximise the bound: features estimated as a point would overfit, and send the noise to zero. As in `MAP` the noise
    is measured on held-out rows during the first half of the steps; the width of its q is the uncertainty that these
    rows leave. Then features and last layer are trained on all rows, given q of the noise.

    Parameters
    ----------
    step_size, optimiser, decay, train
        As for `MAP`.

    Examples
    --------
    >>> import jax, numpy as np, tunbridge as tb
    >>> model = tb.Model(tb.networks.MLP((8,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    >>> x = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> posterior = tb.VBLL(train=tb.Train(100)).fit(model, tb.Data(x, np.sin(3.0 * x)), key=jax.random.key(0))
    >>> posterior.roots.shape
    (1, 9, 9)
    """

    promises: ClassVar[Promises] = {  # noise from held-out rows, prior scales at their medians
        "linear": ("exact", 0.05),
        "linear_unknown": ("mean", 0.3),
        "logistic": ("biased", 0.2),
        "tanh_unit": ("refused",),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.3, 0.9), "classes": (0.1, 0.3)}

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """Raise InputError for networks, priors and likelihoods without a closed-form bound."""
        _refuse(model, np.asarray(first_rows(model, data).x)[: door.TRIED_ROWS])

    def extra(self, target: Target, params: Params, batch: Data) -> Layer:
        """Return a last layer with zero covariance, to be replaced once the noise is measured."""
        index = features.last(target.model, params.weights).index
        return Layer.none(index.shape, params.noise)

    def objective(self, key: Key, target: Target, params: Params, extra: PyTree, batch: Data) -> Scalar:
        """Return the bound for the whole data set from one batch, up to a constant."""
        model, layer = target.model, extra.trained
        weights = model.weights(params)
        index = features.last(model, weights).index
        outputs, phi = features.evaluate(model, weights, batch.x)
        spread = bound.spreads(layer.roots, phi[:, 0])
        terms = bound.expected(model.likelihood, outputs, spread, params.noise, layer.width, batch.y)
        below = params._replace(weights=features.with_layer(params.weights, index, jnp.zeros(index.shape)))
        divergence = layer.divergence(ravel_pytree(weights)[0][index], features.prior_variances(model, params))
        return target.rescale(terms, batch) + target.log_prior_weights(below) - divergence

    def step(self, key: Key, target: Target, state: DescentState, batch: Data) -> tuple[DescentState, Info]:
        """Take one optimiser step; the layer gets its initial covariance once the noise is measured."""
        begins = state.step == self._stages(state).refit
        params = state.measured._replace(weights=state.given) if state.given else state.measured
        extra = jax.lax.cond(begins, lambda: _begun(target, params, batch), lambda: state.extra)
        fresh, info = super().step(key, target, state._replace(extra=extra), batch)
        return fresh._replace(extra=extra._replace(raw=fresh.extra.raw)), info

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the posterior with the layer of the last state."""
        (trace,) = traces
        params, layer, step = self.reached(trace.state), trace.state.extra, int(trace.state.step)
        notes = self.notes(params, step)
        if step <= self._stages(trace.state).refit:
            notes += ("Stopped before the last layer got a covariance: this is the point estimate.",)
        curve = self.curve(trace.state, trace.info)
        return VariationalLayer(model, key, params, layer.roots, layer.width, curve=curve, notes=notes)


def _begun(target: Target, params: Params, batch: Data) -> Layer:
    """The layer's posterior given a batch, with features fixed and the likelihood taken as normal."""
    model, likelihood = target.model, target.model.likelihood
    outputs, phi = features.evaluate(model, model.weights(params), batch.x)
    curvature = jnp.sum(likelihood.fisher_root(outputs, params.noise) ** 2, axis=2) * batch.weights[:, None]
    precision = target.num / batch.num * jnp.einsum("na,nj,nb->jab", phi[:, 0], curvature, phi[:, 0])
    width = bound.noise_width(likelihood, params.noise, noise.SHARE * target.num, outputs.shape[1])
    return Layer.around(precision, features.prior_variances(model, params), width)


def _refuse(model: Model, x: np.ndarray) -> None:
    """Raise InputError, before anything is trained, if there is no closed-form bound or not enough memory."""
    likelihood: Any = model.likelihood
    if not isinstance(likelihood, bound.KINDS):
        raise InputError(
            "likelihoods.Gaussian, Categorical or Bernoulli, whose bound needs no draws",
            type(likelihood).__name__,
            "Use tb.Laplace(subset=tb.subsets.LastLayer()).",
        )
    if isinstance(likelihood, Categorical) and transforms.unknowns(likelihood.numbers):
        raise InputError("a known temperature", repr(likelihood.temperature)[:60], "Write likelihoods.Categorical().")
    width, outputs = features.last(model, door.check_layer(model, x).weights).index.shape
    needed = 4 * _COPIES * outputs * width**2
    if needed > (available := memory.available()):
        raise InputError(
            f"covariances of the last layer that fit in {available / 1e9:.1f} GB of memory",
            f"{outputs:,} of {width:,} features, which take {needed / 1e9:.1f} GB",
            "Narrow the last hidden layer.",
        )
