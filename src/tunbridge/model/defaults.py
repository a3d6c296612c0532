"""The default model for tabular data, whose noise and prior scale are unknown."""

from collections.abc import Callable

import numpyro.distributions as dist

from tunbridge.core.types import Likelihood, Prior
from tunbridge.model import likelihoods, priors
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.networks import MLP
from tunbridge.model.priors import Normal, fan_in


def network() -> MLP:
    """The default network: two hidden layers of 50 tanh units."""
    return MLP((50, 50))


def prior() -> Normal:
    """The default prior: normal weights with an unknown scale around 1 / sqrt(fan-in)."""
    return Normal(fan_in(dist.LogNormal(0.0, 0.5)))


def of_numbers() -> Gaussian:
    """The default likelihood of real-valued y: normal with unknown noise, in units of sd(y)."""
    return Gaussian(dist.Gamma(0.5, 1.0))


def of_classes(num: int) -> Bernoulli | Categorical:
    """The default likelihood of class labels: one logit for two classes, one per class for more."""
    return Bernoulli() if num == 2 else Categorical(num)


LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {
    "gaussian": of_numbers,
    "heteroscedastic": likelihoods.Heteroscedastic,
    "studentt": lambda: likelihoods.StudentT(4.0, dist.Gamma(0.5, 1.0)),
    "laplace": lambda: likelihoods.Laplace(dist.Gamma(0.5, 1.0)),
    "poisson": likelihoods.Poisson,
    "negativebinomial": lambda: likelihoods.NegativeBinomial(dist.LogNormal(1.0, 1.0)),
}
"""Likelihoods of real numbers and of counts that a tabular model may have, by name, with their noise unknown."""


PRIORS: dict[str, Callable[[], Prior]] = {
    "normal": prior,
    "laplace": lambda: priors.Laplace(fan_in(dist.LogNormal(-0.35, 0.5))),
    "studentt": lambda: priors.StudentT(3.0, fan_in(dist.LogNormal(-0.35, 0.5))),
    "horseshoe": lambda: priors.Horseshoe(fan_in(dist.HalfCauchy(0.5)), slab=2.0),
    "ard": lambda: priors.ARD(dist.HalfCauchy(1.0), rest=prior()),
}
"""Priors over weights that a tabular model may have, by name."""
