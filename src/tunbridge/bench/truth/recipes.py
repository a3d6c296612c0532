"""Recipes for reference posteriors: those that come with the package, by name, and one for any table."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from tunbridge.bench.truth.reference import AMONG, BETWEEN, BEYOND, Reference, make_reference
from tunbridge.core.data import Data
from tunbridge.core.types import Key, Likelihood
from tunbridge.datasets import Scaling, breast_cancer, curve, diabetes, split, wine
from tunbridge.inference.base import Method
from tunbridge.inference.mcmc.hamiltonian import NUTS
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP
from tunbridge.model.priors import Normal, fan_in
from tunbridge.runtime.durations import Run


class Recipe(NamedTuple):
    """Everything needed to make a reference."""

    model: Model
    data: Data
    inputs: Any
    method: Method
    key: Key
    places: np.ndarray | None = None

    def make(self, name: str, **options: Any) -> Reference:
        """Make the reference; `options` are those of `make_reference`."""
        *what, places = self
        return make_reference(*what, name=name, places=places, **options)


_RUN = Run(chains=4, warmup=1000, draws=1500)


def of_table(x: Any, y: Any, inputs: Any, model: Model, *, run: Run = _RUN, key: Key, places: Any = None) -> Recipe:
    """Recipe for a model of rows (x, y) by NUTS, with its functions recorded at `inputs`.

    x, inputs, and y if real-valued are standardised with the mean and standard deviation of (x, y): a prior on the
    noise refers to y / sd(y).
    """
    scaling = Scaling.of(x, None if isinstance(model.likelihood, OfClasses) else y)
    rows = Data(scaling.inputs(x), scaling.targets(y))
    return Recipe(model, rows, scaling.inputs(inputs), NUTS(run=run), key, places)


def _curve() -> Recipe:
    """30 points of a curve with a gap, ten tanh units, unknown noise."""
    model = Model(MLP((10,), outputs=1), Normal(fan_in(2.0)), Gaussian(dist.Gamma(2.0, 10.0)))
    method = NUTS(run=Run(chains=4, warmup=1000, draws=2500))
    x = np.linspace(-3.0, 3.0, 50)
    places = np.where((x > -0.7) & (x < 0.3), BETWEEN, np.where(np.abs(x) > 2.0, BEYOND, AMONG))
    return Recipe(model, curve(jax.random.key(1), num=30), x[:, None], method, jax.random.key(2), places)


_GAP, _WEIGHT = "_gap", 2
"""Suffix of the name of a table with a gap, and the column of diabetes with the gap: the body mass index."""


def _gap() -> tuple[Data, Data, np.ndarray]:
    """Diabetes without the middle third by body mass index: training rows, test rows and their places.

    Test rows are a fifth of the others, and every second row of the gap.
    """
    whole = diabetes()
    x, y = np.asarray(whole.x), np.asarray(whole.y)
    low, high = np.quantile(x[:, _WEIGHT], [1 / 3, 2 / 3])
    between = (x[:, _WEIGHT] > low) & (x[:, _WEIGHT] < high)
    train, held = split(Data(x[~between], y[~between]), jax.random.key(0))
    inside = np.flatnonzero(between)[::2]
    test = Data(np.concatenate([np.asarray(held.x), x[inside]]), np.concatenate([np.asarray(held.y), y[inside]]))
    return train, test, np.repeat([AMONG, BETWEEN], [held.num, len(inside)])


_TABLES: dict[str, tuple[Callable[[], Data], Likelihood]] = {
    "diabetes": (diabetes, Gaussian(dist.Gamma(2.0, 2.0))),
    "breast_cancer": (breast_cancer, Bernoulli()),
    "wine": (wine, Categorical(3)),
}


def _table(name: str) -> Recipe:
    """Four fifths of a bundled table, ten tanh units; functions at the held-out rows."""
    load, likelihood = _TABLES[name.removesuffix(_GAP)]
    train, test, places = _gap() if name.endswith(_GAP) else (*split(load(), jax.random.key(0)), None)
    model = Model(MLP((10,)), Normal(fan_in(1.0)), likelihood)
    return of_table(train.x, train.y, test.x, model, key=jax.random.key(2), places=places)


def halves(name: str) -> tuple[Data, Data]:
    """Training rows and held-out rows of a table with a recipe, standardised except for class labels."""
    load, likelihood = _TABLES[name.removesuffix(_GAP)]
    train, test = _gap()[:2] if name.endswith(_GAP) else split(load(), jax.random.key(0))
    scaling = Scaling.of(train.x, None if isinstance(likelihood, OfClasses) else train.y)
    return scaling.apply(train), scaling.apply(test)


RECIPES: dict[str, Callable[[], Recipe]] = {
    "curve": _curve,
    **{name: functools.partial(_table, name) for name in (*_TABLES, f"diabetes{_GAP}")},
}
"""The recipe of each reference, by name."""
