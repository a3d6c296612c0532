"""The section of a report on the effect of each column on the prediction."""

from typing import Any

import numpy as np

from tunbridge.bench.comparing.effects import Effect, effect
from tunbridge.bench.comparing.report.page import Page, plain, subplots
from tunbridge.datasets.encoding import Encoding
from tunbridge.inference.posteriors import Posterior
from tunbridge.plots.curves import BLUE, CYCLE

_MOST_COLUMNS, _SHOWN, _ACROSS = 40, 6, 3
_MOST_LINES = 5


def show(page: Page, posterior: Posterior, x: np.ndarray, encoding: Encoding) -> None:
    """Add a figure of the columns with the largest effects, averaged over the rows x."""
    effects: list[Effect] = []
    start = 0
    for column in encoding.features[:_MOST_COLUMNS]:
        columns = range(start, start := start + len(column.outputs))
        effects.append(effect(posterior, x, column.name, columns, column.levels))
    shown = sorted(effects, key=lambda each: -each.size)[:_SHOWN]
    down = -(-len(shown) // _ACROSS)
    figure, axes = subplots(down, _ACROSS, size=(10, 2.9 * down))
    for place, each in zip(axes, shown, strict=False):
        draw(place, each, encoding)
    for place in axes[len(shown) :]:
        place.set_visible(False)
    page.figure(figure, "The prediction averaged over rows with one column set to a value, ± two standard deviations.")
    if len(encoding.features) > _MOST_COLUMNS:
        page.paragraph(f"Of {len(encoding.features)} columns, only the first {_MOST_COLUMNS} were examined.")


def draw(axes: Any, each: Effect, encoding: Encoding) -> None:
    """Draw the effect of one column: a line or points for each output or class; of two classes, the second only."""
    lines = range(each.mean.shape[1]) if not encoding.classes or each.mean.shape[1] > 2 else (1,)
    low, high = each.band(0.0, 1.0) if encoding.classes else each.band()
    for line in list(lines)[:_MOST_LINES]:
        mean, ends = each.mean[:, line], (low[:, line], high[:, line])
        colour = BLUE if len(lines) == 1 else CYCLE[line % len(CYCLE)]
        label = plain(encoding.classes[line] if encoding.classes else encoding.targets[line].name, 20)
        if isinstance(each.values, tuple):
            places = np.arange(len(each.values))
            spread = np.abs(np.stack(ends) - mean)
            axes.errorbar(places, mean, spread, fmt="o", color=colour, ms=4, capsize=2, label=label)
            axes.set_xticks(places, [plain(level, 12) for level in each.values], fontsize="small", rotation=30)
        else:
            axes.fill_between(each.values, *ends, color=colour, alpha=0.2, lw=0)
            axes.plot(each.values, mean, color=colour, lw=1.6, label=label)
    axes.set_xlabel(plain(each.name))
    axes.set_ylabel("probability" if encoding.classes else "prediction")
    if encoding.classes:
        axes.set_ylim(0.0, 1.0)
    axes.legend(frameon=False, fontsize="x-small")
