"""What the samplers of shallow networks share: their step is a sweep over all unknowns, without gradients."""

from typing import ClassVar

import jax
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.sampler import Sampler, check_untempered
from tunbridge.inference.shallow import form
from tunbridge.inference.shallow.sweep import ShallowState
from tunbridge.model import defaults
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Options


class SweepSampler(Sampler):
    """A sampler of `networks.Shallow` under `priors.Exchangeable` with normal noise."""

    parts: ClassVar[defaults.Parts] = defaults.SHALLOW

    acceptance: float = 0.3
    run: Run = Run(warmup=1000, draws=1000, thin=10)

    def __check_init__(self):
        if not isinstance(self.acceptance, jax.core.Tracer) and not 0.0 < self.acceptance < 1.0:
            raise InputError("an acceptance between 0 and 1", f"{self.acceptance}", "Try 0.3.")

    @property
    def gradients_per_step(self) -> int | None:
        """None, as no gradient is evaluated, but one likelihood per hidden unit and jump."""
        return None

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError unless the model is of the form, at temperature 1."""
        super().check(model, data, options)
        form.check(model, data.num, type(self).__name__)
        if self.discrete and not model.prior.discrete:
            raise InputError(
                "an unknown number of units", "alpha=None", "Write priors.Exchangeable(alpha=0.5), or GibbsMetropolis."
            )
        check_untempered(self.run)

    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> ShallowState:
        """Initial state."""
        return ShallowState.begin(params, warmup)
