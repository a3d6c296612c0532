"""Posteriors as ArviZ DataTrees."""

from typing import Any

import jax
import numpy as np

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Params
from tunbridge.inference.summary import unknowns

_NAMES = {
    "acceptance": "acceptance_rate",
    "divergent": "diverging",
    "energy": "energy",
    "gradients": "n_steps",
    "log_density": "lp",
}
"""ArviZ's names for a step's statistics."""
_PRIOR_DRAWS = 500
_MOST_BYTES = 2**31


def to_arviz(posterior: Any, params: Params, stats: dict[str, Any], data: Data | None) -> Any:
    """Return draws (chains, draws, ...) as a DataTree; see `Posterior.to_arviz`."""
    import arviz_base

    chains, draws = np.shape(jax.tree.leaves(params)[0])[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), params)
    groups = {"posterior": _variables(posterior.model, flat, (chains, draws))}
    if stats:
        groups["sample_stats"] = {_NAMES.get(name, name): np.asarray(values) for name, values in stats.items()}
    dims = None
    if data is not None:
        groups |= _with_data(posterior, data, (chains, draws))
        dims = {"y": ["point", "output"][: groups["observed_data"]["y"].ndim]}
    return arviz_base.from_dict(groups, dims=dims)


def _with_data(posterior: Any, data: Data, shape: tuple[int, int]) -> dict[str, dict[str, np.ndarray]]:
    size = shape[0] * shape[1] * (data.num + data.y.size) * 8
    if size > _MOST_BYTES:
        raise InputError(
            f"draws times points of at most {_MOST_BYTES / 2**30:.0f} GiB",
            f"{size / 2**30:.1f} GiB for {data.num:,} points",
            "Pass a subset of the rows, or thin the draws.",
        )
    key_prior, key_before, key_after = jax.random.split(jax.random.fold_in(posterior.key, 2), 3)
    y = np.asarray(posterior.model.likelihood.check(data.y))
    y_shape = y.shape[:1] if y.shape[1:] == (1,) else y.shape  # a single output has no axis in ArviZ
    predictive, prior = posterior.predict(data.x), posterior.prior(key_prior, _PRIOR_DRAWS)
    after, before = predictive.replicates(key_after), prior.predict(data.x).replicates(key_before)
    drawn = prior.components(key_prior, None)
    return {
        "log_likelihood": {"y": np.asarray(predictive.log_probs(y)).reshape(*shape, len(y))},
        "posterior_predictive": {"y": np.asarray(after).reshape(*shape, *y_shape)},
        "observed_data": {"y": y.reshape(y_shape)},
        "prior": _variables(posterior.model, drawn, (1, _PRIOR_DRAWS)),
        "prior_predictive": {"y": np.asarray(before).reshape(1, _PRIOR_DRAWS, *y_shape)},
    }


def _variables(model: Any, flat: Params, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Arrays (chains, draws, ...) by path, with dots for slashes, which a DataTree reserves for its groups."""
    arrays = unknowns(model, flat, jax.vmap(model.weights)(flat))
    return {
        unknown.path.replace("/", "."): unknown.draws.reshape(*shape, *unknown.draws.shape[1:]) for unknown in arrays
    }
