"""A check as pictures: replicated data, points left out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.diagnostics.psis import HIGH
from tunbridge.inference.checks import Check
from tunbridge.plots.curves import BLUE, GREY, ORANGE, SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEW = 50


def check(check: Check, *, output: int = 0, axes: "Sequence[Axes] | None" = None) -> "list[Axes]":
    """Three pictures of what `Posterior.check` found; one where no points could be left out.

    The data among data sets that the posterior expected instead: densities of one output, or shares of classes and
    small counts. The
    distribution function of P(Y <= y) of points left out, less the diagonal, with the band that it leaves once in 20
    data sets if the model is right. And k-hat of each point.
    """
    num = 1 if check.loo is None else 3
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, num, figsize=(1.0 + 4.2 * num, 3.6), layout="constrained", squeeze=False)[1][0]
    if len(axes) != num:
        raise InputError(f"{num} axes", f"{len(axes)}", "Leave axes= out, or make as many.")
    seen = check.observed if check.observed.ndim == 1 else check.observed[:, output]
    replicated = check.replicated if check.observed.ndim == 1 else check.replicated[..., output]
    if _few(seen) and _few(replicated):
        _shares(seen, replicated, axes[0])
    else:
        _densities(seen, replicated, axes[0])
    if check.loo is not None and check.pit is not None:
        _levels(check.pit[:, output], axes[1])
        _tails(check.loo.khat, axes[2])
    return list(axes)


def _few(values: np.ndarray) -> bool:
    """Whether they are whole numbers from 0 to below 50: classes or small counts."""
    return bool((values == np.round(values)).all() and values.min() >= 0 and values.max() < _FEW)


def _densities(seen: np.ndarray, replicated: np.ndarray, axes: "Axes") -> None:
    from scipy import stats

    low, high = np.quantile(replicated, [0.001, 0.999])
    low, high = min(low, seen.min()), max(high, seen.max())
    grid = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), 300)
    for number, values in enumerate(replicated):
        label = "expected instead" if number == 0 else None
        axes.plot(grid, stats.gaussian_kde(values)(grid), color=SHADES[1], lw=0.7, alpha=0.6, label=label)
    axes.plot(grid, stats.gaussian_kde(seen)(grid), color="black", lw=1.8, label="data")
    axes.set(xlabel="y", ylabel="density", title="data among replicates", xlim=(grid[0], grid[-1]))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")


def _shares(seen: np.ndarray, replicated: np.ndarray, axes: "Axes") -> None:
    labels = np.arange(int(max(seen.max(), replicated.max())) + 1)
    seen = (seen[None] == labels[:, None]).mean(axis=1)
    replicated = (replicated[:, None] == labels[None, :, None]).mean(axis=2)
    low, high = np.quantile(replicated, [0.05, 0.95], axis=0)
    axes.bar(labels, seen, color=SHADES[1], width=0.7, label="data")
    middle = replicated.mean(axis=0)
    gaps = np.abs(np.stack([middle - low, high - middle]))
    axes.errorbar(labels, middle, gaps, fmt="o", color=BLUE, ms=4, capsize=3, label="expected, 90 %")
    axes.set(xlabel="y", ylabel="share", title="data among replicates", xticks=labels[:: 1 + len(labels) // 12])
    axes.set_ylim(0, 1.2 * max(seen.max(), high.max()))
    axes.legend(frameon=False, fontsize="small")


def _levels(pit: np.ndarray, axes: "Axes") -> None:
    from scipy import stats

    level = np.sort(pit)
    steps = np.arange(len(level) + 1) / len(level)
    half = stats.kstwo.ppf(0.95, len(level))
    line = np.repeat(np.concatenate([[0.0], level, [1.0]]), 2)[1:-1]
    off = np.repeat(steps, 2) - line
    axes.fill_between([0, 1], -half, half, color=GREY, alpha=0.15, lw=0, label="95 of 100 if right")
    axes.plot(line, off, color=BLUE, lw=1.5)
    axes.axhline(0, color=GREY, lw=1, ls="--")
    axes.set(xlabel="P(Y <= y) of points left out", ylabel="share below, less even", title="LOO-PIT", xlim=(0, 1))
    reach = 1.4 * max(half, np.abs(off).max())
    axes.set_ylim(-reach, reach)
    axes.legend(frameon=False, fontsize="small")


def _tails(khat: np.ndarray, axes: "Axes") -> None:
    finite = khat[np.isfinite(khat)]
    shown = np.minimum(khat, 0.2 + max(1.0, finite.max(initial=1.0)))  # infinite ones at the top
    colours = np.where(khat > HIGH, ORANGE, BLUE)
    axes.scatter(np.arange(len(khat)), shown, s=10, c=colours, lw=0)
    axes.axhline(HIGH, color=GREY, lw=1, ls="--")
    axes.annotate(f"{HIGH}", (1.0, HIGH), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="point", ylabel="k-hat", title=f"k-hat: {np.mean(khat > HIGH):.1%} above {HIGH}")
