"""Tasks and methods that cost next to nothing, for tests of what is around them."""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tunbridge as tb
from tunbridge.bench.benchmark.budget import Budget
from tunbridge.bench.benchmark.task import Held, Rows, Task
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.predict.push import push_outputs

MODEL = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
HELD = 20


def table(split, poison=None):
    """60 rows of a line with noise of 0.5, the last 20 of them held out; `poison` takes their place."""
    rng = np.random.default_rng(split)
    x = rng.normal(size=(60, 2))
    y = x @ [2.0, -1.0] + 0.5 * rng.normal(size=60)
    if poison is not None:
        x[-HELD:], y[-HELD:] = poison, poison
    return x, y


def train(poison, split):
    x, y = table(split, poison)
    return Rows(x[:-HELD], y[:-HELD])


def held(poison, split):
    x, y = table(split, poison)
    return Held(Rows(x[-HELD:], y[-HELD:]))


def line(name="line", splits=2, poison=None, budget=Budget(2000, 60.0), model=MODEL):
    return Task(name, model, splits, budget, partial(train, poison), partial(held, poison), standardise=False)


class Answer(Posterior):
    """A line with normal noise."""

    slope: jax.Array
    sd: float

    def sample(self, key, num):
        raise NotImplementedError

    def components(self, key, num):
        raise NotImplementedError

    @property
    def linear(self):
        return True

    def predict(self, x, *, key=None, num=None):
        model = dataclasses.replace(self.model, likelihood=tb.likelihoods.Gaussian(self.sd))
        outputs = jnp.asarray(np.asarray(x), jnp.float32) @ self.slope
        return push_outputs(model, outputs[None, :, None], (), np.asarray(x))

    def save(self, path):
        np.save(Path(path) / "slope.npy", self.slope)


class LeastSquares(Method):
    """A line through the origin, with the noise of its residuals times a factor."""

    factor: float = 1.0

    def posteriors(self, model, data, key, size, options):
        x, y = np.asarray(data.x), np.asarray(data.y)[:, 0]
        slope = np.linalg.lstsq(x, y, rcond=None)[0]
        bound, _ = model.bind(data)
        return [Answer(bound, key, jnp.asarray(slope), float(self.factor * np.std(y - x @ slope)))]


class Broken(Method):
    """A method that fails."""

    def posteriors(self, model, data, key, size, options):
        raise ValueError("It is broken.")
