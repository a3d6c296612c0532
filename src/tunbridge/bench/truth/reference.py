"""Reference posteriors: draws of a network's functions from long chains, with their provenance and checks."""

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from tunbridge import diagnostics, metrics
from tunbridge.bench.truth.temperature import refuse_tempered
from tunbridge.core import archive, tables
from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, as_floats, checked
from tunbridge.core.errors import ConvergenceWarning, InputError, LoadError, TunbridgeError
from tunbridge.core.loaders import as_data
from tunbridge.core.provenance import describe, record
from tunbridge.core.types import Key
from tunbridge.inference.base import Iterative, Method
from tunbridge.inference.chains import Chains
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.summary import unknowns
from tunbridge.model.likelihoods.base import OfClasses
from tunbridge.model.model import Model
from tunbridge.runtime.durations import Run

RHAT, SHARE = 1.01, 0.99
"""Limit on R-hat, and the share of inputs at which a reference must meet its limits."""
APART = 0.1
"""Limit, in posterior standard deviations, on the difference of means and of standard deviations between halves."""
_LIMITS = {"R-hat": RHAT, "means apart": APART, "deviations apart": APART}
FORMAT = 2
_KIND = "tunbridge reference"
FOLDER = Path(__file__).parent / "references"
"""The folder of references that come with the package."""
ELSEWHERE = "TUNBRIDGE_REFERENCES"
"""The environment variable that names a folder of further references."""
AMONG, BETWEEN, BEYOND = 0, 1, 2
"""Codes for the place of an input: among the data, in a gap between them, or beyond them."""


class OfFunctions(Protocol):
    """A predictive distribution with draws of functions, such as `tunbridge.Predictive`."""

    @property
    def functions(self) -> Any:
        """Means or class probabilities under each network, (networks, points, outputs or classes)."""
        ...


class ReferenceError(TunbridgeError):
    """A run does not qualify as a reference; the message lists the failed checks with values and limits."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference posterior: draws of functions, their provenance, and the checks they passed.

    Parameters
    ----------
    name
        Its name.
    x
        Inputs, (points, ...features).
    predictions
        Expected y, or class probabilities, for each draw at x: (draws, points, outputs or classes), float32.
    noise
        Unknown noise parameters of the same draws, in their own units, (draws, unknowns).
    classes
        Whether y is a class.
    provenance
        The model and the method as text, the key data, versions, device, seconds.
    checks
        By name: the 99 % quantiles over inputs of R-hat and of the differences between the means and standard
        deviations of two independent halves, in posterior standard deviations; the sliced Wasserstein distance between
        the halves; the smallest bulk ESS.
    places
        The place of each input, (points,): 0 among the data, 1 in a gap between them, 2 beyond. None if not given.
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
        """Class probabilities averaged over draws, (points, classes)."""
        return self.predictions.mean(axis=0)

    @property
    def row(self) -> dict[str, Any]:
        """Kind of y, numbers of rows, draws and inputs, whether it has a gap, checks and seconds, for a table."""
        draws, points = self.predictions.shape[:2]
        made = self.provenance
        cells = {"y": "classes" if self.classes else "numbers", "rows": made["rows"], "draws": draws, "inputs": points}
        return {**cells, "gap": "no" if self.places is None else "yes", **self.checks, "seconds": made["seconds"]}

    def save(self, path: str | os.PathLike) -> None:
        """Write one file of arrays and JSON, from which `load_reference` restores the exact bits."""
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


@checked
def references(folder: str | os.PathLike | None = None) -> dict[str, Path]:
    """Reference files by name: those in `folder` (TUNBRIDGE_REFERENCES by default), and those of the package.

    If both have a name, the package's file is used, so that results published under that name stay comparable.
    """
    place = folder or os.environ.get(ELSEWHERE)
    others = sorted(Path(place).glob("*.npz")) if place else []
    return {file.stem: file for file in (*others, *sorted(FOLDER.glob("*.npz")))}


@checked
def load_reference(path: str | os.PathLike, folder: str | os.PathLike | None = None) -> Reference:
    """Load a reference from a file, or by a name that `references` lists.

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
        raise LoadError("it is not a reference file.")
    if facts["format"] > FORMAT:
        raise LoadError("it was written by a newer Tunbridge: upgrade.")
    kinds = {"name": str, "classes": bool, "provenance": dict, "checks": dict}
    known = set(arrays) - {"3"} == {"0", "1", "2"} and all(isinstance(facts.get(n), kind) for n, kind in kinds.items())
    if not known or not {"method", "rows", "seconds"} <= set(facts["provenance"]):
        raise LoadError("a part is missing, or is not what save() writes.")
    x, predictions, noise, places = (arrays.get(name, np.zeros(0)) for name in "0123")
    shapes = (x.shape[:1], predictions.shape[1:2], noise.shape[:1], places.shape if "3" in arrays else x.shape[:1])
    expected = (x.shape[:1], x.shape[:1], predictions.shape[:1], x.shape[:1])
    if predictions.ndim != 3 or shapes != expected or any(np.isnan(array).any() for array in (x, predictions, noise)):
        raise LoadError("its arrays have shapes that do not match, or contain NaN.")
    rest = (facts["classes"], facts["provenance"], facts["checks"], arrays.get("3"))
    return Reference(facts["name"], x, predictions, noise, *rest)


@checked
def make_reference(
    model: Model,
    data: Any,
    inputs: Any,
    method: Method,
    key: Key,
    *,
    name: str = "",
    draws: Count = 400,
    places: Any = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Reference:
    """Run a sampler twice, independently; return a reference if the runs agree, or raise `ReferenceError`.

    They agree if, at 99 % of the inputs, R-hat over the chains of both is below 1.01, and the means of the two runs
    differ by less than 0.1 posterior standard deviations, and so do their standard deviations.

    Parameters
    ----------
    model, data
        The problem; data as for `fit`.
    inputs
        Inputs at which functions are recorded and checked, (points, ...features).
    method
        A sampler, at temperature 1. It runs twice, the second time with another key.
    key
        Decides everything random.
    name
        The name of the reference.
    draws
        The number of draws to keep, evenly spaced among all.
    places
        The place of each input: 0 among the data, 1 in a gap between them, 2 beyond.
    checkpoint
        A folder to save to and to resume from, with one subfolder per run.
    progress
        Whether to show progress bars.
    """
    refuse_tempered(method)
    if not isinstance(method, Iterative) or not isinstance(method.duration, Run) or method.duration.chains < 2:
        raise InputError("a sampler of several chains", describe(method), "Use tb.NUTS() or the like.")
    data = as_data(data)
    x, where = check_x(inputs), None if places is None else _checked(places, len(inputs))
    chains = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, run_key in enumerate(jax.random.split(key)):
            folder = None if checkpoint is None else Path(checkpoint) / str(number)
            half = method.fit(model, data, key=run_key, checkpoint=folder, progress=progress)
            if not isinstance(half, Chains):
                raise InputError("a sampler that returns chains", type(half).__name__, "Use tb.NUTS() or the like.")
            chains.append(half)
    functions = [half.functions(x) for half in chains]
    checks = _checks(functions, key)
    failed = [f"{name} {value:.4g}, limit {_LIMITS[name]}" for name, value in checks.items() if not _holds(name, value)]
    if failed:
        raise ReferenceError(f"This run is not a reference: {'; '.join(failed)}. Run longer chains.")
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


@checked
def fidelity(posterior: Posterior | OfFunctions, reference: Reference) -> dict[str, float]:
    """Distances of a posterior, or of a predictive at the reference's inputs, from the reference.

    For regression: ``sliced_wasserstein`` between functions, in units of y; ``mean_error``, the root mean square over
    inputs of the difference of means, in standard deviations of the reference; and ``sd_ratio``, the geometric mean of
    the ratio of standard deviations of functions. For classification: ``agreement`` and ``total_variation`` of
    probabilities, and ``sliced_wasserstein`` between functions. ``between_halves`` is the sliced Wasserstein distance
    between the two runs of the reference: smaller distances are not resolved. If the reference has a gap in the data,
    ``in_between`` is the standard deviation of functions in the gap over that among the data (geometric means), divided
    by the same ratio for the reference: 1 is correct, below 1 overconfident in the gap, and 0 a single function.
    """
    predictive: Any = posterior.predict(reference.x) if isinstance(posterior, Posterior) else posterior
    functions = np.asarray(predictive.functions, np.float64)
    if functions.shape[1:] != reference.predictions.shape[1:]:
        raise InputError(
            f"functions of shape {reference.predictions.shape[1:]}", f"{functions.shape[1:]}", "Predict at reference.x."
        )
    key = jax.random.key(0)
    distances = {"sliced_wasserstein": metrics.sliced_wasserstein(functions, reference.predictions, key)}
    middle = len(reference.predictions) // 2
    runs = reference.predictions[:middle], reference.predictions[middle:]
    distances["between_halves"] = metrics.sliced_wasserstein(runs[0], runs[1], key)
    if reference.places is not None:
        distances["in_between"] = opening(functions, reference.places) / opening(
            reference.predictions, reference.places
        )
    if reference.classes:
        truth: Any = reference
        distances["agreement"] = metrics.agreement(predictive, truth)
        distances["total_variation"] = metrics.total_variation(predictive, truth)
        return distances
    sd = reference.predictions.std(axis=0, dtype=np.float64)
    off = (functions.mean(axis=0) - reference.predictions.mean(axis=0, dtype=np.float64)) / sd
    distances["mean_error"] = float(np.sqrt(np.mean(off**2)))
    distances["sd_ratio"] = float(np.exp(np.mean(np.log(np.maximum(functions.std(axis=0), 1e-12) / sd))))
    return distances


def opening(functions: Any, places: Any) -> float:
    """Standard deviation of functions, (draws, points, outputs), in a gap over that among the data; 0 if all agree."""
    sd = np.asarray(functions, np.float64).std(axis=0).reshape(len(places), -1)
    if not sd.any():
        return 0.0
    among, between = (np.mean(np.log(np.maximum(sd[np.asarray(places) == place], 1e-12))) for place in (AMONG, BETWEEN))
    return float(np.exp(between - among))


def _checks(halves: list[np.ndarray], key: Key) -> dict[str, float]:
    """The checks of a reference, for functions (chains, draws, points, outputs) of two runs."""
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


def _checked(places: Any, num: int) -> np.ndarray:
    where = as_floats(places, "places")
    if where.shape != (num,) or not {AMONG, BETWEEN} <= set(where.tolist()) <= {AMONG, BETWEEN, BEYOND}:
        raise InputError(
            f"places of {num} inputs: 0 among the data, 1 between, 2 beyond, with both 0 and 1 present",
            f"shape {where.shape}, values {sorted(set(where.ravel().tolist()))[:5]}",
            "Leave places out where there is no gap.",
        )
    return where.astype(np.int8)


def _noise(chains: Chains) -> np.ndarray:
    """Unknown noise parameters of all draws in their own units, (draws, unknowns)."""
    flat = chains.components(chains.key, None)
    noises = [unknown for unknown in unknowns(chains.model, flat, ()) if unknown.path.startswith("noise/")]
    num = int(np.prod(chains.shape))
    return np.concatenate([np.zeros((num, 0)), *(unknown.draws.reshape(num, -1) for unknown in noises)], axis=1)
