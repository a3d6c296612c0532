"""A posterior's parameters pushed through the network."""

import numpy as np

from tunbridge.core.types import Params
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.predict.classes import ClassPredictive
from tunbridge.predict.mixture import MixturePredictive
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs


def push(model: Model, params: Params, x: np.ndarray) -> MixturePredictive:
    """The predictive of a model with stacked parameters, equally weighted."""
    outputs = Outputs(model, params, x)
    return ClassPredictive(outputs) if isinstance(model.likelihood, OfClasses) else NumberPredictive(outputs)
