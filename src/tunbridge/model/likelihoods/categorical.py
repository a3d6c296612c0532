"""Several classes."""

import equinox as eqx
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model.likelihoods.base import Noiseless, OfClasses


class Categorical(Noiseless, OfClasses):
    r"""Several classes, :math:`p(y = c) = \text{softmax}(f(x))_c`.

    Parameters
    ----------
    classes
        How many there are; None counts the labels: the largest plus one.
    """

    classes: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        if self.classes is not None and self.classes < 2:
            raise InputError("at least 2 classes", f"{self.classes}", "Leave classes=None to count the labels.")

    def num_classes(self, y: Array) -> int:
        """As said, or the largest label plus one."""
        return self.classes if self.classes is not None else max(int(np.max(np.asarray(y))) + 1, 2)

    def num_outputs(self, y: Array) -> int:
        """One logit a class."""
        return self.num_classes(y)

    def with_outputs(self, num: int) -> "Categorical":
        """The same for so many classes."""
        return Categorical(num)

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Of the label, from the logits."""
        return dist.Categorical(logits=outputs)
