"""The model of a table where the user names none: its noise and the scale of its prior are unknown."""

from collections.abc import Callable

import numpyro.distributions as dist

from tunbridge.core.types import Likelihood, Prior
from tunbridge.model import likelihoods, priors
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.networks import MLP
from tunbridge.model.priors import Normal, fan_in


def network() -> MLP:
    """Two hidden layers of 50 tanh units."""
    return MLP((50, 50))


def prior() -> Normal:
    """Weights of a scale around 1 / sqrt(fan-in) that is unknown."""
    return Normal(fan_in(dist.LogNormal(0.0, 0.5)))


def of_numbers() -> Gaussian:
    """Unknown noise, in units of sd(y)."""
    return Gaussian(dist.Gamma(0.5, 1.0))


def of_classes(num: int) -> Bernoulli | Categorical:
    """A logit for two classes, one per class for more."""
    return Bernoulli() if num == 2 else Categorical(num)


LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {
    "gaussian": of_numbers,
    "heteroscedastic": likelihoods.Heteroscedastic,
    "studentt": lambda: likelihoods.StudentT(4.0, dist.Gamma(0.5, 1.0)),
    "laplace": lambda: likelihoods.Laplace(dist.Gamma(0.5, 1.0)),
    "poisson": likelihoods.Poisson,
    "negativebinomial": lambda: likelihoods.NegativeBinomial(dist.LogNormal(1.0, 1.0)),
}
"""By name, those of numbers and of counts that a table may be given, with their noise unknown."""


PRIORS: dict[str, Callable[[], Prior]] = {
    "normal": prior,
    "laplace": lambda: priors.Laplace(fan_in(dist.LogNormal(-0.35, 0.5))),
    "studentt": lambda: priors.StudentT(3.0, fan_in(dist.LogNormal(-0.35, 0.5))),
    "horseshoe": lambda: priors.Horseshoe(fan_in(dist.HalfCauchy(0.5)), slab=2.0),
    "ard": lambda: priors.ARD(dist.HalfCauchy(1.0), rest=prior()),
}
"""Priors of weights that a table's model may have, by name."""
