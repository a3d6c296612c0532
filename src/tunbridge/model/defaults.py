"""The default model for tabular data, whose noise and prior scale are unknown, and parts chosen by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpyro.distributions as dist

from tunbridge.core import names
from tunbridge.core.errors import InputError
from tunbridge.core.types import Likelihood, Network, Prior
from tunbridge.model import likelihoods, priors
from tunbridge.model.likelihoods import Bernoulli, Categorical, Gaussian
from tunbridge.model.networks import MLP, Shallow
from tunbridge.model.priors import Exchangeable, Normal, RootInverseGamma, fan_in

_MOST_ROWS = 5000
"""The most rows for which the default network has a single hidden layer."""
_UNITS = 10
"""Units of the default shallow network; the largest number of them where it is unknown."""


class Parts(NamedTuple):
    """The parts of a default model of real-valued y, which a method names as its `parts`."""

    network: Callable[[int, tuple[int, ...] | None], Network]
    """The network for a number of training rows, and for units of hidden layers or None."""
    prior: Callable[[], Prior]
    of_numbers: Callable[[], Gaussian]


def network(rows: int = 0, hidden: tuple[int, ...] | None = None) -> MLP:
    """The default network for a number of training rows: a hidden layer of 50 tanh units, two above 5,000 rows."""
    if hidden is None:
        hidden = (50,) if rows <= _MOST_ROWS else (50, 50)
    return MLP(hidden)


def prior() -> Normal:
    """The default prior: normal weights with an unknown scale around 1 / sqrt(fan-in)."""
    return Normal(fan_in(dist.LogNormal(0.0, 0.5)))


def of_numbers() -> Gaussian:
    """The default likelihood of real-valued y: normal with unknown noise, in units of sd(y)."""
    return Gaussian(dist.Gamma(0.5, 1.0))


def shallow(_: int = 0, hidden: tuple[int, ...] | None = None) -> Shallow:
    """The default shallow network for any number of rows: ten tanh units beside a linear part."""
    if hidden is not None and len(hidden) != 1:
        raise InputError("one hidden layer in a shallow network", f"{len(hidden)}", "Give one number of units.")
    return Shallow(_UNITS if hidden is None else hidden[0])


def exchangeable(alpha: Any = None) -> Exchangeable:
    """The default prior of a shallow network, for standardised inputs and y: all its variances are unknown."""
    return Exchangeable(
        output_variance=dist.InverseGamma(3.0, 2.0),
        hidden_precision=dist.Gamma(2.0, 2.0),
        linear_variance=dist.InverseGamma(3.0, 2.0),
        alpha=alpha,
    )


def conjugate() -> Gaussian:
    """The default likelihood of shallow networks: unknown noise that can be drawn given the rest, in units of sd(y)."""
    return Gaussian(RootInverseGamma(1.0, 0.1))


def of_classes(num: int) -> Bernoulli | Categorical:
    """The default likelihood of class labels: one logit for two classes, one per class for more."""
    return Bernoulli() if num == 2 else Categorical(num)


DENSE = Parts(network, prior, of_numbers)
"""Of most methods."""
SHALLOW = Parts(shallow, exchangeable, conjugate)
"""Of methods for shallow networks of a fixed number of units."""
COUNTED = Parts(shallow, lambda: exchangeable(dist.Beta(2.0, 2.0)), conjugate)
"""Of methods that infer the number of units."""


LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {
    "gaussian": of_numbers,
    "heteroscedastic": likelihoods.Heteroscedastic,
    "studentt": lambda: likelihoods.StudentT(4.0, dist.Gamma(0.5, 1.0)),
    "laplace": lambda: likelihoods.Laplace(dist.Gamma(0.5, 1.0)),
    "poisson": likelihoods.Poisson,
    "negativebinomial": lambda: likelihoods.NegativeBinomial(dist.LogNormal(1.0, 1.0)),
    "ordinal": likelihoods.Ordinal,
}
"""Likelihoods of numbers, of counts and of ordered classes by name, with their noise unknown."""


PRIORS: dict[str, Callable[[], Prior]] = {
    "normal": prior,
    "laplace": lambda: priors.Laplace(fan_in(dist.LogNormal(-0.35, 0.5))),
    "studentt": lambda: priors.StudentT(3.0, fan_in(dist.LogNormal(-0.35, 0.5))),
    "horseshoe": lambda: priors.Horseshoe(fan_in(dist.HalfCauchy(0.5)), slab=2.0),
    "ard": lambda: priors.ARD(dist.HalfCauchy(1.0), rest=prior()),
    "exchangeable": exchangeable,
}
"""Priors over weights by name, with their scale unknown."""


def named_prior(name: str) -> Prior:
    """Return the prior of a name: one of `PRIORS`, or of `tunbridge.PRIORS` if its class needs no arguments."""
    return _named("prior", name, PRIORS, names.PRIORS)


def named_likelihood(name: str) -> Likelihood:
    """Return the likelihood of a name: one of `LIKELIHOODS`, or of `tunbridge.LIKELIHOODS` without arguments."""
    return _named("likelihood", name, LIKELIHOODS, names.LIKELIHOODS)


def _named(kind: str, name: str, known: Mapping[str, Callable[[], Any]], table: names.Table) -> Any:
    wanted = _plain(name)
    if wanted in known:
        return known[wanted]()
    classes = {_plain(each): each for each in reversed(list(table))}
    if wanted in classes and not (needed := _arguments(table[classes[wanted]])):
        return table[classes[wanted]]()
    usable = [each for each in map(_plain, table) if each not in known and not _arguments(table[classes[each]])]
    got = f"{name!r}, which needs {' and '.join(needed)}" if wanted in classes else repr(name)
    raise names.UnknownNameError(
        f"a {kind} of {', '.join(dict.fromkeys((*known, *usable)))}", got, "Choose one of these names."
    )


def _plain(name: str) -> str:
    """A name without hyphens in lower case, as the names of methods are."""
    return name.replace("-", "").lower()


def _arguments(cls: Any) -> list[str]:
    """Names of the arguments without which a class cannot be built."""
    parameters = inspect.signature(cls).parameters.values()
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
