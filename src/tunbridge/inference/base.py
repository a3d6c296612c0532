"""`Iterative`: methods that take steps. They say what a step is; the loop drives them."""

import abc
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import files, keys, provenance
from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_data
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model, Target
from tunbridge.model.priors.improper import improper
from tunbridge.runtime import programs
from tunbridge.runtime.clock import Clock
from tunbridge.runtime.loop import BATCH, Event, Options, Run, Trace, Train, run

logger = logging.getLogger(__name__)


class Method(Module):
    """A way to turn a model and data into a posterior. Its fields are its hyperparameters."""

    @abc.abstractmethod
    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """`size` independent posteriors of a model that is bound to its data: what `fit` asks for."""

    @checked
    def fit(
        self,
        model: Model,
        data: Any,
        *,
        key: Key,
        init: Any = None,
        progress: bool = True,
        checkpoint: str | os.PathLike | None = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Callable[[Event], bool | None]] = (),
    ) -> Posterior:
        """The posterior of `model` given `data`.

        Parameters
        ----------
        model, data
            What is believed, and what was seen: `Data`, a pair (x, y), a stream of `Data.from_batches`, or a loader
            of batches (x, y) that knows its number of rows, as PyTorch's DataLoader does.
        key
            Decides everything random: the same key on the same machine gives the same result to the bit.
        init
            Where to start: parameters, or a posterior, one of whose draws or members each chain starts from. None
            asks the method. `Laplace` and `NeuralLinear` also take a network's own weights.
        progress
            Show a bar, where there is a terminal.
        checkpoint
            A folder to save to, and to resume from if it holds this very run. While the fit runs nobody else may use
            it: a second one is refused with `BusyError`.
        max_seconds, callbacks
            Ends between chunks of steps: after so many seconds of training, or when a callback returns True.
            Compilation is not counted: the clock starts when the first chunk has come back. A fit that was ended says
            so in its `cut`. With 0 seconds and a checkpoint, what it holds is read and no step is taken.
        """
        clock = Clock(max_seconds)
        options = Options(init, progress, checkpoint, clock, callbacks)
        logger.info("%s begins", type(self).__name__)
        began = time.perf_counter()
        programs.refuse_fork()
        programs.keep()
        programs.bound()
        with contextlib.nullcontext() if checkpoint is None else files.locked(Path(checkpoint)):
            (posterior,) = self.posteriors(*bound(model, as_data(data)), key, 1, options)
        record = provenance.record(self, posterior.model, time.perf_counter() - began, clock.cut)
        logger.info("%s took %.1f s. %s", type(self).__name__, record.seconds, " ".join(posterior.notes))
        return dataclasses.replace(posterior, provenance=record)

    def within(self, gradients: int, rows: int) -> Self:
        """The method with as many steps as it can take with so many gradients of the likelihood of single rows.

        Itself, unless it says how: a benchmark gives every method the same budget by it.
        """
        return self

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Gradients of single rows that a fit within a budget took for its steps."""
        return float(steps * min(rows, BATCH))


class Iterative(Method):
    """A method that takes steps.

    `posteriors` is the same for all: `check` refuses, `settle` finds what depends on all rows, the loop calls `start`,
    `init`, `step` and `keep`, and `posterior` makes of their traces what a user gets. Hyperparameters are leaves:
    another value compiles nothing. `start`, `init`, `step`, `keep` and `done` are pure and run inside jit; a batch is
    always given, and full-data methods receive all of it.
    """

    @property
    @abc.abstractmethod
    def duration(self) -> Run | Train:
        """How long it runs."""

    @abc.abstractmethod
    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> PyTree:
        """The first state. `warmup` counts the steps of adaptation that lie ahead."""

    def init_at(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> PyTree:
        """The first state where `fit` was told where to start."""
        return self.init(key, target, params, batch, warmup)

    @abc.abstractmethod
    def step(self, key: Key, target: Target, state: Any, batch: Data) -> tuple[Any, Any]:
        """The next state, and this step's statistics with a `result` among them."""

    @property
    def stepper(self) -> "Iterative":
        """The method whose `step`, `pause` and `keep` the loop calls: itself, unless the program of another serves."""
        return self

    @property
    def periods(self) -> tuple[int, ...]:
        """After every how many steps it may have something to do in `pause`."""
        return ()

    def pause(self, key: Key, target: Target, state: Any, step: Array) -> Any:
        """The state after `step` steps and what is not done at each, before it is kept."""
        return state

    @abc.abstractmethod
    def keep(self, target: Target, state: Any) -> PyTree:
        """What a kept step keeps of its state."""

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Steps of warm-up after which all members of one posterior meet, in order."""
        return ()

    def report(self, state: Any) -> PyTree:
        """What a member tells the others at a meeting."""
        return ()

    def meet(self, key: Key, target: Target, state: Any, batch: Data, reports: PyTree) -> Any:
        """A member's state after a meeting, at which it heard all reports, its own among them (a leading axis).

        The batch is that of the coming step, to measure by.
        """
        return state

    def facts(self, target: Target, state: Any) -> dict[str, float]:
        """What a progress bar shows besides the last step's statistics; members that advance together lead."""
        return {}

    @abc.abstractmethod
    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """The posterior that the members of one fit leave behind; `data` is the rows, or the first of a stream."""

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """Where to start: the network's own initial weights, all else at its prior's median."""
        model = target.model
        weights = model.network.init(jax.random.split(key)[0], batch.x)
        layout = model.network.layout(weights)
        scales = model.prior.median_scales(weights, layout)
        raw = model.prior.raw(weights, scales, layout)
        return Params(raw, scales, model.likelihood.median_noise())

    def believed(self, model: Model) -> Model:
        """The model as this method takes it: as it is."""
        return model

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError, before anything is computed, where the method cannot take the model, the data or the start."""

    def settle(
        self, model: Model, data: Data | Stream, key: Key, size: int, options: Options
    ) -> tuple["Iterative", Options]:
        """The method with what depends on the model and on all rows, and the options of its loop."""
        return self, options

    def batch_size(self, num: int) -> int | None:
        """How many of `num` rows a step sees; None is all of them."""
        return self.duration.batch_size

    def done(self, state: Any) -> bool | Array:
        """Whether a state is final before all steps are done."""
        return False

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """All members of all posteriors, driven in one loop."""
        model = self.believed(model)
        self.check(model, data, options)
        method, options = self.settle(model, data, keys.fold_in(key, 3), size, options)
        return method._run(model, data, key, size, options)

    def _run(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        rows = first_rows(model, data)
        duration = dataclasses.replace(self.duration, batch_size=self.batch_size(data.num))
        chains, temperature = 1, 1.0
        if isinstance(duration, Run):
            chains, temperature = duration.chains, duration.temperature
        if isinstance(options.init, Posterior):  # a chain that goes on under the same key uses no noise twice
            key = keys.fold_in(key, int(np.asarray(jax.random.key_data(options.init.key))[-1]))
        key_run, key_posterior = (keys.one(keys.split(key), i) for i in range(2))
        members = keys.split(key_run, size * chains)
        target = Target(model, float(data.num), temperature)
        starts = self._starts(options.init, target, rows, keys.fold_in(key, 2), len(members))
        traces = run(self, target, data, duration, members, dataclasses.replace(options, init=starts))
        groups = [traces[i * chains : (i + 1) * chains] for i in range(size)]
        own = keys.split(key_posterior, size)
        return [self.posterior(model, rows, group, keys.one(own, i)) for i, group in enumerate(groups)]

    def _starts(self, init: Params | Posterior | None, target: Target, rows: Data, key: Key, num: int) -> Params | None:
        """Where each of `num` members starts, with a leading axis."""
        if init is None:
            return None
        if isinstance(init, Posterior):
            starts = init.starts(key, num)
            self._checked(jax.tree.map(lambda leaf: np.asarray(leaf)[0], starts), target, rows)
            return starts
        if not isinstance(init, Params):
            raise InputError("init= as tb.Params or a posterior", type(init).__name__, "Write init=tb.Params(weights).")
        full = self._checked(init, target, rows)
        return jax.tree.map(lambda leaf: on_host(lambda one: np.broadcast_to(one, (num, *one.shape)), leaf), full)

    def _checked(self, init: Params, target: Target, rows: Data) -> Params:
        """Where to start, of the right shapes, with unknowns it leaves out at their medians."""
        model, like = target.model, jax.eval_shape(self.start, jax.random.key(0), target, rows)
        layout = model.network.layout(like.weights)
        full = Params(
            init.weights,
            init.scales if init.scales or not like.scales else model.prior.median_scales(like.weights, layout),
            init.noise if init.noise or not like.noise else model.likelihood.median_noise(),
        )
        wanted, given = (str(jax.tree.map(jnp.shape, params)) for params in (like, full))
        if wanted != given:
            raise InputError(f"init= of shapes {wanted}", given, "Start from weights of this very network.")
        return full


def bound(model: Model, data: Data | Stream) -> tuple[Model, Data | Stream]:
    """Model and data made to fit each other, once; InputError if they do not, or nothing can start from the prior."""
    if not model.prior.proper:
        raise improper(type(model.prior).__name__)
    if isinstance(data, Stream):
        return model.bind(data.first)[0], data
    return model.bind(data)


def first_rows(model: Model, data: Data | Stream) -> Data:
    """The rows, or those of a stream's first batch, with targets as the likelihood takes them."""
    if isinstance(data, Stream):
        first = data.first
        return Data(first.x, model.likelihood.check(first.y), first.weight)
    return data
