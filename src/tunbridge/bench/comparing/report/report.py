"""The page about a fit or a comparison on a table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tunbridge import plots
from tunbridge.bench.comparing.compare import Comparison
from tunbridge.bench.comparing.report import columns, sentences
from tunbridge.bench.comparing.report.page import Page, plain, subplots
from tunbridge.bench.comparing.report.sections import Section
from tunbridge.core.provenance import describe
from tunbridge.core.tables import distinct
from tunbridge.core.types import Predictive
from tunbridge.datasets.encoding import Encoding
from tunbridge.plots.curves import SHADES

_UNCERTAIN = 10
_ALIKE = 0.01
"""Rows whose uncertainties differ by less, as a share of the largest, are equally uncertain."""
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


def report(study: Study, *sections: Section) -> str:
    """The page, as HTML; `sections` come after its advice."""
    rows = study.comparison.rows
    name = study.comparison.recommendation.method or study.comparison.best
    page = Page(study.title, study.lead, _verdict(study, name))
    best = next(i for i, row in enumerate(rows) if row["method"] == name)
    if study.comparison.recommendation.sentences:
        page.heading("What to use")
        page.paragraph(str(study.comparison.recommendation))
        if study.command:
            page.code(study.command)
    for section in sections:
        section(page)
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
    _uncertain(page, study, study.comparison.predictives[name])
    page.heading(f"What the columns do: {name}")
    columns.show(page, study.comparison.posteriors[name], study.x, study.encoding)
    page.heading("What was fitted")
    page.table(_facts(study))
    return page.html()


def _verdict(study: Study, name: str) -> str:
    targets = [target.name for target in study.encoding.targets]
    said = study.comparison.verdict(name, targets, study.encoding.classes)
    cut = study.comparison.cuts.get(name)
    return said if cut is None else f"{name} was {cut}. {said}"


def _calibration(page: Page, study: Study) -> None:
    figure, (axes,) = subplots(1, 1, size=(4.6, 4.4))
    numbers = study.encoding.task == "regression"
    draw = plots.calibration if numbers else plots.reliability
    for name, predictive in study.comparison.predictives.items():
        draw(predictive, study.comparison.truth, label=plain(name), axes=axes)
    claim = "central intervals hold the share of values that they claim"
    page.figure(figure, f"On the diagonal {claim if numbers else 'accuracy is what confidence claims'}.")


def _predictions(page: Page, study: Study, predictive: Predictive) -> None:
    if study.encoding.task == "classification":
        figure, axes = subplots(1, 2, size=(10, 4))
        _confidences(axes[0], predictive, study.comparison.truth)
        plots.parts(predictive, axes=axes[1])
        page.figure(figure, "Probability given to the class that was observed, and where the uncertainty comes from.")
        return
    for output, target in enumerate(study.encoding.targets):
        figure, axes = subplots(1, 2, size=(10, 4))
        plots.observed(predictive, study.comparison.truth, output=output, axes=axes[0])
        plots.parts(predictive, output=output, axes=axes[1])
        axes[0].set_title(plain(target.name))
        page.figure(figure, f"{target.name}: mean and 90 % interval, and where the uncertainty comes from.")


def _confidences(axes: Any, predictive: Predictive, truth: np.ndarray) -> None:
    given = np.asarray(predictive.probs)[np.arange(len(truth)), truth]
    axes.hist(given, bins=np.linspace(0, 1, 21), color=SHADES[2], edgecolor="white")
    axes.set(xlabel="probability given to the observed class", ylabel="test rows")


def _uncertain(page: Page, study: Study, predictive: Predictive) -> None:
    """The test rows of largest total uncertainty, with their first cells; or that all are alike."""
    total = _total(predictive)
    if np.ptp(total) <= _ALIKE * np.max(np.abs(total)):
        page.paragraph(f"None stands out: all {len(total)} test rows are equally uncertain, to within {_ALIKE:.0%}.")
        return
    order = np.argsort(-total)[:_UNCERTAIN]
    names = [column.name for column in study.encoding.targets] + study.encoding.columns[:_MOST_CELLS]
    cells = [_texts(study.cells[name].take(order)) for name in names]
    table = []
    for place, i in enumerate(order):
        own: dict[str, Any] = {"row": f"{study.rows[i]}", **_expected(study, predictive, i)}
        labels = distinct([*own, *names])
        table.append(dict(zip(labels, [*own.values(), *(texts[place] for texts in cells)], strict=True)))
    page.table(table)


def _total(predictive: Predictive) -> np.ndarray:
    """Each row's uncertainty: nats, or variances in units of their mean, summed over outputs."""
    aleatoric, epistemic = (np.asarray(part, np.float64) for part in (predictive.aleatoric, predictive.epistemic))
    scale = aleatoric.mean(axis=0) if aleatoric.ndim == 2 else 1.0
    total = epistemic if not np.isfinite(aleatoric).all() else (aleatoric + epistemic) / np.maximum(scale, 1e-300)
    return total.sum(axis=1) if total.ndim == 2 else total


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
