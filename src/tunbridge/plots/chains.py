"""Trace, rank and energy plots of chains."""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from tunbridge import diagnostics
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.inference.chains import Chains
from tunbridge.plots.curves import BLUE, CYCLE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OfSampler = Annotated[Chains, "Pass a sampler's posterior; of a Standardised, its .posterior."]


@checked
def trace(chains: OfSampler, x: Any = None, *, axes: "Axes | None" = None) -> "Axes":
    """Trace plot of each chain's predictions, at the input of x with the largest R-hat.

    If x is None, the chains' own inputs for convergence checks are used.
    """
    values, title = _worst(chains, x)
    axes = new_axes(axes)
    for number, chain in enumerate(values):
        axes.plot(chain, color=CYCLE[number % len(CYCLE)], lw=0.7, alpha=0.8, label=f"chain {number}")
    axes.set(xlabel="draw", ylabel="prediction", title=title, xlim=(0, values.shape[1] - 1))
    _legend(axes, len(values))
    return axes


@checked
def ranks(chains: OfSampler, x: Any = None, *, bins: Count = 20, axes: "Axes | None" = None) -> "Axes":
    """Rank plot: histograms of the ranks of each chain's predictions among all draws, at the input of largest R-hat.

    Chains that agree have flat lines: for independent draws the band contains a bin's share with probability 0.95.
    """
    from scipy import stats

    values, title = _worst(chains, x)
    axes = new_axes(axes)
    num, draws = values.shape
    rank = stats.rankdata(values).reshape(num, draws) - 0.5
    edges = np.linspace(0, num * draws, bins + 1)
    low, high = stats.binom.interval(0.95, draws, 1 / bins)
    axes.axhspan(low * bins / draws, high * bins / draws, color=GREY, alpha=0.15, lw=0)
    for number, chain in enumerate(rank):
        counts = np.histogram(chain, edges)[0]
        colour = CYCLE[number % len(CYCLE)]
        axes.stairs(counts * bins / draws, edges / edges[-1], color=colour, lw=1.5, label=f"chain {number}")
    axes.set(xlabel="rank among all draws", ylabel="share, relative to even", title=title, xlim=(0, 1))
    axes.set_ylim(bottom=0)
    _legend(axes, num)
    return axes


@checked
def energy(chains: OfSampler, *, axes: "Axes | None" = None) -> "Axes":
    """Energies around their mean, and their changes from draw to draw: narrower changes mean slowly explored tails."""
    if "energy" not in chains.stats:
        raise InputError("chains with energies", f"{', '.join(chains.stats) or 'none'}", "Sample with HMC or NUTS.")
    values = np.asarray(chains.stats["energy"], np.float64)
    bfmi = ", ".join(f"{value:.2f}" for value in diagnostics.bfmi(values))
    axes = new_axes(axes)
    level, change = (values - values.mean(axis=1, keepdims=True)).ravel(), np.diff(values, axis=1).ravel()
    edges = np.histogram_bin_edges(np.concatenate([level, change]), bins=50)
    for part, colour, label in ((level, BLUE, "energy - mean"), (change, ORANGE, "change from draw to draw")):
        density = np.histogram(part, edges, density=True)[0]
        axes.stairs(density, edges, color=colour, fill=True, alpha=0.25, lw=0)
        axes.stairs(density, edges, color=colour, lw=1.5, label=label)
    axes.set(xlabel="energy", ylabel="density", title=f"E-BFMI {bfmi}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    return axes


def _worst(chains: Chains, x: Any) -> tuple[np.ndarray, str]:
    """Predictions (chains, draws) where R-hat is largest, and a title that names the input and output."""
    values = chains.functions(x)
    rhat = diagnostics.rhat(values)
    point, output = np.unravel_index(np.argmax(np.where(np.isnan(rhat), -1.0, rhat)), rhat.shape)
    suffix = f", output {output}" if rhat.shape[1] > 1 else ""
    return values[:, :, point, output], f"input {point}{suffix}: R-hat {rhat[point, output]:.3f}"


def _legend(axes: "Axes", num: int) -> None:
    legend = axes.legend(frameon=False, fontsize="small", ncols=min(num, 4), loc="upper right")
    for line in legend.get_lines():
        line.set(linewidth=2.0, alpha=1.0)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.12 * (high - low))
