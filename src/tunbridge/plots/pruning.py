"""Which weights matter, and what is lost without the others."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.plots.curves import BLUE, CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 80
_FURTHEST = 60.0
"""Decibels."""


def signal_to_noise(
    decibels: PyTree, *, removed: Sequence[float] = (0.75,), axes: "Sequence[Axes] | None" = None
) -> "list[Axes]":
    """How weights are spread by signal to noise: their density, and their distribution function.

    Lines mark the ratios below which the fractions `removed` lie. Ratios beyond 60 dB either way are drawn there.

    Parameters
    ----------
    decibels
        What `tunbridge.applications.compression.decibels` gives of a posterior's ratios.
    removed
        Fractions of all weights.
    axes
        Two; None makes them.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9.4, 3.6), layout="constrained")[1]
    if len(axes) != 2:
        raise InputError("two axes", f"{len(axes)}", "Leave axes= out, or make two.")
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(decibels)])
    values = np.sort(np.clip(flat, -_FURTHEST, _FURTHEST))
    density, share = axes
    heights, edges = np.histogram(values, _BINS, density=True)
    density.stairs(heights, edges, color=BLUE, fill=True, alpha=0.3, lw=0)
    density.stairs(heights, edges, color=BLUE, lw=1.4)
    share.plot(values, np.arange(1, len(values) + 1) / len(values), color=BLUE, lw=1.8)
    for fraction in removed:
        at = values[min(int(fraction * len(values)), len(values) - 1)]
        for one in axes:
            one.axvline(at, color=GREY, lw=1, ls="--")
        label = f"{fraction:.0%}"
        share.annotate(label, (at, fraction), xytext=(-4, 3), textcoords="offset points", ha="right", fontsize="small")
    density.set(xlabel="signal to noise (dB)", ylabel="density")
    share.set(xlabel="signal to noise (dB)", ylabel="share of weights below", ylim=(0, 1.05))
    return list(axes)


def pruning(rows: Sequence[Mapping[str, Any]], *, score: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """A score against the weights removed, a line for each way to choose them.

    The axis is logarithmic in what is left; a row without any weight is not drawn.

    Parameters
    ----------
    rows
        Of one curve of `tunbridge.applications.compression.pruning_curve`, or of several in one list.
    score
        "error", "RMSE" or "NLL"; None takes the first that the rows have.
    """
    drawn = [row for row in rows if row["removed"] < 1.0]
    known = [name for name in ("error", "RMSE", "NLL") if drawn and name in drawn[0]]
    if not known or (score is not None and score not in known):
        raise InputError(f"rows with {score or 'a score'}", f"{', '.join(known) or 'none'}", "Pass curve.rows.")
    axes, score = new_axes(axes), score or known[0]
    factor = 100.0 if score == "error" else 1.0
    for number, by in enumerate(dict.fromkeys(row["by"] for row in drawn)):
        line = sorted((row["removed"], factor * row[score]) for row in drawn if row["by"] == by)
        left, values = 1.0 - np.array(line)[:, 0], np.array(line)[:, 1]
        axes.plot(left, values, "o-", color=CYCLE[number % len(CYCLE)], ms=4, lw=1.6, label=f"by {by}")
    _removed_axis(axes, sorted({row["removed"] for row in drawn}))
    axes.set(xlabel="weights removed (%)", ylabel=f"{score} (%)" if score == "error" else score)
    axes.legend(frameon=False, fontsize="small")
    return axes


def _removed_axis(axes: "Axes", removed: list[float]) -> None:
    """Logarithmic in what is left, labelled by what is removed; labels that would meet are left out."""
    axes.set_xscale("log")
    axes.invert_xaxis()
    ticks: list[float] = []
    for left in (1.0 - fraction for fraction in removed):
        if not ticks or np.log(ticks[-1] / left) > 0.06 * np.log((1.0 - removed[0]) / (1.0 - removed[-1])):
            ticks.append(left)
    axes.set_xticks(ticks, [f"{100.0 * (1.0 - left):.4g}" for left in ticks])
    axes.set_xticks([], minor=True)
