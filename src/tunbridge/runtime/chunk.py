"""A chunk: several steps of a method in one jitted program, whose first and last step are traced.

One program serves warm-up, sampling, any thinning and the last short chunk. Results do not depend on where chunks begin
or end (at multiples of a stride), so they are bitwise equal however a run is divided.

An accelerator waits for the host at every decision: whether a loop continues, which branch is taken. Steps are
therefore grouped into strides of a static number of steps, and decisions are taken between strides. On a CPU a stride
is one step.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import keys
from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.errors import Result
from tunbridge.core.random import fold_in
from tunbridge.core.tree import num_bytes, strong
from tunbridge.core.types import Key, Params, PyTree

_BUFFER_BYTES, _BUFFER_BYTES_TOGETHER = 2**22, 2**26
"""Bytes of kept entries within a chunk: of a single member, and of all members that advance together."""
_MOST_KEPT = 1024


class Plan(NamedTuple):
    """How long a run is and what it keeps: every `thin`-th step after `warmup`."""

    steps: Any
    warmup: Any
    thin: Any

    def kept(self, step: int) -> int:
        """Number of entries kept after `step` steps."""
        return max(0, (step - self.warmup) // self.thin)


class Carry(NamedTuple):
    """State of a member between chunks."""

    state: PyTree
    info: Any
    """The last step's statistics; `info.result` is a `Result`."""
    report: PyTree
    """The member's report at its last meeting; before the first one, its report at the start."""
    failure: Array
    """-1, or the first failed step and its `Result` encoded in one integer, which `failure_of` decodes."""


def failure_of(number: int) -> tuple[int, Result] | None:
    """Decode `Carry.failure`: the step that failed first and its `Result`, or None if no step failed."""
    return None if number < 0 else (number // len(Result), Result(number % len(Result)))


def member_keys(key: Key) -> Key:
    """Keys of each member for its starting point, its first state, its batches and its steps, (members, 4)."""
    return keys.split(key, 4)


@jax.jit
def _step(method: Any, target: Any, key: Key, state: PyTree, batch: Data) -> tuple[PyTree, Any]:
    """One step of a method. It is jitted on its own so that it is traced once for all programs that contain it."""
    return method.step(key, target, state, batch)


def _begin(method: Any, target: Any, source: Any, own_keys: Key, params: Params | None, warmup: Array) -> Carry:
    """The `Carry` of a member before its first step."""
    key_start, key_init, key_batches, key_steps = own_keys
    step = jnp.zeros((), jnp.int32)
    batch = source.batch(source.start(key_batches, step), step)
    if params is None:
        state = method.init(key_init, target, method.start(key_start, target, batch), batch, warmup)
    else:
        state = method.init_at(key_init, target, params, batch, warmup)
    _, info = jax.eval_shape(_step, strong(method.stepper), target, key_steps, state, batch)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
    return Carry(state, empty, method.report(state), jnp.full((), -1, jnp.int32))


def capacity(entry_like: PyTree, together: int) -> int:
    """Number of kept entries of this shape that a chunk can hold per member, for `together` members in one program."""
    room = _BUFFER_BYTES if together == 1 else _BUFFER_BYTES_TOGETHER // together
    return max(1, min(_MOST_KEPT, room // max(num_bytes(entry_like), 1)))


def entry(method: Any, target: Any, carry: Carry) -> PyTree:
    """The entry to keep after a step: what the method keeps of its state, and the statistics of the step."""
    return method.keep(target, carry.state), carry.info


def kept_shape(method: Any, target: Any, carry: Carry) -> PyTree:
    """Shapes of one kept entry."""
    return jax.eval_shape(entry, method, target, carry)


def _chunk(
    together: int,
    stride: int,
    method: Any,
    target: Any,
    source: Any,
    own_keys: Key,
    carry: Carry,
    start: Array,
    stop: Array,
    plan: Plan,
) -> tuple[Carry, PyTree]:
    """Run steps start, ..., stop - 1 of one member; return its `Carry` and a buffer of the entries kept on the way."""
    _, _, key_batches, key_steps = own_keys
    entry_like = kept_shape(method, target, carry)
    slots = capacity(entry_like, together) + 1  # the last slot takes entries that are written but not kept

    def step(t, carry, cursor):
        state, info = _step(method, target, fold_in(key_steps, t), carry.state, source.batch(cursor, t))
        first = (carry.failure < 0) & (info.result != Result.SUCCESSFUL)
        failure = jnp.where(first, t * len(Result) + info.result, carry.failure)
        return Carry(state, info, carry.report, failure)

    def run_stride(number, carry_and_cursor):
        carry, cursor = carry_and_cursor
        t = number * stride
        cursor = source.follow(key_batches, cursor, t)
        if stride == 1:
            carry = step(t, carry, cursor)
        else:
            carry = jax.lax.fori_loop(0, stride, lambda i, carry: step(t + i, carry, cursor), carry)
        last = t + stride - 1
        state = method.pause(fold_in(key_steps, last), target, carry.state, last + 1)
        return carry._replace(state=state), cursor

    def segment(loop):
        t, carry, cursor, buffer, count = loop
        boundary = plan.warmup + (jax.lax.div(jnp.maximum(t - plan.warmup, 0), plan.thin) + 1) * plan.thin
        end = jnp.minimum(boundary, stop)
        first, last = (jax.lax.div(number, np.int32(stride)) for number in (t, end))
        carry, cursor = jax.lax.fori_loop(first, last, run_stride, (carry, cursor))
        due = end == boundary
        new_entry = jax.lax.cond(due, lambda: entry(method, target, carry), lambda: empty)
        buffer = jax.tree.map(lambda b, e: b.at[count].set(e), buffer, new_entry)
        return end, carry, cursor, buffer, count + due

    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), entry_like)
    buffer = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), entry_like)
    loop = (start, carry, source.start(key_batches, start), buffer, jnp.zeros((), jnp.int32))
    _, carry, _, buffer, _ = jax.lax.while_loop(lambda loop: loop[0] < stop, segment, loop)
    return carry, buffer


def _meet(method: Any, target: Any, source: Any, reports: PyTree, step: Array, own_keys: Key, carry: Carry) -> Carry:
    """The `Carry` of one member after a meeting at step `step`; `reports` have a leading axis over its group."""
    key_meet, _, key_batches, _ = own_keys
    batch = source.batch(source.start(key_batches, step), step)
    state = method.meet(fold_in(key_meet, step), target, carry.state, batch, reports)
    return carry._replace(state=state, report=method.report(carry.state))


def _report(method: Any, state: PyTree) -> PyTree:
    """The report of a member at a meeting."""
    return method.report(state)


def _report_all(method: Any, state: PyTree) -> PyTree:
    """The reports of several members, with a leading axis."""
    return jax.vmap(method.report)(state)


begin, meet = once(_begin), once(_meet)
report, report_all = once(_report), once(_report_all)
chunk = jax.jit(partial(_chunk, 1), static_argnums=0)


@jax.jit
def meet_all(method: Any, target: Any, source: Any, reports: PyTree, step: Array, own_keys: Key, carry: Carry) -> Carry:
    """`meet` for several members at once, which all receive the same reports."""
    return jax.vmap(partial(_meet, method, target, source, reports, step))(own_keys, carry)


@jax.jit
def begin_all(method: Any, target: Any, source: Any, own_keys: Key, params: Params | None, warmup: Array) -> Carry:
    """`begin` for several members at once."""
    return jax.vmap(partial(_begin, method, target, source), in_axes=(0, 0, None))(own_keys, params, warmup)


@partial(jax.jit, static_argnums=0)
def chunk_all(stride: int, *arguments: Any) -> tuple[Carry, PyTree]:
    """`chunk` for several members at once: their keys and states have a leading axis."""
    method, target, source, own_keys, carry, *steps = arguments
    chunk_of_member = partial(_chunk, own_keys.shape[0], stride, method, target, source)
    return jax.vmap(chunk_of_member, in_axes=(0, 0, None, None, None))(own_keys, carry, *steps)


def traced(plan: Plan) -> Plan:
    """The plan with strongly typed integers, so that other plans reuse the compiled program."""
    return Plan(*(np.int32(number) for number in plan))
