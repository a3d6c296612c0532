r"""Where weights meet data, found from a network's jaxpr whatever library it is written in.

A *site* is an equation of the network's program in which weights multiply something else: a matrix product, a
convolution, a row taken from a table. There the gradient of an output is a sum over positions of an activation times a
cotangent, :math:`\sum_p a_p g_p^\top`, and need not be built. To follow the weights, an array of their indices is
passed through the program in their place as long as they are only reordered: transposed, reshaped, sliced, joined.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn

from tunbridge.core.errors import InputError
from tunbridge.core.tree import size, unravel
from tunbridge.core.types import PyTree
from tunbridge.model.networks.programs.walking import CALLS, REORDERINGS, called, constant_and_carried, walk

Place = tuple[int, ...]
"""Position of an equation: its index in the program, then in the program called there, and so on."""


@dataclasses.dataclass(frozen=True, eq=False)
class _View:
    """A value that consists of weights in another order: the index of each."""

    index: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class _Sum:
    """A value that consists of a site's outputs in another order: the site, and the column of each entry."""

    place: Place
    column: np.ndarray


@dataclasses.dataclass(eq=False)
class Site:
    """An equation in which weights multiply something else."""

    index: np.ndarray
    """Index of each weight, (inputs, outputs)."""
    activations: Callable[[list[Array]], Array]
    """Maps the equation's operands to what the weights multiply, (positions, inputs)."""
    columns: Callable[[Any], Any]
    """Reshapes a value of the shape of the equation's outputs to (positions, outputs)."""
    shape: tuple[int, ...]
    """Shape of the equation's outputs, with the lengths of the loops around it in front."""
    depth: int
    """Number of loops around the equation."""
    kind: str
    """Name of the equation's primitive."""
    bias: np.ndarray | None = None
    """Index of the weight that is added to each output."""


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """One weight matrix and the sites where it is used, with a row for the bias if there is one."""

    index: np.ndarray
    """Index of each weight, (inputs, outputs); if `biased`, the last row is the bias."""
    biased: bool
    places: tuple[Place, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Sites:
    """A network's groups in the order in which it uses them, and the indices of all other weights."""

    groups: tuple[Group, ...]
    rest: np.ndarray
    program: ClosedJaxpr
    found: dict[Place, Site]


def find(apply: Callable[[PyTree, Array], Array], weights: PyTree, x: Any) -> Sites:
    """Find the sites of a network.

    Parameters
    ----------
    apply
        The network's function from weights and inputs (points, ...) to outputs (points, outputs).
    weights
        The weights, or their shapes.
    x
        One row of inputs without the axis of points, or its shape.
    """
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    row = jax.ShapeDtypeStruct((1, *x.shape), x.dtype)
    program = jax.make_jaxpr(lambda w, rows: apply(w, rows)[0])(like, row)
    numbers = np.arange(size(like), dtype=np.int32)
    views = [_View(np.asarray(leaf)) for leaf in jax.tree.leaves(unravel(like, numbers))]
    search = _Search(len(numbers))
    with jax.ensure_compile_time_eval():
        search.walk(program, [*views, None], (), ())
    return Sites(*_grouped(search), program, search.found)


class _Search:
    """Follows weights through a program."""

    def __init__(self, num: int):
        self.found: dict[Place, Site] = {}
        self.elsewhere = np.zeros(num, bool)
        """Which weights are used other than at a site."""

    def walk(self, program: ClosedJaxpr, values: list, place: Place, steps: tuple[int, ...]) -> list:
        """Return what is known of a program's results, given what is known of its operands; None is unknown."""

        def equation(number: int, eqn: JaxprEqn, operands: list) -> list:
            if all(operand is None for operand in operands):
                return [None] * len(eqn.outvars)
            return self._equation(eqn, operands, (*place, number), steps)

        results = walk(program, values, equation, lambda _: None)
        if not place:
            self._lose(results)
        return results

    def _equation(self, eqn: JaxprEqn, operands: list, place: Place, steps: tuple[int, ...]) -> list:
        name, nothing = eqn.primitive.name, [None] * len(eqn.outvars)
        if name == "custom_vjp_call" and "pallas_call" in str(eqn.params["call_jaxpr"]):
            raise InputError(
                "layers whose matrix products can be found, for curvature by layers",
                "weights that are used inside a GPU kernel, as with fused=True",
                "Use fused=False.",
            )
        if name == "convert_element_type":
            return operands
        if name in REORDERINGS and None not in operands and len({type(operand) for operand in operands}) == 1:
            return self._reordered(eqn, operands)
        if name in CALLS:
            return self.walk(called(eqn), operands, place, steps)
        if name == "scan":
            return self._loop(eqn, operands, place, steps)
        if name == "add" and (folded := self._biased(operands)) is not None:
            return [folded]
        views = [operand for operand in operands if isinstance(operand, _View)]
        if name in _KINDS and len(views) == 1 and (site := _KINDS[name](eqn, operands)) is not None:
            columns = np.broadcast_to(np.arange(site.index.shape[1]), site.columns(_blank(eqn)).shape)
            site.shape, site.depth = (*steps, *_shape(eqn)), len(steps)
            self.found[place] = site
            return [_Sum(place, _as_outputs(site, columns, eqn))]
        self._lose(operands)
        return nothing

    def _reordered(self, eqn: JaxprEqn, operands: list) -> list:
        if isinstance(operands[0], _View):
            moved = eqn.primitive.bind(*(jnp.asarray(view.index) for view in operands), **eqn.params)
            return [_View(np.asarray(part)) for part in (moved if eqn.primitive.multiple_results else [moved])]
        if len({total.place for total in operands}) > 1:
            return [None] * len(eqn.outvars)
        moved = eqn.primitive.bind(*(jnp.asarray(total.column) for total in operands), **eqn.params)
        parts = moved if eqn.primitive.multiple_results else [moved]
        return [_Sum(operands[0].place, np.asarray(part)) for part in parts]

    def _biased(self, operands: list) -> _Sum | None:
        """The site's outputs if what is added to them is their bias, which is recorded; else None."""
        kinds = {type(operand): operand for operand in operands}
        if len(operands) != 2 or set(kinds) != {_View, _Sum}:
            return None
        total, view = kinds[_Sum], kinds[_View]
        site = self.found[total.place]
        bias = np.full(site.index.shape[1], -1)
        index, column = np.broadcast_arrays(view.index, total.column)
        bias[column.ravel()] = index.ravel()
        if site.bias is not None or (bias < 0).any() or not (bias[column] == index).all():
            return None
        site.bias = bias
        return total

    def _loop(self, eqn: JaxprEqn, operands: list, place: Place, steps: tuple[int, ...]) -> list:
        (num, _), inner = constant_and_carried(eqn), eqn.params["jaxpr"]
        self._lose(operands[num:])  # weights that change from step to step
        steps = (*steps, eqn.params["length"])
        values = [*operands[:num], *[None] * len(operands[num:])]
        self._lose(self.walk(inner, values, place, steps))
        return [None] * len(eqn.outvars)

    def _lose(self, values: list) -> None:
        for value in values:
            if isinstance(value, _View):
                self.elsewhere[value.index] = True


def _grouped(search: _Search) -> tuple[tuple[Group, ...], np.ndarray]:
    """Weight matrices used in one orientation only, and the indices of all other weights."""
    merged: dict[bytes, tuple[np.ndarray, bool, list[Place]]] = {}
    for place in sorted(search.found):
        site = search.found[place]
        index = site.index if site.bias is None else np.concatenate([site.index, site.bias[None]])
        merged.setdefault(index.tobytes() + bytes(str(index.shape), "ascii"), (index, site.bias is not None, []))[
            2
        ].append(place)
    uses = search.elsewhere.astype(int)
    for index, _, _ in merged.values():
        np.add.at(uses, index.ravel(), 1)
    kept = [entry for entry in merged.values() if (uses[entry[0]] == 1).all() and not search.elsewhere[entry[0]].any()]
    free = np.ones(len(uses), bool)
    for index, _, _ in kept:
        free[index] = False
    return tuple(Group(index, biased, tuple(places)) for index, biased, places in kept), np.flatnonzero(free)


def _blank(eqn: JaxprEqn) -> np.ndarray:
    return np.empty(_shape(eqn), np.bool_)


def _shape(eqn: JaxprEqn) -> tuple[int, ...]:
    aval: Any = eqn.outvars[0].aval
    return aval.shape


def _as_outputs(site: Site, columns: np.ndarray, eqn: JaxprEqn) -> np.ndarray:
    """The inverse of `Site.columns`."""
    shape = _shape(eqn)
    order = np.asarray(site.columns(np.arange(int(np.prod(shape))).reshape(shape)))
    flat = np.empty(order.size, int)
    flat[order.ravel()] = columns.ravel()
    return flat.reshape(shape)


def _product(eqn: JaxprEqn, operands: list) -> Site | None:
    """The site of a matrix product; None if it has batch axes."""
    contracted, batch = eqn.params["dimension_numbers"]
    if batch[0] or batch[1]:
        return None
    side = 0 if isinstance(operands[0], _View) else 1
    other, view = 1 - side, operands[side]
    kept = [axis for axis in range(view.index.ndim) if axis not in contracted[side]]
    index = np.transpose(view.index, (*contracted[side], *kept))
    inputs, outputs = (
        int(np.prod([view.index.shape[axis] for axis in axes], dtype=int)) for axes in (contracted[side], kept)
    )
    num = len(kept)

    def activations(values: list[Array]) -> Array:
        value = values[other]
        free = [axis for axis in range(value.ndim) if axis not in contracted[other]]
        return jnp.transpose(value, (*free, *contracted[other])).reshape(-1, inputs)

    def columns(value: Any) -> Any:
        moveaxis = np.moveaxis if isinstance(value, np.ndarray) else jnp.moveaxis
        moved = moveaxis(value, range(num), range(-num, 0)) if side == 0 and num else value
        return moved.reshape(-1, outputs)

    return Site(index.reshape(inputs, outputs), activations, columns, (), 0, "dot_general")


def _convolution(eqn: JaxprEqn, operands: list) -> Site | None:
    """The site of a convolution of one group whose kernel is weights; else None."""
    params = eqn.params
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1 or not isinstance(operands[1], _View):
        return None
    lhs, rhs, out = params["dimension_numbers"]
    kernel = np.transpose(operands[1].index, (*rhs[1:], rhs[0]))  # (inputs, *window, outputs)
    window, outputs = kernel.shape[1:-1], kernel.shape[-1]
    settings = {name: params[name] for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")}

    def activations(values: list[Array]) -> Array:
        patches = jax.lax.conv_general_dilated_patches(
            values[0], window, dimension_numbers=_specs(lhs, rhs, out), precision=jax.lax.Precision.HIGHEST, **settings
        )
        return columns_of(patches, kernel.size // outputs)

    def columns_of(value: Any, width: int) -> Any:
        moveaxis = np.moveaxis if isinstance(value, np.ndarray) else jnp.moveaxis
        return moveaxis(value, out[1], -1).reshape(-1, width)

    return Site(
        kernel.reshape(-1, outputs),
        activations,
        lambda value: columns_of(value, outputs),
        (),
        0,
        "conv_general_dilated",
    )


def _specs(lhs: tuple, rhs: tuple, out: tuple) -> Any:
    return jax.lax.ConvDimensionNumbers(lhs, rhs, out)


def _lookup(eqn: JaxprEqn, operands: list) -> Site | None:
    """The site of a lookup of whole rows in a table of weights; else None."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    if not isinstance(operands[0], _View) or operands[0].index.ndim != 2:
        return None
    index, rank = operands[0].index, len(_shape(eqn))
    rows = tuple(numbers.collapsed_slice_dims) == (0,) and tuple(numbers.start_index_map) == (0,)
    if not rows or tuple(sizes) != (1, index.shape[1]) or tuple(numbers.offset_dims) != (rank - 1,):
        return None

    def activations(values: list[Array]) -> Array:
        return jax.nn.one_hot(values[1].reshape(-1), index.shape[0])

    return Site(index, activations, lambda value: value.reshape(-1, index.shape[1]), (), 0, "gather")


_KINDS: dict[str, Callable[[JaxprEqn, list], Site | None]] = {
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _lookup,
}
