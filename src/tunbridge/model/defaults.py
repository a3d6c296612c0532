"""The model of a table where the user names none: its noise and the scale of its prior are unknown."""

import numpyro.distributions as dist

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
    """A logit for two classes, one a class for more."""
    return Bernoulli() if num == 2 else Categorical(num)
