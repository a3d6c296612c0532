"""Mean or class probabilities with aleatoric and epistemic uncertainty, computed without a predictive object."""

from typing import Any, NamedTuple

from jax import Array

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.likelihoods.multitask import MultiTask
from tunbridge.predict.classes import split_entropy
from tunbridge.predict.quantities import moments


class Parts(NamedTuple):
    """A predictive in brief: means and variances for numbers, probabilities and entropies in nats for classes."""

    expected: Array
    """The mean (points, outputs), or probabilities (points, classes)."""
    aleatoric: Array
    epistemic: Array


def parts(likelihood: Any, outputs: Array, noise: PyTree) -> Parts:
    """Return `Parts` computed from the outputs of networks, (networks, points, outputs)."""
    question = split_entropy if isinstance(likelihood, OfClasses) else moments
    return Parts(*question(likelihood, outputs, noise))


def check_one_task(likelihood: Any) -> None:
    """Raise InputError for a likelihood of several tasks, which have no single answer."""
    if isinstance(likelihood, MultiTask):
        raise InputError("a model of one task", "several", "Use predict, and the predictives in its .tasks.")
