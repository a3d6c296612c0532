"""Summaries of posteriors: one table row per array of unknowns."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import biject_to

from tunbridge.core import tables
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Params, PyTree
from tunbridge.model import transforms


@dataclasses.dataclass(frozen=True)
class Summary(tables.Table):
    """The result of `Posterior.summary`: a row for each array of unknowns, and remarks in sentences."""

    caption = "summary"

    rows: list[dict[str, Any]]
    sentences: tuple[str, ...] = ()


class Unknown(NamedTuple):
    """An array of unknowns: its path, draws with a leading axis, and what its values are (the column "as")."""

    path: str
    draws: np.ndarray
    on: str


def summarise(model: Any, params: Params) -> Summary:
    """Mean and standard deviation of each array, over draws (the leading axis of `params`) and elements."""
    return Summary([moments(unknown) for unknown in unknowns(model, params, jax.vmap(model.weights)(params))])


def unknowns(model: Any, params: Params, weights: PyTree, on: str = "weights") -> list[Unknown]:
    """List the network's weights as given, and scales and noise in their own units where these are known."""
    scales = jax.vmap(model.prior.values)(params.scales) if params.scales else ()
    noise, noise_as = _natural(model.likelihood, params.noise)
    parts = [("weights", weights, on), ("scales", scales, "value"), ("noise", noise, noise_as)]
    return [
        Unknown(f"{name}/{path}", np.asarray(leaf), kind)
        for name, tree, kind in parts
        for path, leaf in flatten_with_paths(tree)
    ]


def moments(unknown: Unknown) -> dict[str, Any]:
    """A row of the table: mean and standard deviation over draws and elements."""
    path, draws, on = unknown
    values = draws.astype(np.float64)
    return {"unknown": path, "shape": str(draws.shape[1:]), "mean": values.mean(), "sd": values.std(), "as": on}


def _natural(part: Any, real: PyTree) -> tuple[PyTree, str]:
    """Unknowns in their own units, if each belongs to one distribution of the part; else on the real line."""
    priors, leaves = transforms.unknowns(part), jax.tree.leaves(real)
    bijections = [biject_to(prior.support) for prior in priors]
    shapes = [bijection.inverse_shape(prior.shape()) for bijection, prior in zip(bijections, priors, strict=True)]
    if shapes != [leaf.shape[1:] for leaf in leaves]:
        return real, "real line"
    return tuple(b(leaf) for b, leaf in zip(bijections, leaves, strict=True)), "value"
