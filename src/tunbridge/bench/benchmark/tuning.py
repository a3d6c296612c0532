"""Hyperparameter tuning: one rule for every method, on a validation part of the training split."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np

from tunbridge import metrics
from tunbridge.bench.benchmark.task import Rows
from tunbridge.bench.comparing.compare import as_scored
from tunbridge.core.types import Key
from tunbridge.datasets.scaling import split_rows
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.model import Model
from tunbridge.model.priors import Normal, fan_in

Settings = Mapping[str, float]
SHARE = 0.2
"""Share of the training rows used for validation."""

_SCALES = tuple({"prior scale": scale} for scale in (0.5, 1.25, 3.0, 8.0))
_OR_UNKNOWN = ({}, *_SCALES[1:])
_STEPS = tuple({"step_size": size, **scale} for size in (0.01, 0.003) for scale in ({}, {"prior scale": 3.0}))

GRIDS: dict[str, tuple[Settings, ...]] = {
    "map": _SCALES,
    "ensemble": _SCALES,
    "mcdropout": tuple({"rate": rate, "prior scale": scale} for rate in (0.01, 0.05) for scale in (1.25, 4.0)),
    "swag": _SCALES,
    "laplace": _OR_UNKNOWN,
    "neurallinear": _OR_UNKNOWN,
    "vbll": _SCALES,
    "bayesbybackprop": _STEPS,
    "meanfield": _STEPS,
    "lowrank": _STEPS,
    "matrixnormalvi": _STEPS,
    "fullrank": _STEPS,
    "advi": _STEPS,
    "ivon": tuple({"step_size": size, **scale} for size in (0.1, 0.03) for scale in ({}, {"prior scale": 3.0})),
    "sgld": _OR_UNKNOWN,
    "sghmc": _OR_UNKNOWN,
    "sgnht": _OR_UNKNOWN,
}
"""Four candidates per method, by name; each gives the settings that differ from the defaults.

"prior scale" s replaces the task's prior, whose scale is unknown, with N(0, s^2 / fan-in); other settings are fields of
the method. Methods without an entry are not tuned: samplers that sample unknown scales and adapt themselves, and
baselines with their own cross-validation.
"""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings with the lowest validation NLL, the NLL of each candidate, and the seconds spent on tuning."""

    settings: Settings
    scores: tuple[float, ...] = ()
    seconds: float = 0.0


def applied(method: Method, model: Model, settings: Settings) -> tuple[Method, Model]:
    """Return the method and the model with these settings."""
    fields = {name: value for name, value in settings.items() if name != "prior scale"}
    if "prior scale" in settings:
        model = dataclasses.replace(model, prior=Normal(fan_in(settings["prior scale"])))
    return (dataclasses.replace(method, **fields) if fields else method), model


def choose(
    name: str,
    method: Method,
    model: Model,
    train: Rows,
    key: Key,
    fit: Callable[[Method, Model, Rows, Key], Posterior],
) -> Choice:
    """Fit each candidate to 80 % of the training rows, and choose the one with the lowest NLL on the others.

    The validation rows depend on `key` alone, and all candidates are fitted with one key. A candidate that fails, or
    whose NLL is not finite, is dropped; if all are, the last failure is raised.

    Parameters
    ----------
    name, method, model
        The name in `GRIDS`, the method, and the model.
    train
        The rows of the training split.
    key
        Decides the validation rows, and seeds the fits.
    fit
        Function from a method, a model, rows and a key to the posterior.
    """
    grid = GRIDS.get(name, ())
    if not grid:
        return Choice({})
    began = time.perf_counter()
    key_rows, key_fit = jax.random.split(key)
    kept, held = (np.asarray(part) for part in split_rows(len(train.x), key_rows, SHARE))
    learnt, judged = Rows(train.x[kept], train.y[kept]), Rows(train.x[held], train.y[held])
    truth = as_scored(model, train, judged)
    scores: list[float] = []
    failure: Exception | None = None
    for settings in grid:
        try:
            posterior = fit(*applied(method, model, settings), learnt, key_fit)
            scores.append(-metrics.log_score(posterior.predict(judged.x), truth))
        except (ArithmeticError, ValueError) as error:
            failure = error
            scores.append(math.nan)
    if not np.isfinite(scores).any():
        raise failure or ArithmeticError("No candidate has a finite NLL on the validation rows.")
    best = int(np.argmin([score if math.isfinite(score) else math.inf for score in scores]))
    return Choice(grid[best], tuple(scores), time.perf_counter() - began)
