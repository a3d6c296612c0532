r"""Moves along symmetries: exact draws along an orbit of weights that all give the same function.

Gradients along an orbit are weak or absent, and a chain drifts along it slowly. With a group of transformations
:math:`T_a` that leave the likelihood alone, drawing *a* with the density :math:`\pi(T_a w) \, |\partial T_a w /
\partial w|` with respect to the group's Haar measure leaves the posterior invariant :cite:p:`liu2000generalised`. Here
*a* scales the weights of a unit, the measure is :math:`da / a`, and the prior alone decides.
"""

import abc
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, unravel
from tunbridge.core.types import Key, Normalised, Params, PyTree
from tunbridge.inference.sampler import shapes
from tunbridge.inference.sgmcmc import gig
from tunbridge.inference.sgmcmc.orbits import Orbit, Units, batches, orbit, violation
from tunbridge.model.model import Model, Target
from tunbridge.model.networks.architectures.cast import Cast
from tunbridge.model.networks.architectures.mlp import MLP
from tunbridge.model.networks.architectures.offset import Offset

__all__ = ["Move", "NormRedraw", "Rescaling"]


class Move(Module):
    """A change of the parameters that leaves the posterior invariant, made by samplers between their steps."""

    every: int = eqx.field(default=100, converter=int)
    """Number of steps between moves."""

    def __check_init__(self):
        if self.every < 1:
            raise InputError("every= as a number of steps, at least 1", f"{self.every}", "Try 100.")

    @abc.abstractmethod
    def check(self, model: Model) -> None:
        """InputError unless the model, bound to data, has the symmetry and a prior of known form along it."""

    @abc.abstractmethod
    def __call__(self, key: Key, target: Target, params: Params) -> Params:
        """Parameters at a new place on their orbit, drawn exactly."""


def redrawn(moves: Sequence[Move], key: Key, target: Target, position: Array, step: Array) -> Array:
    """Position (all unknowns in one vector) after the moves that are due at this step."""
    like = shapes(target.model)
    for number, move in enumerate(moves):

        def redraw(move: Move = move, number: int = number, position: Array = position) -> Array:
            return ravel(move(jax.random.fold_in(key, number), target, unravel(like, position)))

        def stay(position: Array = position) -> Array:
            return position

        position = jax.lax.cond(step % move.every == 0, redraw, stay)
    return position


def _rows(paths: Sequence[Sequence[str | None]] | None) -> tuple[tuple[str | None, ...], ...] | None:
    return None if paths is None else tuple(tuple(row) for row in paths)


class Scaling(Move):
    """A move that scales units, layer by layer, for independent normal weights."""

    paths: tuple[tuple[str | None, ...], ...] | None = eqx.field(default=None, converter=_rows, static=True)
    tolerance: float = eqx.field(default=1e-2, converter=float)
    names: ClassVar[tuple[str, ...]]
    """Roles of the paths that describe one layer."""

    def __check_init__(self):
        if self.paths is not None and (not self.paths or {len(row) for row in self.paths} != {len(self.names)}):
            raise InputError(
                f"paths= as a list of ({', '.join(self.names)})",
                f"{self.paths}"[:200],
                "Name the arrays of each layer by their paths.",
            )

    @abc.abstractmethod
    def known(self, network: Any, weights: PyTree) -> Sequence[tuple[str | None, ...]]:
        """Paths of the layers of a network known to have the symmetry; InputError for any other network."""

    @abc.abstractmethod
    def draw(self, key: Key, entering: Units, leaving: Units) -> Array:
        """Draw a factor for each unit, given the squares of its weights in prior standard deviations."""

    def orbits(self, network: Any, weights: PyTree) -> list[Orbit]:
        """Orbits to be scaled, in order."""
        rows: Any = self.paths or self.known(_bare(network), weights)
        layout = network.layout(weights)
        return [orbit(weights, layout, *row) for row in rows]

    def check(self, model: Model) -> None:
        """InputError unless weights are independent and normal, and trial scalings leave the outputs unchanged."""
        like = jax.eval_shape(lambda x: model.sample_params(jax.random.key(0), x), model.example())
        if not model.independent_normal(like) or not model.elementwise(like):
            raise InputError(
                f"a prior of independent weights, normal given its scales, for moves.{type(self).__name__}",
                f"priors.{type(model.prior).__name__}",
                "Use priors.Normal, or leave the move out.",
            )
        worst = violation(model, self.orbits(model.network, like.weights), self.tolerance)
        if worst is not None:
            path, change = worst
            raise InputError(
                f"outputs that stay the same within {self.tolerance:g} where moves.{type(self).__name__} scales the "
                f"units of {path}",
                f"a change by {change:.2g} of the largest output",
                "Name other layers with paths=, or leave the move out.",
            )

    def __call__(self, key: Key, target: Target, params: Params) -> Params:
        """Parameters after scaling: layers that share no array at once given all else, then the others."""
        model = target.model
        layout = model.network.layout(params.weights)
        variances = model.prior.variances(params.weights, params.scales, layout)
        units = jax.tree.map(lambda w, v: w / jnp.sqrt(v * target.temperature), model.weights(params), variances)
        raw, structure = jax.tree.flatten(params.weights)
        squares = [jnp.square(z) for z in jax.tree.leaves(units)]
        for number, batch in enumerate(batches(self.orbits(model.network, params.weights))):
            entering, leaving = (batch.units(squares, divided=divided) for divided in (False, True))
            factors = self.draw(jax.random.fold_in(key, number), entering, leaving)
            factors = jnp.where(jnp.isfinite(factors) & (factors > 0), factors, 1.0)
            raw, squares = batch.act(raw, factors), batch.act(squares, jnp.square(factors))
        return params._replace(weights=jax.tree.unflatten(structure, raw))


def _bare(network: Any) -> Any:
    """The network inside the wrappers, whose weights these are."""
    while isinstance(network, Offset | Cast):
        network = network.network
    return network


class NormRedraw(Scaling):
    r"""Redraws the norms of filters where a normalisation after them makes the function independent of the norm.

    A filter is the weights and the bias of one output channel, *d* values :math:`z` in units of their prior standard
    deviations. Given all else, its direction included, its norm is distributed as :math:`\sqrt T \chi_d`, T the
    temperature, whatever the data. A normalisation with an :math:`\epsilon`, such as filter response normalisation,
    leaves a dependence on the norm, which is neglected within the tolerance.

    Parameters
    ----------
    every
        Number of steps between moves.
    paths
        (weight, bias) of each layer, such as ``("conv/weight", "conv/bias")``; None for the bias of a layer without
        one. By default those that the network's own method `normalised` returns.
    tolerance
        Largest change of the outputs that `check` allows when norms are halved or doubled, relative to the largest
        output. bfloat16 rounds values to 0.004.

    Examples
    --------
    >>> import tunbridge as tb
    >>> move = tb.moves.NormRedraw(every=50, paths=[("conv/weight", "conv/bias")])
    """

    names = ("weight", "bias")

    def known(self, network: Any, weights: PyTree) -> Sequence[tuple[str | None, ...]]:
        """Paths that the network's method `normalised` returns."""
        rows = network.normalised(weights) if isinstance(network, Normalised) else []
        if not rows:
            raise InputError(
                "a network that declares which of its layers are normalised",
                type(network).__name__,
                "Name them: NormRedraw(paths=[(weight, bias), ...]).",
            )
        return rows

    def draw(self, key: Key, entering: Units, leaving: Units) -> Array:
        """Ratio of a newly drawn norm to the present one."""
        degrees = jnp.asarray(entering.num, entering.sums.dtype)
        return jnp.sqrt(jax.random.chisquare(key, degrees, dtype=degrees.dtype) / entering.sums)


class Rescaling(Scaling):
    r"""Scales hidden units of ReLU networks: weights into a unit times *a*, weights out of it divided by *a*.

    The function stays the same :cite:p:`dinh2017sharp`. Let :math:`z_1` be the :math:`d_1` values that enter
    a unit (weights and bias), :math:`z_2` the :math:`d_2` weights that leave it, in units of their prior standard
    deviations, and T the temperature. Given all else, :math:`u = a^2` is generalised inverse Gaussian,

    .. math::

        p(u) \propto u^{(d_1 - d_2) / 2 - 1} \exp\Big(-\frac{\lVert z_1 \rVert^2 u + \lVert z_2 \rVert^2 / u}{2T}\Big).

    The units of a layer are drawn at once, and layers in turn (those that share no array at once).

    Parameters
    ----------
    every
        Number of steps between moves.
    paths
        (weight, bias, next weight) of each hidden layer, such as ``("layers/0/weight", "layers/0/bias",
        "layers/1/weight")``; None for the bias of a layer without one. By default all hidden layers of an `MLP`.
    tolerance
        As for `NormRedraw`.

    Examples
    --------
    >>> import tunbridge as tb
    >>> move = tb.moves.Rescaling(every=50)
    >>> model = tb.Model(tb.networks.MLP((5,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    >>> model, data = model.bind(tb.Data([[0.0], [1.0]], [0.0, 1.0]))
    >>> move.check(model)
    """

    names = ("weight", "bias", "next weight")

    def known(self, network: Any, weights: PyTree) -> Sequence[tuple[str | None, ...]]:
        """Paths of all hidden layers of an MLP."""
        if not isinstance(network, MLP) or not network.hidden:
            raise InputError(
                "an MLP with hidden layers",
                f"{network}"[:80],
                "Name the layers: Rescaling(paths=[(weight, bias, next weight), ...]).",
            )
        layers = [f"layers/{number}" for number in range(len(network.hidden) + 1)]
        return [(f"{layer}/weight", f"{layer}/bias", f"{after}/weight") for layer, after in itertools.pairwise(layers)]

    def draw(self, key: Key, entering: Units, leaving: Units) -> Array:
        """Square root of a generalised inverse Gaussian draw."""
        power = _power(entering.num, leaving.num)
        return jnp.sqrt(gig.sample(key, power, entering.sums, leaving.sums))


def _power(entering: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """The p of `gig`, given how many values enter and leave a unit: half the power of a in the Jacobian."""
    return (entering - leaving) / 2.0
