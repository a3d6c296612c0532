"""Evaluation of a network at one row, with the activations and cotangents of its weight matrices."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.flatten_util import ravel_pytree

from tunbridge.core.types import PyTree
from tunbridge.model.networks.programs.sites import Group, Place, Site, Sites
from tunbridge.model.networks.programs.walking import bind, called, constant_and_carried, walk


class Evaluation:
    """Outputs of a network at one row, the activations of its groups, and cotangents on demand."""

    def __init__(self, sites: Sites, weights: PyTree, x: Array):
        self._sites = sites
        flat, unravel = ravel_pytree(weights)
        shifts = {place: jnp.zeros(site.shape, flat.dtype) for place, site in sites.found.items()}

        def run(shifts: dict[Place, Array], rest: Array) -> tuple[Array, dict[Place, Array]]:
            moved = unravel(flat.at[sites.rest].set(rest)) if len(sites.rest) else weights
            activations: dict[Place, Array] = {}
            values = [*jax.tree.leaves(moved), x[None]]
            runner = _Runner(sites.found, shifts, activations)
            (outputs,) = runner.run(sites.program, values, ())
            return outputs, activations

        self.outputs, self._pullback, activations = jax.vjp(run, shifts, flat[sites.rest], has_aux=True)
        self.activations = [self._activations(group, activations, flat.dtype) for group in sites.groups]
        """Activations of each group, (positions, inputs), with a 1 for the bias, in the weights' own precision."""

    def _activations(self, group: Group, activations: dict[Place, Array], dtype: Any) -> Array:
        parts = [activations[place].reshape(-1, activations[place].shape[-1]) for place in group.places]
        a = jnp.concatenate(parts).astype(dtype)
        return jnp.concatenate([a, jnp.ones((len(a), 1), a.dtype)], axis=1) if group.biased else a

    def cotangents(self, columns: Array) -> tuple[list[Array], Array]:
        """Derivatives of linear combinations (columns, outputs) of the network's outputs.

        They are with respect to each group's results, (columns, positions, outputs), and to the weights that belong to
        no group, (columns, rest).
        """
        shifts, rest = jax.vmap(self._pullback)(columns)
        return [
            jnp.concatenate([self._columns(place, shifts[place]) for place in group.places], axis=1)
            for group in self._sites.groups
        ], rest

    def _columns(self, place: Place, values: Array) -> Array:
        site = self._sites.found[place]
        reshape = site.columns
        for _ in range(site.depth + 1):
            reshape = jax.vmap(reshape)
        columns = reshape(values)
        return columns.reshape(len(values), -1, columns.shape[-1])


class _Runner:
    """Runs a program with shifts added to the results of its sites, and records the sites' activations."""

    def __init__(self, sites: dict[Place, Site], shifts: dict[Place, Array], activations: dict[Place, Array]):
        self.found, self.shifts, self.activations = sites, shifts, activations
        self._on_the_way = {place[:depth] for place in sites for depth in range(len(place))}

    def run(self, program: ClosedJaxpr, values: list[Array], place: Place) -> list[Array]:
        """Run a program and return its results."""

        def equation(number: int, eqn: JaxprEqn, operands: list[Array]) -> list[Array]:
            return self._equation(eqn, operands, (*place, number))

        return walk(program, values, equation, lambda value: value)

    def _equation(self, eqn: JaxprEqn, operands: list[Array], here: Place) -> list[Array]:
        name = eqn.primitive.name
        if here in self._on_the_way and name == "scan":
            return self._loop(eqn, operands, here)
        if here in self._on_the_way:
            return self.run(called(eqn), operands, here)
        results = bind(eqn, operands)
        if here not in self.found:
            return results
        self.activations[here] = self.found[here].activations(operands)
        return [results[0] + self.shifts[here].astype(results[0].dtype)]

    def _loop(self, eqn: JaxprEqn, operands: list[Array], here: Place) -> list[Array]:
        (num, carried), inner = constant_and_carried(eqn), eqn.params["jaxpr"]
        inside = [place for place in self.found if place[: len(here)] == here]
        consts, carry, rows = operands[:num], operands[num : num + carried], operands[num + carried :]

        def step(carry: list[Array], inputs: tuple) -> tuple[list[Array], tuple]:
            row, shifts = inputs
            activations: dict[Place, Array] = {}
            runner = _Runner({place: self.found[place] for place in inside}, shifts, activations)
            results = runner.run(inner, [*consts, *carry, *row], here)
            return results[:carried], (results[carried:], activations)

        shifts = {place: self.shifts[place] for place in inside}
        settings = {"length": eqn.params["length"], "reverse": eqn.params["reverse"]}
        carry, (results, activations) = jax.lax.scan(step, carry, (rows, shifts), **settings)
        self.activations.update(activations)
        return [*carry, *results]
