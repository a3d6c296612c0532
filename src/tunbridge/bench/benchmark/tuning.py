"""How hyperparameters are chosen: by one rule for every method, on rows of the training split."""

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
"""Of the training rows, by which candidates are judged."""

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
"""Four candidates by name of the method, each with the settings that differ from the defaults.

"prior scale" s makes the prior of the weights N(0, s^2 / fan-in) in place of the task's own, whose scale is unknown;
other settings are fields of the method. A method that is not here has nothing to choose: a sampler that draws what is
unknown and adapts itself, or a baseline that has its own cross-validation.
"""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings of the lowest NLL on validation rows, that of each candidate, and how long it took to find out."""

    settings: Settings
    scores: tuple[float, ...] = ()
    seconds: float = 0.0


def applied(method: Method, model: Model, settings: Settings) -> tuple[Method, Model]:
    """The method and the model with these settings."""
    own = {name: value for name, value in settings.items() if name != "prior scale"}
    if "prior scale" in settings:
        model = dataclasses.replace(model, prior=Normal(fan_in(settings["prior scale"])))
    return (dataclasses.replace(method, **own) if own else method), model


def choose(
    name: str,
    method: Method,
    model: Model,
    train: Rows,
    key: Key,
    fit: Callable[[Method, Model, Rows, Key], Posterior],
) -> Choice:
    """Fit each candidate to 80 % of the training rows and judge it by the NLL of the others.

    The rows held out depend on `key` alone; each candidate is fitted with the key that the fit to all rows will have. A
    candidate that fails, or whose NLL is not finite, is out; where all are, the last failure is raised.

    Parameters
    ----------
    name, method, model
        The method under its name in `GRIDS`, and the model.
    train
        The rows of the training split.
    key
        Decides which rows are held out.
    fit
        Of a method, a model, rows and a key: the posterior.
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
            found = fit(*applied(method, model, settings), learnt, key_fit)
            scores.append(-metrics.log_score(found.predict(judged.x), truth))
        except (ArithmeticError, ValueError) as error:
            failure = error
            scores.append(math.nan)
    if not np.isfinite(scores).any():
        raise failure or ArithmeticError("No candidate has a finite NLL on the validation rows.")
    best = int(np.argmin([score if math.isfinite(score) else math.inf for score in scores]))
    return Choice(grid[best], tuple(scores), time.perf_counter() - began)
