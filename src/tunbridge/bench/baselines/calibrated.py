"""A network without Bayesian inference: the MAP estimate, with noise or a temperature fitted to held-out rows."""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from scipy.special import log_softmax

from tunbridge.bench.baselines.base import Fitted, around, best_temperature, check_kind, of_classes
from tunbridge.core.data import Data, Stream
from tunbridge.core.types import Key, Predictive
from tunbridge.datasets.scaling import split
from tunbridge.inference.base import Method
from tunbridge.inference.point.map import MAP
from tunbridge.inference.point.noise import SHARE
from tunbridge.inference.posteriors import Posterior
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.runtime.loop import Options


class CalibratedMAP(Method):
    """One network, with the noise or the temperature of its predictions fitted to held-out rows.

    A first network is trained on four fifths of the rows. For regression, the noise of each output is the root mean
    square of its residuals on the held-out rows; for classification, the temperature maximises the likelihood of their
    labels :cite:p:`guo2017calibration`. A second network is then trained on all rows, with that noise or temperature.

    Parameters
    ----------
    point
        How the networks are trained; each may take half of `max_seconds`.
    """

    point: MAP = eqx.field(default_factory=MAP)

    def within(self, gradients: int, rows: int) -> Self:
        """Give half of the gradient budget to each of the two fits."""
        return dataclasses.replace(self, point=self.point.within(gradients // 2, rows))

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Fit the baseline `size` times, each with its own key."""
        rows = check_kind(model, data)
        return [
            self._one(model, rows, each, options.within(f"{number}"), (number / size, (number + 1) / size))
            for number, each in enumerate(jax.random.split(key, size))
        ]

    def _one(self, model: Model, data: Data, key: Key, options: Options, shares: tuple[float, float]) -> Fitted:
        """Fit one baseline within the time limit, from the first of two shares of it to the second."""
        key_split, key_part, key_whole = jax.random.split(key, 3)
        part, held = split(data, key_split, SHARE)
        with options.clock.up_to(sum(shares) / 2):
            (trial,) = self.point.posteriors(model, part, key_part, 1, options.within("part"))
        y, weight = np.asarray(held.y), np.asarray(held.weights, np.float64)
        calibration: Any
        if isinstance(model.likelihood, OfClasses):
            calibration = best_temperature(_log_probs(trial, held.x), y, weight)
            note = f"its temperature of {calibration:.2f} was fitted to {held.num} held-out rows."
        else:
            squares = (np.asarray(trial.predict(held.x).mean, np.float64) - y) ** 2
            calibration = np.maximum(np.average(squares, axis=0, weights=weight), 1e-12)
            note = f"its noise was estimated on {held.num} held-out rows."
        with options.clock.up_to(shares[1]):
            (whole,) = self.point.posteriors(model, data, key_whole, 1, options.within("whole"))
        return Fitted(
            whole.model,
            key,
            Calibrated(whole, calibration),
            notes=tuple(dict.fromkeys((note, *trial.notes, *whole.notes))),
        )


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A network, and either the variance of the noise around it, (outputs,), or a temperature."""

    point: Posterior
    found: Any

    def predict(self, x: np.ndarray, key: Key) -> Predictive:
        """The network's prediction, with the noise or temperature fitted to held-out rows."""
        if isinstance(self.found, float):
            return of_classes(log_softmax(_log_probs(self.point, x) / self.found, axis=1), x)
        return around(np.asarray(self.point.predict(x).mean, np.float64), self.found, key)


def _log_probs(point: Posterior, x: Any) -> np.ndarray:
    probs = np.asarray(point.predict(x).probs, np.float64)
    return np.log(np.maximum(probs, np.finfo(np.float32).tiny))
