"""How chains and ensemble members are distributed over the machine.

On a CPU each member is a lane of its own, and one worker thread per core takes (lane, chunk) tasks: no member waits for
the slowest, and small matrix products have no batch axis to slow them down. On accelerators there is one lane per
device, whose members are vmapped.
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core import keys, memory
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, NumericalError
from tunbridge.core.tree import by_shape, num_bytes, strong
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.runtime import chunk as program
from tunbridge.runtime.batches import FullBatch, HostCursor, Minibatches
from tunbridge.runtime.checkpoint import Checkpoint, pack, unpack

_CHUNK_SECONDS = 0.25
_MOST_STRIDE = 64
"""Maximum number of steps between two decisions of the host, on an accelerator."""
_SAVE_SECONDS, _SAVE_SHARE = 0.5, 20.0
"""Time between saves: at least the first number, in seconds, and the second times the duration of a save."""


def next_length(length: int, asked: int, elapsed: float, least: float) -> int:
    """Number of steps of the next chunk: the last took `elapsed` seconds for `length` steps, the fastest `least`.

    Each chunk has a fixed overhead (an epoch's permutation is drawn again), estimated from the fastest chunk; chunks
    are long enough to keep it below about a quarter of the time.
    """
    target_seconds = max(_CHUNK_SECONDS, 4.0 * least)
    return max(1, min(8 * asked, int(length * target_seconds / max(elapsed, 1e-6))))


def cores() -> int:
    """Number of cores that this process may use, at most the environment variable NPROC, which XLA respects too."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("NPROC", "")
    return min(available, max(1, int(limit))) if limit.isdecimal() else available


def in_context(task: Callable[[], None]) -> Callable[[], None]:
    """Wrap a task so that it runs in any thread with the JAX settings of this thread; JAX keeps them per thread."""
    config: Any = jax.config
    contexts = (
        (jax.enable_x64, config.jax_enable_x64),
        (jax.default_device, config.jax_default_device),
        (jax.default_matmul_precision, config.jax_default_matmul_precision),
        (jax.numpy_rank_promotion, config.jax_numpy_rank_promotion),
        (jax.debug_nans, config.jax_debug_nans),
    )

    def run() -> None:
        with contextlib.ExitStack() as stack:
            for context, value in contexts:
                stack.enter_context(context(value))
            task()

    return run


def refuse_too_large(lanes: "list[Lane]") -> None:
    """InputError if the states of all lanes together do not fit in the available memory."""
    needed = sum(num_bytes(lane.carry_like()) for lane in lanes)
    available = memory.available()
    if needed > available:
        raise InputError(
            f"states that fit in the {available / 1e9:.1f} GB of free memory",
            f"{sum(len(lane.members) for lane in lanes)} members that need {needed / 1e9:.1f} GB",
            "Use fewer members or a smaller network, or fit the members one after another.",
        )


def spread(num: int) -> list[tuple[list[int], Any]]:
    """The members and the device of each lane: one lane per member on a CPU, one lane per device on accelerators."""
    if jax.default_backend() == "cpu":
        return [([member], None) for member in range(num)]
    devices = jax.local_devices()[:num]
    parts = np.array_split(np.arange(num), len(devices))
    return [(part.tolist(), device) for part, device in zip(parts, devices, strict=True)]


@by_shape
def _compile_ahead(
    method: Any,
    target: Any,
    source: Any,
    own_keys: Key,
    params: Params | None,
    warmup: Any,
    stride: int,
    stepper: Any,
    plan: program.Plan,
) -> None:
    """Compile `begin` and `chunk` in parallel; later calls find both in the cache of jit."""
    arguments = (method, target, source, own_keys, params, warmup)
    begin, zero = program.begin.lower(*arguments), np.int32(0)
    carry = jax.eval_shape(program.begin, *arguments)  # with weak types, which `begin.out_info` leaves out
    with ThreadPoolExecutor(1) as pool:
        pool.submit(in_context(begin.compile))
        program.chunk.lower(stride, stepper, target, source, own_keys, carry, zero, zero, plan).compile()


class Lane:
    """One or more members that advance together, chunk by chunk."""

    def __init__(
        self,
        members: list[int],
        device: Any,
        method: Any,
        target: Any,
        data: Data | Stream,
        batch_size: int | None,
        plan: program.Plan,
        member_keys: Key,
        params: Params | None,
    ):
        self.members, self.plan = members, plan
        self._check = target.check
        self._cursor = HostCursor(data, self._check) if isinstance(data, Stream) else None
        self._place = {} if self._cursor is None else self._cursor.place
        self._meetings = method.meetings(plan.warmup) if plan.warmup else ()
        self._stride = (
            1 if isinstance(data, Stream) else _stride(data, batch_size, (*plan, *self._meetings, *method.periods))
        )
        source = None if isinstance(data, Stream) else _source(data, batch_size, self._stride)
        index: Any = members[0] if len(members) == 1 else np.asarray(members)
        arguments: Any = (
            method,
            target,
            source,
            keys.one(member_keys, index),
            jax.tree.map(lambda leaf: np.asarray(leaf)[index], params),
        )
        self.method, self.target, self._source, self.keys, self._params = (
            arguments if device is None else _put(arguments, device)
        )
        self._stepper = strong(self.method.stepper)
        self.step, self.seconds, self.met = 0, 0.0, 0
        self.carry: program.Carry
        self._length, self._next_save = 1, 0.0
        self._least: float | None = None
        self._records: list[np.ndarray] = []
        self._checkpoint: Checkpoint | None = None

    @property
    def _alone(self) -> bool:
        """Whether the lane is a single member on a CPU with its data in memory."""
        return len(self.members) == 1 and self._cursor is None and jax.default_backend() == "cpu"

    def carry_like(self) -> program.Carry:
        """The shapes of the lane's `Carry`."""
        run, arguments = self._beginning()
        return jax.eval_shape(run, *arguments)

    def _beginning(self) -> tuple[Callable, tuple]:
        run = program.begin if len(self.members) == 1 else program.begin_all
        warmup = np.int32(self.plan.warmup)
        return run, (self.method, self.target, self._first_source(), self.keys, self._params, warmup)

    def _first_source(self) -> Any:
        """The source of the batch for the first state and for meetings: of a stream, its first batch."""
        return self._source if self._cursor is None else FullBatch(self._cursor.first)

    def begin(self, checkpoint: Checkpoint | None) -> None:
        """Compute the first state, or resume from the checkpoint."""
        self._checkpoint = checkpoint
        loaded = None if checkpoint is None else checkpoint.load(self.carry_like(), self._facts())
        if loaded is None:
            run, arguments = self._beginning()
            if self._alone:
                _compile_ahead(*arguments, self._stride, self._stepper, program.traced(self.plan))
            self.carry = run(*arguments)
        else:
            self.carry, facts = loaded
            self.step, self.seconds, self.met = facts["step"], facts["seconds"], facts["met"]
            self._stride = math.gcd(self._stride, self.step)  # it may have been saved on a device with shorter strides
            if isinstance(self._source, Minibatches):
                self._source = dataclasses.replace(self._source, stride=self._stride)
            if self._cursor is not None:
                self._place = {name: facts[name] for name in self._place}
                self._cursor = HostCursor(self._cursor.stream, self._check, **self._place)
        if len(self.members) == 1:
            self._one = program.kept_shape(self.method, self.target, self.carry)
        else:
            entries = jax.vmap(program.entry, in_axes=(None, None, 0))
            self._one = jax.eval_shape(entries, self.method, self.target, self.carry)

    def advance(self) -> None:
        """Run one chunk: about a quarter of a second, at least one stride."""
        began = time.perf_counter()
        stop = self._stop()
        source = self._source if self._cursor is None else self._cursor.take(self.step, stop - self.step)
        run = program.chunk if len(self.members) == 1 else program.chunk_all
        start = np.int32(self.step)
        plan = program.traced(self.plan)
        carry, buffer = run(
            self._stride, self._stepper, self.target, source, self.keys, self.carry, start, np.int32(stop), plan
        )
        self._refuse_failure(np.atleast_1d(carry.failure))  # waits for the chunk
        count = self.plan.kept(stop) - self.plan.kept(self.step)
        if count:
            if len(self.members) > 1:
                buffer = jax.tree.map(lambda leaf: np.swapaxes(np.asarray(leaf), 0, 1), buffer)
            self._records.append(pack(buffer, count, self._one))
        elapsed = time.perf_counter() - began
        length = stop - self.step
        least = 0.0
        if self._least is None:  # the first chunk may include compilation, so its time is ignored
            self._least = float("inf")
        else:
            least = self._least = min(self._least, elapsed)
        self._length = next_length(length, self._length, elapsed, least)
        self.carry, self.step, self.seconds = carry, stop, self.seconds + elapsed
        if self._cursor is not None:
            self._place = self._cursor.place
        if self._checkpoint is not None and time.perf_counter() > self._next_save:
            self.save()

    @property
    def waits(self) -> bool:
        """Whether the lane has reached a meeting that was not held yet."""
        return self.met < len(self._meetings) and self.step >= self._meetings[self.met]

    def reports(self, meeting: int) -> list[PyTree]:
        """The report of each member at a meeting, whether it was held already or is about to be."""
        if self.met > meeting:
            report = self.carry.report
        else:
            run = program.report if len(self.members) == 1 else program.report_all
            report = run(self.method, self.carry.state)
        report = jax.tree.map(np.asarray, report)
        return [report] if len(self.members) == 1 else [_member(report, i) for i in range(len(self.members))]

    def meet(self, heard: list[PyTree], chains: int) -> None:
        """Hold a meeting: each group of `chains` members receives the reports of its group (with a leading axis)."""
        groups, step, source = np.asarray(self.members) // chains, np.int32(self.step), self._first_source()
        if len(self.members) == 1:
            self.carry = program.meet(self.method, self.target, source, heard[groups[0]], step, self.keys, self.carry)
        else:
            carries = []
            for group in np.unique(groups):
                indices = np.flatnonzero(groups == group)
                group_keys, carry = keys.one(self.keys, indices), _member(self.carry, indices)
                carries.append(
                    program.meet_all(self.method, self.target, source, heard[group], step, group_keys, carry)
                )
            self.carry = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *carries)
        self.met += 1

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or the method is done early."""
        return self.step >= self.plan.steps or bool(np.all(self.method.done(self.carry.state)))

    @property
    def facts(self) -> dict[str, float]:
        """Statistics of the last step, averaged over members and without NaN, and the facts that the method adds."""
        means = {
            name: float(np.mean(np.asarray(value)))
            for name, value in self.carry.info._asdict().items()
            if name != "result"
        }
        return {name: value for name, value in means.items() if not np.isnan(value)} | self.method.facts(
            self.target, self.carry.state
        )

    def save(self) -> None:
        """Save the last state and the pending entries to the checkpoint, if there is one."""
        if self._checkpoint is None:
            return
        began = time.perf_counter()
        self._checkpoint.save(self.carry, self._pending(), self._facts())
        saved = time.perf_counter()
        self._records, self._next_save = [], saved + max(_SAVE_SECONDS, _SAVE_SHARE * (saved - began))

    def kept(self) -> PyTree:
        """All kept entries: the leading axis is draws, the next one members if the lane has several."""
        if self._checkpoint is None:
            return unpack(self._pending(), self._one)
        return unpack(self._checkpoint.draws(num_bytes(self._one)), self._one)

    def _facts(self) -> dict[str, Any]:
        return {"step": self.step, "seconds": self.seconds, "met": self.met, **self._place}

    def _pending(self) -> np.ndarray:
        return np.concatenate(self._records) if self._records else np.zeros((0, num_bytes(self._one)), np.uint8)

    def _stop(self) -> int:
        room = self.plan.kept(self.step) + program.capacity(self._member_shape(), len(self.members))
        length = -(-self._length // self._stride) * self._stride
        stop = min(self.step + length, self.plan.steps, self.plan.warmup + room * self.plan.thin)
        if self.met < len(self._meetings):
            stop = min(stop, self._meetings[self.met])
        return stop if self._cursor is None else min(stop, self.step + self._cursor.capacity)

    def _member_shape(self) -> PyTree:
        if len(self.members) == 1:
            return self._one
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self._one)

    def _refuse_failure(self, numbers: np.ndarray) -> None:
        saved = (
            "Nothing was saved: pass checkpoint= to keep what was reached."
            if self._checkpoint is None
            else f"{self._checkpoint.folder} holds the last checkpoint saved before this step."
        )
        for member, number in zip(self.members, numbers, strict=True):
            if failure := program.failure_of(int(number)):
                step, result = failure
                raise NumericalError(result, step, member, saved)


def _put(tree: PyTree, device: Any) -> PyTree:
    """The tree with its arrays on a device."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device), rest)


def _member(tree: PyTree, i: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _stride(data: Data, batch_size: int | None, multiples: Sequence[int]) -> int:
    """Steps per stride: 1 on a CPU; else the largest common divisor of `multiples` up to 64 and an epoch's steps."""
    if jax.default_backend() == "cpu":
        return 1
    common, source = math.gcd(*(int(number) for number in multiples)), _source(data, batch_size, 1)
    most = min(_MOST_STRIDE, int(source.per_epoch)) if isinstance(source, Minibatches) else _MOST_STRIDE
    return max(number for number in range(1, most + 1) if common % number == 0)


def _source(data: Data, batch_size: int | None, stride: int) -> FullBatch | Minibatches:
    if batch_size is None or batch_size >= data.num:
        return FullBatch(data)
    return Minibatches(data, batch_size, stride)
