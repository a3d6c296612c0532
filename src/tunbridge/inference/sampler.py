"""The base class of samplers: all unknowns in one vector, chains started from the prior, draws kept in order."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import ConvergenceWarning, InputError, Result
from tunbridge.core.tree import by_shape, unravel
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.base import Iterative
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
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


class Sampler(Iterative):
    """A method whose steps leave the posterior invariant. Its state has a `position`: all unknowns in one vector."""

    run: Run = Run()

    @property
    def duration(self) -> Run:
        """The chains, warm-up and draws of a run."""
        return self.run

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Number of per-row gradients, the mean over kept draws standing for every step; NaN if not counted."""
        stats = posterior.stats if isinstance(posterior, Chains | Recorded) else {}
        return float(steps * rows * np.mean(stats["gradients"])) if "gradients" in stats else float("nan")

    def start(self, key: Key, target: Target, batch: Data) -> Params:
        """Return a draw from the prior."""
        return target.model.sample_params(key, batch.x)

    @property
    def subsamples(self) -> bool:
        """Whether steps may use minibatches."""
        return False

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """Raise InputError for minibatches if steps need all rows, and for inputs in `Run.keep` that do not fit."""
        if not self.subsamples and (self.run.batch_size is not None or isinstance(data, Stream)):
            got = "a stream of batches" if isinstance(data, Stream) else f"batch_size={self.run.batch_size}"
            expected = "all rows at every step, which this sampler needs to be exact"
            raise InputError(expected, got, "Leave batch_size out, and pass tb.Data; or use tb.SGHMC().")
        if self.run.keep is not None:
            model.check_inputs(jax.eval_shape(model.network.init, jax.random.key(0), model.example()), self.run.keep)

    def keep(self, target: Target, state: PyTree) -> PyTree:
        """Return the position; with `Run.keep`, the outputs at its inputs and the noise instead."""
        if self.run.keep is None:
            return state.position
        params = unravel(shapes(target.model), state.position)
        return target.model.outputs(params, self.run.keep), params.noise

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Chains | Recorded:
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
        notes = self.notes(traces)
        if num < self.run.draws:
            notes += (f"Stopped after {num} of {self.run.draws} draws per chain.",)
        if self.run.keep is not None:
            outputs, noise = jax.device_put(draws)
            inputs = jnp.asarray(self.run.keep)
            posterior: Chains | Recorded = Recorded(model, key, inputs, outputs, noise, known, notes=notes)
        else:
            rows = np.unique(np.linspace(0, data.num - 1, min(data.num, _INPUTS)).round().astype(int))
            params, inputs = jax.device_put((unravel(shapes(model), draws), np.asarray(data.x)[rows]))
            posterior = Chains(model, key, params, known, inputs, notes=notes)
        if doubts := posterior.doubts():
            warnings.warn(" ".join(doubts), ConvergenceWarning, stacklevel=4)
        return posterior

    def notes(self, traces: list[Trace]) -> tuple[str, ...]:
        """Remarks on this run, for the reader."""
        return ()
