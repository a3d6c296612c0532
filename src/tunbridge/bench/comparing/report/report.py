"""The HTML report on a fit or a comparison."""

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
"""If the uncertainties of all rows differ by less than this share of the largest, no row is singled out."""
_MOST_CELLS = 6


@dataclasses.dataclass(frozen=True)
class Study:
    """The contents of a report.

    Parameters
    ----------
    title, lead
        The heading, and a sentence under it.
    encoding
        How the columns of the table were encoded.
    comparison
        One method or several, scored on the test rows.
    x
        The test inputs.
    cells
        The test rows as they are in the original table.
    rows
        The row number of each test row in the table, starting at 1.
    facts
        Further facts for the reader: the file, the numbers of rows, the key.
    command
        The command line that fits the recommended method; empty if there is none.
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
    """Return the report as HTML; `sections` follow the recommendation."""
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
    page.heading("Notes on the methods")
    page.sentences(sentences.about(study.comparison))
    page.heading("Scores on the test rows")
    page.table(rows, best=best if len(rows) > 1 else None)
    page.heading("Cost of prediction")
    page.table(study.comparison.costs)
    page.heading("Calibration")
    _calibration(page, study)
    page.heading(f"Predictions: {name}")
    _predictions(page, study, study.comparison.predictives[name])
    page.heading(f"The least certain test rows: {name}")
    _uncertain(page, study, study.comparison.predictives[name])
    page.heading(f"Effect of each column: {name}")
    columns.show(page, study.comparison.posteriors[name], study.x, study.encoding)
    page.heading("What was fitted")
    page.table(_facts(study))
    return page.html()


def _verdict(study: Study, name: str) -> str:
    targets = [target.name for target in study.encoding.targets]
    verdict = study.comparison.verdict(name, targets, study.encoding.classes)
    cut = study.comparison.cuts.get(name)
    return verdict if cut is None else f"{name} was {cut}. {verdict}"


def _calibration(page: Page, study: Study) -> None:
    figure, (axes,) = subplots(1, 1, size=(4.6, 4.4))
    numbers = study.encoding.task == "regression"
    draw = plots.calibration if numbers else plots.reliability
    for name, predictive in study.comparison.predictives.items():
        draw(predictive, study.comparison.truth, label=plain(name), axes=axes)
    claim = "central intervals cover the share of values that they claim"
    page.figure(figure, f"On the diagonal, {claim if numbers else 'accuracy equals confidence'}.")


def _predictions(page: Page, study: Study, predictive: Predictive) -> None:
    if study.encoding.task == "classification":
        figure, axes = subplots(1, 2, size=(10, 4))
        _confidences(axes[0], predictive, study.comparison.truth)
        plots.parts(predictive, axes=axes[1])
        page.figure(figure, "Predicted probability of the observed class, and where the uncertainty comes from.")
        return
    for output, target in enumerate(study.encoding.targets):
        figure, axes = subplots(1, 2, size=(10, 4))
        plots.observed(predictive, study.comparison.truth, output=output, axes=axes[0])
        plots.parts(predictive, output=output, axes=axes[1])
        axes[0].set_title(plain(target.name))
        page.figure(figure, f"{target.name}: predictive mean and 90 % interval, and where the uncertainty comes from.")


def _confidences(axes: Any, predictive: Predictive, truth: np.ndarray) -> None:
    given = np.asarray(predictive.probs)[np.arange(len(truth)), truth]
    axes.hist(given, bins=np.linspace(0, 1, 21), color=SHADES[2], edgecolor="white")
    axes.set(xlabel="probability given to the observed class", ylabel="test rows")


def _uncertain(page: Page, study: Study, predictive: Predictive) -> None:
    """Add the test rows of largest total uncertainty, with their first cells; or a sentence if no row stands out."""
    total = _total(predictive)
    if np.ptp(total) <= _ALIKE * np.max(np.abs(total)):
        page.paragraph(f"None stands out: all {len(total)} test rows are equally uncertain, to within {_ALIKE:.0%}.")
        return
    order = np.argsort(-total)[:_UNCERTAIN]
    names = [column.name for column in study.encoding.targets] + study.encoding.columns[:_MOST_CELLS]
    cells = [_texts(study.cells[name].take(order)) for name in names]
    table = []
    for place, i in enumerate(order):
        prediction: dict[str, Any] = {"row": f"{study.rows[i]}", **_expected(study, predictive, i)}
        labels = distinct([*prediction, *names])
        table.append(dict(zip(labels, [*prediction.values(), *(texts[place] for texts in cells)], strict=True)))
    page.table(table)


def _total(predictive: Predictive) -> np.ndarray:
    """Total uncertainty of each row: in nats, or variances relative to the mean noise variance, summed over outputs."""
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
    moments: dict[str, Any] = {}
    for output, target in enumerate(study.encoding.targets):
        tail = f" of {target.name}" if len(study.encoding.targets) > 1 else ""
        moments[f"mean{tail}"] = float(predictive.mean[i, output])
        moments[f"aleatoric sd{tail}"] = float(np.sqrt(parts[0][output]))
        moments[f"epistemic sd{tail}"] = float(np.sqrt(parts[1][output]))
    return moments


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
    facts["standardised"] = "inputs and numeric targets, using the training rows; figures are in the units of the data"
    return [{"what": name, "value": value} for name, value in facts.items()]
