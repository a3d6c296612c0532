"""Plot of the evidence against test performance."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.plots.curves import BLUE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Ranked(Protocol):
    """Models ranked by evidence, as returned by `tunbridge.bench.rank_models`."""

    rows: list[dict[str, Any]]
    rank_correlation: float | None


@checked
def evidence(ranking: Ranked, *, axes: "Axes | None" = None) -> "Axes":
    """Plot log evidence per row against test NLL, with its standard error, for each model: good models are top left."""
    if not ranking.rows or "NLL" not in ranking.rows[0]:
        raise InputError("a ranking with test rows", "one without", "Write rank_models(models, data, test, key=key).")
    axes = new_axes(axes)
    nll, error, value = (np.array([row[name] for row in ranking.rows]) for name in ("NLL", "its error", "a row"))
    axes.errorbar(nll, value, xerr=error, fmt="o", color=BLUE, ecolor=GREY, elinewidth=0.7, ms=5)
    for x, y, row in zip(nll, value, ranking.rows, strict=True):
        axes.annotate(row["model"], (x, y), xytext=(5, 4), textcoords="offset points", fontsize="small")
    axes.margins(0.08)
    correlation = ranking.rank_correlation
    suffix = "" if correlation is None else f": rank correlation {correlation:.2f}"
    axes.set(xlabel="test NLL", ylabel="log evidence per row", title=f"Evidence and test{suffix}")
    return axes
