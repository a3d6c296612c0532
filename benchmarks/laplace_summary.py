"""Averages of laplace_quality.json over splits, and Markdown tables of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

CLOSED = ("linearised", "quadrature")
"""Default ways of predicting of `tb.Laplace`."""


def summarise(sets: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per set, fit and way of predicting: means over splits."""
    return [row for name, splits in sets.items() for row in _of_set(name, splits)]


def _of_set(name: str, splits: dict[str, Any]) -> Iterator[dict[str, Any]]:
    fits = dict.fromkeys(label for split in splits.values() for label in split["fits"])
    for label in fits:
        there = [split for split in splits.values() if "rows" in split["fits"].get(label, {})]
        if not there:
            continue
        seconds = float(np.mean([split["fits"][label]["seconds"] for split in there]))
        for way in there[0]["fits"][label]["rows"]:
            rows = [split["fits"][label]["rows"][way] for split in there]
            figures = {
                key: float(np.mean([row[key] for row in rows])) for key in rows[0] if not key.startswith("over_")
            }
            made = {"set": name, "fit": label, "way": way, "splits": len(rows), **figures}
            for over in ("over_point", "over_map"):
                if over in rows[0]:
                    share = np.mean([split["test"] / split["train"] for split in there])
                    made[over] = _joined([row[over] for row in rows], float(share))
            yield {**made, "seconds": seconds}


def _joined(differences: list[dict[str, float]], share: float) -> dict[str, Any]:
    """Mean and standard error of differences over splits that share rows, by Nadeau and Bengio (2003).

    `share` is the number of test rows per training row. `se` is the error over splits if there are two or more, else
    the error over test points; `worse` means worse by more than two of them.
    """
    means, errors = (np.array([one[key] for one in differences]) for key in ("mean", "se"))
    num, mean = len(means), float(means.mean())
    points = float(np.sqrt(np.sum(errors**2)) / num)
    splits = float(np.sqrt((1 / num + share) * means.var(ddof=1))) if num > 1 else None
    chosen = points if splits is None else splits
    ratios = [float(m / e) if e > 0 else 0.0 for m, e in zip(means, errors, strict=True)]
    return {
        "mean": mean,
        "se": chosen,
        "se_points": points,
        "se_splits": splits,
        "worse": bool(mean > 2 * chosen),
        "worst_split": max(ratios),
    }


def written(over: dict[str, Any] | None) -> str:
    if over is None:
        return ""
    return f"{over['mean']:+.4f} ± {over['se']:.4f}{' (worse)' if over['worse'] else ''}"


def judged_table(summary: list[dict[str, Any]]) -> str:
    """Table by set and structure: excess NLL of the default predictive over MAP with the same noise and prior."""
    rows = [row for row in summary if row["fit"].endswith(", none") and row["way"] in CLOSED]
    fits = list(dict.fromkeys(row["fit"] for row in rows))
    lines = [f"| set | {' | '.join(fit.removesuffix(', none') for fit in fits)} |", "|---" * (1 + len(fits)) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        of = {row["fit"]: written(row["over_point"]) for row in rows if row["set"] == name}
        lines.append(f"| {name} | {' | '.join(of.get(fit, '') for fit in fits)} |")
    return "\n".join(lines)


def tables(summary: list[dict[str, Any]]) -> str:
    """One table per set."""
    return "\n\n".join(_table(name, summary) for name in dict.fromkeys(row["set"] for row in summary))


def _table(name: str, summary: list[dict[str, Any]]) -> str:
    rows = [row for row in summary if row["set"] == name]
    apart = ("set", "fit", "way", "splits", "seconds")
    figures = [key for key in rows[0] if key not in apart and not key.startswith("over_")]
    heads = ["fit", "way", "splits", *figures, "NLL over its point", "NLL over MAP", "seconds"]
    lines = [f"**{name}**", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [row["fit"], row["way"], str(row["splits"]), *(f"{row[key]:.4f}" for key in figures)]
        cells += [written(row.get("over_point")), written(row.get("over_map")), f"{row['seconds']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gains(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """AUROC of detecting unknown classes; `share` is the gain over MAP's entropy, divided by the ensemble's gain."""
    rows, scores = [row for row in summary if "AUROC of entropy" in row], ("entropy", "epistemic")
    of = {row["fit"]: row for row in rows if row["way"] == "networks"}
    if not {"map", "ensemble"} <= of.keys():
        return []
    base = of["map"]["AUROC of entropy"]
    whole = {score: of["ensemble"][f"AUROC of {score}"] - base for score in scores}
    found = []
    for row in rows:
        own = {score: row[f"AUROC of {score}"] for score in scores}
        shares = {f"share of {score}": (own[score] - base) / whole[score] for score in scores}
        found.append({"fit": row["fit"], "way": row["way"], **own, **shares})
    return found


def gains_table(rows: list[dict[str, Any]]) -> str:
    heads = list(rows[0]) if rows else []
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"] if rows else []
    cells = [[row["fit"], row["way"], *(f"{row[head]:.3f}" for head in heads[2:])] for row in rows]
    return "\n".join([*lines, *(f"| {' | '.join(one)} |" for one in cells)])


def latency_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| network | rows | method | ms | ratio to the forward pass |", "|---|---|---|---|---|"]
    made = [f"| {r['network']} | {r['rows']} | {r['method']} | {r['ms']:.3f} | {r['ratio']:.2f} |" for r in rows]
    return "\n".join([*lines, *made])
