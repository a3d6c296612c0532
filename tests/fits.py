"""Fits of methods with their defaults on problems whose posterior is known exactly."""

import jax
import numpy as np

import tunbridge as tb
from tunbridge.bench import PROBLEMS, PROMISES, deviation


def fit(name, problem, seed=5, rows=None, **options):
    """A method with its defaults on an exact problem, or on its first rows."""
    exact = PROBLEMS[problem]()
    data = exact.data if rows is None else tb.Data(np.asarray(exact.data.x)[:rows], np.asarray(exact.data.y)[:rows])
    return tb.METHODS[name]().fit(exact.model, data, key=jax.random.key(seed), progress=False, **options)


def assert_kept(posterior, name, problem):
    """What the table of promises says of a method's posterior."""
    promise = PROMISES[name][problem]
    off = deviation(PROBLEMS[problem](), posterior, promise.kind, jax.random.key(0))
    assert off <= promise.tolerance, f"{off:.2g} posterior sd"
