"""`Auto`: a Laplace approximation whose parts are chosen by the size of the data and of the network."""

import dataclasses
import logging
from typing import ClassVar, NamedTuple, Self

from tunbridge.core.data import Data, Stream
from tunbridge.core.tree import size as num_unknowns
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.laplace.laplace import Laplace
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises
from tunbridge.inference.sampler import shapes
from tunbridge.model.model import Model
from tunbridge.model.subsets import LastLayer
from tunbridge.runtime.durations import Train
from tunbridge.runtime.loop import Options

_MOST_ROWS = 5000
"""The most rows for which each training step takes all of them."""
_BATCHES = Train(10_000, 256)
"""Training on more rows."""
_MOST_WEIGHTS = 100_000
"""The most weights for which all are random."""

logger = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """A method, and why it was chosen."""

    method: Laplace
    reason: str


class Auto(Method):
    """The default method of estimators and of the command line: `Laplace`, with what the size of the problem calls for.

    On tables of 250 to 41,000 rows it had the best test log density of most methods without Markov chains, at 2 to 10
    times the cost of a point estimate. Training takes all rows per step up to 5,000 rows, and batches of 256 beyond.
    Above 100,000 weights only those of the last layer are random. The posterior's notes say what was chosen, and why.

    Parameters
    ----------
    laplace
        The method before anything is chosen: all its other fields are kept, and so is a `point` with fields of its own.
    """

    promises: ClassVar[Promises] = {  # those of Laplace
        "linear": ("exact", 0.12),
        "linear_unknown": ("biased", 0.2),
        "logistic": ("biased", 0.25),
        "tanh_unit": ("none",),
    }

    laplace: Laplace = Laplace()

    def chosen(self, model: Model, rows: int, streamed: bool = False) -> Chosen:
        """Return the method for a model and this many rows, and the reason for the choice."""
        method, weights = self.laplace, num_unknowns(shapes(model).weights)
        reasons = [f"{rows:,} rows", f"{weights:,} weights"]
        if rows > _MOST_ROWS and not streamed and method.point == MAP():
            method = dataclasses.replace(method, point=MAP(train=_BATCHES))
            reasons[0] += f" are more than {_MOST_ROWS:,}, so training takes {_BATCHES.batch_size} of them per step"
        if weights > _MOST_WEIGHTS and method.subset == Laplace().subset:
            method = dataclasses.replace(method, subset=LastLayer())
            reasons[1] += f" are more than {_MOST_WEIGHTS:,}, so only the last layer's are random"
        return Chosen(method, f"Chosen by size: Laplace. {'; '.join(reasons)}.")

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with its `laplace` cut to a budget."""
        return dataclasses.replace(self, laplace=self.laplace.within(gradients, rows))

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Number of per-row gradients, as `Laplace` counts them."""
        return self.laplace.gradients_spent(steps, posterior, rows)

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Return `size` posteriors of the chosen method, with the reason among their notes."""
        method, reason = self.chosen(model, data.num, isinstance(data, Stream))
        logger.info(reason)
        posteriors = method.posteriors(model, data, key, size, options)
        return [dataclasses.replace(each, notes=(reason, *each.notes)) for each in posteriors]
