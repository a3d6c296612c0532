"""The only loop: chunks of steps, and between them progress, callbacks, checkpoints and early ends."""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from tunbridge.core.data import Data, Stream, check_x
from tunbridge.core.declared import MOST, Count, Module, Positive
from tunbridge.core.errors import InputError
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, PyTree
from tunbridge.runtime.checkpoint import Checkpoint
from tunbridge.runtime.chunk import Plan, member_keys
from tunbridge.runtime.clock import Clock
from tunbridge.runtime.fingerprint import fingerprint
from tunbridge.runtime.members import Lane, cores, in_context, refuse_too_large, spread
from tunbridge.runtime.progress import Bar

logger = logging.getLogger(__name__)

BATCH = 128
"""The most rows of a step within a budget, where a method may take fewer than all."""
LEAST = 200
"""The fewest draws, and the fewest steps of warm-up, of a sampler that takes trajectories."""
_TRAJECTORY = 32
"""Gradients that a trajectory is taken for."""
_CURVE = 200
"""How many points of its learning curve an optimiser keeps."""


def _checked(x: Any) -> Any:
    return None if x is None else check_x(x)


class Run(Module):
    """How long a sampler runs.

    Parameters
    ----------
    chains
        Independent chains.
    warmup, draws
        Steps of adaptation, whose states are dropped, and kept draws, a chain.
    thin
        Steps between kept draws.
    batch_size
        Rows a step; None is all of them (for stochastic-gradient samplers: at most 128).
    temperature
        Divides the log posterior; 1 is Bayes.
    keep
        Inputs (points, ...features): only the network's outputs there are kept of a draw, not its weights. None keeps
        the weights.
    """

    chains: Count = 4
    warmup: int = 1000
    draws: Count = 1000
    thin: Count = 1
    batch_size: Count | None = None
    temperature: Positive = eqx.field(default=1.0, converter=float)
    keep: Any = eqx.field(default=None, converter=_checked)

    def __check_init__(self):
        if self.warmup < 0:
            raise InputError("warmup of at least 0", f"{self.warmup}", "Change warmup=.")
        if (steps := self.warmup + self.draws * self.thin) > MOST:
            raise InputError(f"at most {MOST:,} steps per chain", f"{steps:,}", "Use fewer draws, or thin less.")

    def plan(self) -> Plan:
        """Keep every `thin`-th step after warm-up."""
        return Plan(self.warmup + self.draws * self.thin, self.warmup, self.thin)

    def within(self, gradients: int, rows: int, each: int | None) -> "Run":
        """A run of so many gradients of single rows in all, where a step takes `each` gradients of `rows` rows.

        It keeps its shares of warm-up and draws. None are trajectories whose gradients are not known beforehand: they
        are taken for 32, are never more than by default and never fewer than 200 of warm-up and 200 draws per chain.
        """
        steps = gradients // (self.chains * rows * (_TRAJECTORY if each is None else each))
        usual = self.warmup + self.draws * self.thin
        if each is None:
            steps = min(max(steps, 2 * LEAST), usual)
        after = steps - steps * self.warmup // usual
        draws = max(min(self.draws, after), 1)
        thin = max(after // draws, 1)
        return dataclasses.replace(self, warmup=max(steps - draws * thin, 0), draws=draws, thin=thin)


class Train(Module):
    """How long an optimiser runs.

    Parameters
    ----------
    steps
        Steps in all.
    batch_size
        Rows a step; None is all of them.
    patience
        Stop when the smoothed objective has not fallen for that many steps; None never stops early.
    """

    steps: Count = 2000
    batch_size: Count | None = None
    patience: Count | None = None

    def plan(self) -> Plan:
        """Keep a learning curve of some 200 points."""
        return Plan(self.steps, 0, max(1, self.steps // _CURVE))

    def within(self, gradients: int, rows: int) -> "Train":
        """As many steps as so many gradients of single rows allow, each with 128 rows or all where they are fewer."""
        batch = min(rows, BATCH)
        return dataclasses.replace(self, steps=max(gradients // batch, 2), batch_size=batch)


class Trace(NamedTuple):
    """What one member leaves behind."""

    state: PyTree
    """Its last state."""
    kept: PyTree
    """What the method kept, with a leading axis."""
    info: Any
    """The statistics of the kept steps, with a leading axis."""
    step: int
    """Steps done."""
    seconds: float
    """Seconds spent on them, compilation included."""


class Event(NamedTuple):
    """What a callback is told after each chunk."""

    members: list[int]
    step: int
    steps: int
    facts: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Options:
    """How a fit is driven; see `Method.fit`. None of it changes what is computed, only how far."""

    init: Any = None
    progress: bool = True
    checkpoint: str | os.PathLike | None = None
    clock: Clock = dataclasses.field(default_factory=Clock)
    """Limits the seconds of training."""
    callbacks: Sequence[Callable[[Event], bool | None]] = ()

    def within(self, name: str) -> "Options":
        """The same with a folder of its own for a checkpoint."""
        return self if self.checkpoint is None else dataclasses.replace(self, checkpoint=Path(self.checkpoint) / name)


def run(
    method: Any, target: Any, data: Data | Stream, duration: Run | Train, keys: Key, options: Options
) -> list[Trace]:
    """Drive one member a key through all steps.

    The clock and the callbacks act between chunks; a callback that returns True ends the run.
    """
    plan = duration.plan()
    if isinstance(data, Stream):
        _refuse_stream(data, options.checkpoint is not None, len(keys))
    method, target, init = strong(method), strong(target), strong(options.init)
    size, own = duration.batch_size, member_keys(keys)
    rows = data if isinstance(data, Stream) else data.padded(masked=size is None or size >= data.num)
    lanes = [Lane(*part, method, target, rows, size, plan, own, init) for part in spread(len(keys))]
    refuse_too_large(lanes)
    folders = _checkpoints(options.checkpoint, len(lanes), method, target, data, plan, keys, init)
    with Bar(type(method).__name__, plan.steps * len(lanes), options.progress) as bar:
        for lane, folder in zip(lanes, folders, strict=True):
            lane.begin(folder)
        if begun := sum(lane.step for lane in lanes):
            logger.info("resumed from %s after %d steps of %d", options.checkpoint, begun, plan.steps * len(lanes))
        bar.resume(begun)
        _drive(lanes, bar, options, duration.chains if isinstance(duration, Run) else 1)
    unfinished = [lane.step for lane in lanes if not lane.finished]
    options.clock.record(min(unfinished or [max(lane.step for lane in lanes)]), plan.steps, not unfinished)
    return [trace for lane in lanes for trace in _traces(lane)]


def _refuse_stream(data: Stream, saved: bool, members: int) -> None:
    """InputError where batches would have to come again that do not."""
    if (saved and not data.restartable) or (members > 1 and not data.repeatable):
        raise InputError(
            "data that can be restarted, which checkpoint= and several members need",
            "batches that come once" if not data.repeatable else "batches in an order of their own",
            "Use Data.from_batches(make, num=N) with a function make(epoch) that gives the same batches again.",
        )


def _drive(lanes: list[Lane], bar: Bar, options: Options, chains: int) -> None:
    """A worker a core takes (lane, chunk) tasks; this thread looks after everything between chunks."""
    clock = options.clock
    stopping = clock.over
    with ThreadPoolExecutor(min(len(lanes), cores())) as pool:
        running: dict[Future, Lane] = {}

        def submit(ready: list[Lane]) -> None:
            for lane in ready:
                if not (lane.finished or lane.waits):
                    running[pool.submit(in_context(lane.advance))] = lane

        try:
            if any(lane.waits for lane in lanes) and not stopping:
                _meet(lanes, chains)
            ready = [lane for lane in lanes if not (stopping or lane.finished or lane.waits)]
            submit(ready[:1])
            wait(running)  # the first chunk compiles for all
            clock.start()
            submit(ready[1:])
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                arrived = [running.pop(future) for future in done]
                for lane, future in zip(arrived, done, strict=True):
                    future.result()
                    facts = lane.facts
                    bar.update(sum(each.step for each in lanes), facts)
                    event = Event(lane.members, lane.step, lane.plan.steps, facts)
                    stopping |= any([bool(callback(event)) for callback in options.callbacks])
                    stopping |= clock.over
                if not stopping:
                    submit([lane for lane in arrived if not lane.waits])
                    if not running:
                        clock.stop()  # the first meeting compiles
                        submit(_meet(lanes, chains))
                        clock.start()
        finally:  # an interrupt or a failure loses nothing: the other lanes end their chunk and are saved
            clock.stop()
            wait([future for future in running if not future.cancel()])
            for lane in lanes:
                lane.save()


def _meet(lanes: list[Lane], chains: int) -> list[Lane]:
    """Hold the meetings to which all have come, now that nobody is under way; the lanes that may go on.

    Everybody is saved first. A kill while the outcome is being saved leaves some lanes before the meeting and some
    after it: the former then hear once more what the latter said.
    """
    late: list[Lane] = []
    while True:
        meeting = min(lane.met for lane in lanes)
        waiting = [lane for lane in lanes if lane.met == meeting]
        if not all(lane.waits for lane in waiting):
            return late
        for lane in waiting:
            lane.save()
        reports = [report for lane in lanes for report in lane.reports(meeting)]
        heard = [jax.tree.map(lambda *leaves: np.stack(leaves), *group) for group in _batched(reports, chains)]
        for lane in waiting:
            lane.meet(heard, chains)
        late = waiting


def _batched(items: list[Any], size: int) -> list[list[Any]]:
    """Consecutive groups of `size`."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def _checkpoints(folder: str | os.PathLike | None, num: int, *run: PyTree) -> list[Checkpoint | None]:
    if folder is None:
        return [None] * num
    identity = fingerprint(*(part.first if isinstance(part, Stream) else part for part in run))
    return [Checkpoint(Path(folder) / f"lane{i:04d}", f"{identity}/{i}/{num}") for i in range(num)]


def _traces(lane: Lane) -> list[Trace]:
    kept, info = lane.kept()
    if len(lane.members) == 1:
        return [Trace(lane.carry.state, kept, info, lane.step, lane.seconds)]

    def member(tree: PyTree, i: int, axis: int) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[(slice(None),) * axis + (i,)], tree)

    return [
        Trace(member(lane.carry.state, i, 0), member(kept, i, 1), member(info, i, 1), lane.step, lane.seconds)
        for i in range(len(lane.members))
    ]
