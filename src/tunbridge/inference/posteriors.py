"""Posteriors: what all of them do, points and draws. Each holds its model and its own key."""

import abc
import dataclasses
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import keys, tables, tree
from tunbridge.core.compiling import once
from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, Module, checked
from tunbridge.core.errors import InputError
from tunbridge.core.loaders import as_table
from tunbridge.core.provenance import Cut, Provenance
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key, Likelihood, Network, Params, Predictive, PyTree
from tunbridge.inference import checks, exchange, store
from tunbridge.inference.checks import Check
from tunbridge.inference.summary import Summary, summarise
from tunbridge.model.model import Model
from tunbridge.predict.outputs import Outputs, forward
from tunbridge.predict.parts import Parts, check_one_task, parts
from tunbridge.predict.push import push
from tunbridge.runtime import programs

DRAWS = 100
"""Default number of networks that a prediction averages, for posteriors that can draw any number."""


class Posterior(Module):
    """A distribution over everything unknown in a model."""

    model: Model
    key: Key
    """Set by `fit`: used by `predict` when no key is given, so that the same call gives the same answer."""
    notes: tuple[str, ...] = eqx.field(static=True, kw_only=True, default=())
    """Remarks on the fit, for the reader."""
    provenance: Provenance | None = eqx.field(static=True, kw_only=True, default=None)
    """The method, versions and device that produced it; None if it was not made by `fit`."""

    @property
    def cut(self) -> Cut | None:
        """Where `max_seconds` or a callback stopped the fit early; None if the fit ran to its last step."""
        return None if self.provenance is None else self.provenance.cut

    @abc.abstractmethod
    def sample(self, key: Key, num: int) -> Params:
        """Draw `num` parameters, with a leading axis; also inside jit."""

    @abc.abstractmethod
    def components(self, key: Key, num: int | None) -> Params:
        """Return the parameters of the networks that a prediction averages, with a leading axis."""

    def starts(self, key: Key, num: int) -> Params:
        """Return starting points of `num` chains, with a leading axis: drawn weights and scales, noise from its prior.

        The noise of a point estimate may be far too small for the weights around it, and a chain would stall there.
        """
        pair = keys.split(key)
        noise = _noise(self.model.likelihood, keys.split(keys.one(pair, 1), num))
        return self.sample(keys.one(pair, 0), num)._replace(noise=noise)

    def one(self) -> Params:
        """Return a single network: the mode if the posterior has one, else the first that a prediction averages."""
        return jax.tree.map(lambda leaf: on_host(lambda many: many[0], leaf), self.components(self.key, None))

    def draw_like(self) -> Params | None:
        """Return the shapes of one draw; None if there are no weights to draw."""
        arrays, static = eqx.partition(self, eqx.is_array)

        def first_draw(arrays: Any) -> Params:
            posterior = eqx.combine(arrays, static)
            return jax.tree.map(lambda leaf: leaf[0], posterior.sample(posterior.key, 1))

        return jax.eval_shape(first_draw, arrays)

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network."""
        return jax.eval_shape(self.model.outputs, self.draw_like(), self.model.example()).shape[-1]

    @checked
    @programs.unforked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x, averaged over the posterior.

        Parameters
        ----------
        x
            Inputs (points, ...features).
        key
            Used only by posteriors that draw weights for the prediction; None uses the posterior's own.
        num
            Number of weight draws to average over, for posteriors that allow a choice.
        """
        return push(self.pushed(check_x(x), self.key if key is None else key, num))

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """Return the outputs at x of the networks that a prediction averages."""
        components = self.components(key, num)
        weights = jax.eval_shape(lambda: self.model.weights(jax.tree.map(lambda leaf: leaf[0], components)))
        self.model.check_inputs(weights, x)
        return Outputs(self.model, components, x)

    @property
    def linear(self) -> bool:
        """Whether predictions linearise the network."""
        return False

    @programs.unforked
    def compile(self, x_shape: tuple[int, ...]) -> Callable[[Any], Parts]:
        """Return a compiled function of x of this shape that gives what is expected of y, and both uncertainties.

        For predictions in real time: inputs are not checked, and no predictive is built.

        Parameters
        ----------
        x_shape
            (points, ...features).
        """
        check_one_task(self.model.likelihood)
        blank = np.zeros(
            x_shape, jax.dtypes.canonicalize_dtype(np.float64 if self.model.inputs is None else self.model.inputs.dtype)
        )
        if blank.ndim < 2 or (self.model.inputs is not None and blank.shape[1:] != self.model.inputs.shape):
            raise InputError("x_shape as (points, ...features)", f"{x_shape}", "Write posterior.compile(x.shape).")
        function, state = self.prepared()
        compiled = jax.jit(function)
        jax.block_until_ready(compiled(state, blank))
        return lambda x: compiled(state, x)

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """Return a pure function (state, x) -> `Parts`, and its state, a tree of arrays; used by `compile`."""
        params = self.components(self.key, None)
        weights = jax.vmap(self.model.weights)(params)
        return _answer, (self.model.network, self.model.likelihood, weights, params.noise)

    def summary(self) -> Summary:
        """Mean and standard deviation of each array of unknowns, over the posterior and the array's elements.

        Weights are the network's own; scales and noise are values, or are marked as coordinates on the real line. The
        posterior's notes are its sentences.
        """
        return dataclasses.replace(summarise(self.model, self.components(self.key, None)), sentences=self.notes)

    def check(self, data: Any, *, key: Key | None = None) -> Check:
        """Check the posterior against the rows it was fitted to: posterior predictive checks and leave-one-out.

        Statistics of y are compared with those of 500 data sets drawn from the posterior predictive: mean, standard
        deviation, extremes and skewness of numbers; shares of classes and their entropy. A p near 0 or 1 says that the
        model does not expect such data. Each point is left out by Pareto-smoothed importance sampling
        :cite:p:`vehtari2017practical`: its log density, k-hat (above 0.7 unreliable), and P(Y <= y), which is uniform
        if the model is right (for classes drawn between P(Y < y) and P(Y <= y)). Importance sampling treats the draws
        as exact, so for approximate posteriors these estimates are only as good as the approximation.

        Parameters
        ----------
        data
            `Data` or a pair (x, y), in the units that `predict` uses.
        key
            For drawing the replicates; None uses the posterior's own.
        """
        return checks.check(self, as_table(data), jax.random.fold_in(self.key, 1) if key is None else key)

    def prior(self, key: Key, num: int) -> "Posterior":
        """Return draws from the prior, as a posterior: for prior predictive checks."""
        draw = jax.jit(jax.vmap(lambda key_draw: self.model.sample_params(key_draw, self.model.example())))
        return Draws(self.model, key, draw(jax.random.split(key, num)))

    def to_arviz(self, data: Any = None) -> Any:
        """Return the draws as an ArviZ DataTree: weights by path, noise and scales as values, chains kept apart.

        Draws that come from no chains count as one chain. The groups are posterior and, for samplers, sample_stats
        under ArviZ's names. With `data` also log_likelihood, posterior_predictive, observed_data, prior and
        prior_predictive, in the units of the data, ready for ``arviz_stats.loo`` and ``compare``. For ArviZ before 1.0
        use ``arviz.from_datatree(posterior.to_arviz(data))``.
        """
        return exchange.to_arviz(self, *self._by_chain(), None if data is None else as_table(data))

    def _by_chain(self) -> tuple[Params, dict[str, Array]]:
        """The parameters that predictions average, with leading axes (chains, draws), and their step statistics."""
        return jax.tree.map(lambda leaf: leaf[None], self.components(self.key, None)), {}

    def _repr_html_(self) -> str:
        size = tree.size(self.draw_like())
        method = "" if self.provenance is None else self.provenance.method
        facts = {"method": method, "unknowns": f"{size:,}", "notes": " ".join(self.notes)}
        return tables.to_html([{"": name, "value": value} for name, value in facts.items()], type(self).__name__)

    def save(self, path: str | os.PathLike) -> None:
        """Save the posterior to a folder, which is created if need be; `tunbridge.load` restores it to the bit.

        A posterior already saved there stays intact until the new one is safely on disk. Functions, Equinox modules
        and classes of your own are not written: pass the model to `load`.
        """
        store.save(self, path)


@once
def _noise(likelihood: Likelihood, draw_keys: Key) -> PyTree:
    """A draw of the noise for each key."""
    return jax.vmap(likelihood.sample_noise)(draw_keys)


def _answer(state: tuple[Network, Likelihood, PyTree, PyTree], x: Array) -> Parts:
    network, likelihood, weights, noise = state
    return parts(likelihood, forward(network, weights, x), noise)


class Symmetric(Posterior):
    """A posterior that is symmetric around `one()`: predictions average draws and their mirror images, in pairs."""

    def components(self, key: Key, num: int | None) -> Params:
        """Return `num` draws in mirrored pairs, by default 200: their mean is that of the distribution."""
        num = 2 * DRAWS if num is None else num
        return _mirrored(self.sample(key, (num + 1) // 2), self.one(), num)


@partial(jax.jit, static_argnames="num")
def _mirrored(draws: Params, centre: Params, num: int) -> Params:
    def pairs(half: Array, centre: Array) -> Array:
        return jnp.stack([half, 2 * centre[None] - half], axis=1).reshape(-1, *half.shape[1:])[:num]

    return jax.tree.map(pairs, draws, centre)


class Point(Posterior):
    """A point estimate: all mass at one value."""

    params: Params
    curve: dict[str, Array] | None = None
    """The optimiser's statistics by name, over the training steps (leading axis)."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Return the point `num` times, with a leading axis."""
        return _repeated(num, self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """Return the point, with a leading axis of length 1."""
        if num is not None:
            raise InputError("no num= for a point estimate", f"num={num}", "Leave it out: there is one network.")
        return jax.tree.map(lambda leaf: on_host(lambda values: values[None], leaf), self.params)


def _repeat(num: int, params: Params) -> Params:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), params)


_repeated = once(_repeat, static_argnums=0)


class Weightless(Posterior):
    """A posterior that predicts but has no weights to draw."""

    @property
    @abc.abstractmethod
    def refusal(self) -> InputError:
        """The error raised when weights are asked for."""

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Raise `refusal`: there are no weights."""
        raise self.refusal

    def components(self, key: Key, num: int | None) -> Params:
        """Raise `refusal`: there are no weights."""
        raise self.refusal

    def draw_like(self) -> None:
        """Return None: there are no weights."""
        return


class Draws(Posterior):
    """Equally weighted draws, with leading axis (draws,)."""

    params: Params
    log_evidence: Array | None = None
    """An estimate of log p(y), all constants included, where the method gives one."""

    @property
    def num(self) -> int:
        """Number of draws."""
        return jax.tree.leaves(self.params)[0].shape[0]

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Return `num` draws chosen at random, with replacement."""
        chosen = jax.random.randint(key, (num,), 0, self.num)
        return jax.tree.map(lambda leaf: leaf[chosen], self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """Return all draws, or `num` evenly spaced ones."""
        if num is None:
            return self.params
        if not 1 <= num <= self.num:
            raise InputError(f"num from 1 to the {self.num} draws kept", f"{num}", "Ask for fewer, or sample more.")
        chosen = np.linspace(0, self.num - 1, num).round().astype(int)
        return jax.tree.map(lambda leaf: on_host(lambda many: many[chosen], leaf), self.params)
