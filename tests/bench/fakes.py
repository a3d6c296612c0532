"""Tasks and methods that cost next to nothing, for tests of what is around them."""

import dataclasses
from functools import partial

import jax.numpy as jnp
import numpy as np

import tunbridge as tb
from tunbridge.bench.budget import Budget
from tunbridge.bench.task import Held, Rows, Task
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
    return Task(name, model, splits, budget, partial(train, poison), partial(held, poison))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A line with normal noise."""

    slope: np.ndarray
    sd: float

    def predict(self, x):
        model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(self.sd))
        outputs = jnp.asarray(np.asarray(x) @ self.slope, jnp.float32)
        return push_outputs(model, outputs[None, :, None], (), np.asarray(x))


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """What a method need not be more than: `fit`, and an answer that can predict."""

    factor: float = 1.0
    """Of the standard deviation of its residuals."""

    def fit(self, model, data, *, key, max_seconds=None, progress=True):
        x, y = np.asarray(data.x), np.asarray(data.y)[:, 0]
        slope = np.linalg.lstsq(x, y, rcond=None)[0]
        return Answer(slope, float(self.factor * np.std(y - x @ slope)))


class Broken:
    """A method that fails."""

    def fit(self, model, data, **options):
        raise ValueError("It is broken.")
