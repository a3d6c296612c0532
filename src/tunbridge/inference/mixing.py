"""Convergence of chains: of functions, of weights once their symmetries are undone, and of their energies."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tunbridge import diagnostics
from tunbridge.core.types import PyTree
from tunbridge.inference.summary import Summary, Unknown, moments, unknowns
from tunbridge.model.networks import symmetries

LEAST_DRAWS = 4
"""The fewest draws per chain for which convergence is assessed."""
_MOST = 64
"""The most elements of an array, evenly spaced, for which diagnostics are computed."""
_MOST_WORK = 5e9
"""The most draws times cubed widths for which hidden units are matched: this takes some seconds."""
_RHAT, _ESS, _BFMI, _HOT = 1.01, 400.0, 0.3, 1.2
TEMPERATURE = "temperature/"
"""Prefix of the names of kinetic temperatures among a sampler's statistics."""


def summarise_chains(chains: Any, functions: np.ndarray) -> Summary:
    """Return the convergence of functions (chains, draws, ...), and of each array of unknowns of `Chains`.

    R-hat and effective sample sizes are computed for up to 64 elements of an array, evenly spaced.
    """
    weights, label, sentence = _comparable(chains)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chains.params)
    arrays = [Unknown("function", functions.reshape(-1, *functions.shape[2:]), "value")]
    arrays += unknowns(chains.model, flat, weights, label)
    if "log_density" in chains.stats:
        arrays.append(Unknown("log density", np.asarray(chains.stats["log_density"]).reshape(-1), "nats"))
    return _judged(chains, functions, arrays, sentence)


def summarise_functions(chains: Any, functions: np.ndarray) -> Summary:
    """Return the convergence of functions (chains, draws, ...) alone."""
    arrays = [Unknown("function", functions.reshape(-1, *functions.shape[2:]), "value")]
    return _judged(chains, functions, arrays, "Weights were not kept.")


def _judged(chains: Any, functions: np.ndarray, arrays: list[Unknown], sentence: str) -> Summary:
    temperatures = _temperatures(chains.stats)
    rows = [
        _row(unknown, chains.shape) | ({"temperature": temperatures.get(unknown.path)} if temperatures else {})
        for unknown in arrays
    ]
    reasons = doubts(chains, functions)
    verdict = reasons or ["R-hat, ESS, energies and divergences give no reason for doubt."]
    return Summary(rows, (_facts(chains), *chains.notes, sentence, *verdict))


def doubts(chains: Any, functions: np.ndarray) -> list[str]:
    """Return reasons not to trust `Chains`, each a sentence with the number and the next step; [] if none."""
    num, draws = chains.shape
    if draws < LEAST_DRAWS:
        return [f"There are {draws} draws per chain, too few to judge: draw at least {LEAST_DRAWS}."]
    values = _thinned(functions)
    return [
        *(_modes(functions) if num > 1 else ["A single chain cannot be compared with others: run four."]),
        *_mixing(values),
        *_divergences(chains.stats),
        *_energies(chains.stats),
        *_heat(chains.stats),
    ]


def _modes(functions: np.ndarray) -> list[str]:
    groups = diagnostics.modes(functions)
    if len(groups) == 1:
        return []
    named = " | ".join(_listed(group) for group in groups)
    return [
        f"Chains {named} predict differently, by more than a standard deviation within a chain: each is in a mode of "
        "its own. Narrow the prior (fan_in), start closer together, or report the modes separately."
    ]


def _mixing(values: np.ndarray) -> list[str]:
    sentences = []
    rhat, ess = diagnostics.rhat(values), diagnostics.ess_bulk(values)
    share = np.mean(rhat > _RHAT)
    if share > 0:
        sentences.append(
            f"R-hat is above {_RHAT} at {share:.0%} of the inputs, {_over(np.max, rhat):.3f} at worst: chains have not "
            "mixed. Run a longer warm-up and more draws."
        )
    least = _over(np.min, ess)
    if least < _ESS:
        sentences.append(
            f"The lowest bulk ESS of a prediction is {least:,.0f} of {values.shape[0] * values.shape[1]:,} draws, "
            f"below {_ESS:.0f}. Draw about {np.ceil(_ESS / least):.0f} times as many."
        )
    return sentences


def _divergences(stats: dict[str, Any]) -> list[str]:
    divergent = np.asarray(stats.get("divergent", False))
    if not divergent.any():
        return []
    return [
        f"{divergent.sum():,} of {divergent.size:,} draws diverged: regions of high curvature are missed. Ask for a "
        "higher acceptance, or give scales narrower priors."
    ]


def _energies(stats: dict[str, Any]) -> list[str]:
    if "energy" not in stats:
        return []
    bfmi = diagnostics.bfmi(stats["energy"])
    low = np.flatnonzero(bfmi < _BFMI)
    if not low.size:
        return []
    return [
        f"E-BFMI is {bfmi.min():.2f}, below {_BFMI}, in chains {_listed(low)}: tails are explored slowly. Give scales "
        "and noise priors with lighter tails, or run a longer warm-up."
    ]


def _temperatures(stats: dict[str, Any]) -> dict[str, float]:
    """The mean kinetic temperature of each array of unknowns, if the sampler measures it."""
    named = {name.removeprefix(TEMPERATURE): values for name, values in stats.items() if name.startswith(TEMPERATURE)}
    return {path: float(np.mean(values)) for path, values in named.items()}


def _heat(stats: dict[str, Any]) -> list[str]:
    temperatures = _temperatures(stats)
    hot = {path: value for path, value in temperatures.items() if not value < _HOT}
    if not hot:
        return []
    worst = max(hot, key=lambda path: hot[path])
    return [
        f"The kinetic temperature of {worst} is {hot[worst]:.2f} where 1 is right: its posterior is too wide. Use "
        "a smaller step size or larger batches."
    ]


def _comparable(chains: Any) -> tuple[PyTree, str, str]:
    """Weights with a leading axis, aligned across draws if possible; their label; and a sentence about it."""
    network = chains.model.network
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chains.params)
    weights = jax.vmap(chains.model.weights)(flat)
    if not symmetries.are_known(network):
        name = type(network).__name__
        return weights, "weights", f"The symmetries of {name} are not known: its weights are compared as they are."
    num = int(np.prod(chains.shape))
    if num * sum(width**3 for width in network.hidden) > _MOST_WORK:
        return weights, "weights", "There are too many hidden units to match: weights are compared as they are."
    best = int(np.argmax(chains.stats["log_density"])) if "log_density" in chains.stats else num - 1
    reference = jax.tree.map(lambda leaf: leaf[best], weights)
    sentence = "Weights are compared once hidden units are matched to those of one draw, in order and sign."
    return symmetries.aligned(network, weights, reference), "aligned", sentence


def _row(unknown: Unknown, shape: tuple[int, int]) -> dict[str, Any]:
    values = _thinned(unknown.draws.reshape(*shape, *unknown.draws.shape[1:]))
    rhat, bulk = diagnostics.rhat(values), diagnostics.ess_bulk(values)
    figures = {
        "mcse": _over(np.max, diagnostics.mcse(values)),
        "R-hat worst": _over(np.max, rhat),
        "R-hat median": _over(np.median, rhat),
        "ESS bulk worst": _over(np.min, bulk),
        "ESS bulk median": _over(np.median, bulk),
        "ESS tail worst": _over(np.min, diagnostics.ess_tail(values)),
    }
    row = moments(unknown)
    label = row.pop("as")
    return {**row, **figures, "as": label}


def _facts(chains: Any) -> str:
    stats, (num, draws) = chains.stats, chains.shape
    facts = [f"{num} chains of {draws:,} draws"]
    if "acceptance" in stats:
        facts.append(f"mean acceptance {np.mean(stats['acceptance']):.2f}")
    if "gradients" in stats:
        facts.append(f"{np.mean(stats['gradients']):.1f} evaluations per draw")
    if "divergent" in stats:
        facts.append(f"{np.sum(stats['divergent']):,} divergent")
    if "energy" in stats:
        facts.append(f"E-BFMI {diagnostics.bfmi(stats['energy']).min():.2f} at least")
    return ", ".join(facts) + "."


def _thinned(values: np.ndarray) -> np.ndarray:
    """Values as (chains, draws, elements), with at most `_MOST` elements, evenly spaced."""
    flat = values.reshape(*values.shape[:2], -1)
    chosen = np.linspace(0, flat.shape[-1] - 1, min(flat.shape[-1], _MOST)).round().astype(int)
    return flat[..., chosen]


def _over(reduce: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    """The reduction over all values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(reduce(known)) if known.size else np.nan


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, numbers))
