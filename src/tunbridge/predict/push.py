"""From the outputs of a posterior's networks to a predictive."""

import numpy as np
from jax import Array

from tunbridge.core.types import Params, PyTree
from tunbridge.model.likelihoods.base import OfClasses, OfCounts
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.model.likelihoods.ordinal import Ordinal
from tunbridge.model.model import Model
from tunbridge.predict.classes import ClassPredictive, OrdinalPredictive
from tunbridge.predict.counts import CountPredictive
from tunbridge.predict.mixture import MixturePredictive
from tunbridge.predict.numbers import NumberPredictive
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.tasks import TasksPredictive


def push(outputs: Outputs) -> MixturePredictive:
    """Return the predictive of equally weighted networks with these outputs."""
    likelihood = outputs.model.likelihood
    if isinstance(likelihood, MultiTask):
        return TasksPredictive(outputs, {name: push(outputs.task(i)) for i, name in enumerate(likelihood.names)})
    for kind, predictive in _KINDS.items():
        if isinstance(likelihood, kind):
            return predictive(outputs)
    return NumberPredictive(outputs)


def push_outputs(model: Model, outputs: Array, noise: PyTree, x: np.ndarray) -> MixturePredictive:
    """Return the predictive of networks from their known outputs at x, (networks, points, outputs)."""
    return push(Outputs(model, Params((), (), noise), x, outputs))


_KINDS: dict[type, type[MixturePredictive]] = {
    Ordinal: OrdinalPredictive,
    OfClasses: ClassPredictive,
    OfCounts: CountPredictive,
}
