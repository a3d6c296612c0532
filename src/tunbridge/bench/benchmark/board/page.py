"""The benchmark report as an HTML page."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tunbridge.bench.benchmark.board import pictures
from tunbridge.bench.benchmark.leaderboard import Leaderboard, means, ranks
from tunbridge.bench.benchmark.paired import naive_error, plus_minus
from tunbridge.bench.benchmark.standing import Pair, Standing, spans
from tunbridge.bench.comparing.figures import FIGURES
from tunbridge.bench.comparing.report.page import Page
from tunbridge.core.declared import checked
from tunbridge.core.tables import Row, written
from tunbridge.plots.curves import GREY

_FIDELITY = ("total variation", "agreement", "sliced Wasserstein", "mean error", "sd ratio")
_COSTS = ("seconds", "tuning seconds", "gradients", "networks", "ms a row", "MB")
_AXES = {"gradients": "per-example gradients of a fit", "seconds": "seconds of a fit"}


@checked
def page(rows: Iterable[Row], title: str, command: str, *, figure: str | None = None) -> str:
    """Return a benchmark report as one self-contained HTML file; sections without data are left out.

    Parameters
    ----------
    rows
        Rows as for `tunbridge.bench.Leaderboard.of`, with kind, settings, cost, curves, provenance and error of each
        fit.
    title
        The heading.
    command
        The command line that made the rows.
    figure
        The score to rank by.
    """
    board = Leaderboard.of(rows, figure)
    made = Page(title, "All scores are on test rows that neither fitting nor tuning has seen.")
    for standing in board.standings.values():
        look = pictures.looks(list(standing.ranks))
        _leaderboard(made, standing)
        _cost(made, standing, look)
        _calibration(made, standing, look)
        _functions(made, standing, look)
        _lines(made, standing, look)
        _entropy(made, standing)
        _fidelity(made, standing, look)
        _settings(made, standing)
    if board.failed:
        made.heading("Failed fits")
        made.table(board.failed)
    doubts = _doubts(board)
    if doubts:
        made.heading("Warnings from fits that finished")
        made.table(doubts)
    made.heading("How these figures were made")
    made.table(_provenance(board, command))
    return made.html()


def _leaderboard(made: Page, standing: Standing) -> None:
    listing = ranks(standing)
    made.heading(f"{standing.suite}: leaderboard")
    made.table(listing.rows, best=next((i for i, row in enumerate(listing.rows) if not row.get("cut")), None))
    made.sentences(listing.sentences)
    if standing.shared:
        picture = pictures.dots(standing.ranks, f"mean rank of {standing.figure}")
        made.figure(picture, f"Mean rank over tasks and splits with {standing.level:.0%} intervals; 1 is best.")
    for figure in _figures(standing):
        shown = means(standing, figure)
        made.heading(f"{standing.suite}: {figure}")
        made.table(shown.rows)
        better = f" Here {FIGURES[figure].better} is better." if figure in FIGURES else ""
        made.paragraph(f"Mean over splits ± its naive standard error.{better} {' '.join(shown.sentences)}")
    made.heading(f"{standing.suite}: differences from the best on each task")
    made.table([_difference(pair) for task in standing.tasks for pair in standing.pairs[task]])


def _figures(standing: Standing) -> list[str]:
    """Names of the scores in the rows, the ranked one first, without distances to a reference."""
    names = dict.fromkeys([standing.figure, *(name for row in standing.rows for name in row["figures"])])
    return [name for name in names if name not in _FIDELITY or name == standing.figure]


def _difference(pair: Pair) -> dict[str, str]:
    return {
        "task": pair.task,
        "method": pair.method,
        "mean": plus_minus(pair.mean, pair.error),
        "behind": written(pair.behind.mean),
        "corrected error": f"{pair.behind.error:.2g}" if pair.judged else "-",
        "interval": f"{pair.behind.low:.3g} to {pair.behind.high:.3g}" if pair.judged else "-",
        "verdict": pair.verdict,
        "splits": f"{pair.splits}",
    }


def _cost(made: Page, standing: Standing, look: pictures.Looks) -> None:
    """Add the cost of fits and predictions, and the ranked score against it."""
    spent = {name: _spent(standing, name) for name in standing.ranks}
    shown = [cost for cost in _COSTS if any(cost in each for each in spent.values())]
    if not shown:
        return
    made.heading(f"{standing.suite}: cost")
    lines = {
        name: {cost: written(each[cost]) if cost in each else "-" for cost in shown} for name, each in spent.items()
    }
    made.table([{"method": name, **line} for name, line in lines.items()])
    made.paragraph(
        "Medians over finished fits: seconds of the fit and of tuning, per-example gradients of the fit, networks "
        "averaged per prediction, milliseconds per row, and megabytes of the saved posterior."
    )
    pooled = FIGURES[standing.figure].pooled or len(standing.tasks) == 1
    heights = _above(standing) if pooled else {name: rank.mean for name, rank in standing.ranks.items()}
    ylabel = f"{standing.figure} above the best on a task" if pooled else f"mean rank of {standing.figure}"
    caption = (
        f"{ylabel}, mean over tasks, against cost. Left out: no gradients to count, or no finished split on a task."
    )
    _against_cost(made, standing, look, heights, ylabel, caption)


def _against_cost(
    made: Page, standing: Standing, look: pictures.Looks, heights: Mapping[str, float], ylabel: str, caption: str
) -> None:
    spent = {name: _spent(standing, name) for name in heights}
    points = {
        label: {
            name: (spent[name][cost], height)
            for name, height in heights.items()
            if np.isfinite(height) and spent[name].get(cost, 0) > 0
        }
        for cost, label in _AXES.items()
    }
    points = {label: panel for label, panel in points.items() if panel}
    if points:
        made.figure(pictures.scatter(points, ylabel, look), caption)


def _spent(standing: Standing, method: str) -> dict[str, float]:
    rows = [row for row in standing.rows if (row["method"], row["status"]) == (method, "done")]
    values = {cost: [row["cost"][cost] for row in rows if row.get("cost", {}).get(cost) is not None] for cost in _COSTS}
    return {cost: float(np.median(each)) for cost, each in values.items() if each}


def _above(standing: Standing) -> dict[str, float]:
    """Mean over tasks of the gap between each method and the best on the task."""
    by_method: dict[str, list[float]] = {}
    for task in standing.tasks:
        for pair in standing.pairs[task]:
            by_method.setdefault(pair.method, []).append(pair.behind.mean)
    return {name: float(np.mean(gaps)) for name, gaps in by_method.items()}


def _calibration(made: Page, standing: Standing, look: pictures.Looks) -> None:
    for kind, claim, seen, caption in (
        (
            "numbers",
            "mass of the interval",
            "share inside",
            "central intervals cover the share of values they claim",
        ),
        ("classes", "confidence", "accuracy", "accuracy equals confidence"),
    ):
        curves = pictures.mean_curves([row for row in standing.rows if row.get("kind") == kind], "calibration")
        if curves:
            made.heading(f"{standing.suite}: calibration of {kind}")
            picture = pictures.panels(curves, look, claim, seen, _diagonal)
            made.figure(picture, f"On the diagonal, {caption}. Means over splits.")


def _diagonal(axes: Any) -> None:
    axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def _functions(made: Page, standing: Standing, look: pictures.Looks) -> None:
    first = {task: min(row["split"] for row in standing.rows if row["task"] == task) for task in standing.tasks}
    by_task = pictures.mean_curves([row for row in standing.rows if row["split"] == first[row["task"]]], "function")
    if by_task:
        made.heading(f"{standing.suite}: functions")
        methods = [name for name in standing.ranks if any(name in curves for curves in by_task.values())]
        made.figure(pictures.functions(by_task, methods, look), "Predictive mean and interval by input, first split.")


def _lines(made: Page, standing: Standing, look: pictures.Looks) -> None:
    """Add uncertainty by distance and by number of rows, and all other curves named `score by shift`."""
    for name, title, xlabel, finish in (
        (
            "sd by distance",
            "uncertainty against distance from the data",
            "distance to the nearest training input",
            _plain,
        ),
        ("sd by rows", "epistemic uncertainty against the number of rows", "training rows", _logarithmic),
    ):
        if curves := pictures.mean_curves(standing.rows, name):
            made.heading(f"{standing.suite}: {title}")
            made.figure(pictures.panels(curves, look, xlabel, "epistemic sd", finish), "Means over splits.")
    for figure, changes in pictures.by_change(standing.rows).items():
        made.heading(f"{standing.suite}: {figure} as inputs change")
        made.figure(pictures.panels(changes, look, "severity", figure, _plain), "Means over splits.")


def _logarithmic(axes: Any) -> None:
    axes.set(xscale="log", yscale="log")


def _plain(axes: Any) -> None:
    axes.grid(color=GREY, alpha=0.2)


def _entropy(made: Page, standing: Standing) -> None:
    """Add histograms of entropy for inputs in and out of distribution, and how well entropy separates them."""
    curves = dict.fromkeys(name for row in standing.rows for name in row.get("curves", {}))
    names = [name for name in curves if name.startswith("entropy ") and " by " not in name]
    scores = [name for name in _figures(standing) if name.startswith("AUROC")]
    by_name = {name: pictures.mean_curves(standing.rows, name) for name in names}
    for task in standing.tasks:
        methods = {
            method: {name: each[task][method] for name, each in by_name.items() if method in each.get(task, {})}
            for method in standing.ranks
        }
        methods = {method: histograms for method, histograms in methods.items() if histograms}
        if methods:
            made.heading(f"{standing.suite}: entropy inside and outside, {task}")
            made.figure(
                pictures.histograms(methods),
                "Predictive entropy; inputs unlike the training rows should be on the right.",
            )
            _scored(made, standing, [task], scores)


def _scored(made: Page, standing: Standing, tasks: list[str], figures: Iterable[str]) -> None:
    """Add a table with a line per task and method that has one of the scores."""
    lines = []
    for task in tasks:
        for method in standing.ranks:
            values = {name: list(standing.values(task, method, name).values()) for name in figures}
            if any(values.values()):
                cells = {
                    name: plus_minus(float(np.mean(v)), naive_error(v)) if v else "-" for name, v in values.items()
                }
                lines.append({"task": task, "method": method, **cells})
    if lines:
        made.table(lines)


def _fidelity(made: Page, standing: Standing, look: pictures.Looks) -> None:
    """Add the distance of each method to the reference, and its cost."""
    present = [name for name in _FIDELITY if any(name in row["figures"] for row in standing.rows)]
    if not present:
        return
    made.heading(f"{standing.suite}: distance to the reference")
    _scored(made, standing, standing.tasks, present)
    for name in ("total variation", "sliced Wasserstein"):
        for task in standing.tasks:
            distances = {method: list(standing.values(task, method, name).values()) for method in standing.ranks}
            heights = {method: float(np.mean(values)) for method, values in distances.items() if values}
            caption = f"{task}: {name} to the reference against cost; lower left is better."
            _against_cost(made, standing, look, heights, name, caption)


def _settings(made: Page, standing: Standing) -> None:
    """Add the settings that tuning chose, grouped by choice."""
    chosen: dict[tuple[str, str, str], list[int]] = {}
    for row in standing.rows:
        if row.get("settings"):
            settings = ", ".join(f"{name} {_formatted(value)}" for name, value in row["settings"].items())
            chosen.setdefault((row["method"], row["task"], settings), []).append(row["split"])
    if chosen:
        made.heading(f"{standing.suite}: settings chosen by tuning")
        order = {name: place for place, name in enumerate(standing.ranks)}
        lines = sorted(chosen.items(), key=lambda item: order[item[0][0]])
        made.table(
            [
                {"method": method, "task": task, "settings": settings, "splits": spans(splits)}
                for (method, task, settings), splits in lines
            ]
        )


def _formatted(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _doubts(board: Leaderboard) -> list[dict[str, str]]:
    """Warnings by method: the number of fits with a warning, and one example."""
    doubts: dict[tuple[str, str], list[str]] = {}
    for standing in board.standings.values():
        for row in standing.rows:
            for doubt in row.get("provenance", {}).get("doubts", ())[:1]:
                doubts.setdefault((standing.suite, row["method"]), []).append(f"{row['task']}: {doubt}")
    return [
        {"suite": suite, "method": method, "fits": f"{len(messages)}", "for example": messages[0]}
        for (suite, method), messages in doubts.items()
    ]


def _provenance(board: Leaderboard, command: str) -> list[dict[str, str]]:
    rows = [row for standing in board.standings.values() for row in standing.rows]
    facts = {"command": command, "fits": f"{len(rows)}"}
    for name in ("versions", "device", "date"):
        values = sorted({_joined(row["provenance"][name]) for row in rows if name in row.get("provenance", {})})
        if values:
            facts[name] = "; ".join(values) if len(values) < 4 else f"{values[0]} to {values[-1]}"
    return [{"what": name, "value": value} for name, value in facts.items()]


def _joined(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
