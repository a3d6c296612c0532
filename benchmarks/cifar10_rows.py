"""The rows of the CIFAR-10 table: model, method and budget of each."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

import tunbridge as tb

MEMBERS, DRAWS, CYCLE = 5, 40, 50
"""Networks of the ensemble, maximum kept draws per chain, epochs per cycle."""
WARMUP = 0.1
"""Fraction of the steps of a chain."""
RESNET_SCALE = math.sqrt(1 / 5)


class Budget(NamedTuple):
    """The budget of a row, and the images it is scored on."""

    rows: int
    batch: int
    chains: int
    scale: float
    judged: np.ndarray
    blocks: int
    """Blocks per stage of the network."""

    @property
    def epoch(self) -> int:
        """Steps per epoch."""
        return -(-self.rows // self.batch)

    def steps(self, epochs: float) -> int:
        return max(1, round(self.scale * epochs * self.epoch))

    def train(self, epochs: float) -> tb.Train:
        return tb.Train(self.steps(epochs), self.batch)

    def run(self, epochs: float, thin: int | None = None, warmup: float = WARMUP) -> tb.Run:
        """A run whose chains keep their outputs at the judged images, every `thin`-th step or at most `DRAWS` times."""
        steps = self.steps(epochs)
        before = round(warmup * steps)
        thin = thin or -(-(steps - before) // DRAWS)
        return tb.Run(self.chains, before, max(1, (steps - before) // thin), thin, self.batch, keep=self.judged)

    def cycle(self, epochs: float) -> int:
        """Steps per cycle, such that a chain has at least four cycles."""
        return max(1, min(CYCLE * self.epoch, int((1 - WARMUP) * self.steps(epochs)) // 4))


class Row(NamedTuple):
    """A model, a method for a given budget and number of epochs, and the row whose posterior it starts from.

    `network` returns the network, a tiny one for trials; `flat` gives it images as vectors; `table` names the section
    of the file that the row belongs to.
    """

    epochs: float
    method: Callable[[Budget, float], Any]
    network: Callable[[bool], Any]
    prior: Any
    start: str | None = None
    batch: int = 125
    chains: int = 2
    flat: bool = False
    table: str = "rows"

    def model(self, small: bool) -> tb.Model:
        return tb.Model(self.network(small), self.prior, tb.likelihoods.Categorical(10))


def momentum(step_size):
    return optax.sgd(step_size, momentum=0.9)


def point(budget, epochs):
    return tb.MAP(0.1, momentum, train=budget.train(epochs))


def ensemble(budget, epochs):
    return tb.Ensemble(point(budget, epochs), MEMBERS)


def dropout(budget, epochs):
    return tb.MCDropout(0.1, momentum, train=budget.train(epochs), rate=0.05)


def swag(budget, epochs):
    """SWAG whose path takes the last fifth of the epochs, after the point estimate."""
    steps = budget.steps(0.2 * epochs)
    return tb.SWAG(point(budget, 0.8 * epochs), steps, snapshots=min(DRAWS, steps), rank=min(20, steps))


def meanfield(budget, epochs):
    gradients = tb.gradients.Reparameterised()
    return tb.MeanField(
        step_size=1e-4, initial_sd=1e-2, gradient=gradients, optimiser=optax.adam, train=budget.train(epochs)
    )


def last_layer(_budget, _epochs):
    return tb.Laplace(subset=tb.subsets.LastLayer(), point=None)


def kronecker(_budget, _epochs):
    return tb.Laplace(structure=tb.structures.Kronecker(), point=None)


def sgld(budget, epochs):
    return tb.SGLD(1e-6, run=budget.run(epochs))


def sghmc(budget, epochs):
    return tb.SGHMC(3e-7, friction=0.1, run=budget.run(epochs))


def cyclical(budget, epochs):
    length = budget.cycle(epochs)
    schedule = tb.schedules.Cyclical(length)
    return tb.SGHMC(3e-7, friction=0.05, schedule=schedule, run=budget.run(epochs, length))


def cyclical_preconditioned(budget, epochs):
    length = budget.cycle(epochs)
    schedule, rms = tb.schedules.Cyclical(length), tb.preconditioners.RMSprop(0.99, 1e-7, forever=True)
    run = budget.run(epochs, length)
    return tb.SGHMC(3e-5, friction=0.05, schedule=schedule, preconditioner=rms, run=run)


def measured(budget, epochs):
    """SGHMC that measures its step size in the first quarter of the steps."""
    return tb.SGHMC(run=budget.run(epochs, warmup=0.25))


def slower(blocks: int) -> tb.preconditioners.Groups:
    """Smaller steps for the arrays that are hottest with equal steps: normalisations, and the last layer."""
    norms = [f"weights/stages/{i}/{j}/norm{k}" for i in range(3) for j in range(blocks) for k in (1, 2)]
    norms += ["weights/norm", *(f"weights/stages/{i}/0/shortcut/norm" for i in (1, 2))]
    return tb.preconditioners.Groups({path: 0.1 for path in norms} | {"weights/linear": 0.3})


def rms(_blocks: int) -> tb.preconditioners.RMSprop:
    return tb.preconditioners.RMSprop()


def same(_blocks: int) -> tb.preconditioners.Identity:
    return tb.preconditioners.Identity()


def modes(budget, epochs):
    """One mode per chain."""
    return tb.Ensemble(point(budget, epochs), budget.chains)


def brief(budget, epochs):
    """One network per chain, trained only briefly."""
    return tb.Ensemble(tb.MAP(2e-3, optax.adam, train=budget.train(epochs)), budget.chains)


class Recipe(NamedTuple):
    """SGHMC in annealed cycles; lengths are in epochs, or fractions of a cycle.

    How much noisy gradients heat a chain, and how fast it moves, is proportional to step size / friction / batch: `hot`
    is this ratio for the large steps, for minibatches of 1,000 images, and `lowest` is that of the small steps divided
    by it.
    """

    hot: float = 4e-5
    friction: float = 0.05
    lowest: float = 0.075
    cycle: float = 24.0
    exploration: float = 0.5
    sampling: float = 0.25
    warmup: float = 20.0
    thin: float = 1.0
    redraw: bool = True
    metric: Callable[[int], Any] = slower
    gradient: Any = tb.subsampling.Plain()

    def __call__(self, budget: Budget, epochs: float) -> tb.SGHMC:
        unit = max(1, min(50, budget.epoch // 2))

        def steps(some: float) -> int:
            """Steps of `some` epochs, rounded to a multiple of the steps between redraws."""
            return max(1, round(budget.scale * some * budget.epoch / unit)) * unit

        before, thin = steps(self.warmup), steps(self.thin)
        length = max(steps(self.cycle), 4 * thin)
        draws = max(1, (budget.steps(epochs) - before) // thin)
        return tb.SGHMC(
            self.hot * self.friction * budget.batch / 1000,
            friction=self.friction,
            schedule=tb.schedules.Annealed(length, self.lowest, self.exploration, self.sampling),
            preconditioner=self.metric(budget.blocks),
            gradient=self.gradient,
            noise_estimate=0.0,
            moves=(tb.moves.NormRedraw(every=unit),) if self.redraw else (),
            run=tb.Run(budget.chains, before, draws, thin, budget.batch, keep=budget.judged),
        )


WARM = Recipe(2e-4, 0.02, 0.03, 20.0, 0.4, 0.3, thin=2.0)
"""Cycles of larger steps, from a brief start; minibatches of 500 images."""
QUICK = Recipe(8e-2, 0.02, 0.05, 10.0, 0.3, 0.4, 10.0, 2.0, redraw=False, metric=rms)
"""The same with RMSprop as metric; minibatches of 125."""
WARM_TRIALS = {
    "warm cycles": WARM,
    "warm cycles, colder": WARM._replace(lowest=0.01),
    "warm cycles, hotter": WARM._replace(hot=5e-4, lowest=0.012),
    "warm cycles, gentler": WARM._replace(hot=6e-5, lowest=0.1),
    "warm cycles, longer": WARM._replace(cycle=40.0),
    "warm cycles without redraws": WARM._replace(redraw=False),
    "warm cycles, one step size": WARM._replace(metric=same),
    "warm cycles, RMSprop": WARM._replace(hot=2e-2, metric=rms),
    "warm cycles, SVRG": WARM._replace(gradient=tb.subsampling.SVRG()),
}
QUICK_TRIALS = {
    "quick cycles, 3 times as hot": QUICK._replace(hot=2.4e-1, lowest=0.02),
    "quick cycles, 10 times as hot": QUICK._replace(hot=8e-1, lowest=0.006),
    "quick cycles, 3 times as hot, redraws": QUICK._replace(hot=2.4e-1, lowest=0.02, redraw=True),
    "quick cycles, groups": QUICK._replace(hot=2e-3, lowest=0.01, metric=slower),
}
GENTLE_TRIALS = {
    "gentle cycles": Recipe(),
    "gentle cycles, hotter": Recipe(hot=1.6e-4, lowest=0.02),
    "gentle cycles, hottest": Recipe(hot=6.4e-4, lowest=0.005),
    "gentle cycles, nearly constant": Recipe(hot=6e-6, lowest=0.5),
    "gentle cycles without redraws": Recipe(redraw=False),
    "gentle cycles, one step size": Recipe(metric=same),
    "gentle cycles, RMSprop": Recipe(hot=4e-3, metric=rms),
    "gentle cycles, SVRG": Recipe(gradient=tb.subsampling.SVRG()),
}
"""Trials that start from a mode; each but the first changes one setting."""
BEST = Recipe(hot=2e-2, metric=rms)
"""The recipe with the lowest NLL on held-out training images, among these trials and RMSprop with larger steps."""


def residual(small, fused=True):
    return tb.networks.Cast(tb.networks.ResNet20(width=4, blocks=1) if small else tb.networks.ResNet20(fused=fused))


def unfused(small):
    """The unfused network, for methods that use forward-mode differentiation or individual layers."""
    return residual(small, fused=False)


def linear(_small):
    return tb.networks.MLP(())


def perceptron(small):
    return tb.networks.MLP((20,) * 3 if small else (200,) * 3, "relu")


def vgg(small):
    return tb.networks.Cast(tb.networks.VGG(11, 1 / 16) if small else tb.networks.VGG(19))


RESNET = residual, tb.priors.Normal(RESNET_SCALE)
UNFUSED = unfused, tb.priors.Normal(RESNET_SCALE)
TRIAL = {"chains": 1, "table": "trials"}
ROWS = {
    "map": Row(50, point, *RESNET),
    "ensemble": Row(40, ensemble, *RESNET, batch=100),
    "dropout": Row(50, dropout, *RESNET),
    "swag": Row(60, swag, *UNFUSED),
    "meanfield": Row(50, meanfield, *RESNET, start="map"),
    "lastlayer": Row(0, last_layer, *UNFUSED, start="map"),
    "kronecker": Row(0, kronecker, *UNFUSED, start="map"),
    "sgld": Row(110, sgld, *RESNET, start="modes"),
    "sghmc": Row(110, sghmc, *RESNET, start="modes"),
    "clr": Row(110, cyclical, *RESNET, start="modes"),
    "clrprec": Row(110, cyclical_preconditioned, *RESNET, start="modes"),
    "brief": Row(10, brief, *RESNET, table="starts"),
    "modes": Row(30, modes, *RESNET, table="starts"),
    "best": Row(188, BEST, *RESNET, start="modes", chains=8),
    **{name: Row(68, recipe, *RESNET, start="modes", **TRIAL) for name, recipe in GENTLE_TRIALS.items()},
    "quick cycles": Row(170, QUICK, *RESNET, start="brief", chains=4),
    **{name: Row(100, recipe, *RESNET, batch=500, start="brief", **TRIAL) for name, recipe in WARM_TRIALS.items()},
    **{name: Row(40, recipe, *RESNET, start="brief", **TRIAL) for name, recipe in QUICK_TRIALS.items()},
    "linear": Row(60, measured, linear, tb.priors.Normal(0.1), batch=500, flat=True, table="networks"),
    "mlp": Row(60, measured, perceptron, tb.priors.Normal(0.1), batch=500, flat=True, table="networks"),
    "vgg": Row(40, measured, vgg, tb.priors.Normal(0.03), batch=500, table="networks"),
}
