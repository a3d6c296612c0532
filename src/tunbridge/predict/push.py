"""A posterior's parameters pushed through the network."""

import numpy as np
from jax import Array

from tunbridge.core.types import Params, PyTree
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.predict.classes import ClassPredictive
from tunbridge.predict.mixture import MixturePredictive
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs


def push(model: Model, params: Params, x: np.ndarray) -> MixturePredictive:
    """The predictive of a model with stacked parameters, equally weighted."""
    return _predictive(Outputs(model, params, x))


def push_outputs(model: Model, outputs: Array, noise: PyTree, x: np.ndarray) -> MixturePredictive:
    """The predictive of networks whose outputs at x, (networks, points, outputs), are known already."""
    return _predictive(Outputs(model, Params((), (), noise), x, outputs))


def _predictive(outputs: Outputs) -> MixturePredictive:
    of_classes = isinstance(outputs.model.likelihood, OfClasses)
    return ClassPredictive(outputs) if of_classes else NumberPredictive(outputs)
