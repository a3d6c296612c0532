"""The page about a fit or a comparison on a table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tunbridge import plots
from tunbridge.bench.compare import Comparison
from tunbridge.bench.effects import Effect, effect
from tunbridge.bench.report import sentences
from tunbridge.bench.report.page import Page, plain
from tunbridge.core.provenance import describe
from tunbridge.core.types import Predictive
from tunbridge.datasets.encoding import Encoding
from tunbridge.plots.curves import BLUE, CYCLE, SHADES

_MOST_EFFECTS, _SHOWN_EFFECTS = 40, 6
_UNCERTAIN = 10
_MOST_CELLS = 6


@dataclasses.dataclass(frozen=True)
class Study:
    """What a page is about.

    Parameters
    ----------
    title, lead
        Its heading, and a sentence under it.
    encoding
        How the table was read.
    comparison
        One method or several, judged on the test rows.
    x
        The test inputs.
    cells
        The test rows as they stood in the table.
    rows
        The number of each test row in the table; the first is 1.
    facts
        What else a reader should know: the file, rows, the key.
    command
        What fits the recommended method, for a terminal; empty where there is none.
    """

    title: str
    lead: str
    encoding: Encoding
    comparison: Comparison
    x: np.ndarray
    cells: pa.Table
    rows: np.ndarray
    facts: Mapping[str, str]
    command: str = ""


def report(study: Study) -> str:
    """The page, as HTML."""
    page = Page(study.title, study.lead)
    rows = study.comparison.rows
    name = study.comparison.recommendation.method or study.comparison.best
    best = next(i for i, row in enumerate(rows) if row["method"] == name)
    if study.comparison.recommendation.sentences:
        page.heading("What to use")
        page.paragraph(str(study.comparison.recommendation))
        if study.command:
            page.code(study.command)
    page.heading("In words")
    page.sentences(sentences.about(study.comparison))
    page.heading("Scores on the test rows")
    page.table(rows, best=best if len(rows) > 1 else None)
    page.heading("What answers cost")
    page.table(study.comparison.costs)
    page.heading("Calibration")
    _calibration(page, study)
    page.heading(f"Predictions: {name}")
    _predictions(page, study, study.comparison.predictives[name])
    page.heading(f"The least certain test rows: {name}")
    page.table(_uncertain(study, study.comparison.predictives[name]))
    page.heading(f"What the columns do: {name}")
    _effects(page, study, name)
    page.heading("What was fitted")
    page.table(_facts(study))
    return page.html()


def _subplots(*shape: int, size: tuple[float, float]) -> tuple[Any, np.ndarray]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    return figure, axes.ravel()


def _calibration(page: Page, study: Study) -> None:
    figure, (axes,) = _subplots(1, 1, size=(4.6, 4.4))
    numbers = study.encoding.task == "regression"
    draw = plots.calibration if numbers else plots.reliability
    for name, predictive in study.comparison.predictives.items():
        draw(predictive, study.comparison.truth, label=plain(name), axes=axes)
    claim = "central intervals hold the share of values that they claim"
    page.figure(figure, f"On the diagonal {claim if numbers else 'accuracy is what confidence claims'}.")


def _predictions(page: Page, study: Study, predictive: Predictive) -> None:
    if study.encoding.task == "classification":
        figure, axes = _subplots(1, 2, size=(10, 4))
        _confidences(axes[0], predictive, study.comparison.truth)
        plots.parts(predictive, axes=axes[1])
        page.figure(figure, "Probability given to the class that was observed, and where the uncertainty comes from.")
        return
    for output, target in enumerate(study.encoding.targets):
        figure, axes = _subplots(1, 2, size=(10, 4))
        plots.observed(predictive, study.comparison.truth, output=output, axes=axes[0])
        plots.parts(predictive, output=output, axes=axes[1])
        axes[0].set_title(plain(target.name))
        page.figure(figure, f"{target.name}: mean and 90 % interval, and where the uncertainty comes from.")


def _confidences(axes: Any, predictive: Predictive, truth: np.ndarray) -> None:
    given = np.asarray(predictive.probs)[np.arange(len(truth)), truth]
    axes.hist(given, bins=np.linspace(0, 1, 21), color=SHADES[2], edgecolor="white")
    axes.set(xlabel="probability given to the observed class", ylabel="test rows")


def _uncertain(study: Study, predictive: Predictive) -> list[dict[str, Any]]:
    """The test rows of largest total uncertainty, with their first cells."""
    aleatoric, epistemic = (np.asarray(part) for part in (predictive.aleatoric, predictive.epistemic))
    scale = aleatoric.mean(axis=0) if aleatoric.ndim == 2 else 1.0
    total = epistemic if not np.isfinite(aleatoric).all() else (aleatoric + epistemic) / np.maximum(scale, 1e-300)
    order = np.argsort(-(total.sum(axis=1) if total.ndim == 2 else total))[:_UNCERTAIN]
    names = [column.name for column in study.encoding.targets] + study.encoding.columns[:_MOST_CELLS]
    cells = {name: _texts(study.cells[name].take(order)) for name in names}
    table = []
    for place, i in enumerate(order):
        row: dict[str, Any] = {"row": f"{study.rows[i]}"}
        row |= _expected(study, predictive, i)
        row |= {name: texts[place] for name, texts in cells.items()}
        table.append(row)
    return table


def _expected(study: Study, predictive: Predictive, i: int) -> dict[str, Any]:
    parts = (np.asarray(predictive.aleatoric[i]), np.asarray(predictive.epistemic[i]))
    if study.encoding.task == "classification":
        best = int(predictive.mode[i])
        probability = float(predictive.probs[i, best])
        names = {"predicted": study.encoding.classes[best], "probability": probability}
        return names | {"aleatoric (nats)": float(parts[0]), "epistemic (nats)": float(parts[1])}
    found: dict[str, Any] = {}
    for output, target in enumerate(study.encoding.targets):
        tail = f" of {target.name}" if len(study.encoding.targets) > 1 else ""
        found[f"mean{tail}"] = float(predictive.mean[i, output])
        found[f"aleatoric sd{tail}"] = float(np.sqrt(parts[0][output]))
        found[f"epistemic sd{tail}"] = float(np.sqrt(parts[1][output]))
    return found


def _texts(values: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(values.type):
        return [f"{value:.6g}" for value in values.to_pylist()]
    return [text[:60] for text in values.cast(pa.string()).to_pylist()]


def _effects(page: Page, study: Study, name: str) -> None:
    """The columns that move the prediction most."""
    found: list[Effect] = []
    start = 0
    for column in study.encoding.features:
        columns = range(start, start := start + len(column.outputs))
        if len(found) < _MOST_EFFECTS:
            found.append(effect(study.comparison.posteriors[name], study.x, column.name, columns, column.levels))
    shown = sorted(found, key=lambda each: -each.size)[:_SHOWN_EFFECTS]
    height = 2.9 * -(-len(shown) // 3)
    figure, axes = _subplots(-(-len(shown) // 3), 3, size=(10, height))
    for place, each in zip(axes, shown, strict=False):
        _draw_effect(place, each, study.encoding)
    for place in axes[len(shown) :]:
        place.set_visible(False)
    page.figure(
        figure, "The prediction averaged over rows in which one column is set to a value, and two standard deviations."
    )
    if len(study.encoding.features) > _MOST_EFFECTS:
        page.paragraph(f"Of {len(study.encoding.features)} columns the first {_MOST_EFFECTS} were looked at.")


def _draw_effect(axes: Any, each: Effect, encoding: Encoding) -> None:
    lines = range(each.mean.shape[1]) if encoding.task == "regression" or each.mean.shape[1] > 2 else (1,)
    for line in list(lines)[:5]:
        mean, std = each.mean[:, line], 2 * each.std[:, line]
        colour = BLUE if len(lines) == 1 else CYCLE[line % len(CYCLE)]
        label = plain(encoding.classes[line] if encoding.classes else encoding.targets[line].name, 20)
        if isinstance(each.values, tuple):
            places = np.arange(len(each.values))
            axes.errorbar(places, mean, std, fmt="o", color=colour, ms=4, capsize=2, label=label)
            axes.set_xticks(places, [plain(level, 12) for level in each.values], fontsize="small", rotation=30)
        else:
            axes.fill_between(each.values, mean - std, mean + std, color=colour, alpha=0.2, lw=0)
            axes.plot(each.values, mean, color=colour, lw=1.6, label=label)
    axes.set_xlabel(plain(each.name))
    axes.set_ylabel("probability" if encoding.classes else "prediction")
    axes.legend(frameon=False, fontsize="x-small")


def _facts(study: Study) -> list[dict[str, str]]:
    first = next(iter(study.comparison.posteriors.values()))
    facts = {**study.facts}
    for part in ("network", "prior", "likelihood"):
        facts[part] = describe(getattr(first.model, part))
    for name, posterior in study.comparison.posteriors.items():
        if posterior.provenance is not None:
            facts[f"method {name}"] = posterior.provenance.method
            facts["versions"] = ", ".join(posterior.provenance.versions)
            facts["device"] = posterior.provenance.device
    facts["standardised"] = "inputs, and targets that are numbers, by the training rows; figures are in data units"
    return [{"what": name, "value": value} for name, value in facts.items()]
