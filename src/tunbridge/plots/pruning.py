"""Plots of pruning: weights by signal to noise, and scores by how many weights are removed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tunbridge.core.declared import as_floats, checked, is_real
from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.plots.curves import BLUE, CYCLE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 80
_FURTHEST = 60.0
"""The largest ratio that is drawn, in decibels."""


@checked
def signal_to_noise(
    decibels: PyTree, *, removed: Sequence[float] = (0.75,), axes: "Sequence[Axes] | None" = None
) -> "list[Axes]":
    """Plot the density and the distribution function of the weights' signal-to-noise ratios.

    Vertical lines mark the ratios below which the fractions `removed` lie. Ratios are clipped to +-60 dB.

    Parameters
    ----------
    decibels
        Ratios in dB, as returned by `tunbridge.applications.compression.decibels`.
    removed
        Fractions of all weights to mark.
    axes
        Two axes; None makes them.
    """
    flat = np.concatenate(
        [np.ravel(as_floats(leaf, "decibels")) for leaf in jax.tree.leaves(decibels)] or [np.zeros(0)]
    )
    if not flat.size or np.isnan(flat).any():
        raise InputError("decibels as numbers", "NaN" if flat.size else "none", "Pass compression.decibels(...).")
    if not all(0.0 <= fraction <= 1.0 for fraction in removed):
        raise InputError("removed= as fractions from 0 to 1", f"{tuple(removed)}", "Write (0.75,).")
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9.4, 3.6), layout="constrained")[1]
    if len(axes) != 2:
        raise InputError("two axes", f"{len(axes)}", "Leave axes= out, or make two.")
    values = np.sort(np.clip(flat, -_FURTHEST, _FURTHEST))
    density, share = axes
    heights, edges = np.histogram(values, _BINS, density=True)
    density.stairs(heights, edges, color=BLUE, fill=True, alpha=0.3, lw=0)
    density.stairs(heights, edges, color=BLUE, lw=1.4)
    share.plot(values, np.arange(1, len(values) + 1) / len(values), color=BLUE, lw=1.8)
    for fraction in removed:
        ratio = values[min(int(fraction * len(values)), len(values) - 1)]
        for panel in axes:
            panel.axvline(ratio, color=GREY, lw=1, ls="--")
        label = f"{fraction:.0%}"
        share.annotate(
            label, (ratio, fraction), xytext=(-4, 3), textcoords="offset points", ha="right", fontsize="small"
        )
    density.set(xlabel="signal to noise (dB)", ylabel="density")
    share.set(xlabel="signal to noise (dB)", ylabel="share of weights below", ylim=(0, 1.05))
    return list(axes)


@checked
def pruning(rows: Sequence[Mapping[str, Any]], *, score: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Plot a score against the share of weights removed, with one line per pruning criterion.

    The axis is logarithmic in the share kept; a row with no weights left is not drawn.

    Parameters
    ----------
    rows
        Rows of a `tunbridge.applications.compression.pruning_curve`, or of several in one list.
    score
        "error", "RMSE" or "NLL"; None takes the first of these that the rows have.
    """
    if not all("by" in row and is_real(row.get("removed")) for row in rows):
        raise InputError("rows of a pruning curve", "one without by or removed", "Pass curve.rows.")
    drawn = [row for row in rows if row["removed"] < 1.0]
    known = [name for name in ("error", "RMSE", "NLL") if drawn and all(name in row for row in drawn)]
    if not known or (score is not None and score not in known):
        raise InputError(f"rows with {score or 'a score'}", f"{', '.join(known) or 'none'}", "Pass curve.rows.")
    axes, score = new_axes(axes), score or known[0]
    factor = 100.0 if score == "error" else 1.0
    for number, criterion in enumerate(dict.fromkeys(row["by"] for row in drawn)):
        line = sorted((row["removed"], factor * row[score]) for row in drawn if row["by"] == criterion)
        kept, values = 1.0 - np.array(line)[:, 0], np.array(line)[:, 1]
        axes.plot(kept, values, "o-", color=CYCLE[number % len(CYCLE)], ms=4, lw=1.6, label=f"by {criterion}")
    _removed_axis(axes, sorted({row["removed"] for row in drawn}))
    axes.set(xlabel="weights removed (%)", ylabel=f"{score} (%)" if score == "error" else score)
    axes.legend(frameon=False, fontsize="small")
    return axes


def _removed_axis(axes: "Axes", removed: list[float]) -> None:
    """Make the axis logarithmic in the share kept, labelled by the share removed, without labels that would overlap."""
    axes.set_xscale("log")
    axes.invert_xaxis()
    ticks: list[float] = []
    for kept in (1.0 - fraction for fraction in removed):
        if not ticks or np.log(ticks[-1] / kept) > 0.06 * np.log((1.0 - removed[0]) / (1.0 - removed[-1])):
            ticks.append(kept)
    axes.set_xticks(ticks, [f"{100.0 * (1.0 - kept):.4g}" for kept in ticks])
    axes.set_xticks([], minor=True)
