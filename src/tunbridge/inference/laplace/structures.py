"""Structured approximations of a curvature: full, diagonal, block-diagonal, Kronecker-factored, low-rank."""

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
from tunbridge.inference.laplace import hessian, products
from tunbridge.inference.laplace.blocks import Facts, diagonal, from_rows, negative, spectral
from tunbridge.inference.laplace.curvatures import Curvature, Outer
from tunbridge.inference.laplace.local import Local, Part, num_outputs, row_numbers, summed
from tunbridge.model.networks import layout as axes
from tunbridge.model.networks.programs.sites import Sites


class Measured(NamedTuple):
    """A curvature in the form that a structure stores, in float64, and the weights it covers."""

    parts: list[Part]
    sums: list[Any]
    """For each part a matrix, the rows of a square root, a diagonal, or Kronecker factors."""


class Structure(Module):
    """A structured approximation of a curvature."""

    @abc.abstractmethod
    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return the weights that each of its blocks covers."""

    @abc.abstractmethod
    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Return the curvature of minus the log likelihood at the mode, summed over all rows."""

    @abc.abstractmethod
    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Return the block of one part, given prior variances of all weights."""

    def log_det(self, measured: Measured, variances: np.ndarray) -> float:
        """Return the log determinant of I + H~, given prior variances of all weights."""
        covariance_blocks, _ = blocks(self, measured, variances, lambda _: True)
        return float(_determinant(covariance_blocks, np.asarray(variances, jax.dtypes.canonicalize_dtype(float))))

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Bytes that its largest arrays take at once."""
        return 0

    def check(self, local: Local, curvature: Curvature, rows: int) -> None:
        """Raise InputError, before anything is computed, if it does not fit in memory or the subset is impossible."""
        columns = curvature.num_columns(num_outputs(local)) if isinstance(curvature, Outer) else local.size
        sites = local.sites
        local.chosen(sites)
        needed, available = self.num_bytes(local, sites, rows, columns), memory.available()
        if needed > available:
            raise InputError(
                f"a curvature that fits in {available / 1e9:.1f} GB of memory",
                f"{type(self).__name__}, which takes {needed / 1e9:.1f} GB for {local.size:,} weights",
                "Use structures.Kronecker() or structures.Diagonal(), or subset=subsets.LastLayer().",
            )


class _Dense(Structure):
    """One or several dense matrices, stored as the rows of a square root if these are fewer than the weights."""

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Return matrices, or rows of their square roots."""
        parts = parts_of(self, local)
        if not isinstance(curvature, Outer):
            return Measured(parts, hessian.matrices(local, curvature, data, key, parts))
        columns = curvature.num_columns(num_outputs(local))
        if data.num * columns < min(len(part.index) for part in parts):
            rows = _joined(local, curvature, data, key, columns, self)
            return Measured(parts, [("rows", total) for total in rows])
        sums = summed(products.gram, local, data, key, columns * local.size, curvature, self)
        return Measured(parts, [("matrix", total) for total in sums])

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Return a block of the whitened matrix's eigenvectors."""
        kind, values = total
        scale = np.sqrt(variances[part.index])
        if kind == "rows":
            return from_rows(part, values * scale, scale, uniform), Facts()
        eigenvalues, vectors = linalg.eigh(scale[:, None] * values * scale)
        return spectral(part, scale, vectors, np.maximum(eigenvalues, 0.0), uniform), negative(eigenvalues)

    def log_det(self, measured: Measured, variances: np.ndarray) -> float:
        """Return log det of I + H~ from the eigenvalues of the whitened matrices; eigenvectors are not computed."""
        total = 0.0
        for part, (kind, values) in zip(measured.parts, measured.sums, strict=True):
            scale = np.sqrt(variances[part.index])
            rows = values * scale
            eigenvalues = linalg.eigvalsh(rows @ rows.T if kind == "rows" else scale[:, None] * rows)
            total += float(np.log1p(np.maximum(eigenvalues, 0.0)).sum())
        return total

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Bytes of three float64 copies of the largest matrix, or of its rows."""
        largest = max(len(part.index) for part in self.parts(local, sites))
        return 3 * 8 * min(largest, max(rows * columns, 1)) * largest


class Full(_Dense):
    """The full curvature matrix over all random weights."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return all random weights as one part."""
        return [Part(np.flatnonzero(local.chosen(sites)))]


class BlockDiagonal(_Dense):
    """A dense block per layer, with no curvature between layers."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return one part per layer."""
        layout = local.model.network.layout(local.params.weights)
        sizes = [int(np.prod(leaf.shape)) for _, leaf in flatten_with_paths(local.params.weights)]
        names, chosen = np.repeat(axes.layers(layout), sizes), local.chosen(sites)
        indices = [np.flatnonzero((names == name) & chosen) for name in dict.fromkeys(names.tolist())]
        return [Part(index) for index in indices if len(index)]


class LowRank(Structure):
    """The leading eigenvectors in units of the prior, by Lanczos iterations, without building the matrix.

    Parameters
    ----------
    rank
        Number of eigenvectors.
    """

    rank: int = eqx.field(static=True, default=50)

    def __check_init__(self):
        if self.rank < 1:
            raise InputError("a rank of at least 1", f"{self.rank}", "Try structures.LowRank(50).")

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return all random weights as one part."""
        return [Part(np.flatnonzero(local.chosen(sites)))]

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Return the rows of a square root, one per eigenvector."""
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
        clipped = np.maximum(values, 0.0)
        return Measured([part], [("rows", np.sqrt(clipped)[:, None] * (vectors / scale[:, None]).T)])

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Return a block with eigenvectors that are orthonormal for these variances."""
        scale = np.sqrt(variances[part.index])
        return from_rows(part, total[1] * scale, scale, uniform), Facts()

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Bytes of three float64 copies of the eigenvectors."""
        return 3 * 8 * self.rank * local.size


class Diagonal(Structure):
    """The exact diagonal of the curvature."""

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return one part per weight matrix, and one for all other weights."""
        return _by_group(local, sites)

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Return sums of squared gradients, or the diagonal of the Hessian."""
        parts = parts_of(self, local)
        if not isinstance(curvature, Outer):
            entries = hessian.diagonal(local, curvature, data, key)
            return Measured(parts, [entries[part.index] for part in parts])
        numbers = row_numbers(local, curvature, self)
        return Measured(parts, summed(products.squares, local, data, key, numbers, curvature, self))

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Return a diagonal block, in units of the prior."""
        return diagonal(part, total, variances, uniform), negative(total * variances[part.index])


class Kronecker(Structure):
    r"""A Kronecker product :math:`A \otimes B` per weight matrix; the diagonal for all other weights.

    A is the mean outer product of a matrix's inputs, B the sum of outer products of the gradients in its outputs
    :cite:p:`martens2015optimizing`. Biases are a constant input. In the basis of the eigenvectors the precision with
    the prior is exact if prior variances are a product over rows and columns, as with one scale per layer, fan-in
    scaling and one scale per input.

    Parameters
    ----------
    sharing
        For weights that are used at several positions: "expand" treats positions as separate rows, "reduce" first adds
        up their gradients :cite:p:`eschenhagen2023kronecker`.
    corrected
        Replace the eigenvalues by the mean square of the gradients along the eigenvectors (EK-FAC)
        :cite:p:`george2018fast`.
    separate_bias
        Give biases their own block, as laplace-torch does.
    """

    sharing: Literal["expand", "reduce"] = eqx.field(static=True, default="expand")
    corrected: bool = eqx.field(static=True, default=False)
    separate_bias: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.sharing not in ("expand", "reduce"):
            raise InputError('sharing as "expand" or "reduce"', repr(self.sharing), "Choose one of the two.")

    def parts(self, local: Local, sites: Sites) -> list[Part]:
        """Return one part per weight matrix, and one for all other weights."""
        return _by_group(local, sites, self.separate_bias)

    def check(self, local: Local, curvature: Curvature, rows: int) -> None:
        """Raise InputError for the exact Hessian, which is not a sum of outer products; else as `Structure.check`."""
        if not isinstance(curvature, Outer):
            raise InputError(
                "a curvature of outer products for structures.Kronecker", "Hessian()", "Use curvatures.GGN()."
            )
        super().check(local, curvature, rows)

    def measure(self, local: Local, curvature: Any, data: Data | Stream, variances: np.ndarray, key: Key) -> Measured:
        """Return the two factors of each matrix; if corrected, with eigenvalues from a second pass over the rows."""
        parts = parts_of(self, local)
        numbers = row_numbers(local, curvature, self)
        reduce = self.sharing == "reduce"
        sums = summed(products.factors, local, data, key, numbers, curvature, self, reduce)
        if self.corrected:
            plain = tuple(self.block(part, total, variances, True)[0] for part, total in zip(parts, sums, strict=True))
            corrections = iter(summed(products.projections, local, data, key, numbers, curvature, self, plain))
            sums = [(*total, next(corrections)) if isinstance(total, tuple) else total for total in sums]
        return Measured(parts, sums)

    def block(self, part: Part, total: Any, variances: np.ndarray, uniform: bool) -> tuple[Block, Facts]:
        """Return a block of the eigenvectors of both whitened factors."""
        if part.group is None:
            return diagonal(part, total, variances, uniform), Facts()
        left, right, count, *corrected = total
        logs = np.log(variances[part.index])
        log_scales = linalg.separated(logs)
        deviation = np.abs(logs - log_scales[0][:, None] - log_scales[1][None]).max()
        row, column = (np.exp(0.5 * values) for values in log_scales)
        a, rows = linalg.eigh(row[:, None] * left * row / count)
        b, columns = linalg.eigh(column[:, None] * right * column)
        numbers = [row, column, rows, columns, np.maximum(a, 0.0), np.maximum(b, 0.0), *corrected]
        if corrected and not uniform:
            raise InputError(
                "one prior scale per weight matrix with corrected=True",
                "scales that differ within a matrix",
                "Use structures.Kronecker() without the correction.",
            )
        arrays = [jnp.asarray(values, jnp.result_type(float)) for values in numbers]
        return linalg.Kronecker(jnp.asarray(part.index), *arrays, uniform=uniform), Facts(inseparable=float(deviation))

    def num_bytes(self, local: Local, sites: Sites, rows: int, columns: int) -> int:
        """Bytes of three float64 copies of all factors."""
        shapes = [part.index.shape for part in self.parts(local, sites) if part.group is not None]
        return sum(3 * 8 * (inputs**2 + outputs**2) for inputs, outputs in shapes)


@by_shape
def parts_of(structure: Structure, local: Local) -> list[Part]:
    """Return the parts of a structure; cached by shapes."""
    return structure.parts(local, local.sites)


def _by_group(local: Local, sites: Sites, separate_bias: bool = False) -> list[Part]:
    """One part per matrix whose weights are all random, and one for all other random weights."""
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


def _joined(local: Local, curvature: Outer, data: Data | Stream, key: Key, columns: int, structure: Any) -> list:
    """`products.jacobian` of all rows, concatenated, per part."""
    gathered: list[list[np.ndarray]] = []

    def gather(*arguments: Any) -> float:
        rows = products.jacobian(*arguments)
        gathered.append([np.asarray(part, np.float64).reshape(-1, part.shape[-1]) for part in rows])
        return 0.0

    summed(gather, local, data, key, columns * local.size, curvature, structure)
    return [np.concatenate(parts) for parts in zip(*gathered, strict=True)]


@once
def _determinant(blocks: tuple[Block, ...], variances: Array) -> Array:
    return Covariance(blocks, variances.shape[0]).log_det(variances, jnp.ones(()))


def blocks(
    structure: Structure, measured: Measured, variances: np.ndarray, uniform: Callable[[np.ndarray], bool]
) -> tuple[tuple[Block, ...], Facts]:
    """Return the blocks of all parts, given prior variances; `uniform` as in `linalg.Block`, by index."""
    built, facts = [], Facts()
    for part, total in zip(measured.parts, measured.sums, strict=True):
        block, block_facts = structure.block(part, total, variances, uniform(part.index))
        built.append(block)
        facts = facts.joined(block_facts)
    return tuple(built), facts
