"""The mode of the weights at noise and prior scales that are given."""

import jax.numpy as jnp
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.point.descent import Descent, State
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace
from tunbridge.runtime.patience import Patience


class Mode(Descent):
    """The most probable weights where noise and prior scales are what they are: nothing is measured."""

    def believed(self, model: Model) -> Model:
        """As it is: its scales are given."""
        return model

    def objective(self, key: Key, target: Target, params: Params, extra: PyTree, batch: Data) -> Scalar:
        """Log likelihood + log prior of the weights."""
        return target.log_likelihood(params, batch) + target.log_prior_weights(params)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> State:
        """The optimiser's state."""
        patience = () if self.train.patience is None else Patience.fresh()
        memory = self._optax(0.0).init((params.weights, ()))
        return strong(State(params, (), memory, jnp.zeros((), jnp.int32), (), (), patience))

    def init_at(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> State:
        """The same."""
        return self.init(key, target, params, batch, warmup)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """A point at the last state."""
        (trace,) = traces
        return Point(model, key, trace.state.params)
