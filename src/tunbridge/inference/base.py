"""`Iterative`: methods that take steps. They say what a step is; the loop drives them."""

import abc
import os
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Event, Options, Run, Trace, Train, run


class Method(eqx.Module):
    """A way to turn a model and data into a posterior. Its fields are its hyperparameters."""

    @abc.abstractmethod
    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """`size` independent posteriors of one model and data."""

    def fit(
        self,
        model: Model,
        data: Data | Stream,
        *,
        key: Key,
        init: Params | None = None,
        progress: bool = True,
        checkpoint: str | os.PathLike | None = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Callable[[Event], bool | None]] = (),
    ) -> Posterior:
        """The posterior of `model` given `data`.

        Parameters
        ----------
        model, data
            What is believed, and what was seen.
        key
            Decides everything random: the same key on the same machine gives the same result to the bit.
        init
            Where to start; None asks the method.
        progress
            Show a bar, where there is a terminal.
        checkpoint
            A folder to save to, and to resume from if it holds this very run.
        max_seconds, callbacks
            Ends between chunks of steps: after that time, or when a callback returns True.
        """
        options = Options(init, progress, checkpoint, max_seconds, callbacks)
        return self.posteriors(model, data, key, 1, options)[0]


class Iterative(Method):
    """A method that takes steps.

    Hyperparameters are leaves: another value compiles nothing. `start`, `init`, `step`, `keep` and `done` are pure
    and run inside jit; a batch is always given, and full-data methods receive all of it.
    """

    @property
    @abc.abstractmethod
    def duration(self) -> Run | Train:
        """How long it runs."""

    @abc.abstractmethod
    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> PyTree:
        """The first state. `warmup` counts the steps of adaptation that lie ahead."""

    @abc.abstractmethod
    def step(self, key: Key, target: Target, state: Any, batch: Data) -> tuple[Any, Any]:
        """The next state, and this step's statistics with a `result` among them."""

    @abc.abstractmethod
    def keep(self, state: Any) -> PyTree:
        """What a kept step keeps of its state."""

    @abc.abstractmethod
    def posterior(self, model: Model, traces: list[Trace], key: Key) -> Posterior:
        """The posterior that the members of one fit leave behind."""

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """Where to start: the network's own initial weights, scales at their medians, noise from its prior."""
        model = target.model
        key_weights, key_noise = jax.random.split(key)
        weights, scales = model.network.init(key_weights, batch.x), model.prior.median_scales()
        raw = model.prior.raw(weights, scales, model.network.layout(weights))
        return Params(raw, scales, model.likelihood.sample_noise(key_noise))

    def done(self, state: Any) -> bool | Array:
        """Whether a state is final before all steps are done."""
        return False

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """All members of all posteriors, driven in one loop."""
        if isinstance(data, Stream):
            model, _ = model.bind(data.first)
        else:
            model, data = model.bind(data)
        duration, chains, temperature = self.duration, 1, 1.0
        if isinstance(duration, Run):
            chains, temperature = duration.chains, duration.temperature
        key_run, key_posterior = jax.random.split(key)
        keys = jax.random.split(key_run, size * chains)
        traces = run(self, Target(model, float(data.num), temperature), data, duration, keys, options)
        groups = [traces[i * chains : (i + 1) * chains] for i in range(size)]
        keys = jax.random.split(key_posterior, size)
        return [self.posterior(model, group, k) for group, k in zip(groups, keys, strict=True)]
