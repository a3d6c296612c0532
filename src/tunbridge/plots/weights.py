"""Plots of the posterior of single weights, and of the gain from averaging networks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.core.tree import flatten_with_paths, ravel
from tunbridge.core.types import Key
from tunbridge.inference.posteriors import Posterior
from tunbridge.plots.curves import BLUE, CYCLE, ORANGE, SHADES, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DRAWS, _AT_ONCE = 1000, 50
_BINS = 40
_SHOWN = 6
_ORDERS = 100


class OfNetworks(Protocol):
    """A predictive distribution that averages networks, such as `tunbridge.Predictive` of draws."""

    def log_probs(self, y: Any) -> Any:
        """Log p(y) under each network, (networks, points)."""
        ...


@checked
def weight_histograms(
    posterior: Posterior,
    fixed: Posterior | None = None,
    *,
    numbers: Sequence[int] | None = None,
    key: Key | None = None,
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot histograms of 1,000 posterior draws of some weights; a line marks the weight of one fixed network.

    Heights are not comparable between weights: each histogram is scaled to fill its row.

    Parameters
    ----------
    posterior
        The posterior whose weights are drawn.
    fixed
        Another posterior of the same network, such as one fitted by `MAP`; its mode or first draw gives the lines.
    numbers
        Indices of the weights in the vector of all weights; None takes six, evenly spaced.
    key
        Random key of the draws; None uses the posterior's own.
    """
    model = posterior.model
    leaves = flatten_with_paths(model.weights(posterior.one()))
    total = sum(leaf.size for _, leaf in leaves)
    chosen = np.linspace(0, total - 1, min(_SHOWN, total)).round() if numbers is None else numbers
    chosen = np.asarray(chosen, int)
    if not chosen.size or chosen.min() < 0 or chosen.max() >= total:
        raise InputError(f"numbers from 0 to {total - 1}", f"{chosen.tolist()}", "Count all weights in one vector.")
    other = None if fixed is None else np.asarray(ravel(fixed.model.weights(fixed.one())))
    if other is not None and len(other) != total:
        raise InputError(f"a fixed network of {total} weights", f"{len(other)}", "Fit the same network.")
    keys = jax.random.split(posterior.key if key is None else key, _DRAWS // _AT_ONCE)
    chosen_of = jax.jit(jax.vmap(lambda params: ravel(model.weights(params))[chosen]))
    drawn = np.concatenate([np.asarray(chosen_of(posterior.sample(one, _AT_ONCE)), np.float64) for one in keys])
    axes = new_axes(axes)
    for row, values in enumerate(drawn.T[::-1]):
        heights, edges = np.histogram(values, _BINS)
        axes.stairs(row + 0.85 * heights / heights.max(), edges, baseline=row, color=SHADES[1], fill=True, lw=0)
        axes.stairs(row + 0.85 * heights / heights.max(), edges, baseline=row, color=BLUE, lw=1.0)
    if other is not None:
        lines = other[chosen][::-1]
        axes.vlines(lines, np.arange(len(lines)), np.arange(len(lines)) + 0.92, color=ORANGE, lw=2, label="one network")
        axes.legend(frameon=False, fontsize="small")
    axes.set_yticks(np.arange(len(chosen)) + 0.4, [_name(leaves, number) for number in chosen[::-1]])
    axes.set(xlabel="weight", ylim=(-0.1, len(chosen)))
    return axes


def _name(leaves: list[tuple[str, Any]], number: int) -> str:
    """The path and index of a weight."""
    ends = np.cumsum([leaf.size for _, leaf in leaves])
    which = int(np.searchsorted(ends, number, side="right"))
    path, leaf = leaves[which]
    place = np.unravel_index(number - (ends[which] - leaf.size), leaf.shape)
    return f"{path}[{', '.join(map(str, place))}]"


@checked
def averaging(predictive: OfNetworks, y: Any, *, label: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Plot the NLL of averages of 1, 2, ... of a predictive's networks, averaged over up to 100 choices of them.

    A further call on the same axes adds a line.
    """
    logs = np.random.default_rng(0).permutation(np.asarray(predictive.log_probs(y), np.float64))
    axes, num = new_axes(axes), len(logs)
    firsts = np.linspace(0, num, min(num, _ORDERS), endpoint=False).astype(int)
    lines = [np.logaddexp.accumulate(np.roll(logs, -first, axis=0)).mean(axis=1) for first in firsts]
    nums = np.arange(1, num + 1)
    colour = CYCLE[len(axes.lines) % len(CYCLE)]
    axes.plot(nums, np.log(nums) - np.mean(lines, axis=0), color=colour, lw=1.8, label=label)
    axes.set(xlabel="networks averaged", ylabel="NLL", xscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if label:
        axes.legend(frameon=False, fontsize="small")
    return axes
