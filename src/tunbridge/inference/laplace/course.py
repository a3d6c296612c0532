"""The course of one Laplace fit: tune unknowns, find the mode again, measure the curvature."""

import dataclasses
import warnings
from functools import partial
from typing import NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.compiling import once
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import ConvergenceWarning
from tunbridge.core.tree import on_host, size
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.datasets.scaling import split
from tunbridge.inference.laplace import evidence, fitting, refining
from tunbridge.inference.laplace.curvatures import GGN, Curvature
from tunbridge.inference.laplace.fitting import Fitted
from tunbridge.inference.laplace.gaussian import Linearised, StructuredGaussian
from tunbridge.inference.laplace.local import Local
from tunbridge.inference.laplace.mode import Mode
from tunbridge.inference.laplace.structures import Structure
from tunbridge.inference.laplace.tuning import Evidence, Online, Tuning, Validation
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.model.model import Model
from tunbridge.model.subsets import All, Subset
from tunbridge.predict.links import Link
from tunbridge.runtime.fingerprint import fingerprint
from tunbridge.runtime.loop import Options

_SHARES = (1.0, 0.3, 0.1)
"""Shares of the way to the maximum of the evidence around one mode, tried until the evidence at the next mode rises."""
_MOST_UNKNOWNS = 32
"""The most unknowns for which the gradient includes how the mode moves with each."""
_WORTH = 0.05
"""The least gain of the log evidence for which another round is made."""


class Choices(Protocol):
    """The hyperparameters of `tunbridge.Laplace` that a course needs."""

    curvature: Curvature
    subset: Subset
    point: MAP | None
    tune: Tuning | None
    damping: float
    refine: bool
    link: Link

    def structured(self, local: Local, rows: int) -> Structure:
        """Return the chosen structure, or the default for a problem of this size."""
        ...


class Trial(NamedTuple):
    """Parameters, the approximation around them, and its log evidence plus the log prior density of the unknowns."""

    params: Params
    fitted: Fitted
    value: float


class Course:
    """One Laplace fit, from the mode of a point estimate to the posterior."""

    def __init__(self, method: Choices, model: Model, data: Data | Stream, key: Key, options: Options, number: int):
        self.method, self.model, self.data, self.key = method, model, data, key
        self.options, self.number = options, number
        self.notes: list[str] = []
        self.curve: list[float] = []

    def finish(self, point: Point) -> Linearised:
        """Tune what is unknown as the method says, starting from a point estimate, and return the posterior."""
        method, params = self.method, point.params
        unknown = bool(params.scales) or bool(params.noise)
        if unknown and isinstance(method.tune, Evidence):
            params = self._by_evidence(params, method.tune)
        elif unknown and isinstance(method.tune, Online):
            params = self._while_training(params, method.tune)
        elif params.scales and isinstance(method.tune, Validation):
            params = self._by_validation(params, method.tune)
        elif unknown:
            self.notes += point.notes
        fitted = self.measure(params, self.data)
        posterior = self.posterior(params, fitted)
        return self._refined(posterior, fitted) if self._refines(fitted) else posterior

    def posterior(self, params: Params, fitted: Fitted) -> Linearised:
        """Return the posterior around these parameters, given the approximation fitted there."""
        method = self.method
        value, _ = evidence.values(fitted.evidence, params.scales, params.noise)
        notes = (*self.notes, *fitting.sentences(fitted))
        gaussian = StructuredGaussian(
            self.model,
            self.key,
            params,
            fitted.evidence.covariance,
            fitted.structure,
            method.subset,
            value,
            jax.device_put(np.asarray(fitted.decrement, value.dtype)),
            {"log_evidence": jax.device_put(np.asarray([*self.curve, float(value)], value.dtype))},
            notes=notes,
        )
        return Linearised(self.model, self.key, gaussian, method.link, notes=notes)

    def measure(self, params: Params, data: Data | Stream) -> Fitted:
        """Return the curvature and the evidence around these parameters."""
        method = self.method
        local = Local.at(self.model, params, method.subset)
        structure = method.structured(local, data.num)
        return fitting.fit(local, structure, method.curvature, data, method.damping, self.key)

    def _refines(self, fitted: Fitted) -> bool:
        """Whether the normal at the mode is refined: not for part of the weights, nor for weights trained elsewhere."""
        method = self.method
        whole = method.point is not None and isinstance(method.subset, All)
        exact = isinstance(method.curvature, GGN) and isinstance(self.data, Data)
        return method.refine and whole and exact and refining.suits(fitted.evidence.local, self.data.num)

    def _refined(self, posterior: Linearised, fitted: Fitted) -> Linearised:
        found = refining.refined(fitted, cast(Data, self.data), self.key)
        gaussian, model = posterior.gaussian, self.model
        weights, dtype = found.local.weights, jax.dtypes.canonicalize_dtype(float)
        raw = model.prior.raw(weights, gaussian.params.scales, model.network.layout(weights))
        curve = {**(gaussian.curve or {}), "bound": jax.device_put(np.asarray(found.bounds, dtype))}
        notes = (*posterior.notes, found.note)
        params = gaussian.params._replace(weights=raw)
        gaussian = dataclasses.replace(gaussian, params=params, covariance=found.covariance, curve=curve, notes=notes)
        return dataclasses.replace(posterior, gaussian=gaussian, notes=notes)

    def _by_evidence(self, params: Params, tuning: Evidence) -> Params:
        """Step towards larger evidence around the current mode; keep a step only if its own mode has more evidence."""
        best, bounded = self._judged(params), 0
        trained = self.method.point is not None and isinstance(self.method.subset, All)
        for number in range(tuning.rounds):
            tuned = self._tuned(best, tuning.steps, trained)
            trials = (self._trial(best, tuned, share, f"round-{number}-{i}") for i, share in enumerate(_SHARES))
            better = next((trial for trial in trials if trial.value > best.value), None)
            if better is None:
                break
            gain, best, bounded = better.value - best.value, better, int(tuned.at_bound)
            if gain < _WORTH:
                break
        _warn_of_bounds(bounded)
        self.notes.append(self._told())
        return best.params

    def _while_training(self, params: Params, tuning: Online) -> Params:
        """Alternate training and tuning; return the parameters of the largest evidence seen."""
        current = best = self._judged(params)
        for number in range(tuning.rounds):
            tuned = self._tuned(current, tuning.steps, True)
            current = self._trial(current, tuned, 1.0, f"round-{number}", tuning.rounds)
            best = current if current.value > best.value else best
        last = self._judged(self._resolve(best.params, "last", 2))
        best = last if last.value > best.value else best
        self.notes.append(self._told())
        return best.params

    def _tuned(self, trial: "Trial", steps: int, moves: bool) -> evidence.Tuned:
        """Unknowns tuned by the evidence; `moves` says whether the mode is to be found again for them."""
        num = size((trial.params.scales, trial.params.noise))
        drift = fitting.drift(trial.fitted, self.data, self.key) if moves and num <= _MOST_UNKNOWNS else np.zeros(num)
        drift = np.asarray(drift, jax.dtypes.canonicalize_dtype(float))
        return evidence.maximise(trial.fitted.evidence, drift, self._free, steps)

    def _judged(self, params: Params) -> "Trial":
        if self.curve:  # the first call compiles, which is not timed
            self.options.clock.start()
        fitted = self.measure(params, self.data)
        self.options.clock.stop()
        value, objective = evidence.values(fitted.evidence, params.scales, params.noise)
        self.curve.append(float(value))
        return Trial(params, fitted, float(objective))

    def _trial(self, current: "Trial", tuned: evidence.Tuned, share: float, name: str, parts: int = 2) -> "Trial":
        """Move a share of the way to the tuned unknowns, and find the mode there."""
        old = current.params
        scales, noise = jax.tree.map(
            partial(on_host, lambda a, b: (a + share * (b - a)).astype(a.dtype)),
            (old.scales, old.noise),
            (tuned.scales, tuned.noise),
        )
        return self._judged(self._resolve(_with_hyper(self.model, old, scales, noise), name, parts))

    @property
    def _free(self) -> bool:
        """Whether noise is tuned with the scales.

        It is not for a subset of trained weights: with the other layers fixed, the evidence is no measure of the noise,
        which held-out rows have determined.
        """
        return self.method.point is None or isinstance(self.method.subset, All)

    def _told(self) -> str:
        noise = "noise and prior scales maximise" if self._free else "prior scales maximise"
        return f"Unknown {noise} the evidence: the largest of {len(self.curve)} values."

    def _by_validation(self, params: Params, tuning: Validation) -> Params:
        train, held = split(cast(Data, self.data), self.key, tuning.share)
        mode = mode_of(self.method.point or MAP(), None, self.model)
        trained = _params(
            mode.posteriors(self.model, train, self.key, 1, self._options("validation", self._fresh(params)))
        )

        def shifted(params: Params, shift: float) -> Params:
            scales = jax.tree.map(lambda leaf: leaf + shift, params.scales)
            return _with_hyper(self.model, params, scales, params.noise)

        fitted = self.measure(trained, train)
        candidates = [shifted(trained, by) for by in tuning.shifts]
        scores = [_score(self.posterior(params, fitting.at_params(fitted, params)), held) for params in candidates]
        shift = tuning.shifts[int(np.nanargmax(scores))]
        self.notes.append(f"Prior scales were multiplied by {np.exp(shift):.3g}, by the log density of held-out rows.")
        return shifted(params, shift)

    def _fresh(self, params: Params) -> Params:
        """Freshly initialised weights, with these unknowns."""
        blank = self.model.example()
        weights = self.model.network.init(self.key, jnp.zeros(blank.shape, blank.dtype))
        layout = self.model.network.layout(weights)
        return params._replace(weights=self.model.prior.raw(weights, params.scales, layout))

    def _resolve(self, params: Params, name: str, parts: int) -> Params:
        """The mode at new noise and scales, starting from the old one; the same weights if nothing is trained."""
        point = self.method.point
        if point is None or not isinstance(self.method.subset, All):
            return params
        mode = mode_of(point, max(point.train.steps // parts, 1), self.model)
        return _params(mode.posteriors(self.model, self.data, self.key, 1, self._options(name, params)))

    def _options(self, name: str, init: Params) -> Options:
        """Options for one more run, with a checkpoint folder per start, since a resumed fit may start elsewhere."""
        options = dataclasses.replace(self.options, init=init)
        return options.within(f"{name}-{self.number}-{fingerprint(init)[:12]}")


def _params(points: list[Posterior]) -> Params:
    (point,) = points
    return cast(Point, point).params


def _score(posterior: Linearised, held: Data) -> float:
    return float(jnp.mean(posterior.predict(held.x).log_prob(held.y)))


def _warn_of_bounds(num: int) -> None:
    if num:
        warnings.warn(
            f"{num} unknown(s) still moved by a factor of 2.7 in the last round: the evidence can still rise. "
            "Standardise x and y, give the unknown a prior that fits the units of the data, or allow more rounds.",
            ConvergenceWarning,
            stacklevel=2,
        )


def mode_of(point: MAP, steps: int | None, model: Model) -> Mode:
    """Return a `Mode` method: the point estimate's optimiser, with noise and scales fixed."""
    train = point.train if steps is None else dataclasses.replace(point.train, steps=steps)
    noisy = bool(jax.tree.leaves(jax.eval_shape(model.likelihood.median_noise)))
    return Mode.of(point, train, noisy)


def _with_hyper(model: Model, params: Params, scales: PyTree, noise: PyTree) -> Params:
    """The parameters of the same network weights, with other scales and noise."""
    return Params(_raw(model, params, scales), scales, noise)


@once
def _raw(model: Model, params: Params, scales: PyTree) -> PyTree:
    """The raw coordinates of the same weights under other scales."""
    return model.prior.raw(model.weights(params), scales, model.network.layout(params.weights))
