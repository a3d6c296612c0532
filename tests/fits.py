"""Fits of methods with their defaults on problems whose posterior is known exactly."""

import jax
import numpy as np
import numpyro.distributions as dist

import tunbridge as tb
from tunbridge.bench import PROBLEMS, PROMISES, deviation

_NUMBERS = {"output_variance": dist.InverseGamma(3.0, 2.0), "hidden_precision": dist.HalfNormal(1.0)}
_PRIORS = {
    "gibbsmetropolis": tb.priors.Exchangeable(**_NUMBERS),
    "reversiblejump": tb.priors.Exchangeable(**_NUMBERS, alpha=dist.Beta(2.0, 2.0)),
}
SHALLOW = {
    name: tb.Model(tb.networks.Shallow(3), prior, tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    for name, prior in _PRIORS.items()
}
"""Methods for one form of model alone, and the model that they are fitted to instead."""


def fit(name, problem, seed=5, rows=None, **options):
    """A method with its defaults on an exact problem, or on its first rows."""
    exact = PROBLEMS[problem]()
    data = exact.data if rows is None else tb.Data(np.asarray(exact.data.x)[:rows], np.asarray(exact.data.y)[:rows])
    if name in SHALLOW:
        method, model = tb.METHODS[name](run=tb.Run(2, 50, 50, 1)), SHALLOW[name]
    else:
        method, model = tb.METHODS[name](), exact.model
    return method.fit(model, data, key=jax.random.key(seed), progress=False, **options)


def assert_kept(posterior, name, problem):
    """What the table of promises says of a method's posterior."""
    promise = PROMISES[name][problem]
    off = deviation(PROBLEMS[problem](), posterior, promise.kind, jax.random.key(0))
    assert off <= promise.tolerance, f"{off:.2g} posterior sd"
