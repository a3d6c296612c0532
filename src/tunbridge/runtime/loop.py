"""The loop that every method runs: chunks of steps, and between them progress, callbacks, checkpoints, early stops."""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.linalg import few_threads
from tunbridge.core.tree import strong
from tunbridge.core.types import Key, PyTree
from tunbridge.runtime.checkpoint import Checkpoint
from tunbridge.runtime.chunk import member_keys
from tunbridge.runtime.clock import Clock
from tunbridge.runtime.durations import Run, Train
from tunbridge.runtime.fingerprint import fingerprint
from tunbridge.runtime.members import Lane, cores, in_context, refuse_too_large, spread
from tunbridge.runtime.progress import Bar

logger = logging.getLogger(__name__)


class Trace(NamedTuple):
    """The result of running one member."""

    state: PyTree
    """The last state."""
    kept: PyTree
    """What the method kept, with a leading axis."""
    info: Any
    """The statistics of the kept steps, with a leading axis."""
    step: int
    """Steps done."""
    seconds: float
    """Seconds spent on them, compilation included."""


class Event(NamedTuple):
    """The argument of a callback after each chunk: which members, their step of how many, and their statistics."""

    members: list[int]
    step: int
    steps: int
    facts: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a fit; see `Method.fit`. Apart from `init`, none changes what is computed, only how far."""

    init: Any = None
    progress: bool = True
    checkpoint: str | os.PathLike | None = None
    clock: Clock = dataclasses.field(default_factory=Clock)
    """Limits the seconds of training."""
    callbacks: Sequence[Callable[[Event], bool | None]] = ()

    def within(self, name: str) -> "Options":
        """The same options with a subfolder `name` for the checkpoint."""
        return self if self.checkpoint is None else dataclasses.replace(self, checkpoint=Path(self.checkpoint) / name)


def run(
    method: Any, target: Any, data: Data | Stream, duration: Run | Train, keys: Key, options: Options
) -> list[Trace]:
    """Run all steps of one member per key and return their traces.

    The clock and the callbacks act between chunks; a callback that returns True ends the run.
    """
    plan = duration.plan()
    if isinstance(data, Stream):
        _refuse_stream(data, options.checkpoint is not None, len(keys))
    method, target, init = strong(method), strong(target), strong(options.init)
    size, split_keys = duration.batch_size, member_keys(keys)
    rows = data if isinstance(data, Stream) else data.padded(masked=size is None or size >= data.num)
    lanes = [Lane(*part, method, target, rows, size, plan, split_keys, init) for part in spread(len(keys))]
    refuse_too_large(lanes)
    checkpoints = _checkpoints(options.checkpoint, len(lanes), method, target, data, plan, keys, init)
    with few_threads(), Bar(type(method).__name__, plan.steps * len(lanes), options.progress) as bar:
        for lane, checkpoint in zip(lanes, checkpoints, strict=True):
            lane.begin(checkpoint)
        if resumed := sum(lane.step for lane in lanes):
            logger.info("resumed from %s after %d steps of %d", options.checkpoint, resumed, plan.steps * len(lanes))
        bar.resume(resumed)
        _drive(lanes, bar, options, duration.chains if isinstance(duration, Run) else 1)
    unfinished = [lane.step for lane in lanes if not lane.finished]
    options.clock.record(min(unfinished or [max(lane.step for lane in lanes)]), plan.steps, not unfinished)
    return [trace for lane in lanes for trace in _traces(lane)]


def _refuse_stream(data: Stream, saved: bool, members: int) -> None:
    """InputError if batches have to be read again and the stream cannot repeat them."""
    if (saved and not data.restartable) or (members > 1 and not data.repeatable):
        raise InputError(
            "data that can be restarted, which checkpoint= and several members need",
            "an iterator, which is read once" if not data.repeatable else "an iterable whose order may change",
            "Use Data.from_batches(make, num=N) with a function make(epoch) that gives the same batches again.",
        )


def _drive(lanes: list[Lane], bar: Bar, options: Options, chains: int) -> None:
    """Run all lanes: one worker per core takes (lane, chunk) tasks; this thread does everything between chunks."""
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
            wait(running)  # the first chunk compiles for all lanes
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
        finally:  # an interrupt or a failure loses nothing: the other lanes finish their chunk and are saved
            clock.stop()
            wait([future for future in running if not future.cancel()])
            for lane in lanes:
                lane.save()


def _meet(lanes: list[Lane], chains: int) -> list[Lane]:
    """Hold each meeting that all its lanes have reached, while no lane is running; return the lanes to continue.

    All lanes are saved first. A kill while the outcome is being saved leaves some lanes before the meeting and some
    after it; when the run is resumed, the former receive the saved reports of the latter again.
    """
    continuing: list[Lane] = []
    while True:
        meeting = min(lane.met for lane in lanes)
        waiting = [lane for lane in lanes if lane.met == meeting]
        if not all(lane.waits for lane in waiting):
            return continuing
        for lane in waiting:
            lane.save()
        reports = [report for lane in lanes for report in lane.reports(meeting)]
        heard = [jax.tree.map(lambda *leaves: np.stack(leaves), *group) for group in _batched(reports, chains)]
        for lane in waiting:
            lane.meet(heard, chains)
        continuing = waiting


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
