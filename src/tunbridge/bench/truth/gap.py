"""Methods beside a reference posterior along one input, with a gap in the data."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tunbridge.bench.truth.recipes import RECIPES
from tunbridge.bench.truth.reference import Reference, fidelity, load_reference
from tunbridge.core import tables
from tunbridge.core.data import Data
from tunbridge.core.errors import ConvergenceWarning
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.plots.curves import BLUE, GREY

_MASS = 0.9
_ACROSS = 3
_NARROW = 0.5
"""Below this fraction of the correct width in the gap, a method is reported as too narrow there."""


@dataclasses.dataclass(frozen=True)
class Gap(tables.Table):
    """Posteriors of several methods on one problem, with the reference posterior they are compared with.

    Parameters
    ----------
    posteriors
        Posteriors by name of the method.
    reference
        Long chains for the same model and data.
    data
        The training rows.
    doubts
        Convergence warnings from the fits.
    """

    caption = "distance to the reference posterior"

    posteriors: dict[str, Posterior]
    reference: Reference
    data: Data
    doubts: tuple[str, ...] = ()

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Each method's distance to the reference, relative width in the gap, and seconds of the fit."""
        made = []
        for name, posterior in self.posteriors.items():
            distances = fidelity(posterior, self.reference)
            distance = distances["sliced_wasserstein"] / distances["between_halves"]
            seconds = np.nan if posterior.provenance is None else posterior.provenance.seconds
            row = {
                "method": name,
                "distance": distance,
                "width in the gap": distances["in_between"],
                "seconds": seconds,
            }
            made.append(row)
        return made

    @property
    def sentences(self) -> tuple[str, ...]:
        """The nearest and the farthest method, what the columns mean, and warnings from the fits."""
        rows = self.rows
        first, last = (choose(rows, key=lambda row: row["distance"]) for choose in (min, max))
        widths = {row["method"]: row["width in the gap"] for row in rows}
        narrow = [name for name, width in widths.items() if width < _NARROW]
        words = [
            f"{first['method']} is nearest to the reference posterior, at a distance of {first['distance']:.2g}; "
            f"{last['method']} is farthest, at {last['distance']:.2g}. Distance 1 is that between two "
            "independent runs of long chains."
        ]
        if narrow:
            words.append(f"Less than half as wide in the gap as the reference: {', '.join(narrow)}.")
        return (*words, *self.doubts)

    def figure(self) -> Any:
        """Draw each method's functions over those of the reference: means and 90 % bands."""
        import matplotlib.pyplot as plt

        down = -(-len(self.posteriors) // _ACROSS)
        options = {"sharex": True, "sharey": True, "layout": "constrained", "squeeze": False}
        figure, axes = plt.subplots(down, _ACROSS, figsize=(11, 3.6 * down), **options)
        for place, row in zip(axes.ravel(), self.rows, strict=False):
            self._draw(place, self.posteriors[row["method"]], f"{row['method']}: distance {row['distance']:.2g}")
        for place in axes.ravel()[len(self.posteriors) :]:
            place.set_visible(False)
        axes[0, 0].legend(frameon=False, fontsize="small", loc="upper left")
        return figure

    def _draw(self, axes: Any, posterior: Posterior, title: str) -> None:
        x = self.reference.x[:, 0]
        functions = np.asarray(posterior.predict(self.reference.x).functions, np.float64)
        for values, colour, alpha, label in (
            (self.reference.predictions, GREY, 0.35, "reference"),
            (functions, BLUE, 0.3, "method"),
        ):
            low, mean, high = _band(np.asarray(values, np.float64)[..., 0])
            axes.fill_between(x, low, high, color=colour, alpha=alpha, lw=0, label=f"{label}, {_MASS:.0%} of functions")
            axes.plot(x, mean, "--" if colour == GREY else "-", color=colour, lw=1.4)
        axes.plot(np.asarray(self.data.x)[:, 0], np.asarray(self.data.y)[:, 0], ".", color="black", ms=5, label="data")
        axes.set_title(title, fontsize="medium")


def _band(functions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower end, mean and upper end of the band of functions (draws, points)."""
    low, high = np.quantile(functions, [0.5 - _MASS / 2, 0.5 + _MASS / 2], axis=0)
    return low, functions.mean(axis=0), high


def fit_gap(methods: Mapping[str, Method], *, key: Key | None = None, progress: bool = True) -> Gap:
    """Fit methods to 30 points of a curve with a gap, and load the reference posterior of the same problem.

    Parameters
    ----------
    methods
        Methods by name.
    key
        None is ``jax.random.key(0)``.
    progress
        Whether to show progress bars.
    """
    recipe, key = RECIPES["curve"](), jax.random.key(0) if key is None else key
    posteriors, doubts = {}, []
    for name, method in methods.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            posteriors[name] = method.fit(recipe.model, recipe.data, key=key, progress=progress)
        doubts += [f"{name} warns: {each.message}" for each in caught]
    return Gap(posteriors, load_reference("curve"), recipe.data, tuple(doubts))
