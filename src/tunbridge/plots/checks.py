"""Plots of a posterior predictive check: replicated data and leave-one-out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.diagnostics.psis import HIGH
from tunbridge.inference.checks import Check
from tunbridge.plots.curves import BLUE, GREY, ORANGE, SHADES, check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEW = 50


@checked
def check(check: Check, *, output: int = 0, axes: "Sequence[Axes] | None" = None) -> "list[Axes]":
    """Plot the result of `Posterior.check` in three panels, or one if it has no leave-one-out estimates.

    The first shows the data among datasets replicated from the posterior predictive: densities of one output, or
    shares of classes and small counts. The second shows the distribution function of the leave-one-out P(Y <= y),
    minus the diagonal, with a band that it leaves with probability 0.05 if the model is right. The third shows k-hat
    of each point.
    """
    flat, num = check.observed.ndim == 1, 1 if check.loo is None else 3
    check_output(output, 1 if flat else check.observed.shape[1])
    observed = check.observed if flat else check.observed[:, output]
    replicated = check.replicated if flat else check.replicated[..., output]
    few = _few(observed) and _few(replicated)
    if not few and not all(np.ptp(values) > 0 for values in (observed, *replicated)):
        raise InputError("data and replicates that vary", f"only {observed[0]:g}, or in a replicate", "Give more rows.")
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, num, figsize=(1.0 + 4.2 * num, 3.6), layout="constrained", squeeze=False)[1][0]
    if len(axes) != num:
        raise InputError(f"{num} axes", f"{len(axes)}", "Leave axes= out, or make as many.")
    if few:
        _shares(observed, replicated, axes[0])
    else:
        _densities(observed, replicated, axes[0])
    if check.loo is not None and check.pit is not None:
        _levels(check.pit[:, output], axes[1])
        _tails(check.loo.khat, axes[2])
    return list(axes)


def _few(values: np.ndarray) -> bool:
    """Whether all values are whole numbers from 0 to 49: classes or small counts."""
    return bool((values == np.round(values)).all() and values.min() >= 0 and values.max() < _FEW)


def _densities(observed: np.ndarray, replicated: np.ndarray, axes: "Axes") -> None:
    from scipy import stats

    low, high = np.quantile(replicated, [0.001, 0.999])
    low, high = min(low, observed.min()), max(high, observed.max())
    grid = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), 300)
    for number, values in enumerate(replicated):
        label = "replicates" if number == 0 else None
        axes.plot(grid, stats.gaussian_kde(values)(grid), color=SHADES[1], lw=0.7, alpha=0.6, label=label)
    axes.plot(grid, stats.gaussian_kde(observed)(grid), color="black", lw=1.8, label="data")
    axes.set(xlabel="y", ylabel="density", title="data among replicates", xlim=(grid[0], grid[-1]))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")


def _shares(observed: np.ndarray, replicated: np.ndarray, axes: "Axes") -> None:
    labels = np.arange(int(max(observed.max(), replicated.max())) + 1)
    observed = (observed[None] == labels[:, None]).mean(axis=1)
    replicated = (replicated[:, None] == labels[None, :, None]).mean(axis=2)
    low, high = np.quantile(replicated, [0.05, 0.95], axis=0)
    axes.bar(labels, observed, color=SHADES[1], width=0.7, label="data")
    middle = replicated.mean(axis=0)
    gaps = np.abs(np.stack([middle - low, high - middle]))
    axes.errorbar(labels, middle, gaps, fmt="o", color=BLUE, ms=4, capsize=3, label="expected, 90 %")
    axes.set(xlabel="y", ylabel="share", title="data among replicates", xticks=labels[:: 1 + len(labels) // 12])
    axes.set_ylim(0, 1.2 * max(observed.max(), high.max()))
    axes.legend(frameon=False, fontsize="small")


def _levels(pit: np.ndarray, axes: "Axes") -> None:
    from scipy import stats

    level = np.sort(pit)
    steps = np.arange(len(level) + 1) / len(level)
    half = stats.kstwo.ppf(0.95, len(level))
    line = np.repeat(np.concatenate([[0.0], level, [1.0]]), 2)[1:-1]
    off = np.repeat(steps, 2) - line
    axes.fill_between([0, 1], -half, half, color=GREY, alpha=0.15, lw=0, label="95 % band if right")
    axes.plot(line, off, color=BLUE, lw=1.5)
    axes.axhline(0, color=GREY, lw=1, ls="--")
    axes.set(
        xlabel="P(Y <= y) of points left out", ylabel="distribution function - diagonal", title="LOO-PIT", xlim=(0, 1)
    )
    reach = 1.4 * max(half, np.abs(off).max())
    axes.set_ylim(-reach, reach)
    axes.legend(frameon=False, fontsize="small")


def _tails(khat: np.ndarray, axes: "Axes") -> None:
    finite = khat[np.isfinite(khat)]
    shown = np.minimum(khat, 0.2 + max(1.0, finite.max(initial=1.0)))  # infinite values are drawn at the top
    colours = np.where(khat > HIGH, ORANGE, BLUE)
    axes.scatter(np.arange(len(khat)), shown, s=10, c=colours, lw=0)
    axes.axhline(HIGH, color=GREY, lw=1, ls="--")
    axes.annotate(f"{HIGH}", (1.0, HIGH), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="point", ylabel="k-hat", title=f"k-hat: {np.mean(khat > HIGH):.1%} above {HIGH}")
