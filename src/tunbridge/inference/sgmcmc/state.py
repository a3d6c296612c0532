"""The state of a stochastic-gradient chain."""

from typing import NamedTuple

from jax import Array

from tunbridge.core.types import PyTree
from tunbridge.inference.sgmcmc.splittings import Motion
from tunbridge.inference.sgmcmc.tuning import Tuning


class DynamicsState(NamedTuple):
    """State of a stochastic-gradient chain: its motion, its memories and its running statistics."""

    motion: Motion
    metric: PyTree
    """Memory of the preconditioner."""
    anchor: PyTree
    """Memory of the gradient estimator."""
    tuning: Tuning | tuple[()]
    """Memory of warm-up where the step size is measured, else ()."""
    noise: PyTree
    """Variance of the gradient where it is measured, else ()."""
    heat: Array
    """Running mean of each unknown's kinetic energy, 1 in equilibrium."""
    step: Array
    warmup: Array

    @property
    def position(self) -> Array:
        """All unknowns in one vector."""
        return self.motion.position
