"""Some steps of a method in one jitted program, whose start and stop are traced.

One program serves warm-up, sampling, any thinning and the last short chunk. Nothing here depends on where chunks
begin or end (at multiples of a stride), so results are equal to the bit however a run is cut.

An accelerator waits for the host wherever the host decides: whether a loop goes on, which branch is taken. Steps
therefore go by in strides, whose number of steps the program knows; decisions are taken between them. A CPU has strides
of one step.
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
"""What kept entries may take within a chunk: of one member, and of all that advance together."""
_MOST_KEPT = 1024


class Plan(NamedTuple):
    """How long a run is and what it keeps: every `thin`-th step after `warmup`."""

    steps: Any
    warmup: Any
    thin: Any

    def kept(self, step: int) -> int:
        """How many are kept by the end of `step` steps."""
        return max(0, (step - self.warmup) // self.thin)


class Carry(NamedTuple):
    """What one chunk hands to the next."""

    state: PyTree
    info: Any
    """The last step's statistics; `info.result` is a `Result`."""
    report: PyTree
    """What the member said at its last meeting, or would have said at its start."""
    failure: Array
    """-1, or where the first step failed and how, in one number: `failure_of` reads it."""


def failure_of(number: int) -> tuple[int, Result] | None:
    """The step that failed first, and how; None if none did."""
    return None if number < 0 else (number // len(Result), Result(number % len(Result)))


def member_keys(key: Key) -> Key:
    """Each member's keys for its start, its first state, its batches and its steps, (members, 4)."""
    return keys.split(key, 4)


@jax.jit
def _step(method: Any, target: Any, key: Key, state: PyTree, batch: Data) -> tuple[PyTree, Any]:
    """A method's step. It is a program within others so that it is traced once for all of them."""
    return method.step(key, target, state, batch)


def _begin(method: Any, target: Any, source: Any, own: Key, params: Params | None, warmup: Array) -> Carry:
    """The first state of a member with these keys."""
    key_start, key_init, key_batches, key_steps = own
    step = jnp.zeros((), jnp.int32)
    batch = source.batch(source.start(key_batches, step), step)
    if params is None:
        state = method.init(key_init, target, method.start(key_start, target, batch), batch, warmup)
    else:
        state = method.init_at(key_init, target, params, batch, warmup)
    _, info = jax.eval_shape(_step, strong(method.stepper), target, key_steps, state, batch)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
    return Carry(state, empty, method.report(state), jnp.full((), -1, jnp.int32))


def capacity(one: PyTree, together: int) -> int:
    """How many kept entries of this shape a chunk has room for, in each of the members that advance together."""
    room = _BUFFER_BYTES if together == 1 else _BUFFER_BYTES_TOGETHER // together
    return max(1, min(_MOST_KEPT, room // max(num_bytes(one), 1)))


def entry(method: Any, target: Any, carry: Carry) -> PyTree:
    """A kept entry: what the method keeps of its state, and the step's statistics."""
    return method.keep(target, carry.state), carry.info


def kept_shape(method: Any, target: Any, carry: Carry) -> PyTree:
    """The shape of one kept entry."""
    return jax.eval_shape(entry, method, target, carry)


def _chunk(
    together: int,
    stride: int,
    method: Any,
    target: Any,
    source: Any,
    own: Key,
    carry: Carry,
    start: Array,
    stop: Array,
    plan: Plan,
) -> tuple[Carry, PyTree]:
    """Steps start, ..., stop - 1 of one of some members, and the entries kept on the way."""
    _, _, key_batches, key_steps = own
    one = kept_shape(method, target, carry)
    slots = capacity(one, together) + 1  # the last one takes what is written but not kept

    def step(t, carry, cursor):
        state, info = _step(method, target, fold_in(key_steps, t), carry.state, source.batch(cursor, t))
        first = (carry.failure < 0) & (info.result != Result.SUCCESSFUL)
        failure = jnp.where(first, t * len(Result) + info.result, carry.failure)
        return Carry(state, info, carry.report, failure)

    def walk(number, inner):
        carry, cursor = inner
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
        carry, cursor = jax.lax.fori_loop(first, last, walk, (carry, cursor))
        due = end == boundary
        found = jax.lax.cond(due, lambda: entry(method, target, carry), lambda: empty)
        buffer = jax.tree.map(lambda b, e: b.at[count].set(e), buffer, found)
        return end, carry, cursor, buffer, count + due

    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), one)
    buffer = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), one)
    loop = (start, carry, source.start(key_batches, start), buffer, jnp.zeros((), jnp.int32))
    _, carry, _, buffer, _ = jax.lax.while_loop(lambda loop: loop[0] < stop, segment, loop)
    return carry, buffer


def _meet(method: Any, target: Any, source: Any, reports: PyTree, step: Array, own: Key, carry: Carry) -> Carry:
    """One member, with `step` steps behind it, after a meeting at which `reports`, with a leading axis, were heard."""
    key_meet, _, key_batches, _ = own
    batch = source.batch(source.start(key_batches, step), step)
    state = method.meet(fold_in(key_meet, step), target, carry.state, batch, reports)
    return carry._replace(state=state, report=method.report(carry.state))


def _report(method: Any, state: PyTree) -> PyTree:
    """What a member says at a meeting."""
    return method.report(state)


def _report_all(method: Any, state: PyTree) -> PyTree:
    """What each of some members says."""
    return jax.vmap(method.report)(state)


begin, meet = once(_begin), once(_meet)
report, report_all = once(_report), once(_report_all)
chunk = jax.jit(partial(_chunk, 1), static_argnums=0)


@jax.jit
def meet_all(method: Any, target: Any, source: Any, reports: PyTree, step: Array, own: Key, carry: Carry) -> Carry:
    """`meet` for many members at once, which all hear the same reports."""
    return jax.vmap(partial(_meet, method, target, source, reports, step))(own, carry)


@jax.jit
def begin_all(method: Any, target: Any, source: Any, own: Key, params: Params | None, warmup: Array) -> Carry:
    """`begin` for many members at once."""
    return jax.vmap(partial(_begin, method, target, source), in_axes=(0, 0, None))(own, params, warmup)


@partial(jax.jit, static_argnums=0)
def chunk_all(
    stride: int, method: Any, target: Any, source: Any, own: Key, carry: Carry, start: Array, stop: Array, plan: Plan
) -> tuple[Carry, PyTree]:
    """`chunk` for many members at once."""
    one_member = partial(_chunk, own.shape[0], stride, method, target, source)
    return jax.vmap(one_member, in_axes=(0, 0, None, None, None))(own, carry, start, stop, plan)


def traced(plan: Plan) -> Plan:
    """The plan as strongly typed numbers, which compile nothing anew."""
    return Plan(*(np.int32(number) for number in plan))
