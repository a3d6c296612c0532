"""Base classes of inference methods: `Method`, and `Iterative` for those whose steps the shared loop runs."""

import abc
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, ImproperUniform

from tunbridge.core import files, keys, provenance
from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_data
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises, Spreads, caution
from tunbridge.inference.recorded import Recorded
from tunbridge.model import defaults
from tunbridge.model.model import Model, Target
from tunbridge.model.priors.noninformative import improper
from tunbridge.runtime import compiler, programs
from tunbridge.runtime.clock import Clock
from tunbridge.runtime.durations import BATCH, RUN, TRAIN, Run, Train, complete_default
from tunbridge.runtime.loop import Event, Options, Trace, run

logger = logging.getLogger(__name__)


class Method(Module):
    """A way to turn a model and data into a posterior. Its fields are its hyperparameters.

    The defaults of the fields `run` and `train` complete whatever `Run` or `Train` these are given.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        complete_default(cls, "run", RUN)
        complete_default(cls, "train", TRAIN)

    promises: ClassVar[Promises] = {}
    """What the method promises on the exact problems, as `tunbridge.bench.PROMISES` lists it."""
    discrete: ClassVar[bool] = False
    """Whether it infers unknown whole numbers, such as a number of units."""
    parts: ClassVar[defaults.Parts] = defaults.DENSE
    """The model that estimators and commands give it where none is named."""
    spreads: ClassVar[Spreads] = {}
    """How wide it was with its defaults on real tables; where that is far from 1, `fit` adds a note."""

    @abc.abstractmethod
    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Return `size` independent posteriors of a model that is bound to its data; `fit` calls this."""

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
        """Return the posterior of `model` given `data`.

        Parameters
        ----------
        model, data
            The model, and the data: `Data`, a pair (x, y), a stream made by `Data.from_batches`, or a loader of
            batches (x, y) that knows its number of rows, such as PyTorch's DataLoader.
        key
            Seeds everything random: the same key on the same machine gives the same result to the bit.
        init
            Where to start: parameters, or a posterior, in which case each chain starts from one of its draws or
            members. None leaves the start to the method. `Laplace` and `NeuralLinear` also take a network's own
            weights.
        progress
            Show a progress bar, if there is a terminal.
        checkpoint
            Folder for checkpoints; the fit resumes from it if it holds this very run. It is locked while the fit runs:
            a second fit that uses it is refused with `BusyError`.
        max_seconds, callbacks
            Stop early, between chunks of steps: after this many seconds of training, or when a callback returns True.
            Compilation is not counted: the clock starts once the first chunk has finished. The posterior's `cut` says
            where a fit was stopped. With 0 seconds and a checkpoint, the checkpoint is read and no step is taken.
        """
        clock, rows = Clock(max_seconds), as_data(data)
        options = Options(init, progress, checkpoint, clock, callbacks)
        logger.info("%s begins", type(self).__name__)
        began = time.perf_counter()
        programs.refuse_fork()
        programs.keep()
        programs.bound()
        compiler.check()
        with contextlib.nullcontext() if checkpoint is None else files.locked(Path(checkpoint)):
            (posterior,) = self.posteriors(*bound(model, rows, self.discrete), key, 1, options)
        notes = posterior.notes
        if self.spreads and provenance.describe(self) == provenance.describe(type(self)()):
            notes += tuple(filter(None, [caution(self.spreads, model.likelihood, rows.num)]))
        record = provenance.record(self, posterior.model, time.perf_counter() - began, clock.cut)
        logger.info("%s took %.1f s. %s", type(self).__name__, record.seconds, " ".join(notes))
        return dataclasses.replace(posterior, notes=notes, provenance=record)

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with as many steps as a budget of per-row likelihood gradients allows.

        A method without steps of its own is returned unchanged. Benchmarks use it to give every method the same budget.
        """
        return self

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Number of per-row gradients that the steps of a fit within a budget took."""
        return float(steps * min(rows, BATCH))


class Iterative(Method):
    """A method that runs step by step in the shared loop.

    `posteriors` is the same for all such methods: `check` rejects what the method cannot fit, `settle` computes what
    depends on all rows, the loop calls `start`, `init`, `step` and `keep`, and `posterior` turns the traces into the
    user's posterior. Hyperparameters are pytree leaves: changing a value does not recompile. `start`, `init`, `step`,
    `keep` and `done` are pure and run inside jit; they always receive a batch, which for full-data methods is all rows.
    """

    @property
    @abc.abstractmethod
    def duration(self) -> Run | Train:
        """How long the method runs, its field `run`, a `Run` of chains, or `train`, a `Train` of training steps."""

    @property
    @abc.abstractmethod
    def gradients_per_step(self) -> int | None:
        """Gradient (for gradient-free methods, density) evaluations per row of a step; None if not known beforehand."""

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with its field `run` or `train` cut to a budget of per-row gradients."""
        duration, each = self.duration, self.gradients_per_step
        fields: dict[str, Any] = (
            {"run": duration.within(gradients, rows, each)}
            if isinstance(duration, Run)
            else {"train": duration.within(gradients // (each or 1), rows)}
        )
        return dataclasses.replace(self, **fields)

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Number of per-row gradients that a fit took: as counted at each kept draw, else by step; NaN if not known."""
        stats = posterior.stats if isinstance(posterior, Chains | Recorded) else {}
        if "gradients" in stats:
            return float(steps * rows * np.mean(stats["gradients"]))
        each = self.gradients_per_step
        return float("nan") if each is None else float(steps * each * min(self.batch_size(rows) or rows, rows))

    @abc.abstractmethod
    def init(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> PyTree:
        """Return the initial state. `warmup` is the number of adaptation steps to come."""

    def init_at(self, key: Key, target: Target, params: Params, batch: Data, warmup: Array) -> PyTree:
        """Return the initial state when `fit` was given `init=`."""
        return self.init(key, target, params, batch, warmup)

    @abc.abstractmethod
    def step(self, key: Key, target: Target, state: Any, batch: Data) -> tuple[Any, Any]:
        """Return the next state and this step's statistics, which include a `result`."""

    @property
    def stepper(self) -> "Iterative":
        """The method whose `step`, `pause` and `keep` the loop calls, itself or one whose compiled program fits."""
        return self

    @property
    def periods(self) -> tuple[int, ...]:
        """Periods, in steps, after which `pause` may have work to do."""
        return ()

    def pause(self, key: Key, target: Target, state: Any, step: Array) -> Any:
        """Return the state after `step` steps once the work that is not done at every step is done, before `keep`."""
        return state

    @abc.abstractmethod
    def keep(self, target: Target, state: Any) -> PyTree:
        """Return what is stored of the state at a kept step."""

    def meetings(self, warmup: int) -> tuple[int, ...]:
        """Warm-up steps, in increasing order, after which the members of one posterior exchange reports (a meeting)."""
        return ()

    def report(self, state: Any) -> PyTree:
        """Return what a member reports to the others at a meeting."""
        return ()

    def meet(self, key: Key, target: Target, state: Any, batch: Data, reports: PyTree) -> Any:
        """Return a member's state after a meeting, given the reports of all members, its own included (leading axis).

        The batch is that of the coming step, for evaluations.
        """
        return state

    def facts(self, target: Target, state: Any) -> dict[str, float]:
        """Values for the progress bar besides the last step's statistics; members run together are a leading axis."""
        return {}

    @abc.abstractmethod
    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the posterior from the traces of its members; `data` is all rows, or a stream's first batch."""

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """Return starting parameters: the network's own initial weights, everything else at its prior median."""
        model = target.model
        weights = model.network.init(jax.random.split(key)[0], batch.x)
        layout = model.network.layout(weights)
        scales = model.prior.median_scales(weights, layout)
        raw = model.prior.raw(weights, scales, layout)
        return Params(raw, scales, model.likelihood.median_noise())

    def believed(self, model: Model) -> Model:
        """Return the model that this method fits in place of `model`: by default `model` itself."""
        return model

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """Raise InputError, before anything is computed, if the method cannot fit this model, data or start."""

    def settle(
        self, model: Model, data: Data | Stream, key: Key, size: int, options: Options
    ) -> tuple["Iterative", Options]:
        """Return the method with all that depends on the model and on all rows filled in, and the loop's options."""
        return self, options

    def batch_size(self, num: int) -> int | None:
        """Number of rows per step, out of `num`; None for all of them."""
        return self.duration.batch_size

    def done(self, state: Any) -> bool | Array:
        """Whether the state is final, although steps remain."""
        return False

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Return `size` posteriors, with all members of all of them run in one loop."""
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
        if isinstance(options.init, Posterior):  # a chain continued under the same key never reuses its noise
            key = keys.fold_in(key, int(np.asarray(jax.random.key_data(options.init.key))[-1]))
        key_run, key_posterior = (keys.one(keys.split(key), i) for i in range(2))
        members = keys.split(key_run, size * chains)
        target = Target(model, float(data.num), temperature)
        starts = self._starts(options.init, target, rows, keys.fold_in(key, 2), len(members))
        traces = run(self, target, data, duration, members, dataclasses.replace(options, init=starts))
        groups = [traces[i * chains : (i + 1) * chains] for i in range(size)]
        posterior_keys = keys.split(key_posterior, size)
        return [self.posterior(model, rows, group, keys.one(posterior_keys, i)) for i, group in enumerate(groups)]

    def _starts(self, init: Params | Posterior | None, target: Target, rows: Data, key: Key, num: int) -> Params | None:
        """Starting parameters of `num` members, with a leading axis; None if `init` is None."""
        if init is None:
            return None
        if isinstance(init, Posterior):
            starts = init.starts(key, num)
            self._checked(jax.tree.map(lambda leaf: np.asarray(leaf)[0], starts), target, rows)
            return starts
        if not isinstance(init, Params):
            raise InputError("init= as tb.Params or a posterior", type(init).__name__, "Write init=tb.Params(weights).")
        full = self._checked(init, target, rows)
        return jax.tree.map(
            lambda leaf: on_host(lambda values: np.broadcast_to(values, (num, *values.shape)), leaf), full
        )

    def _checked(self, init: Params, target: Target, rows: Data) -> Params:
        """Return `init` with omitted unknowns at their prior medians; InputError if shapes are wrong."""
        model, like = target.model, jax.eval_shape(self.start, jax.random.key(0), target, rows)
        layout = model.network.layout(like.weights)
        full = Params(
            init.weights,
            init.scales if init.scales or not like.scales else model.prior.median_scales(like.weights, layout),
            init.noise if init.noise or not like.noise else model.likelihood.median_noise(),
        )
        expected, given = (str(jax.tree.map(jnp.shape, params)) for params in (like, full))
        if expected != given:
            raise InputError(f"init= of shapes {expected}", given, "Start from weights of this network.")
        return full


def bound(model: Model, data: Data | Stream, discrete: bool = False) -> tuple[Model, Data | Stream]:
    """Return model and data bound to each other; InputError if they do not fit, or if the prior is improper.

    A prior with an unknown whole number is refused unless `discrete`.
    """
    if not model.prior.proper:
        raise improper(type(model.prior).__name__)
    parts = jax.tree.leaves((model.prior, model.likelihood), is_leaf=lambda leaf: isinstance(leaf, Distribution))
    if any(isinstance(part, ImproperUniform) for part in parts):
        raise InputError(
            "proper priors of unknown numbers",
            "dist.ImproperUniform, from which no start is drawn and under which there is no evidence",
            "Give a wide one, dist.Normal(0.0, 100.0) say.",
        )
    if model.prior.discrete and not discrete:
        raise InputError(
            "a prior without unknown whole numbers",
            f"{type(model.prior).__name__} with an unknown number of units",
            "Use tb.ReversibleJump(), or give the number of units.",
        )
    if isinstance(data, Stream):
        return model.bind(data.first)[0], data
    return model.bind(data)


def first_rows(model: Model, data: Data | Stream) -> Data:
    """Return all rows, or those of a stream's first batch, with targets in the likelihood's form."""
    if isinstance(data, Stream):
        first = data.first
        return Data(first.x, model.likelihood.check(first.y), first.weight)
    return data
