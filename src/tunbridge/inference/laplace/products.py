"""Sums over a block of rows from which structures are built, each compiled once."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core.compiling import once
from tunbridge.core.data import Data
from tunbridge.core.linalg import Kronecker
from tunbridge.core.types import Key, PyTree
from tunbridge.inference.laplace.curvatures import Curvature, Outer
from tunbridge.inference.laplace.local import Local, Part, RowGradients
from tunbridge.model.networks.programs.sites import Sites


@once
def jacobian(local: Local, key: Key, batch: Data, curvature: Outer, structure: Any) -> list[Array]:
    """Return each row's columns pulled back to the weights, J^T C, per part: (rows, columns, weights)."""
    sites = local.sites
    gradients = local.curved(sites, curvature, key, batch)
    parts = structure.parts(local, sites)
    return [jax.vmap(lambda s, part=part: s.rows(sites, part.index.ravel(), local.size))(gradients) for part in parts]


@once
def gram(local: Local, key: Key, batch: Data, curvature: Outer, structure: Any) -> list[Array]:
    """Return the sum over rows of outer products of `jacobian`, (weights, weights) per part."""
    flat = [rows.reshape(-1, rows.shape[-1]) for rows in jacobian(local, key, batch, curvature, structure)]
    return [rows.T @ rows for rows in flat]


@once
def squares(local: Local, key: Key, batch: Data, curvature: Outer, structure: Any) -> list[Array]:
    """Return the diagonal of each part of the curvature, of the shape of the part."""
    sites = local.sites
    gradients = local.curved(sites, curvature, key, batch)
    return [_square(local, sites, part, gradients) for part in structure.parts(local, sites)]


def _square(local: Local, sites: Sites, part: Part, gradients: RowGradients) -> Array:
    if part.group is None:
        return jnp.sum(jax.vmap(lambda s: s.rows(sites, part.index, local.size))(gradients) ** 2, axis=(0, 1))
    a, g = jax.vmap(lambda s: s.matrix(part))(gradients)
    return _weighted_squares(a, g)


def _weighted_squares(a: Array, g: Array) -> Array:
    """The sum over rows n and columns k of (sum_p a_npi g_nkpj)^2."""
    if a.shape[1] == 1:
        return (a[:, 0] ** 2).T @ jnp.sum(g[:, :, 0] ** 2, axis=1)

    def add_row(total: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        outer = jnp.einsum("pi,kpj->kij", *row)
        return total + jnp.sum(outer**2, axis=0), None

    return jax.lax.scan(add_row, jnp.zeros((a.shape[-1], g.shape[-1]), a.dtype), (a, g))[0]


@partial(once, static_argnames="reduce")
def factors(local: Local, key: Key, batch: Data, curvature: Outer, structure: Any, reduce: bool) -> list:
    """Return (sum of a a^T, sum of g g^T, number of positions) for each part of a group; the diagonal for others."""
    sites = local.sites
    gradients = local.curved(sites, curvature, key, batch)
    sums: list = []
    for part in structure.parts(local, sites):
        if part.group is None:
            sums.append(_square(local, sites, part, gradients))
        else:
            a, g = jax.vmap(lambda s, part=part: s.matrix(part))(gradients)
            sums.append(_factors(a, g, batch.weights, reduce))
    return sums


def _factors(a: Array, g: Array, weight: Array, reduce: bool) -> tuple[Array, Array, Array]:
    if reduce:
        a, g = jnp.mean(a, axis=1, keepdims=True), jnp.sum(g, axis=2, keepdims=True)
    positions = a.shape[1]
    weighted = (a * jnp.sqrt(weight)[:, None, None]).reshape(-1, a.shape[-1])
    flat = g.reshape(-1, g.shape[-1])
    return weighted.T @ weighted, flat.T @ flat, jnp.sum(weight) * positions


@once
def projections(local: Local, key: Key, batch: Data, curvature: Outer, structure: Any, blocks: tuple) -> list[Array]:
    """Return the sum over rows of squared gradients along the eigenvectors of each Kronecker block."""
    sites = local.sites
    gradients = local.curved(sites, curvature, key, batch)
    sums = []
    for part, block in zip(structure.parts(local, sites), blocks, strict=True):
        if isinstance(block, Kronecker):
            a, g = jax.vmap(lambda s, part=part: s.matrix(part))(gradients)
            sums.append(
                _weighted_squares(
                    (a * block.row_scale[None, None]) @ block.rows,
                    (g * block.column_scale[None, None, None]) @ block.columns,
                )
            )
    return sums


@once
def product(local: Local, key: Key, batch: Data, curvature: Curvature, v: Array) -> Array:
    """Return the curvature of a block of rows times the vector v, over all weights."""
    flat, unravel = ravel_pytree(local.weights)
    likelihood, noise, apply = local.model.likelihood, local.params.noise, local.model.network.apply

    def outputs(w: Array) -> Array:
        return apply(unravel(w), batch.x)

    if not isinstance(curvature, Outer):

        def loss(w: Array) -> Array:
            return -jnp.sum(batch.weights * likelihood.distribution(outputs(w), noise).log_prob(batch.y))

        return jax.jvp(jax.grad(loss), (flat,), (v,))[1]
    f, tangent = jax.jvp(outputs, (flat,), (v,))
    keys = jax.random.split(key, batch.num)
    columns = jax.vmap(lambda k, o, y: curvature.columns(k, likelihood, o[None], y[None], noise)[0])(keys, f, batch.y)
    cotangent = jnp.einsum("nok,nqk,nq->no", columns, columns, tangent * batch.weights[:, None])
    return jax.vjp(outputs, flat)[1](cotangent)[0]


@once
def hessian_rows(local: Local, key: Key, batch: Data, curvature: Curvature, numbers: Array) -> Array:
    """Return some rows of the exact Hessian, (len(numbers), weights)."""
    basis = jnp.zeros((len(numbers), local.size)).at[jnp.arange(len(numbers)), numbers].set(1.0)
    return jax.lax.map(lambda v: product(local, key, batch, curvature, v), basis)


@once
def gradient_change(local: Local, key: Key, batch: Data, tangent: PyTree) -> Array:
    """Return the derivative of the gradient in the weights along a change of the noise."""

    def at(noise: PyTree) -> Array:
        return gradient(Local(local.model, local.params._replace(noise=noise), local.subset), key, batch)

    return jax.jvp(at, (local.params.noise,), (tangent,))[1]


@once
def pulled_back(local: Local, _: Key, batch: Data) -> Array:
    """Return gradients in the outputs, which the rows carry in place of targets, summed as gradients in the weights."""
    flat, unravel = ravel_pytree(local.weights)
    _, pull = jax.vjp(lambda w: local.model.network.apply(unravel(w), batch.x), flat)
    return pull(batch.y * batch.weights[:, None])[0]


@once
def gradient(local: Local, _: Key, batch: Data) -> Array:
    """Return the gradient of the log likelihood of a block of rows in the weights."""
    flat, unravel = ravel_pytree(local.weights)

    def total(w: Array) -> Array:
        f = local.model.network.apply(unravel(w), batch.x)
        return jnp.sum(batch.weights * local.model.likelihood.distribution(f, local.params.noise).log_prob(batch.y))

    return jax.grad(total)(flat)
