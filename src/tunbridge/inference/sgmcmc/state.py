"""What a chain of stochastic-gradient steps carries along."""

from typing import NamedTuple

from jax import Array

from tunbridge.core.types import PyTree
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.tuning import Tuning


class DynamicsState(NamedTuple):
    """What the next step needs."""

    motion: Motion
    metric: PyTree
    """What the preconditioner remembers."""
    anchor: PyTree
    """What the gradient's estimator remembers."""
    tuning: Tuning | tuple[()]
    """What warm-up remembers, where the step size is measured, else ()."""
    noise: PyTree
    """The variance of the gradient, where it is measured, else ()."""
    heat: Array
    """A running mean of each unknown's kinetic energy, 1 in equilibrium."""
    step: Array
    warmup: Array

    @property
    def position(self) -> Array:
        """Everything unknown."""
        return self.motion.position
