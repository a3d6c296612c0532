"""The same budget for every method: gradients of single rows turned into steps, and counted as they are spent."""

import dataclasses

import numpy as np

from tunbridge.bench.baselines import CalibratedMAP
from tunbridge.core.declared import Checked
from tunbridge.core.errors import InputError
from tunbridge.inference.base import Method
from tunbridge.inference.chains import Chains
from tunbridge.inference.laplace.gaussian import Linearised
from tunbridge.inference.laplace.laplace import Laplace
from tunbridge.inference.laplace.tuning import Evidence
from tunbridge.inference.linear.neurallinear import NeuralLinear
from tunbridge.inference.mcmc.elliptical import EllipticalSlice
from tunbridge.inference.mcmc.hamiltonian import HMC, NUTS
from tunbridge.inference.mcmc.microcanonical import MCLMC, AdjustedMCLMC
from tunbridge.inference.point.descent import Descent
from tunbridge.inference.point.ensemble import Ensemble
from tunbridge.inference.point.map import MAP
from tunbridge.inference.point.swag import SWAG
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.sampler import Sampler
from tunbridge.inference.sgmcmc.sampler import StochasticGradient
from tunbridge.inference.standardised import Standardised
from tunbridge.inference.vi.around import AroundPoint
from tunbridge.runtime.loop import Event, Run, Train

BATCH = 128
"""The most rows of a step, where a method may take fewer than all."""
TRAJECTORY = 32
"""Gradients that a step is taken for, where they are not known beforehand."""
LEAST = 200
"""The fewest draws of such a sampler, and its fewest steps of warm-up."""
_ROUNDS = 2
"""How often a Laplace approximation looks for its mode again; up to three times in a round, with half the steps."""


@dataclasses.dataclass(frozen=True)
class Budget(Checked):
    """What one fit may spend.

    Parameters
    ----------
    gradients
        Gradients of the log likelihood of single rows.
    seconds
        The most seconds of training, compilation not counted, after which a fit ends where it is and is marked as cut.
    """

    gradients: int
    seconds: float

    def __post_init__(self) -> None:
        if self.gradients < 1 or not self.seconds > 0:
            got = f"{self.gradients} gradients and {self.seconds} seconds"
            raise InputError("a budget above 0", got, "Give more.")


def within(method: Method, budget: Budget, rows: int) -> Method:
    """The method with as many steps as its budget allows for this many rows.

    A step sees 128 rows, or all where they are fewer or the method asks for all; G gradients are then G / 128 steps.
    Members of an ensemble and chains share them. Where a method has a point estimate first, or fits one twice, half
    goes there; of Laplace a quarter, so that the mode can be found again up to six times with half as many steps.
    Samplers keep the shares of warm-up and of draws that they have by themselves. Trajectories whose gradients are not
    known beforehand (HMC, NUTS, adjusted MCLMC, elliptical slices) are taken for 32, are never more than by default and
    never fewer than 200 of warm-up and 200 draws a chain: only the seconds bound them, and what they spent is counted.
    Methods of other kinds are left as they are.
    """
    steps = max(budget.gradients // min(rows, BATCH), 2)
    if isinstance(method, Ensemble):
        each = dataclasses.replace(budget, gradients=max(budget.gradients // method.size, 1))
        return dataclasses.replace(method, method=within(method.method, each, rows))
    if isinstance(method, Descent):
        return dataclasses.replace(method, train=_train(steps, rows, method.train))
    if isinstance(method, SWAG):
        point, path = within_steps(method.point, steps // 2, rows), steps // 2
        return dataclasses.replace(method, point=point, steps=max(path, method.snapshots))
    if isinstance(method, Laplace) and method.point is not None:
        share = 1 + 3 * _ROUNDS // 2 if isinstance(method.tune, Evidence) else 1
        tune = dataclasses.replace(method.tune, rounds=_ROUNDS) if isinstance(method.tune, Evidence) else method.tune
        return dataclasses.replace(method, point=within_steps(method.point, steps // share, rows), tune=tune)
    if isinstance(method, CalibratedMAP):
        return dataclasses.replace(method, point=within_steps(method.point, steps // 2, rows))
    if isinstance(method, NeuralLinear) and method.point is not None:
        return dataclasses.replace(method, point=within_steps(method.point, steps, rows))
    if isinstance(method, AroundPoint):
        return _around(method, steps, rows)
    if isinstance(method, Sampler):
        return dataclasses.replace(method, run=_run(method, budget, rows))
    return method


def within_steps(point: MAP, steps: int, rows: int) -> MAP:
    """A point estimate of so many steps."""
    return dataclasses.replace(point, train=_train(steps, rows, point.train))


def _train(steps: int, rows: int, train: Train) -> Train:
    return dataclasses.replace(train, steps=max(steps, 2), batch_size=min(rows, BATCH))


def _around(method: AroundPoint, steps: int, rows: int) -> AroundPoint:
    """A normal around a point: half of the steps for each, where it has a point."""
    if method.point is None:
        return dataclasses.replace(method, train=_train(steps // method.num_samples, rows, method.train))
    point = MAP() if method.point == "map" else method.point
    train = _train(steps // (2 * method.num_samples), rows, method.train)
    return dataclasses.replace(method, point=within_steps(point, steps // 2, rows), train=train)


def _run(method: Sampler, budget: Budget, rows: int) -> Run:
    run = method.run
    batch = min(rows, BATCH) if isinstance(method, StochasticGradient) else rows
    unknown = isinstance(method, HMC | NUTS | AdjustedMCLMC | EllipticalSlice)
    each = TRAJECTORY if unknown else 2 if isinstance(method, MCLMC) else 1
    steps, usual = budget.gradients // (run.chains * batch * each), run.warmup + run.draws * run.thin
    if unknown:
        steps = min(max(steps, 2 * LEAST), usual)
    after = steps - steps * run.warmup // usual
    draws = max(min(run.draws, after), 1)
    thin = max(after // draws, 1)
    size = batch if isinstance(method, StochasticGradient) else None
    return dataclasses.replace(run, warmup=max(steps - draws * thin, 0), draws=draws, thin=thin, batch_size=size)


class Meter:
    """A callback of `fit` that counts the steps of all members, over all that a fit trains."""

    def __init__(self) -> None:
        self._done = 0
        self._now: dict[tuple[int, ...], int] = {}

    def __call__(self, event: Event) -> None:
        """Count a chunk. A run begins with a step or a stride, so that a count that does not rise is another run's."""
        lane = tuple(event.members)
        if event.step <= self._now.get(lane, 0):
            self._done += len(lane) * self._now.pop(lane)
        self._now[lane] = event.step

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._done + sum(len(lane) * step for lane, step in self._now.items())


def spent(meter: Meter, posterior: Posterior, method: Method, rows: int) -> float:
    """Gradients of single rows that a fit took; NaN where nobody counted.

    A sampler's kept draws report gradients of all rows, and their mean is taken for all steps; other steps are a
    gradient of each row of a batch, for each sample of the weights. Curvature is counted as a gradient of all rows each
    time it is measured.
    """
    inner = posterior.posterior if isinstance(posterior, Standardised) else posterior
    if not meter.steps:
        return float("nan")
    if isinstance(inner, Chains):
        each = np.mean(inner.stats["gradients"]) if "gradients" in inner.stats else np.nan
        return float(meter.steps * rows * each)
    samples = method.num_samples if isinstance(method, AroundPoint) else 1
    curvatures = (
        len(inner.gaussian.curve["log_evidence"]) if isinstance(inner, Linearised) and inner.gaussian.curve else 0
    )
    return float(meter.steps * min(rows, BATCH) * samples + curvatures * rows)
