"""What is kept of a curvature: all of it, its diagonal, blocks, Kronecker factors, or its leading eigenvectors."""

import abc
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse.linalg import LinearOperator, eigsh

from tunbridge.core import linalg, memory
from tunbridge.core.compiling import once
from tunbridge.core.data import Data, Stream
from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.linalg import Block, Covariance
from tunbridge.core.tree import by_shape, flatten_with_paths
from tunbridge.core.types import Key
from tunbridge.inference.laplace import products
from tunbridge.inference.laplace.curvatures import Curvature, Outer
from tunbridge.inference.laplace.local import Local, Part, num_outputs, row_numbers, summed
from tunbridge.model.networks import layout as axes
from tunbridge.model.networks.programs.sites import Sites

_HESSIAN_ROWS = 64
"""How many rows of an exact Hessian are computed at once."""
_NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are rounding."""


class Facts(NamedTuple):
    """What a reader should know of how blocks came about."""

    least: float = 0.0
    """The least eigenvalue before negative ones were clipped, in units of the prior precision."""
    clipped: int = 0
    """How many were negative."""
    inseparable: float = 0.0
    """The largest deviation of log prior variances from a product of rows and columns, where Kronecker needs one."""

    def joined(self, other: "Facts") -> "Facts":
        """Both."""
        return Facts(
            min(self.least, other.least), self.clipped + other.clipped, max(self.inseparable, other.inseparable)
        )


class Measured(NamedTuple):
    """A curvature as a structure keeps it, in float64, and what it covers."""

    parts: list[Part]
    sums: list[Any]
    """For each part a matrix, the rows of a root, a diagonal, or Kronecker factors."""


class Structure(Module):
    """How much of a curvature is kept."""

    @abc.abstractmethod
    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """What its blocks cover."""

    @abc.abstractmethod
    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """The curvature of minus the log likelihood at the mode."""

    @abc.abstractmethod
    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """One part with these prior variances (of all weights)."""

    def log_det(self, measured: Measured, variances: np.ndarray) -> float:
        """Log det of I + H~ with these prior variances (of all weights)."""
        found, _ = blocks(self, measured, variances, lambda _: True)
        return float(_determinant(found, np.asarray(variances, jax.dtypes.canonicalize_dtype(float))))

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """How much memory its largest arrays take at once."""
        return 0

    def check(self, local: Local, curvature: Curvature, rows: int) -> None:
        """InputError where it cannot be had, before anything is computed."""
        columns = curvature.num_columns(num_outputs(local)) if isinstance(curvature, Outer) else local.size
        sites = local.sites
        local.chosen(sites)
        needed, there = self.num_bytes(local, sites, rows, columns), memory.available()
        if needed > there:
            raise InputError(
                f"a curvature that fits in {there / 1e9:.1f} GB of memory",
                f"{type(self).__name__}, which takes {needed / 1e9:.1f} GB for {local.size:,} weights",
                "Use structures.Kronecker() or structures.Diagonal(), or subset=subsets.LastLayer().",
            )


class _Dense(Structure):
    """Whole matrices, one or several: as the rows of a root where these are fewer than weights."""

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Matrices, or rows of their roots."""
        parts = parts_of(self, local)
        if not isinstance(curvature, Outer):
            return Measured(parts, _hessian(local, curvature, data, key, parts))
        columns = curvature.num_columns(num_outputs(local))
        if data.num * columns < min(len(part.index) for part in parts):
            rows = _joined(local, curvature, data, key, columns, self)
            return Measured(parts, [("rows", one) for one in rows])
        sums = summed(products.gram, local, data, key, columns * local.size, curvature, self)
        return Measured(parts, [("matrix", one) for one in sums])

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Eigenvectors of the whitened matrix."""
        kind, values = total
        scale = np.sqrt(variances[part.index])
        if kind == "rows":
            return _from_rows(part, values * scale, scale, uniform), Facts()
        found, vectors = linalg.eigh(scale[:, None] * values * scale)
        return _spectral(part, scale, vectors, np.maximum(found, 0.0), uniform), _negative(found)

    def log_det(self, measured: Measured, variances: np.ndarray) -> float:
        """From the eigenvalues of the whitened matrices, which need no eigenvectors."""
        total = 0.0
        for part, (kind, values) in zip(measured.parts, measured.sums, strict=True):
            scale = np.sqrt(variances[part.index])
            rows = values * scale
            found = linalg.eigvalsh(rows @ rows.T if kind == "rows" else scale[:, None] * rows)
            total += float(np.log1p(np.maximum(found, 0.0)).sum())
        return total

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Three copies in float64 of the largest matrix, or of its rows."""
        largest = max(len(part.index) for part in self.parts(local, sites))
        return 3 * 8 * min(largest, max(rows * columns, 1)) * largest


class Full(_Dense):
    """All of it: every weight with every other."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """All weights that are random, together."""
        return [Part(np.flatnonzero(local.chosen(sites)))]


class BlockDiagonal(_Dense):
    """Whole within a layer, nothing between layers."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """One per layer."""
        layout = local.model.network.layout(local.params.weights)
        sizes = [int(np.prod(leaf.shape)) for _, leaf in flatten_with_paths(local.params.weights)]
        names, chosen = np.repeat(axes.layers(layout), sizes), local.chosen(sites)
        wanted = [np.flatnonzero((names == name) & chosen) for name in dict.fromkeys(names.tolist())]
        return [Part(index) for index in wanted if len(index)]


class LowRank(Structure):
    """Its leading eigenvectors in units of the prior, found by Lanczos iterations; nothing is built.

    Parameters
    ----------
    rank
        How many.
    """

    rank: int = eqx.field(static=True, default=50)

    def __check_init__(self):
        if self.rank < 1:
            raise InputError("a rank of at least 1", f"{self.rank}", "Try structures.LowRank(50).")

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """All weights that are random, together."""
        return [Part(np.flatnonzero(local.chosen(sites)))]

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """The rows of a root, one an eigenvector."""
        (part,) = parts_of(self, local)
        scale, num = np.sqrt(variances[part.index]), len(part.index)

        def whitened(v: np.ndarray) -> np.ndarray:
            full = np.zeros(local.size)
            full[part.index] = scale * v.ravel()
            vector = jnp.asarray(full, jnp.result_type(float))
            return scale * summed(products.product, local, data, key, local.size, curvature, vector)[part.index]

        first = np.asarray(jax.random.normal(key, (num,)), np.float64)
        if self.rank >= num - 1:
            raise InputError(f"a rank below the {num - 1} of this matrix", f"{self.rank}", "Use structures.Full().")
        operator = LinearOperator((num, num), matvec=whitened, dtype=np.float64)
        values, vectors = eigsh(operator, k=self.rank, which="LA", v0=first, tol=1e-6)
        kept = np.maximum(values, 0.0)
        return Measured([part], [("rows", np.sqrt(kept)[:, None] * (vectors / scale[:, None]).T)])

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Orthonormal vectors again, for these variances."""
        scale = np.sqrt(variances[part.index])
        return _from_rows(part, total[1] * scale, scale, uniform), Facts()

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Three times the vectors in float64."""
        return 3 * 8 * self.rank * local.size


class Diagonal(Structure):
    """The diagonal, exact."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Each group's matrix, and the rest."""
        return _by_group(local, sites)

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Squared gradients, or the diagonal of the Hessian."""
        parts = parts_of(self, local)
        if not isinstance(curvature, Outer):
            found = _hessian_diagonal(local, curvature, data, key)
            return Measured(parts, [found[part.index] for part in parts])
        numbers = row_numbers(local, curvature, self)
        return Measured(parts, summed(products.squares, local, data, key, numbers, curvature, self))

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """In units of the prior."""
        return _diagonal(part, total, variances, uniform), _negative(total * variances[part.index])


class Kronecker(Structure):
    r"""A Kronecker product a matrix of weights, :math:`A \otimes B`; the diagonal of what is no matrix.

    A is the mean square of what the weights multiply, B the sum of squared gradients by what they give
    :cite:p:`martens2015optimizing`. Biases are a constant input. In the basis of the eigenvectors the precision with
    the prior is exact if prior variances are a product of rows and columns, as one scale per layer, fan-in scaling and
    one scale per input are.

    Parameters
    ----------
    sharing
        Of weights that are used at several positions: "expand" takes positions for rows of their own, "reduce" adds
        their gradients up first :cite:p:`eschenhagen2023kronecker`.
    corrected
        Replace the eigenvalues by the mean square of the gradients along the eigenvectors (EK-FAC)
        :cite:p:`george2018fast`.
    separate_bias
        Give biases a block of their own, as laplace-torch does.
    """

    sharing: Literal["expand", "reduce"] = eqx.field(static=True, default="expand")
    corrected: bool = eqx.field(static=True, default=False)
    separate_bias: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.sharing not in ("expand", "reduce"):
            raise InputError('sharing as "expand" or "reduce"', repr(self.sharing), "Choose one of the two.")

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Each group's matrix, and the rest."""
        return _by_group(local, sites, self.separate_bias)

    def check(self, local: Local, curvature: Curvature, rows: int) -> None:
        """InputError for the exact Hessian, which is no sum of outer products."""
        if not isinstance(curvature, Outer):
            raise InputError(
                "a curvature of outer products for structures.Kronecker", "Hessian()", "Use curvatures.GGN()."
            )
        super().check(local, curvature, rows)

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """The two factors of each matrix, and eigenvalues in a second turn where they are corrected."""
        parts = parts_of(self, local)
        numbers = row_numbers(local, curvature, self)
        reduce = self.sharing == "reduce"
        sums = summed(products.factors, local, data, key, numbers, curvature, self, reduce)
        if self.corrected:
            plain = tuple(self.block(part, one, variances, True)[0] for part, one in zip(parts, sums, strict=True))
            turned = iter(summed(products.projections, local, data, key, numbers, curvature, self, plain))
            sums = [(*one, next(turned)) if isinstance(one, tuple) else one for one in sums]
        return Measured(parts, sums)

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Eigenvectors of both whitened factors."""
        if part.group is None:
            return _diagonal(part, total, variances, uniform), Facts()
        left, right, count, *corrected = total
        logs = np.log(variances[part.index])
        parted = linalg.separated(logs)
        off = np.abs(logs - parted[0][:, None] - parted[1][None]).max()
        row, column = (np.exp(0.5 * one) for one in parted)
        a, rows = linalg.eigh(row[:, None] * left * row / count)
        b, columns = linalg.eigh(column[:, None] * right * column)
        numbers = [row, column, rows, columns, np.maximum(a, 0.0), np.maximum(b, 0.0), *corrected]
        if corrected and not uniform:
            raise InputError(
                "one prior scale a matrix of weights with corrected=True",
                "scales that differ within one",
                "Use structures.Kronecker() without the correction.",
            )
        arrays = [jnp.asarray(one, jnp.result_type(float)) for one in numbers]
        return linalg.Kronecker(jnp.asarray(part.index), *arrays, uniform=uniform), Facts(inseparable=float(off))

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Three copies in float64 of all factors."""
        shapes = [part.index.shape for part in self.parts(local, sites) if part.group is not None]
        return sum(3 * 8 * (inputs**2 + outputs**2) for inputs, outputs in shapes)


@by_shape
def parts_of(structure: Structure, local: Local) -> list[Part]:
    """What the blocks of a structure cover; found once for networks of one kind."""
    return structure.parts(local, local.sites)


def _by_group(local: Local, sites: Sites, separate_bias: bool = False) -> list[Part]:
    """The matrices all of whose weights are random, and all other random weights."""
    chosen, parts = local.chosen(sites), []
    left = chosen.copy()
    for number, group in enumerate(sites.groups):
        if not chosen[group.index].all():
            continue
        left[group.index] = False
        if separate_bias and group.biased:
            parts += [Part(group.index[:-1], number, slice(0, -1)), Part(group.index[-1:], number, slice(-1, None))]
        else:
            parts.append(Part(group.index, number))
    rest = np.flatnonzero(left)
    return [*parts, Part(rest)] if len(rest) else parts


def _spectral(part: Part, scale: np.ndarray, vectors: np.ndarray, values: np.ndarray, uniform: bool) -> Block:
    return linalg.Spectral(*_arrays(part, scale, vectors, values), uniform=uniform)


def _arrays(part: Part, *values: np.ndarray) -> list[jax.Array]:
    """The numbers of a part's weights and arrays of numbers, on the device."""
    numbers = jax.dtypes.canonicalize_dtype(float)
    return jax.device_put([part.index.astype(np.int32), *(np.asarray(one, numbers) for one in values)])


def _from_rows(part: Part, rows: np.ndarray, scale: np.ndarray, uniform: bool) -> Block:
    """From rows R of a root, H~ = R^T R, by the eigenvectors of R R^T; 0 for those of no size, so that shapes stay."""
    values, turned = linalg.eigh(rows @ rows.T)
    kept = values > _NEGLIGIBLE * values.max(initial=0.0)
    vectors = (rows.T @ turned) * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    return _spectral(part, scale, vectors, np.where(kept, values, 0.0), uniform)


def _diagonal(part: Part, total: np.ndarray, variances: np.ndarray, uniform: bool) -> Block:
    prior = variances[part.index]
    return linalg.Diagonal(*_arrays(part, prior, np.maximum(total * prior, 0.0)), uniform=uniform)


def _negative(values: np.ndarray) -> Facts:
    """What eigenvalues say of negative curvature; rounding is not negative."""
    values = np.ravel(values)
    negative = values < -1e-6 * max(np.abs(values).max(initial=0.0), 1e-30)
    return Facts(float(values.min(initial=0.0)), int(negative.sum()))


def _joined(local: Local, curvature: Outer, data: Data | Stream, key: Key, columns: int, structure: Any) -> list:
    """The gradients of all rows, one below another."""
    found: list[list[np.ndarray]] = []

    def gather(*arguments: Any) -> float:
        rows = products.jacobian(*arguments)
        found.append([np.asarray(part, np.float64).reshape(-1, part.shape[-1]) for part in rows])
        return 0.0

    summed(gather, local, data, key, columns * local.size, curvature, structure)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _hessian(local: Local, curvature: Any, data: Data | Stream, key: Key, parts: list[Part]) -> list:
    return [("matrix", _hessian_rows(local, curvature, data, key, part.index)[:, part.index]) for part in parts]


def _hessian_diagonal(local: Local, curvature: Any, data: Data | Stream, key: Key) -> np.ndarray:
    everything = np.arange(local.size)
    starts = range(0, local.size, _HESSIAN_ROWS)
    found = [_hessian_rows(local, curvature, data, key, everything[s : s + _HESSIAN_ROWS]) for s in starts]
    return np.concatenate([np.diagonal(rows, start) for start, rows in zip(starts, found, strict=True)])


def _hessian_rows(local: Local, curvature: Any, data: Data | Stream, key: Key, index: np.ndarray) -> np.ndarray:
    """Rows of the exact Hessian, (len(index), weights)."""
    missing = -len(index) % _HESSIAN_ROWS
    padded = np.concatenate([index, np.repeat(index[-1:], missing)]).reshape(-1, _HESSIAN_ROWS)
    parts = [summed(products.hessian_rows, local, data, key, local.size, curvature, jnp.asarray(n)) for n in padded]
    return np.concatenate(parts)[: len(index)]


@once
def _determinant(blocks: tuple[Block, ...], variances: Array) -> Array:
    return Covariance(blocks, variances.shape[0]).log_det(variances, jnp.ones(()))


def blocks(
    structure: Structure, measured: Measured, variances: np.ndarray, uniform: Callable[[np.ndarray], bool]
) -> tuple[tuple[Block, ...], Facts]:
    """Every part with these prior variances; `uniform` says where they change by one factor."""
    found, facts = [], Facts()
    for part, total in zip(measured.parts, measured.sums, strict=True):
        block, own = structure.block(part, total, variances, uniform(part.index))
        found.append(block)
        facts = facts.joined(own)
    return tuple(found), facts
