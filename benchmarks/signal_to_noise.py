"""Signal-to-noise ratios of the weights of a mean-field posterior, and its errors after pruning."""

import itertools
import math
from typing import Any

import jax
import numpy as np

import tunbridge as tb
from tunbridge.applications import compression

FRACTIONS = (0.0, 0.5, 0.75, 0.95, 0.98)


def scores(model: tb.Model, params: Any, part: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Error in percent and NLL in nats of the average of networks with stacked parameters."""
    x, y = part
    probs = np.asarray(tb.Draws(model, jax.random.key(0), params).predict(x).probs)
    nll = -np.mean(np.log(np.maximum(probs[np.arange(len(y)), y], 1e-12)))
    return {"error": 100 * float(np.mean(probs.argmax(1) != y)), "nll": float(nll)}


def pruning(posterior: tb.VariationalGaussian, ways: dict[str, Any], test: tuple[np.ndarray, np.ndarray]) -> list[dict]:
    """Errors by the fraction removed, the order of removal and the way of predicting."""
    rows = []
    for by, prune in (("snr", compression.prune_by_snr), ("magnitude", compression.prune_by_magnitude)):
        for fraction in FRACTIONS:
            masks = [np.asarray(leaf) for leaf in jax.tree.leaves(prune(posterior, fraction).kept)]
            row = {"by": by, "removed": fraction, "kept": int(sum(mask.sum() for mask in masks))}
            for how, params in ways.items():
                leaves, treedef = jax.tree.flatten(params.weights)
                thinned = [leaf * mask[None] for leaf, mask in zip(leaves, masks, strict=True)]
                thinned = params._replace(weights=jax.tree.unflatten(treedef, thinned))
                row[how] = scores(posterior.model, thinned, test)["error"]
            rows.append(row)
    return rows


def absolute(posterior: tb.VariationalGaussian) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Absolute means and standard deviations of each array of weights."""
    mean = [np.abs(np.asarray(leaf)) for leaf in jax.tree.leaves(posterior.q.mean.weights)]
    return mean, [np.sqrt(np.asarray(leaf)) for leaf in jax.tree.leaves(posterior.q.variance().weights)]


def spread(posterior: tb.VariationalGaussian) -> dict[str, Any]:
    """Signal-to-noise ratios of all weights: quantiles, histogram, modes; and sizes of mu and sigma."""
    mean, sds = (np.concatenate([leaf.ravel() for leaf in leaves]) for leaves in absolute(posterior))
    ratios = mean / sds
    decibels = 20 * np.log10(np.maximum(ratios, 1e-6))
    at = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    edges = np.arange(math.floor(np.quantile(decibels, 0.001)), math.ceil(decibels.max()) + 1)
    counts = np.histogram(decibels, edges)[0]
    return {
        "quantiles at": at,
        "decibels": np.quantile(decibels, at).round(2).tolist(),
        "sigma": np.quantile(sds, at).tolist(),
        "|mu|": np.quantile(mean, at).tolist(),
        "share below 0.1": float(np.mean(ratios < 0.1)),
        "share below 1": float(np.mean(ratios < 1.0)),
        "histogram from": float(edges[0]),
        "histogram": counts.tolist(),
        **modes(counts, edges, decibels),
    }


def modes(counts: np.ndarray, edges: np.ndarray, decibels: np.ndarray) -> dict[str, Any]:
    """The two peaks above a tenth of the highest with the deepest dip between: two modes if below 0.9 of the lower."""
    smooth = np.convolve(counts, np.array([1, 2, 3, 2, 1]) / 9, "same")
    inner = smooth[1:-1]
    peaks = 1 + np.flatnonzero((inner > smooth[:-2]) & (inner >= smooth[2:]) & (inner > 0.1 * smooth.max()))
    pairs = [(a + int(np.argmin(smooth[a:b])), a, b) for a, b in itertools.combinations(peaks.tolist(), 2)]
    if not pairs:
        return {"bimodal": False}
    depth, dip, a, b = min((smooth[dip] / min(smooth[a], smooth[b]), dip, a, b) for dip, a, b in pairs)
    below = float(np.mean(decibels < edges[dip] + 0.5))
    places = [float(edges[place] + 0.5) for place in (a, dip, b)]
    return {"bimodal": bool(depth < 0.9), "peak, dip, peak": places, "depth": float(depth), "share below dip": below}
