"""Saved posteriors: a folder with one file of arrays and JSON, from which `load` restores them to the bit.

A model of built-in parts is stored whole. For a part that is the user's own (functions, an Equinox module, a class) the
file holds only its name; the model must then be passed to `load`, with weights of the same paths and shapes.
"""

import datetime
import importlib.metadata
import itertools
import logging
import os
import platform
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tunbridge.core import archive, names
from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError, LoadError
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import PyTree
from tunbridge.model import spec
from tunbridge.model.model import Model
from tunbridge.runtime import compiler, programs

logger = logging.getLogger(__name__)

FORMAT = 1
_KIND = "tunbridge posterior"
_FILE = "posterior.npz"
_PARTS = ("network", "prior", "likelihood")
_PIECES = {
    "Cut": "tunbridge.core.provenance:Cut",
    "Provenance": "tunbridge.core.provenance:Provenance",
    "Scaling": "tunbridge.datasets.scaling:Scaling",
    "conjugate.Normal": "tunbridge.inference.linear.conjugate:Normal",
    "conjugate.NormalInverseGamma": "tunbridge.inference.linear.conjugate:NormalInverseGamma",
    "linalg.Covariance": "tunbridge.core.linalg:Covariance",
    "linalg.Diagonal": "tunbridge.core.linalg:Diagonal",
    "linalg.Kronecker": "tunbridge.core.linalg:Kronecker",
    "linalg.Spectral": "tunbridge.core.linalg:Spectral",
    "linear.Moments": "tunbridge.inference.linear.moments:Moments",
    "linear.Solved": "tunbridge.inference.linear.moments:Solved",
    "links.Bridge": "tunbridge.predict.links:Bridge",
    "links.MonteCarlo": "tunbridge.predict.links:MonteCarlo",
    "links.Probit": "tunbridge.predict.links:Probit",
    "links.Quadrature": "tunbridge.predict.links:Quadrature",
    "structures.BlockDiagonal": "tunbridge.inference.laplace.structures:BlockDiagonal",
    "structures.Diagonal": "tunbridge.inference.laplace.structures:Diagonal",
    "structures.Full": "tunbridge.inference.laplace.structures:Full",
    "structures.Kronecker": "tunbridge.inference.laplace.structures:Kronecker",
    "structures.LowRank": "tunbridge.inference.laplace.structures:LowRank",
    "subsets.All": "tunbridge.model.subsets:All",
    "subsets.LastLayer": "tunbridge.model.subsets:LastLayer",
    "subsets.Mask": "tunbridge.model.subsets:Mask",
    "subsets.Paths": "tunbridge.model.subsets:Paths",
    "vi.Dense": "tunbridge.inference.vi.spreads:Dense",
    "vi.Diagonal": "tunbridge.inference.vi.spreads:Diagonal",
    "vi.Gaussian": "tunbridge.inference.vi.gaussian:Gaussian",
    "vi.LowRankDiagonal": "tunbridge.inference.vi.spreads:LowRankDiagonal",
    "vi.MatrixVariate": "tunbridge.inference.vi.spreads:MatrixVariate",
}
"""The classes, besides those of models, that a posterior's fields may hold: name in the file -> place."""


def _table() -> dict[str, str]:
    """The classes that a file may name: name -> place."""
    parts = spec.classes(_PIECES, {"posteriors": names.POSTERIORS})
    return {name: place for name, place in parts.items() if name != "Model"}


def save(posterior: Any, path: str | os.PathLike) -> None:
    """Save a posterior to a folder; see `Posterior.save`."""
    encoder = _Writer(posterior.model).encoder
    facts = {
        "kind": _KIND,
        "format": FORMAT,
        "written": _written(),
        "posterior": encoder.encode(posterior),
        "model": _model_spec(encoder, posterior),
    }
    archive.write(Path(path) / _FILE, facts, encoder.arrays)
    logger.info("saved %s to %s", type(posterior).__name__, path)


@checked
@programs.unforked
def load(path: str | os.PathLike, model: Model | None = None) -> Any:
    """Return the posterior that `Posterior.save` wrote to a folder, equal to the bit.

    A file holds only arrays and names from a fixed table, so loading an untrusted file runs none of its code. A file
    that is damaged, newer than this Tunbridge, or of another model is refused with a `LoadError`.

    Parameters
    ----------
    path
        The folder.
    model
        The model it was fitted with, bound to data or not; needed only if parts of it are your own: functions, an
        Equinox module, classes that Tunbridge does not know.
    """
    file = Path(path) / _FILE
    if not file.is_file():
        raise LoadError(f"There is no posterior in {path}: save writes {_FILE} into the folder that it is given.")
    programs.keep()
    compiler.check()
    try:
        return _load(*archive.read(file), model)
    except LoadError as error:
        raise LoadError(f"{file} cannot be loaded: {error}") from error


def _load(facts: Any, arrays: dict[str, np.ndarray], given: Model | None) -> Any:
    if not isinstance(facts, dict) or facts.get("kind") != _KIND or not isinstance(facts.get("format"), int):
        raise LoadError("it is not a posterior that Tunbridge saved.")
    if facts["format"] > FORMAT:
        raise LoadError(f"its format {facts['format']} is newer than this Tunbridge, which reads {FORMAT}: upgrade.")
    if set(facts) != {"kind", "format", "written", "model", "posterior"}:
        raise LoadError("it lacks a part, or has one that no save writes.")
    try:
        return _rebuild(facts, _Reader(arrays), given)
    except LoadError:
        raise
    except Exception as error:  # any malformed file must end in one sentence
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise LoadError(f"its parts do not fit together ({reason}).") from error


def _rebuild(facts: dict[str, Any], reader: "_Reader", given: Model | None) -> Any:
    stored = _read_model(reader.decoder, facts["model"])
    reader.model = _bound(given, stored) if given is not None else _whole(stored)
    posterior = reader.decoder.decode(facts["posterior"])
    _check_fits(posterior, reader.model)
    if given is not None:
        _check_same_parts(stored, reader.model)
    return posterior


class _Writer:
    """Writes the model by reference, and weights of the user's own tree as (path, array)."""

    def __init__(self, model: Model):
        self.encoder = spec.Encoder(_table(), self._other)
        self._model = model
        self._structure = None if model.inputs is None else jax.tree.structure(_weights_like(model))

    def _other(self, thing: Any) -> Any:
        if isinstance(thing, Model):
            if thing is not self._model and not eqx.tree_equal(thing, self._model):
                raise InputError("members of one model", "another model in a member", "Save the members one by one.")
            return {"model": []}
        if self._structure is None or jax.tree.structure(thing) != self._structure:
            spec.refuse_thing(thing)
        return {"weights": [[path, self.encoder.encode(leaf)] for path, leaf in flatten_with_paths(thing)]}


class _Reader:
    """Reads what `_Writer` writes."""

    model: Model

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.decoder = spec.Decoder(arrays, _table(), {"model": lambda _: self.model, "weights": self._weights})

    def _weights(self, pairs: list) -> PyTree:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            spec.refuse(pairs)
        like = _weights_like(self.model)
        _compare([str(path) for path, _ in pairs], [path for path, _ in flatten_with_paths(like)])
        return jax.tree.unflatten(jax.tree.structure(like), [self.decoder.decode(leaf) for _, leaf in pairs])


def _written() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in ("tunbridge", "jax", "numpy")}
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**versions, "python": platform.python_version(), "time": time}


def _model_spec(encoder: spec.Encoder, posterior: Any) -> dict[str, Any]:
    """Each part of the model in full, or the name of its class if it is the user's own."""
    model = posterior.model
    parts: dict[str, Any] = {}
    for name in _PARTS:
        part = getattr(model, name)
        parts[name] = encoder.encode(part) if _is_built_in(part) else {"custom": spec.class_name(part)}
    if model.inputs is None and any("custom" in part for part in parts.values()):
        raise InputError(
            "a model bound to data, where parts of it are your own", "one that is not", "Save what model.bind gave."
        )
    return {
        **parts,
        "inputs": encoder.encode(model.inputs),
        "outputs": None if model.inputs is None else posterior.num_outputs,
    }


def _is_built_in(part: Any) -> bool:
    try:
        spec.Encoder().encode(part)
    except InputError:
        return False
    return True


def _read_model(decoder: spec.Decoder, facts: Any) -> dict[str, Any]:
    if not isinstance(facts, dict) or set(facts) != {*_PARTS, "inputs", "outputs"}:
        spec.refuse(facts)
    if not isinstance(facts["inputs"], dict | None) or not isinstance(facts["outputs"], int | None):
        spec.refuse(facts)
    return {name: part if _is_custom(part) else decoder.decode(part) for name, part in facts.items()}


def _is_custom(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"custom"}


def _whole(stored: dict[str, Any]) -> Model:
    """The stored model; LoadError if a part of it was not stored."""
    custom = [f"{name} ({stored[name]['custom']})" for name in _PARTS if _is_custom(stored[name])]
    if custom:
        raise LoadError(f"it lacks your own {' and '.join(custom)}: pass the model, as in tb.load(path, model=model).")
    return Model(*(stored[name] for name in _PARTS), inputs=stored["inputs"])


def _bound(given: Model, stored: dict[str, Any]) -> Model:
    """The given model, bound to the inputs and outputs of the stored one."""
    network, likelihood, num = given.network, given.likelihood, stored["outputs"]
    if num is not None:
        network, likelihood = network.with_outputs(num), likelihood.with_outputs(num)
    return Model(network, given.prior, likelihood, inputs=stored["inputs"])


def _weights_like(model: Model) -> PyTree:
    return jax.eval_shape(lambda x: model.network.init(jax.random.key(0), x), model.example())


def _check_fits(posterior: Any, model: Model) -> None:
    """LoadError unless the posterior can be sampled and its draws fit its model."""
    if posterior.model is not model:
        raise LoadError("it is not a posterior of the model that it names.")
    for path, leaf in flatten_with_paths(posterior):
        if "stats/" not in path and eqx.is_inexact_array_like(leaf) and np.isnan(np.asarray(leaf)).any():
            raise LoadError(f"its {path} holds NaN.")
    draw = posterior.draw_like()
    if model.inputs is not None and draw is not None:
        trees = (draw.weights, _weights_like(model))
        _compare(*([f"{path} {leaf.shape}" for path, leaf in flatten_with_paths(tree)] for tree in trees))
        model.check_inputs(jax.eval_shape(model.weights, draw), model.example())


def _compare(stored: list[str], given: list[str]) -> None:
    for entry, expected in itertools.zip_longest(stored, given, fillvalue="nothing"):
        if entry != expected:
            raise LoadError(
                f"its weights are of another network: {entry[:80]} stands where the model has {expected[:80]}."
            )


def _check_same_parts(stored: dict[str, Any], model: Model) -> None:
    """LoadError if a stored part differs from the given model's, or its named class does."""
    for name in _PARTS:
        saved, given = stored[name], getattr(model, name)
        same = saved["custom"] == spec.class_name(given) if _is_custom(saved) else eqx.tree_equal(saved, given)
        if not same:
            shown = saved["custom"] if _is_custom(saved) else repr(saved)
            raise LoadError(f"its {name} is {shown[:200]}, but model= has {repr(given)[:200]}.")
