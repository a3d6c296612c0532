"""A posterior at a glance: what is believed about each array of unknowns."""

import dataclasses
from typing import Any

import jax
import numpy as np
from numpyro.distributions import biject_to

from tunbridge.core import tables
from tunbridge.core.tree import flatten_with_paths
from tunbridge.core.types import Params, PyTree
from tunbridge.model import transforms


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `Posterior.summary` found: a row for each array of unknowns."""

    rows: list[dict[str, Any]]

    def __rich__(self):
        """A table for rich."""
        return tables.to_rich(self.rows)

    def __str__(self) -> str:
        return tables.to_text(self.rows)

    def _repr_html_(self) -> str:
        return tables.to_html(self.rows, "summary")


def summarise(model: Any, params: Params) -> Summary:
    """Mean and standard deviation over draws (the leading axis of `params`) and elements."""
    weights = jax.vmap(model.weights)(params)
    scales, scales_as = _natural(model.prior, params.scales)
    noise, noise_as = _natural(model.likelihood, params.noise)
    parts = [("weights", weights, "weights"), ("scales", scales, scales_as), ("noise", noise, noise_as)]
    return Summary([_row(f"{name}/{path}", leaf, on) for name, tree, on in parts for path, leaf in _leaves(tree)])


def _leaves(tree: PyTree) -> list[tuple[str, np.ndarray]]:
    return [(path, np.asarray(leaf)) for path, leaf in flatten_with_paths(tree)]


def _row(path: str, leaf: np.ndarray, on: str) -> dict[str, Any]:
    values = leaf.astype(np.float64)
    return {"unknown": path, "shape": str(leaf.shape[1:]), "mean": values.mean(), "sd": values.std(), "as": on}


def _natural(part: Any, real: PyTree) -> tuple[PyTree, str]:
    """Unknowns in their own units, where each belongs to one distribution of the part; else on the real line."""
    priors, leaves = transforms.unknowns(part), jax.tree.leaves(real)
    bijections = [biject_to(prior.support) for prior in priors]
    shapes = [bijection.inverse_shape(prior.shape()) for bijection, prior in zip(bijections, priors, strict=True)]
    if shapes != [leaf.shape[1:] for leaf in leaves]:
        return real, "real line"
    return tuple(b(leaf) for b, leaf in zip(bijections, leaves, strict=True)), "value"
