"""Figures of the benchmark report; a method has the same colour and line style in all of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tunbridge.bench.benchmark.paired import Interval
from tunbridge.bench.comparing.report.page import plain
from tunbridge.core.tables import Row
from tunbridge.plots.curves import BLUE, CYCLE, GREY

_STROKES, _MARKS = ("-", "--", ":", "-."), ("o", "s", "^", "D")
_ACROSS = 3

Curve = Mapping[str, Sequence[float]]
Looks = dict[str, dict[str, str]]


def looks(methods: Sequence[str]) -> Looks:
    """Colour, line style and marker of each method."""
    styles = {}
    for number, name in enumerate(methods):
        repeat = number // len(CYCLE) % len(_STROKES)
        styles[name] = {"color": CYCLE[number % len(CYCLE)], "ls": _STROKES[repeat], "marker": _MARKS[repeat]}
    return styles


def dots(means: Mapping[str, Interval], xlabel: str) -> Any:
    """Plot one line per method, best on top: its mean, and its interval if it has one."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.8, 1.0 + 0.32 * len(means)), layout="constrained")
    for place, each in enumerate(means.values()):
        axes.plot([each.low, each.high], [place, place], color=GREY, lw=1.4)
        axes.plot(each.mean, place, "o", color=BLUE, ms=6)
    axes.set_yticks(range(len(means)), [plain(name) for name in means])
    axes.set(xlabel=xlabel, ylim=(len(means) - 0.5, -0.5))
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def scatter(points: Mapping[str, Mapping[str, tuple[float, float]]], ylabel: str, look: Looks) -> Any:
    """Plot one panel per cost, on a log axis, with one marker per method."""
    import matplotlib.pyplot as plt

    size = (5.0 * len(points), 4.0)
    figure, panels = plt.subplots(1, len(points), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for axes, (xlabel, positions) in zip(panels[0], points.items(), strict=True):
        for name, (x, y) in positions.items():
            axes.plot(x, y, color=look[name]["color"], marker=look[name]["marker"], ls="", ms=7, label=plain(name))
        axes.set(xscale="log", xlabel=xlabel, xlim=_decades([x for x, _ in positions.values()]))
        axes.xaxis.set_minor_formatter("")
        axes.grid(color=GREY, alpha=0.2)
        heights = np.array([y for _, y in positions.values()])
        if heights.max() > 10 * max(np.median(heights), 1e-3):
            axes.set_yscale("asinh", linear_width=max(float(np.median(heights)), 1e-3))
    panels[0][0].set_ylabel(ylabel)
    _legend(figure, panels[0])
    return figure


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a log axis: wider than the values by a factor 1.5 at each end, and wide enough for a power of ten."""
    middle, reach = np.sqrt(min(values) * max(values)), max(1.5 * np.sqrt(max(values) / min(values)), np.sqrt(20.0))
    return middle / reach, middle * reach


def panels(
    tasks: Mapping[str, Mapping[str, Curve]], look: Looks, xlabel: str, ylabel: str, finish: Callable[[Any], None]
) -> Any:
    """Plot one panel per task, with one line per method; `finish` is called on each axes at the end."""
    figure, places = grid(len(tasks))
    for axes, (task, curves) in zip(places, tasks.items(), strict=True):
        for name, curve in ((name, curves[name]) for name in look if name in curves):
            style = {"color": look[name]["color"], "ls": look[name]["ls"], "lw": 1.6, "label": plain(name)}
            axes.plot(curve["x"], curve["y"], **style)
            if "low" in curve and "high" in curve:
                axes.fill_between(curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.12, lw=0)
        axes.set(xlabel=xlabel, title=plain(task))
        finish(axes)
    for axes in places[::_ACROSS]:
        axes.set_ylabel(ylabel)
    _legend(figure, places)
    return figure


def functions(tasks: Mapping[str, Mapping[str, Curve]], methods: Sequence[str], look: Looks) -> Any:
    """Plot one row per task and one column per method: the mean along the input, and its interval."""
    import matplotlib.pyplot as plt

    size = (1.2 + 2.1 * len(methods), 0.6 + 1.9 * len(tasks))
    shape = (len(tasks), len(methods))
    figure, places = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False, sharey="row", sharex="row")
    for line, (task, curves) in zip(places, tasks.items(), strict=True):
        line[0].set_ylabel(plain(task))
        for axes, name in zip(line, methods, strict=True):
            if name not in curves:
                axes.set_visible(False)
                continue
            curve, colour = curves[name], look[name]["color"]
            if "low" in curve and "high" in curve:
                axes.fill_between(curve["x"], curve["low"], curve["high"], color=colour, alpha=0.25, lw=0)
            axes.plot(curve["x"], curve["y"], color=colour, lw=1.6)
    for axes, name in zip(places[0], methods, strict=True):
        axes.set_title(plain(name, 20), fontsize="medium")
    return figure


def histograms(methods: Mapping[str, Mapping[str, Curve]]) -> Any:
    """Plot one panel per method: densities of the entropy, by the origin of the inputs."""
    figure, places = grid(len(methods))
    for axes, (method, curves) in zip(places, methods.items(), strict=True):
        for colour, (name, curve) in zip(CYCLE, curves.items(), strict=False):
            edges, heights = bins(curve)
            axes.stairs(heights, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(heights, edges, color=colour, lw=1.4, label=plain(name))
        axes.set(xlabel="entropy (nats)", title=plain(method))
        axes.set_ylim(bottom=0)
    for axes in places[::_ACROSS]:
        axes.set_ylabel("density")
    _legend(figure, places)
    return figure


def grid(num: int) -> tuple[Any, list[Any]]:
    """Make a figure of `num` panels, three per line."""
    import matplotlib.pyplot as plt

    lines, across = -(-num // _ACROSS), min(num, _ACROSS)
    size = (0.6 + 3.3 * across, 0.6 + 3.0 * lines)
    figure, axes = plt.subplots(lines, across, figsize=size, layout="constrained", squeeze=False)
    for place in axes.ravel()[num:]:
        place.set_visible(False)
    return figure, list(axes.ravel()[:num])


def _legend(figure: Any, places: Sequence[Any]) -> None:
    handles: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=max(int(figure.get_figwidth() / 1.6), 1),
        frameon=False, fontsize="small",
    )  # fmt: skip


def mean_curves(rows: Sequence[Row], name: str) -> dict[str, dict[str, Curve]]:
    """Mean over fits of a curve, by task and method; tasks and methods without it are left out."""
    by_task: dict[str, dict[str, list[Curve]]] = {}
    for row in rows:
        curve = row.get("curves", {}).get(name)
        if curve and len(curve["x"]) > 1:
            by_task.setdefault(row["task"], {}).setdefault(row["method"], []).append(curve)
    return {task: {method: _mean(each) for method, each in curves.items()} for task, curves in by_task.items()}


def by_change(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Curve]]]:
    """Curves named `score by shift`, by score and shift, and by task if there are several.

    Curves of standard deviations, `sd by ...`, are left out.
    """
    by_figure: dict[str, dict[str, dict[str, Curve]]] = {}
    names = dict.fromkeys(name for row in rows for name in row.get("curves", {}))
    for name in (name for name in names if " by " in name and not name.startswith("sd ")):
        figure, _, change = name.partition(" by ")
        curves = mean_curves(rows, name)
        for task, by_method in curves.items():
            by_figure.setdefault(figure, {})[change if len(curves) == 1 else f"{task}, {change}"] = by_method
    return by_figure


def _mean(curves: Sequence[Curve]) -> Curve:
    """Mean curve at the common x; if x differ, by linear interpolation over the range that all share."""
    xs = [np.asarray(curve["x"], float) for curve in curves]
    names = [name for name in ("y", "low", "high") if all(name in curve for curve in curves)]
    if all(len(x) == len(xs[0]) and np.allclose(x, xs[0]) for x in xs):
        return {"x": xs[0].tolist()} | {name: np.mean([c[name] for c in curves], axis=0).tolist() for name in names}
    grid = np.linspace(max(x.min() for x in xs), min(x.max() for x in xs), 40)
    values = {
        name: [
            np.interp(grid, np.sort(x), np.asarray(c[name], float)[np.argsort(x)])
            for x, c in zip(xs, curves, strict=True)
        ]
        for name in names
    }
    return {"x": grid.tolist()} | {name: np.mean(each, axis=0).tolist() for name, each in values.items()}


def bins(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Edges and heights of a histogram whose x are its bin edges, or the centres of equally wide bins."""
    x, heights = np.asarray(curve["x"], float), np.asarray(curve["y"], float)
    if len(x) == len(heights) + 1:
        return x, heights
    half = (x[1] - x[0]) / 2
    return np.append(x - half, x[-1] + half), heights
