"""Monte Carlo dropout: random masks on a network's units, seen as a distribution over its weights."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logit

from tunbridge.core import keys
from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.declared import Count, Positive, checked
from tunbridge.core.errors import InputError
from tunbridge.core.random import split
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.point import masks
from tunbridge.inference.point.descent import Descent
from tunbridge.inference.posteriors import DRAWS, Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.model.model import Model, Target
from tunbridge.runtime import programs
from tunbridge.runtime.loop import Trace


class Dropout(Posterior):
    r"""Weights whose units are dropped at random: :math:`W = M \,\text{diag}(z)`."""

    params: Params
    """The parameters before any unit is dropped."""
    rates: tuple[Array | None, ...]
    """The dropout rate of the input units of each leaf of the weights; None where nothing is dropped."""
    curve: dict[str, Array] | None = None
    """The optimiser's statistics by name, over the training steps (leading axis)."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw all masks `num` times, and return the masked weights."""
        return _draws(self.model, self.params, self.rates, keys.split(key, num))

    def components(self, key: Key, num: int | None) -> Params:
        """Return `num` draws, by default 100."""
        return self.sample(key, DRAWS if num is None else num)


@once
def _draws(model: Model, params: Params, rates: masks.Rates, draw_keys: Key) -> Params:
    return jax.vmap(lambda key: masks.dropped(key, model, params, rates, masks.draw))(draw_keys)


class MCDropout(Descent):
    r"""Monte Carlo dropout :cite:p:`gal2016dropout`, with rates that are given or learned :cite:p:`gal2017concrete`.

    The distribution over weights is :math:`W = M\,\text{diag}(z)` with :math:`z_j \sim \text{Bernoulli}(1 - p)` for
    each unit that W reads; training with dropout maximises the bound

    .. math::

        \frac{N}{n} \sum_{i \in \text{batch}} \log p(y_i \mid x_i, M z) + \mathbb{E}_z \log p(M z) + \mathbb{H}(z),

    and a prediction averages over masks. With noise :math:`\sigma` the model precision is :math:`\tau = 1/\sigma^2`;
    with a normal prior of scale 1/l the middle term is weight decay of :math:`(1 - p)\, l^2 / (2 N \tau)` for a loss of
    half the mean squared error. Masks are not rescaled by 1 / (1 - p): the prior applies to the weights as they are.

    Masks are placed by the network's layout, also in networks of other libraries, whose own dropout layers stay off. A
    mask is shared by all positions of a convolution and all time steps of a recurrent network.

    Parameters
    ----------
    step_size, optimiser, decay, train
        As for `MAP`.
    rate
        The probability that a hidden unit is dropped; the initial value if rates are learned.
    input_rate
        The same for the inputs x; None never drops them.
    learn
        Whether each layer's rate is learned.
    groups
        Number of groups into which a batch is split, each with its own masks.
    """

    promises: ClassVar[Promises] = {  # the exact problems have no hidden layer to drop: it is MAP there
        "linear": ("mean", 0.001),
        "linear_unknown": ("none",),
        "logistic": ("mode", 0.001),
        "tanh_unit": ("mode", 0.001),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.3, 16.7), "classes": (0.1, 0.1)}

    rate: float = eqx.field(default=0.1, converter=float)
    input_rate: float | None = eqx.field(default=None, converter=lambda rate: None if rate is None else float(rate))
    learn: bool = eqx.field(default=False, static=True)
    groups: int = eqx.field(default=8, static=True)

    def __check_init__(self):
        for name, rate in (("rate", self.rate), ("input_rate", self.input_rate)):
            if rate is not None and not (0.0 < rate < 1.0 if self.learn else 0.0 <= rate < 1.0):
                raise InputError(f"{name} between 0 and 1", f"{rate}", "Try 0.1.")
        if self.groups < 1:
            raise InputError("groups as a whole number of at least 1", f"{self.groups}", "Try 8.")

    def extra(self, target: Target, params: Params, batch: Data) -> PyTree:
        """Return the logit of each leaf's rate, if rates are learned; else ()."""
        if not self.learn:
            return ()
        rates = masks.place(target.model, params.weights, self.rate, self.input_rate)
        return tuple(None if rate is None else logit(jnp.asarray(rate)) for rate in rates)

    def rates(self, model: Model, params: Params, extra: PyTree) -> masks.Rates:
        """Return the dropout rate of each leaf of the weights."""
        if self.learn:
            return tuple(None if u is None else jax.nn.sigmoid(u) for u in extra)
        return masks.place(model, params.weights, self.rate, self.input_rate)

    def objective(self, key: Key, target: Target, params: Params, extra: PyTree, batch: Data) -> Scalar:
        """Return an estimate of the bound, with masks drawn for each group of the batch."""
        rates = self.rates(target.model, params, extra)
        layout = target.model.network.layout(params.weights)
        draw = masks.draw_relaxed if self.learn else masks.draw
        groups = min(self.groups, batch.capacity)

        def terms(key_group: Key, x: Array, y: Array) -> Array:
            return target.model.log_likelihood(masks.dropped(key_group, target.model, params, rates, draw), x, y)

        x, y = _grouped(batch.x, groups), _grouped(batch.y, groups)
        each = jax.vmap(terms)(split(key, groups), x, y).reshape(-1)[: batch.capacity]
        bound = target.rescale(each, batch) + masks.expected_log_prior(target, params, rates)
        return bound + masks.entropy(rates, params.weights, layout) if self.learn else bound

    def outputs(self, key: Key, target: Target, params: Params, x: Array) -> Array:
        """Return outputs of as many masked networks as a step has groups, at the initial rates."""
        rates = masks.place(target.model, params.weights, self.rate, self.input_rate)

        def masked_outputs(key_draw: Key) -> Array:
            return target.model.outputs(masks.dropped(key_draw, target.model, params, rates, masks.draw), x)

        return jax.vmap(masked_outputs)(split(key, self.groups))

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the posterior: the weights before dropout, and the rates."""
        (trace,) = traces
        state = trace.state
        params = self.reached(state)
        rates = self.rates(model, params, state.extra)
        floats = jax.dtypes.canonicalize_dtype(float)
        rates = tuple(None if rate is None else jax.device_put(np.asarray(rate, floats)) for rate in rates)
        notes = self.notes(params, int(state.step))
        if all(rate is None for rate in rates):
            notes += ("The network has no hidden units to drop: this is the MAP estimate.",)
        return Dropout(model, key, params, rates, self.curve(state, trace.info), notes=notes)


def _grouped(rows: Array, groups: int) -> Array:
    """Rows as (groups, size, ...), padded with copies of the last row."""
    size = math.ceil(len(rows) / groups)
    index = np.minimum(np.arange(groups * size), len(rows) - 1)
    return rows[index].reshape(groups, size, *rows.shape[1:])


@checked
def tau_from_weight_decay(weight_decay: Positive, rate: float, length_scale: Positive, num: Count) -> float:
    r"""Return the model precision implied by a weight decay, :math:`\tau = (1 - p)\, l^2 / (2 N \lambda)`.

    For a loss of half the mean squared error plus :math:`\lambda \lVert M \rVert^2`, and prior scale 1/l. This is only
    a conversion: in a `Model` the likelihood sets the noise, and the weight decay follows from it.
    """
    return _implied(weight_decay, rate, length_scale, num)


@checked
def weight_decay_from_tau(tau: Positive, rate: float, length_scale: Positive, num: Count) -> float:
    r"""Return the weight decay implied by a model precision, :math:`\lambda = (1 - p)\, l^2 / (2 N \tau)`."""
    return _implied(tau, rate, length_scale, num)


def _implied(given: float, rate: float, length_scale: float, num: int) -> float:
    """Return the model precision for a given weight decay, or the weight decay for a given precision."""
    if not 0.0 <= rate < 1.0:
        raise InputError("a rate from 0 to below 1", f"{rate}", "Try 0.1.")
    scale = float(length_scale)
    implied = (1.0 - rate) * scale * scale / (2.0 * num * given)
    if not math.isfinite(implied):
        raise InputError("values whose ratio is finite", f"{implied}", "Use a smaller length scale.")
    return implied
