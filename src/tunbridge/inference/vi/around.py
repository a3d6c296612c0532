"""What variational methods share: the start around a point, the checks before it, and the posterior at the end."""

import abc
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError, NumericalError, Result
from tunbridge.core.tree import all_finite, on_host
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.base import Iterative
from tunbridge.inference.point.given import given
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import shapes
from tunbridge.inference.vi import beginning
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gaussian import Gaussian
from tunbridge.inference.vi.posterior import VariationalGaussian
from tunbridge.model.model import Model, Target
from tunbridge.runtime.durations import Train
from tunbridge.runtime.fingerprint import fingerprint
from tunbridge.runtime.loop import Options, Trace
from tunbridge.runtime.schedules import Cosine

Start = MAP | Literal["map"] | None
"""Where means start: a point estimate, the default one ("map"), or the network's own initial weights (None)."""


class AroundPoint(Iterative):
    """A normal q over all unknowns, started around a point."""

    step_size: eqx.AbstractVar[float]
    num_samples: int = eqx.field(default=1, static=True, kw_only=True)
    decay: Callable[[Array], Array] = eqx.field(default=Cosine(), kw_only=True)
    point: Start = eqx.field(default="map", kw_only=True)
    initial_sd: float | None = eqx.field(
        default=None, converter=lambda sd: None if sd is None else float(sd), kw_only=True
    )
    train: Train = eqx.field(default=Train(10_000), kw_only=True)

    def __check_init__(self):
        if self.num_samples < 1:
            raise InputError("num_samples as a whole number of at least 1", f"{self.num_samples}", "Try 1.")
        if not self.step_size > 0:
            raise InputError("a step size above 0", f"{self.step_size}", "Leave it out for the default.")
        if self.initial_sd is not None and not self.initial_sd > 0:
            raise InputError("initial_sd above 0", f"{self.initial_sd}", "Leave it out to have it measured.")
        if not (callable(self.decay) and isinstance(self.decay, eqx.Module)):
            raise InputError("decay= as a schedule", f"{self.decay!r}", "Use tb.schedules.Cosine() or Constant().")

    @property
    @abc.abstractmethod
    def form(self) -> Family:
        """The family of q."""

    @property
    def duration(self) -> Train:
        """Length of training."""
        return self.train

    def within(self, gradients: int, rows: int) -> Self:
        """The method with half of the gradients for the point estimate and half for q; all for q if it has no point."""
        if self.point is None:
            return dataclasses.replace(self, train=self.train.within(gradients // self.num_samples, rows))
        point = MAP() if self.point == "map" else self.point
        train = self.train.within(gradients // (2 * self.num_samples), rows)
        return dataclasses.replace(self, point=point.within(gradients // 2, rows), train=train)

    @property
    def gradients_per_step(self) -> int | None:
        """One gradient per draw of the weights."""
        return self.num_samples

    def check(self, model: Model, data: Data | Stream, options: Options) -> None:
        """InputError for a prior without a density on the whole real line, or a q that does not fit in memory."""
        like = shapes(model)
        self.form.check(like, model.network.layout(like.weights))
        beginning.check_support(model, like)

    def settle(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> tuple[Self, Options]:
        """The method bound to the model, and options with the initial means."""
        means = self._means(model, data, key, size, options)
        options = dataclasses.replace(options, init=means)
        if means is not None:  # after an interruption the means may differ
            options = options.within(f"q-{fingerprint(means)[:12]}")
        return dataclasses.replace(self.bind(model), point=None), options

    def bind(self, model: Model) -> Self:
        """The method with its parts bound to the model."""
        return self

    def _means(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Params] | None:
        """Initial means of q, one per posterior; None for the network's own initial weights."""
        if options.init is not None:
            return [given(model, options.init)] * size
        if self.point is None:
            return None
        point = self.point
        if point == "map":
            point = MAP(train=Train(min(MAP().train.steps, self.train.steps), self.train.batch_size))
        posteriors = point.posteriors(model, data, key, size, options.within("point"))
        return [beginning.translated(model, posterior) for posterior in posteriors]

    def _starts(self, init: Any, target: Target, rows: Data, key: Key, num: int) -> Params | None:
        return None if init is None else jax.tree.map(partial(on_host, lambda *each: np.stack(each)), *init)

    def around(self, key: Key, target: Target, params: Params, batch: Data) -> Gaussian:
        """Variational distribution around the parameters, its standard deviations given or from the curvature."""
        key_sds, key_family = jax.random.split(key)
        if (sd := self.initial_sd) is None:
            sds = beginning.standard_deviations(key_sds, target, params, batch)
        else:
            sds = jax.tree.map(lambda leaf: jnp.full_like(leaf, sd), params)
        return self.form.around(key_family, params, sds, target.model.network.layout(params.weights))

    def keep(self, target: Target, state: Any) -> PyTree:
        """Nothing: only the last state counts."""
        return ()

    def reached(self, model: Model, key: Key, trace: Trace, q: Gaussian) -> Posterior:
        """The posterior with the last q; NumericalError if that is not finite."""
        step = int(trace.state.step)
        if not all_finite(q):
            raise NumericalError(Result.NONFINITE_STATE, step, 0, "Nothing can be predicted with it.")
        notes = () if step == self.train.steps else (f"Stopped after {step} of {self.train.steps} steps.",)
        taken = step // self.train.plan().thin
        curve = {name: leaf[:taken] for name, leaf in trace.info._asdict().items()}
        return VariationalGaussian(model, key, q, curve, notes=notes)
