"""Chains of a sampler: all unknowns in one vector, what is kept of them, and the posterior of their draws."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.blocks import evenly
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import ConvergenceWarning, InputError, Result
from tunbridge.core.tree import by_shape, unravel
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.base import Iterative
from tunbridge.inference.chains import Chains
from tunbridge.inference.recorded import Recorded
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Run
from tunbridge.runtime.loop import Options, Trace

_INPUTS = 64
"""Number of data rows stored with a posterior, at which convergence of predictions is assessed."""


class Info(NamedTuple):
    """Statistics of one step; NaN for those that a sampler does not have."""

    result: Array
    log_density: Array
    acceptance: Array
    """The acceptance probability of the proposal, averaged over the trajectory."""
    divergent: Array
    energy: Array
    """Potential plus kinetic energy of the state reached."""
    gradients: Array
    """Number of gradient evaluations (or of densities, for gradient-free samplers)."""

    @classmethod
    def of(
        cls,
        log_density: Array,
        acceptance: Array,
        divergent: Array,
        energy: Array,
        gradients: Array | float,
        failure: Result = Result.NONFINITE_DENSITY,
    ) -> "Info":
        """Return the statistics of a step, with `failure` as its result if the final log density is not finite."""
        result = jnp.where(jnp.isfinite(log_density), Result.SUCCESSFUL, failure)
        numbers = (jnp.asarray(number, log_density.dtype) for number in (acceptance, energy, gradients))
        acceptance, energy, gradients = numbers
        return cls(result.astype(jnp.int32), log_density, acceptance, divergent, energy, gradients)


@by_shape
def shapes(model: Model) -> Params:
    """Return the shapes of all unknowns, as `Params` of ShapeDtypeStructs."""
    return jax.eval_shape(lambda x: model.sample_params(jax.random.key(0), x), model.example())


def log_density(target: Target, batch: Data) -> Callable[[Array], Scalar]:
    """Return the unnormalised log posterior on a batch, as a function of the vector of all unknowns."""
    like = shapes(target.model)
    return lambda position: target.log_density(unravel(like, position), batch)


def check_kept(run: Run, model: Model) -> None:
    """Raise InputError for inputs in `Run.keep` that do not fit the model."""
    if run.keep is not None:
        model.check_inputs(jax.eval_shape(model.network.init, jax.random.key(0), model.example()), run.keep)


def check_untempered(run: Run) -> None:
    """Raise InputError for a temperature other than 1."""
    if run.temperature != 1.0:
        raise InputError("a temperature of 1", f"{run.temperature}", "Use tb.NUTS(), say.")


def kept(run: Run, target: Target, position: Array) -> PyTree:
    """Return what a chain stores: its position, or with `Run.keep` the outputs at its inputs and the noise."""
    if run.keep is None:
        return position
    params = unravel(shapes(target.model), position)
    return target.model.outputs(params, run.keep), params.noise


def joined(
    run: Run, model: Model, data: Data, traces: list[Trace], key: Key, notes: tuple[str, ...]
) -> Chains | Recorded:
    """Return the draws of all chains, cut to the shortest; warns if there are reasons to doubt them."""
    num = min(len(jax.tree.leaves(trace.kept)[0]) for trace in traces)
    if num == 0:
        raise InputError(
            "a run that reaches its first draw",
            f"one that was stopped after {traces[0].step} steps of warm-up",
            "Give it more time, or resume it from its checkpoint.",
        )
    draws = jax.tree.map(
        lambda *leaves: np.stack([np.asarray(leaf)[:num] for leaf in leaves]), *(t.kept for t in traces)
    )
    stats = {
        name: np.stack([np.asarray(getattr(trace.info, name))[:num] for trace in traces])
        for name in traces[0].info._fields
        if name != "result"
    }
    known = jax.device_put({name: values for name, values in stats.items() if not np.isnan(values).all()})
    if num < run.draws:
        notes += (f"Stopped after {num} of {run.draws} draws per chain.",)
    if run.keep is not None:
        outputs, noise = jax.device_put(draws)
        posterior: Chains | Recorded = Recorded(model, key, jnp.asarray(run.keep), outputs, noise, known, notes=notes)
    else:
        rows = evenly(data.num, _INPUTS)
        params, inputs = jax.device_put((unravel(shapes(model), draws), np.asarray(data.x)[rows]))
        posterior = Chains(model, key, params, known, inputs, notes=notes)
    if doubts := posterior.doubts():
        warnings.warn(" ".join(doubts), ConvergenceWarning, stacklevel=5)
    return posterior


class Sampler(Iterative):
    """A method whose steps leave the posterior of all rows invariant.

    Its state has a `position`: all unknowns in one vector.
    """

    run: Run = Run()

    @property
    def duration(self) -> Run:
        """The chains, warm-up and draws of a run."""
        return self.run

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """Return a draw from the prior."""
        return target.model.sample_params(key, batch.x)

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """Raise InputError for minibatches, and for inputs in `Run.keep` that do not fit."""
        if self.run.batch_size is not None or isinstance(data, Stream):
            got = "a stream of batches" if isinstance(data, Stream) else f"batch_size={self.run.batch_size}"
            expected = "all rows at every step, which this sampler needs to be exact"
            raise InputError(expected, got, "Leave batch_size out, and pass tb.Data; or use tb.SGHMC().")
        check_kept(self.run, model)

    def keep(self, target: Target, state: PyTree) -> PyTree:
        """Return what the chain stores of its position."""
        return kept(self.run, target, state.position)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
        """Return the draws of all chains, cut to the shortest; warns if there are reasons to doubt them."""
        return joined(self.run, model, data, traces, key, self.notes(traces))

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """Remarks on this run, for the reader."""
        return ()
