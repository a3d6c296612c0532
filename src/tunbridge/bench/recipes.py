"""How the references that come with the package are made: ``python -m tunbridge.bench.recipes NAME``."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from tunbridge.bench.reference import FOLDER, Reference, make_reference
from tunbridge.core.data import Data
from tunbridge.core.types import Key, Likelihood
from tunbridge.datasets import Scaling, breast_cancer, curve, diabetes, split, wine
from tunbridge.inference.base import Method
from tunbridge.inference.mcmc.hamiltonian import NUTS
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP
from tunbridge.model.priors import Normal, fan_in
from tunbridge.runtime.loop import Run


class Recipe(NamedTuple):
    """Everything that a reference follows from."""

    model: Model
    data: Data
    inputs: Any
    method: Method
    key: Key


def _curve() -> Recipe:
    """30 points of a curve with a gap, ten tanh units, unknown noise."""
    model = Model(MLP((10,), outputs=1), Normal(fan_in(2.0)), Gaussian(dist.Gamma(2.0, 10.0)))
    method = NUTS(run=Run(chains=4, warmup=1000, draws=2500))
    return Recipe(
        model, curve(jax.random.key(1), num=30), np.linspace(-3.0, 3.0, 50)[:, None], method, jax.random.key(2)
    )


def halves(name: str) -> tuple[Data, Data]:
    """Rows to learn from, and a fifth that is held out; standardised but for classes."""
    train, test = split(_TABLES[name](), jax.random.key(0))
    scaling = Scaling.of(train.x, train.y if name == "diabetes" else None)
    return scaling.apply(train), scaling.apply(test)


def _table(name: str, likelihood: Likelihood, draws: int) -> Recipe:
    """Four fifths of a bundled table, ten tanh units; functions at the rows held out."""
    train, test = halves(name)
    method = NUTS(run=Run(chains=4, warmup=1000, draws=draws))
    return Recipe(Model(MLP((10,)), Normal(fan_in(1.0)), likelihood), train, test.x, method, jax.random.key(2))


_TABLES = {"diabetes": diabetes, "breast_cancer": breast_cancer, "wine": wine}
RECIPES: dict[str, Callable[[], Recipe]] = {
    "curve": _curve,
    "diabetes": lambda: _table("diabetes", Gaussian(dist.Gamma(2.0, 2.0)), 1500),
    "breast_cancer": lambda: _table("breast_cancer", Bernoulli(), 1500),
    "wine": lambda: _table("wine", Categorical(3), 1500),
}
"""By name, the recipe of each reference."""


def remake(name: str) -> Reference:
    """The reference made anew."""
    return make_reference(*RECIPES[name](), name=name)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        reference = remake(name)
        reference.save(FOLDER / f"{name}.npz")
        print(reference)
