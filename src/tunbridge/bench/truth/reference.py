"""Reference posteriors: what a network's functions are believed to be, with how that was found and checked."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tunbridge import diagnostics, metrics
from tunbridge.bench.truth.temperature import refuse_tempered
from tunbridge.core import archive, tables
from tunbridge.core.data import Data, check_x
from tunbridge.core.errors import ConvergenceWarning, InputError, LoadError, TunbridgeError
from tunbridge.core.provenance import describe, record
from tunbridge.core.types import Key, Predictive
from tunbridge.inference.base import Iterative, Method
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.summary import unknowns
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.runtime.loop import Run

RHAT, SHARE = 1.01, 0.99
"""R-hat is below the first at this share of the inputs, or a run is no reference."""
APART = 0.1
"""In posterior standard deviations: how far the halves' means, and their standard deviations, may be apart there."""
_LIMITS = {"R-hat": RHAT, "means apart": APART, "deviations apart": APART}
FORMAT = 2
_KIND = "tunbridge reference"
FOLDER = Path(__file__).parent / "references"
"""Where those lie that come with the package."""
ELSEWHERE = "TUNBRIDGE_REFERENCES"
"""The variable that names a folder of others."""
AMONG, BETWEEN, BEYOND = 0, 1, 2
"""Places of inputs."""


class ReferenceError(TunbridgeError):
    """A run that is no reference: the checks that it failed, with their numbers."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """Draws of functions, how they were made, and the checks they passed.

    Parameters
    ----------
    name
        What it is called.
    x
        Inputs, (points, ...features).
    predictions
        Expected y, or probabilities of classes, of each draw at x: (draws, points, outputs or classes), float32.
    noise
        Unknown noise of the same draws, in its own units, (draws, unknowns).
    classes
        Whether y is a class.
    provenance
        The model and the method in words, the numbers of the key, versions, device, seconds.
    checks
        By name: R-hat at 99 % of the inputs, how far the means and standard deviations of two independent halves are
        apart there, in posterior standard deviations, their sliced Wasserstein distance, the least bulk ESS.
    places
        Of each input, (points,): 0 among the data, 1 in a gap between them, 2 beyond. None if nobody said.
    """

    name: str
    x: np.ndarray
    predictions: np.ndarray
    noise: np.ndarray
    classes: bool
    provenance: dict[str, Any]
    checks: dict[str, float]
    places: np.ndarray | None = None

    @property
    def probs(self) -> np.ndarray:
        """Probabilities of classes, averaged over draws, (points, classes)."""
        return self.predictions.mean(axis=0)

    @property
    def row(self) -> dict[str, Any]:
        """What it is in a line: of what, how many draws and inputs, and its checks."""
        draws, points = self.predictions.shape[:2]
        made = self.provenance
        found = {"y": "classes" if self.classes else "numbers", "rows": made["rows"], "draws": draws, "inputs": points}
        return {**found, "gap": "no" if self.places is None else "yes", **self.checks, "seconds": made["seconds"]}

    def save(self, path: str | os.PathLike) -> None:
        """Write one file of arrays and JSON, which `load_reference` gives back to the bit."""
        facts = {"kind": _KIND, "format": FORMAT, "name": self.name, "classes": self.classes}
        facts |= {"provenance": self.provenance, "checks": self.checks}
        arrays = {"0": self.x, "1": self.predictions, "2": self.noise}
        arrays |= {} if self.places is None else {"3": self.places}
        archive.write(Path(path), facts, arrays)

    def __rich__(self):
        """A table for rich."""
        return tables.to_rich(self._rows, self._sentences)

    def __str__(self) -> str:
        return tables.to_text(self._rows, self._sentences)

    def _repr_html_(self) -> str:
        return tables.to_html(self._rows, f"reference {self.name}", self._sentences)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"check": name, "value": value, "limit": _LIMITS.get(name, np.nan)} for name, value in self.checks.items()
        ]

    @property
    def _sentences(self) -> tuple[str, ...]:
        draws, points = self.predictions.shape[:2]
        made = (
            f"{draws} draws at {points} inputs, by {self.provenance['method']} in {self.provenance['seconds']:.0f} s."
        )
        return made, f"{self.provenance['device']}, {', '.join(self.provenance['versions'])}."


def references(folder: str | os.PathLike | None = None) -> dict[str, Path]:
    """Files by name: those in a folder (or else in the one that TUNBRIDGE_REFERENCES names), and those of the package.

    A name that both have is the package's: what is published under it stays comparable.
    """
    place = folder or os.environ.get(ELSEWHERE)
    others = sorted(Path(place).glob("*.npz")) if place else []
    return {file.stem: file for file in (*others, *sorted(FOLDER.glob("*.npz")))}


def load_reference(path: str | os.PathLike, folder: str | os.PathLike | None = None) -> Reference:
    """A reference from a file, or by the name that `references` knows it by.

    Examples
    --------
    >>> reference = load_reference("curve")
    >>> reference.predictions.shape[1:], reference.checks["R-hat"] < 1.01
    ((50, 1), True)
    """
    known = references(folder)
    place = known.get(str(path), Path(path))
    if not place.is_file():
        raise InputError(f"a file, or one of {', '.join(sorted(known))}", f"{path}", "Check the name.")
    try:
        return _read(*archive.read(place))
    except LoadError as error:
        raise LoadError(f"{place} cannot be loaded: {error} Make or download it again.") from error


def _read(facts: Any, arrays: dict[str, np.ndarray]) -> Reference:
    if not isinstance(facts, dict) or facts.get("kind") != _KIND or not isinstance(facts.get("format"), int):
        raise LoadError("it is no reference.")
    if facts["format"] > FORMAT:
        raise LoadError("it was written by a newer Tunbridge: upgrade.")
    kinds = {"name": str, "classes": bool, "provenance": dict, "checks": dict}
    known = set(arrays) - {"3"} == {"0", "1", "2"} and all(isinstance(facts.get(n), kind) for n, kind in kinds.items())
    if not known or not {"method", "rows", "seconds"} <= set(facts["provenance"]):
        raise LoadError("it lacks a part, or has one that no save writes.")
    x, predictions, noise, places = (arrays.get(name, np.zeros(0)) for name in "0123")
    shapes = (x.shape[:1], predictions.shape[1:2], noise.shape[:1], places.shape if "3" in arrays else x.shape[:1])
    wanted = (x.shape[:1], x.shape[:1], predictions.shape[:1], x.shape[:1])
    if predictions.ndim != 3 or shapes != wanted or any(np.isnan(array).any() for array in (x, predictions, noise)):
        raise LoadError("its arrays do not fit together.")
    rest = (facts["classes"], facts["provenance"], facts["checks"], arrays.get("3"))
    return Reference(facts["name"], x, predictions, noise, *rest)


def make_reference(
    model: Model,
    data: Data,
    inputs: Any,
    method: Method,
    key: Key,
    *,
    name: str = "",
    draws: int = 400,
    places: Any = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Reference:
    """Two independent runs of a sampler, which are a reference if they agree, and `ReferenceError` if not.

    They agree if R-hat over the chains of both is below 1.01 at 99 % of the inputs, and there the means of the two runs
    differ by at most 0.1 posterior standard deviations, and so do their standard deviations.

    Parameters
    ----------
    model, data
        The problem.
    inputs
        Where functions are recorded and judged, (points, ...features).
    method
        A sampler, at temperature 1. It runs twice, the second time with another key.
    key
        Decides everything random.
    name
        What to call it.
    draws
        How many of the draws, evenly spaced among all, are kept.
    places
        Of each input: 0 among the data, 1 in a gap between them, 2 beyond.
    checkpoint
        A folder to save to and to resume from, with one folder a run in it.
    progress
        Show bars.
    """
    refuse_tempered(method)
    if not isinstance(method, Iterative) or not isinstance(method.duration, Run) or method.duration.chains < 2:
        raise InputError("a sampler of several chains", describe(method), "Use tb.NUTS() or the like.")
    x, where = check_x(inputs), None if places is None else _checked(places, len(inputs))
    chains = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, one in enumerate(jax.random.split(key)):
            folder = None if checkpoint is None else Path(checkpoint) / str(number)
            chains.append(_chains(method.fit(model, data, key=one, checkpoint=folder, progress=progress)))
    functions = [half.functions(x) for half in chains]
    checks = _checks(functions, key)
    failed = [f"{name} {value:.4g}, limit {_LIMITS[name]}" for name, value in checks.items() if not _holds(name, value)]
    if failed:
        raise ReferenceError(f"This run is no reference: {'; '.join(failed)}. Run longer chains.")
    seconds = sum(half.provenance.seconds for half in chains if half.provenance)
    made = record(method, chains[0].model, seconds)
    provenance: dict[str, Any] = {"model": describe(chains[0].model), "method": made.method, "seconds": seconds}
    provenance |= {"key": np.asarray(jax.random.key_data(key)).tolist(), "rows": data.num}
    provenance |= {"versions": list(made.versions), "device": made.device}
    predictions = np.concatenate([values.reshape(-1, *values.shape[2:]) for values in functions])
    chosen = np.linspace(0, len(predictions) - 1, min(draws, len(predictions))).round().astype(int)
    noise = np.concatenate([_noise(half) for half in chains])[chosen].astype(np.float32)
    classes = isinstance(model.likelihood, OfClasses)
    return Reference(name, x, predictions[chosen].astype(np.float32), noise, classes, provenance, checks, where)


def fidelity(posterior: Posterior | Predictive, reference: Reference) -> dict[str, float]:
    """How near a posterior, or a predictive at the reference's inputs, is to the reference.

    Of numbers: ``sliced_wasserstein`` of functions, in units of y; ``mean_error``, the root mean square over inputs of
    the difference of means, and ``sd_ratio``, the geometric mean of the ratio of standard deviations of functions, the
    former in standard deviations of the reference. Of classes: ``agreement`` and ``total_variation`` of probabilities,
    and ``sliced_wasserstein`` of functions. ``between_halves`` is the latter's value between the two runs that
    the reference is kept from: of distances below it nothing can be told. Where the reference knows a gap in the data,
    ``in_between`` is the standard deviation of functions in it over that among the data (geometric means), divided by
    the same of the reference: 1 is right, below 1 too sure in the gap, and 0 a single function.
    """
    predictive = posterior.predict(reference.x) if isinstance(posterior, Posterior) else posterior
    functions = np.asarray(predictive.functions, np.float64)
    if functions.shape[1:] != reference.predictions.shape[1:]:
        raise InputError(
            f"functions of shape {reference.predictions.shape[1:]}", f"{functions.shape[1:]}", "Predict at reference.x."
        )
    key = jax.random.key(0)
    found = {"sliced_wasserstein": metrics.sliced_wasserstein(functions, reference.predictions, key)}
    middle = len(reference.predictions) // 2
    runs = reference.predictions[:middle], reference.predictions[middle:]
    found["between_halves"] = metrics.sliced_wasserstein(runs[0], runs[1], key)
    if reference.places is not None:
        found["in_between"] = opening(functions, reference.places) / opening(reference.predictions, reference.places)
    if reference.classes:
        truth: Any = reference
        found["agreement"] = metrics.agreement(predictive, truth)
        found["total_variation"] = metrics.total_variation(predictive, truth)
        return found
    sd = reference.predictions.std(axis=0, dtype=np.float64)
    off = (functions.mean(axis=0) - reference.predictions.mean(axis=0, dtype=np.float64)) / sd
    found["mean_error"] = float(np.sqrt(np.mean(off**2)))
    found["sd_ratio"] = float(np.exp(np.mean(np.log(np.maximum(functions.std(axis=0), 1e-12) / sd))))
    return found


def opening(functions: Any, places: Any) -> float:
    """The deviation of functions, (draws, points, outputs), in a gap over that among the data; 0 if there is none."""
    sd = np.asarray(functions, np.float64).std(axis=0).reshape(len(places), -1)
    if not sd.any():
        return 0.0
    among, between = (np.mean(np.log(np.maximum(sd[np.asarray(places) == place], 1e-12))) for place in (AMONG, BETWEEN))
    return float(np.exp(between - among))


def _checks(halves: list[np.ndarray], key: Key) -> dict[str, float]:
    """Of functions (chains, draws, points, outputs) of two runs."""
    both = np.concatenate(halves)
    flat = [values.reshape(-1, *values.shape[2:]).astype(np.float64) for values in halves]
    sd = np.concatenate(flat).std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    means, deviations = (np.abs(np.subtract(*(f(values) for values in flat))) / sd for f in (_mean, _deviation))
    return {
        "R-hat": float(np.nanquantile(diagnostics.rhat(both), SHARE)),
        "means apart": float(np.quantile(means, SHARE)),
        "deviations apart": float(np.quantile(deviations, SHARE)),
        "between halves": metrics.sliced_wasserstein(flat[0], flat[1], jax.random.fold_in(key, 1)),
        "least ESS": float(np.nanmin(diagnostics.ess_bulk(both))),
    }


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=0)


def _deviation(values: np.ndarray) -> np.ndarray:
    return values.std(axis=0)


def _holds(name: str, value: float) -> bool:
    return name not in _LIMITS or value < _LIMITS[name]


def _chains(posterior: Posterior) -> Chains:
    if not isinstance(posterior, Chains):
        raise InputError("a sampler that leaves chains", type(posterior).__name__, "Use tb.NUTS() or the like.")
    return posterior


def _checked(places: Any, num: int) -> np.ndarray:
    where = np.asarray(places)
    if where.shape != (num,) or not {AMONG, BETWEEN} <= set(where.tolist()) <= {AMONG, BETWEEN, BEYOND}:
        raise InputError(
            f"places of {num} inputs: 0 among the data, 1 between, 2 beyond, some of the former two",
            f"shape {where.shape}, values {sorted(set(where.ravel().tolist()))[:5]}",
            "Leave places out where there is no gap.",
        )
    return where.astype(np.int8)


def _noise(chains: Chains) -> np.ndarray:
    """Unknown noise of all draws in its own units, (draws, unknowns)."""
    flat = chains.components(chains.key, None)
    found = [one for one in unknowns(chains.model, flat, ()) if one.path.startswith("noise/")]
    num = int(np.prod(chains.shape))
    return np.concatenate([np.zeros((num, 0)), *(one.draws.reshape(num, -1) for one in found)], axis=1)
