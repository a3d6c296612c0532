"""Fits a normal approximation around given weights: curvature, evidence, and remarks for the reader."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core.compiling import once
from tunbridge.core.data import Data, Stream
from tunbridge.core.linalg import Covariance
from tunbridge.core.tree import flatten_with_paths, size, unravel
from tunbridge.core.types import Key, Params, PyTree
from tunbridge.inference.laplace import products, structures
from tunbridge.inference.laplace.blocks import Facts
from tunbridge.inference.laplace.curvatures import Curvature
from tunbridge.inference.laplace.evidence import LogEvidence, Rows
from tunbridge.inference.laplace.local import Local, blocks, summed
from tunbridge.inference.laplace.structures import Kronecker, Measured, Structure

_LEAST_VARIANCE = 1e-12
"""Floor of prior variances, as a share of the largest: weights that a prior with a corner holds at zero have none."""
_MOST_ROWS = 8192
_APART = 0.1
"""The step on the real line for finite differences in an unknown."""


class Fitted(NamedTuple):
    """A normal approximation around given weights."""

    evidence: LogEvidence
    structure: Structure
    measured: Measured
    facts: Facts
    decrement: float
    """Newton's step from the weights to the mode, in posterior standard deviations."""


def fit(
    local: Local, structure: Structure, curvature: Curvature, data: Data | Stream, damping: float, key: Key
) -> Fitted:
    """Measure the curvature around given weights; return it with the evidence as a function of scales and noise."""
    variances = prior_variances(local)
    effective = variances / (1.0 + damping)
    measured = structure.measure(local, curvature, data, effective, key)
    covariance, facts = covariance_of(local, structure, measured, effective)
    chosen = np.zeros(local.size, bool)
    for part in measured.parts:
        chosen[part.index] = True
    rows = _rows(local, data)
    evidence = LogEvidence(local, rows, covariance, curvature, *jax.device_put((chosen, _number(damping))))
    decrement = _decrement(local, data, covariance, variances, chosen, key)
    return Fitted(evidence, structure, measured, facts, decrement)


def at_params(fitted: Fitted, params: Params) -> Fitted:
    """Return the approximation with the same curvature at other prior scales."""
    local = Local.at(fitted.evidence.local.model, params, fitted.evidence.local.subset)
    variances = prior_variances(local, fitted.evidence.damping)
    covariance, facts = covariance_of(local, fitted.structure, fitted.measured, variances)
    evidence = dataclasses.replace(fitted.evidence, local=local, covariance=covariance)
    return fitted._replace(evidence=evidence, facts=facts)


def prior_variances(local: Local, damping: Any = 0.0) -> np.ndarray:
    """Return the prior variances of the weights at their scales, in float64; damping adds to the precision."""
    return _floored(_variances(local, local.params.scales)) / (1.0 + float(damping))


def covariance_of(
    local: Local, structure: Structure, measured: Measured, variances: np.ndarray
) -> tuple[Covariance, Facts]:
    """Return the covariance of the weights under a measured curvature and these prior variances."""
    covariance_blocks, facts = structures.blocks(structure, measured, variances, _uniform(local))
    return Covariance(covariance_blocks, local.size), facts


def drift(fitted: Fitted, data: Data | Stream, key: Key) -> np.ndarray:
    r"""Return the part of the evidence's gradient in the unknowns that is due to the mode moving with them.

    The mode moves by :math:`dw = \Sigma \, \partial_\theta \nabla_w \log p(w \mid y, \theta) \, d\theta`. To first
    order only the term :math:`-\frac12 \log \det (I + \tilde H(w))` changes with it: a central difference along dw.
    """
    local = fitted.evidence.local
    unknown = local.params.scales, local.params.noise
    gradient = np.zeros(size(unknown))
    for number in range(len(gradient)):
        scales, noise = unravel(unknown, _number(np.arange(len(gradient)) == number))
        pull = np.zeros(local.size)
        if local.params.noise:
            pull = summed(products.gradient_change, local, data, key, local.size // 64 + 1, noise)
        sides = _both_sides(fitted.evidence, scales, _number(pull))
        ahead, behind = (_log_det(fitted, weights, data, key) for weights in sides)
        gradient[number] = -0.5 * (ahead - behind) / (2.0 * _APART)
    return gradient


@once
def _both_sides(evidence: LogEvidence, scales: PyTree, pull: Array) -> tuple[PyTree, PyTree]:
    """Weights on either side of the mode, along the direction in which it moves when the unknowns change.

    `scales` is the change of the scales, `pull` the change of the log likelihood's gradient.
    """
    local = evidence.local
    weights, unravel_weights = ravel_pytree(local.weights)
    variances, change = jax.jvp(local.variances, (local.params.scales,), (scales,))
    variances = jnp.maximum(variances, _LEAST_VARIANCE * jnp.max(variances))
    pull = jnp.where(evidence.chosen, pull + change * weights / variances**2, 0.0)
    along = _APART * evidence.covariance.product(pull.astype(weights.dtype))
    return unravel_weights(weights + along), unravel_weights(weights - along)


def _log_det(fitted: Fitted, weights: PyTree, data: Data | Stream, key: Key) -> float:
    """Log determinant of I + H~ at other weights."""
    local = fitted.evidence.local
    moved = dataclasses.replace(local, params=local.params._replace(weights=weights))
    variances = prior_variances(moved, fitted.evidence.damping)
    measured = fitted.structure.measure(moved, fitted.evidence.curvature, data, variances, key)
    return fitted.structure.log_det(measured, variances)


def _number(values: Any) -> np.ndarray:
    """The values in JAX's default float dtype."""
    return np.asarray(values, jax.dtypes.canonicalize_dtype(float))


@once
def _variances(local: Local, scales: PyTree) -> Array:
    return local.variances(scales)


def _floored(variances: Any) -> np.ndarray:
    values = np.asarray(variances, np.float64)
    return np.maximum(values, _LEAST_VARIANCE * values.max())


def _uniform(local: Local) -> Any:
    """Return a function of indices: whether these weights' prior variances all change by one factor with the scales."""
    scales = local.params.scales
    if not (num := size(scales)):
        return lambda _: True
    moved = jax.tree.map(np.add, scales, unravel(scales, _number(np.linspace(0.1, 0.3, num))))
    old, new = (np.log(_floored(_variances(local, scales))) for scales in (local.params.scales, moved))
    change = new - old
    return lambda index: bool(np.ptp(change[index]) < 1e-4)


@once
def _outputs(local: Local, x: Array) -> Array:
    return local.model.network.apply(local.weights, x)


def _rows(local: Local, data: Data | Stream) -> Rows:
    """Outputs, targets and weights of all rows."""
    parts = [
        (np.asarray(_outputs(local, batch.x)), np.asarray(batch.y), np.asarray(batch.weight))
        for batch in blocks(data, _MOST_ROWS)
    ]
    return Rows(*jax.device_put([np.concatenate(column) for column in zip(*parts, strict=True)]))


def _decrement(
    local: Local, data: Data | Stream, covariance: Covariance, variances: np.ndarray, chosen: np.ndarray, key: Key
) -> float:
    r""":math:`\sqrt{g^\top \Sigma g}`, g being the gradient of the log posterior: Newton's step in posterior sd."""
    gradient = summed(products.gradient, local, data, key, local.size // 64 + 1)
    weights = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(local.weights)]).astype(np.float64)
    return float(_length(covariance, _number(np.where(chosen, gradient - weights / variances, 0.0))))


@once
def _length(covariance: Covariance, gradient: Array) -> Array:
    return jnp.sqrt(jnp.maximum(gradient @ covariance.product(gradient), 0.0))


def sentences(fitted: Fitted) -> list[str]:
    """Return remarks on the approximation, for the reader."""
    notes, facts, local = [], fitted.facts, fitted.evidence.local
    if facts.clipped:
        notes.append(
            f"Curvature is negative in {facts.clipped} of {fitted.evidence.covariance.num} directions (the least is "
            f"{facts.least:.3g} prior precisions): they keep their prior variance."
        )
    if isinstance(fitted.structure, Kronecker):
        if unfactored := _unfactored(local, fitted.measured):
            names = ", ".join(unfactored[:4]) + (f" and {len(unfactored) - 4} more" if len(unfactored) > 4 else "")
            notes.append(f"No Kronecker factors for {names}: only their diagonal is used.")
        if facts.inseparable > 1e-3:
            off = np.expm1(facts.inseparable)
            notes.append(
                f"Prior variances are not a product over rows and columns: the nearest is used, off by {off:.0%}."
            )
    notes.append(
        f"By its curvature the mode is {fitted.decrement:.2g} posterior standard deviations away from these weights."
    )
    return notes


def _unfactored(local: Local, measured: Measured) -> list[str]:
    """Names of weight arrays, other than biases and norms, of which only the diagonal is kept."""
    layout = dict(flatten_with_paths(local.model.network.layout(local.params.weights)))
    names, start = [], 0
    alone = np.concatenate([part.index for part in measured.parts if part.group is None] or [np.zeros(0, int)])
    for name, leaf in flatten_with_paths(local.params.weights):
        stop = start + int(np.prod(leaf.shape))
        if ((alone >= start) & (alone < stop)).any() and layout[name].role not in ("bias", "norm"):
            names.append(name)
        start = stop
    return names
