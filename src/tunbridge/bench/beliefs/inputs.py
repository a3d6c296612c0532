"""Questions about single inputs: does y rise with one, how does y follow it, and is it needed at all?"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import expit

from tunbridge.bench.beliefs.evidence import learn, refuse
from tunbridge.bench.comparing.compare import as_rows
from tunbridge.core import tables
from tunbridge.core.blocks import evenly
from tunbridge.core.data import Data, check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Network
from tunbridge.inference.base import Method
from tunbridge.inference.mcmc.smc import TemperedSMC
from tunbridge.inference.posteriors import Posterior
from tunbridge.metrics.targets import column
from tunbridge.model.model import Model
from tunbridge.model.networks.architectures.offset import Offset
from tunbridge.model.networks.architectures.shallow import Shallow

_ROWS = 60
_STEP = 0.01
"""Half the width of a difference, in standard deviations of the input."""


@dataclasses.dataclass(frozen=True)
class PartialEffects(tables.Table):
    """The result of `partial_effects`: a row per input, and its draws."""

    caption = "average partial effects"
    sentences = ("Change of the prediction per unit of an input, averaged over rows; a value per network.",)

    rows: list[dict[str, Any]]
    draws: np.ndarray
    """Average partial effects, (draws, inputs)."""


@checked
def partial_effects(
    posterior: Posterior, x: Any, *, names: Sequence[str] | None = None, output: int = 0
) -> PartialEffects:
    r"""Average partial effect of each input: its posterior mean, 95 % interval, and probability to be positive.

    .. math:: \frac{1}{n} \sum_i \frac{\partial f(x_i)}{\partial x_{ik}},

    for every network f of the posterior, by central differences over a fiftieth of the input's standard deviation. For
    classes f is the probability of the class `output`.

    Parameters
    ----------
    posterior
        A posterior that predicts in the units of x.
    x
        Rows to average over, (points, features); at most 60 of them are used.
    names
        Names of the inputs; None is "x0", "x1" and so on.
    output
        The output, or the class.
    """
    rows = _as_rows_of_inputs(x)
    names = _named(names, rows.shape[1])
    _check_varying(rows, names)
    steps = _STEP * rows.std(axis=0)
    some = rows[evenly(len(rows), _ROWS)]
    moves = np.diag(steps)
    moved = some[None, None] + np.stack([moves, -moves])[:, :, None]
    functions = np.asarray(posterior.predict(moved.reshape(-1, rows.shape[1])).functions, np.float64)
    functions = functions.reshape(len(functions), 2, len(names), len(some), -1)
    if not -functions.shape[-1] <= output < functions.shape[-1]:
        raise InputError(f"output below {functions.shape[-1]}", f"{output}", "Change output=.")
    draws = (functions[:, 0] - functions[:, 1])[..., output].mean(axis=-1) / (2.0 * steps)
    table = []
    for name, values in zip(names, draws.T, strict=True):
        mean, low, high, positive = map(
            float, (np.mean(values), *np.quantile(values, [0.025, 0.975]), (values > 0).mean())
        )
        table.append({"input": name, "mean": mean, "2.5 %": low, "97.5 %": high, "P(> 0)": positive})
    return PartialEffects(table, draws)


@dataclasses.dataclass(frozen=True)
class PartialFunction:
    """The result of `partial_function`: how y follows one input, and what the other inputs leave of it."""

    name: str
    at: np.ndarray
    """Values of the input, ascending, (values,)."""
    draws: np.ndarray
    """The function of that input of each network, 0 on average over rows, (draws, values)."""
    x: np.ndarray
    """The input at the rows, (points,)."""
    residuals: np.ndarray
    """Partial residuals of the rows: the mean function plus what the prediction misses, (points,)."""


@checked
def partial_function(
    posterior: Posterior,
    data: Data | tuple[Any, Any],
    feature: int,
    *,
    name: str | None = None,
    output: int = 0,
    num: Count = 40,
) -> PartialFunction:
    r"""Partial dependence of y on one input, for every network of the posterior, and its partial residuals.

    .. math::

        g(v) = \frac{1}{n} \sum_i f(v, x_{i, -k}) - c, \qquad
        r_i = y_i - E[f(x_i) \mid D] + E[g(x_{ik}) \mid D],

    with *c* such that g is 0 on average over the rows. Residuals that do not scatter around the mean of g show what the
    network misses. `plots.partial_function` draws both.

    Parameters
    ----------
    posterior
        A posterior that predicts numbers, in the units of the data.
    data
        `Data` or a pair (x, y) of arrays, x of shape (points, features); at most 60 rows are averaged over.
    feature
        Index of the input.
    name
        Its name; None is "x0", "x1" and so on.
    output
        The output.
    num
        Number of values of the input, from its smallest to its largest.
    """
    x, y, _ = as_rows(data)
    rows = _as_rows_of_inputs(x)
    if not 0 <= feature < rows.shape[1]:
        raise InputError(f"feature from 0 to {rows.shape[1] - 1}", f"{feature}", "Change feature=.")
    own = rows[:, feature]
    _check_varying(own[:, None], [name or f"x{feature}"])
    predictive: Any = posterior.predict(rows)
    truth = np.asarray(column(predictive, y), np.float64)
    if not 0 <= output < truth.shape[1]:
        raise InputError(f"output below {truth.shape[1]}", f"{output}", "Change output=.")
    at = np.linspace(own.min(), own.max(), num)
    some = np.repeat(rows[evenly(len(rows), _ROWS)][None], num, axis=0)
    some[:, :, feature] = at[:, None]
    functions = posterior.predict(some.reshape(-1, rows.shape[1])).functions
    if functions.shape[-1] != truth.shape[1]:
        raise InputError("a posterior that predicts numbers", "one of ordered classes", "Use bench.partial_effects.")
    drawn = np.asarray(functions, np.float64)[..., output].reshape(len(functions), num, -1).mean(axis=-1)
    drawn = drawn - np.mean([np.interp(own, at, function) for function in drawn], axis=1)[:, None]
    missed = truth[:, output] - np.asarray(predictive.mean, np.float64)[:, output]
    return PartialFunction(name or f"x{feature}", at, drawn, own, missed + np.interp(own, at, drawn.mean(axis=0)))


@dataclasses.dataclass(frozen=True)
class Needed(tables.Table):
    """The result of `drop_inputs`: a row per input."""

    caption = "inputs by the evidence for them"
    sentences = (
        "Log Bayes factor: log evidence with the input minus that without it. Probability that it is needed, if either "
        "model was equally probable before.",
    )

    rows: list[dict[str, Any]]


@checked
def drop_inputs(
    model: Model,
    data: Data | tuple[Any, Any],
    *,
    inputs: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    method: Method | None = None,
    repeats: Count = 1,
    key: Key,
) -> Needed:
    """Compare the model with the same model of all inputs but one, for each input: the Bayes factor for needing it.

    Rows are standardised as in `compare`, which leaves known noise in the units of y. The evidence of a network with
    fewer inputs is under the model's prior for the weights that are left.

    Parameters
    ----------
    model, data
        The model, and `Data` or a pair (x, y) of arrays, x of shape (points, features).
    inputs
        Indices of the inputs to try; None is all.
    names
        Names of all inputs; None is "x0", "x1" and so on.
    method
        A method that estimates the evidence; None is ``TemperedSMC()``.
    repeats
        Number of fits of each model: their mean log evidence is taken, and from two on its standard error is told.
    key
        The key, the same for every model.
    """
    method = TemperedSMC() if method is None else method
    refuse({"all": model}, method)
    x, y, weight = as_rows(data)
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] < 2:
        raise InputError("x of shape (points, features), two features or more", f"shape {x.shape}", "Give more inputs.")
    names = _named(names, x.shape[1])
    tried = range(x.shape[1]) if inputs is None else inputs
    if outside := [index for index in tried if not 0 <= index < x.shape[1]]:
        raise InputError(f"inputs from 0 to {x.shape[1] - 1}", f"{outside[0]}", "Change inputs=.")
    whole = _log_evidences(model, Data(x, y, weight), method, key, repeats)
    rows = []
    smaller = {index: dataclasses.replace(model, network=_without(model.network, index, x.shape[1])) for index in tried}
    for index in tried:
        fewer = Data(np.delete(x, index, axis=1), y, weight)
        without = _log_evidences(smaller[index], fewer, method, key, repeats)
        factor = float(whole.mean() - without.mean())
        row: dict[str, Any] = {"input": names[index], "log Bayes factor": factor}
        if repeats > 1:
            row["its error"] = float(np.sqrt((whole.var(ddof=1) + without.var(ddof=1)) / repeats))
        rows.append(row | {"needed": float(expit(factor))})
    return Needed(sorted(rows, key=lambda row: -row["log Bayes factor"]))


def _log_evidences(model: Model, data: Data, method: Method, key: Key, repeats: int) -> np.ndarray:
    """Log evidences of repeated fits, (repeats,)."""
    keys = [key] if repeats == 1 else jax.random.split(key, repeats)
    return np.array([learn(model, data, method, key=key_fit).log_evidence for key_fit in keys], np.float64)


def _without(network: Network, index: int, num: int) -> Network:
    """The network of all inputs but one; columns that it names by number keep their meaning."""
    match network:
        case Shallow(nonlinear=tuple(taken)):
            kept = tuple(other - (other > index) for other in taken if other != index)
            if not kept:
                raise InputError(
                    "another input that hidden units take", f"only x{index}", "Compare with networks.MLP(()) instead."
                )
            return dataclasses.replace(network, nonlinear=kept)
        case Offset(column=column):
            own = column % num
            if own == index:
                raise InputError("inputs other than the exposure", f"x{index}", "Leave it out of inputs=.")
            return Offset(_without(network.network, index - (index > own), num - 1), own - (own > index))
    return network


def _as_rows_of_inputs(x: Any) -> np.ndarray:
    rows = np.asarray(check_x(x), np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise InputError("x of shape (points, features), two points or more", f"shape {rows.shape}", "Give more rows.")
    return rows


def _check_varying(rows: np.ndarray, names: Sequence[str]) -> None:
    if constant := [name for name, spread in zip(names, rows.std(axis=0), strict=True) if not spread]:
        raise InputError("inputs that vary", f"constant: {', '.join(constant)}", "Leave constant columns out.")


def _named(names: Sequence[str] | None, num: int) -> list[str]:
    found = [f"x{index}" for index in range(num)] if names is None else list(names)
    if len(found) != num:
        raise InputError(f"{num} names, one per input", f"{len(found)}", "Change names=.")
    return found
