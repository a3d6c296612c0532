"""The answer in brief: what is expected, and its two uncertainties, as one function of x without a predictive."""

from typing import Any, NamedTuple

from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.predict.classes import split_entropy
from tunbridge.predict.quantities import moments


class Parts(NamedTuple):
    """What a `Predictive` says: of numbers means and variances, of classes probabilities and nats."""

    expected: Array
    """The mean (points, outputs), or probabilities (points, classes)."""
    aleatoric: Array
    epistemic: Array


def parts(likelihood: Any, outputs: Array, noise: PyTree) -> Parts:
    """From the outputs of networks, (networks, points, outputs)."""
    question = split_entropy if isinstance(likelihood, OfClasses) else moments
    return Parts(*question(likelihood, outputs, noise))


def check_one_task(likelihood: Any) -> None:
    """InputError for several tasks, which have no one answer."""
    if isinstance(likelihood, MultiTask):
        raise InputError("a model of one task", "several", "Use predict, whose tasks answer one by one.")
