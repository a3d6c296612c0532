"""What is believed after the data: a point, draws, a mixture. Each holds its model and its own key."""

import abc
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from tunbridge.core import keys, tables, tree
from tunbridge.core.compiling import once
from tunbridge.core.data import Data, check_x
from tunbridge.core.declared import Count, Module, checked
from tunbridge.core.errors import InputError
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

DRAWS = 100
"""How many networks a prediction averages, where there is a choice and none is made."""


class Posterior(Module):
    """A distribution over everything unknown in a model."""

    model: Model
    key: Key
    """Folded in by `fit`: what `predict` uses where no key is given, so that the same call gives the same answer."""
    notes: tuple[str, ...] = eqx.field(static=True, kw_only=True, default=())
    """What a reader should know about how this came about."""
    provenance: Provenance | None = eqx.field(static=True, kw_only=True, default=None)
    """The method, versions and device it comes from, where `fit` made it."""

    @property
    def cut(self) -> Cut | None:
        """Where its fit was ended before the last step, by `max_seconds` or a callback; None where it was not."""
        return None if self.provenance is None else self.provenance.cut

    @abc.abstractmethod
    def sample(self, key: Key, num: int) -> Params:
        """Draws with a leading axis `num`; also inside jit."""

    @abc.abstractmethod
    def components(self, key: Key, num: int | None) -> Params:
        """The parameters whose networks a prediction averages, with a leading axis."""

    def starts(self, key: Key, num: int) -> Params:
        """Where `num` chains may start, with a leading axis: draws of weights and scales, noise from its prior.

        The noise of a point estimate may be far too small for the weights around it, and a chain would stall there.
        """
        own = keys.split(key)
        noise = _noise(self.model.likelihood, keys.split(keys.one(own, 1), num))
        return self.sample(keys.one(own, 0), num)._replace(noise=noise)

    def one(self) -> Params:
        """One network, to go on from: the mode where it has one, else the first that a prediction averages."""
        return jax.tree.map(lambda leaf: on_host(lambda many: many[0], leaf), self.components(self.key, None))

    def draw_like(self) -> Params | None:
        """The shapes of one draw; None where there are no weights to draw."""
        arrays, rest = eqx.partition(self, eqx.is_array)

        def one(arrays: Any) -> Params:
            whole = eqx.combine(arrays, rest)
            return jax.tree.map(lambda leaf: leaf[0], whole.sample(whole.key, 1))

        return jax.eval_shape(one, arrays)

    @property
    def num_outputs(self) -> int:
        """Of the network."""
        return jax.eval_shape(self.model.outputs, self.draw_like(), self.model.example()).shape[-1]

    @checked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x, averaged over the posterior.

        Parameters
        ----------
        x
            Inputs (points, ...features).
        key
            Only where weights are drawn for the prediction; None uses the posterior's own.
        num
            How many weight draws to average over, where there is a choice.
        """
        return push(self.pushed(check_x(x), self.key if key is None else key, num))

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """The outputs at x of the networks that a prediction averages."""
        components = self.components(key, num)
        one = jax.eval_shape(lambda: self.model.weights(jax.tree.map(lambda leaf: leaf[0], components)))
        self.model.check_inputs(one, x)
        return Outputs(self.model, components, x)

    @property
    def linear(self) -> bool:
        """Whether predictions take the network for linear."""
        return False

    def compile(self, x_shape: tuple[int, ...]) -> Callable[[Any], Parts]:
        """A compiled function of x of this shape to what `predict` expects, and both uncertainties.

        For answers in real time: nothing is checked, no predictive is built.

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
        """A pure function of some arrays and x that answers in brief, and these arrays."""
        params = self.components(self.key, None)
        weights = jax.vmap(self.model.weights)(params)
        return _answer, (self.model.network, self.model.likelihood, weights, params.noise)

    def summary(self) -> Summary:
        """Mean and standard deviation of each array of unknowns, over the posterior and the array's elements.

        Weights are the network's own; scales and noise are values, or said to be coordinates on the real line.
        """
        return summarise(self.model, self.components(self.key, None))

    def check(self, data: Data, *, key: Key | None = None) -> Check:
        """The posterior held against data: the rows it was fitted to.

        Statistics of y are compared with those of 500 data sets drawn from the posterior predictive: mean, standard
        deviation, extremes and skewness of numbers; shares of classes and their entropy. A p near 0 or 1 says that the
        model does not expect such data. Each point is left out by Pareto-smoothed importance sampling
        :cite:p:`vehtari2017practical`: its log density, k-hat (above 0.7 unreliable), and P(Y <= y), which is uniform
        if the model is right (for classes drawn between P(Y < y) and P(Y <= y)). Leaving out takes draws for exact
        ones, so for approximate posteriors it is as good as the approximation.

        Parameters
        ----------
        data
            In the units that `predict` speaks.
        key
            Draws the replicates; None uses the posterior's own.
        """
        return checks.check(self, data, jax.random.fold_in(self.key, 1) if key is None else key)

    def prior(self, key: Key, num: int) -> "Posterior":
        """What was believed before the data: draws from the prior, to be asked like a posterior."""
        draw = jax.jit(jax.vmap(lambda one: self.model.sample_params(one, self.model.example())))
        return Draws(self.model, key, draw(jax.random.split(key, num)))

    def to_arviz(self, data: Data | None = None) -> Any:
        """The draws as ArviZ's DataTree, weights by path, noise and scales as values, one chain unless it has several.

        Its groups are posterior and, where steps left statistics, sample_stats under ArviZ's names. With `data` also
        log_likelihood, posterior_predictive, observed_data, prior and prior_predictive, in the units of the data, so
        that ``arviz_stats.loo`` and ``compare`` take it as it is. ArviZ before 1.0 takes
        ``arviz.from_datatree(posterior.to_arviz(data))``.
        """
        return exchange.to_arviz(self, *self._by_chain(), data)

    def _by_chain(self) -> tuple[Params, dict[str, Array]]:
        """What predictions average, with leading axes (chains, draws), and the statistics of its steps."""
        return jax.tree.map(lambda leaf: leaf[None], self.components(self.key, None)), {}

    def _repr_html_(self) -> str:
        size = tree.size(self.draw_like())
        method = "" if self.provenance is None else self.provenance.method
        facts = {"method": method, "unknowns": f"{size:,}", "notes": " ".join(self.notes)}
        return tables.to_html([{"": name, "value": value} for name, value in facts.items()], type(self).__name__)

    def save(self, path: str | os.PathLike) -> None:
        """Write it into a folder, made if it is not there; `tunbridge.load` gives it back to the bit.

        A posterior that is there already stays whole until the new one is safely on disk. Functions, Equinox modules
        and classes of your own are not written: hand the model to `load`.
        """
        store.save(self, path)


def _answer(state: tuple[Network, Likelihood, PyTree, PyTree], x: Array) -> Parts:
    network, likelihood, weights, noise = state
    return parts(likelihood, forward(network, weights, x), noise)


class Point(Posterior):
    """All belief at one value."""

    params: Params
    curve: dict[str, Array] | None = None
    """The optimiser's statistics along the way by name, with a leading axis."""

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """The same value `num` times."""
        return _repeated(num, self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """The one value."""
        if num is not None:
            raise InputError("no num= for a point estimate", f"num={num}", "Leave it out: there is one network.")
        return jax.tree.map(lambda leaf: on_host(lambda one: one[None], leaf), self.params)


def _repeat(num: int, params: Params) -> Params:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), params)


_repeated = once(_repeat, static_argnums=0)


class Weightless(Posterior):
    """What predicts and has no weights to draw."""

    @property
    @abc.abstractmethod
    def refusal(self) -> InputError:
        """What is said to those who ask for weights."""

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Refused: there are no weights."""
        raise self.refusal

    def components(self, key: Key, num: int | None) -> Params:
        """Refused: there are no weights."""
        raise self.refusal

    def draw_like(self) -> None:
        """None: there are no weights."""
        return


class Draws(Posterior):
    """Equally weighted draws, with leading axis (draws,)."""

    params: Params
    log_evidence: Array | None = None
    """An estimate of log p(y), all constants included, where the method gives one."""

    @property
    def num(self) -> int:
        """How many there are."""
        return jax.tree.leaves(self.params)[0].shape[0]

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """`num` of them at random, with replacement."""
        chosen = jax.random.randint(key, (num,), 0, self.num)
        return jax.tree.map(lambda leaf: leaf[chosen], self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """All of them, or `num` evenly spaced."""
        if num is None:
            return self.params
        if not 1 <= num <= self.num:
            raise InputError(f"num from 1 to the {self.num} draws kept", f"{num}", "Ask for fewer, or sample more.")
        chosen = np.linspace(0, self.num - 1, num).round().astype(int)
        return jax.tree.map(lambda leaf: on_host(lambda many: many[chosen], leaf), self.params)


class LowRankGaussian(Posterior):
    r"""Normal weights :math:`N(\bar w, \text{diag}(v) + F^\top F)`; noise and scales at one value."""

    mean: Params
    variance: PyTree
    """v, of the shape of the weights."""
    factors: PyTree
    """The rows of F, (rank, ...)."""

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        r"""Draws :math:`\bar w + \sqrt v \, z_1 + F^\top z_2`."""
        return _low_rank_draws(self.mean, self.variance, self.factors, keys.split(key, num))

    def components(self, key: Key, num: int | None) -> Params:
        """`num` draws, 100 unless told."""
        return self.sample(key, DRAWS if num is None else num)


@once
def _low_rank_draws(mean: Params, variance: PyTree, rows: PyTree, own: Key) -> Params:
    weights, unravel = ravel_pytree(mean.weights)
    scale = jnp.sqrt(ravel_pytree(variance)[0])
    factors = jax.vmap(lambda row: ravel_pytree(row)[0])(rows)

    def one(key_draw: Key) -> Params:
        key_diagonal, key_rank = jax.random.split(key_draw)
        z_1 = jax.random.normal(key_diagonal, scale.shape, scale.dtype)
        z_2 = jax.random.normal(key_rank, factors.shape[:1], factors.dtype)
        return mean._replace(weights=unravel(weights + scale * z_1 + z_2 @ factors))

    return jax.vmap(one)(own)


@once
def _noise(likelihood: Likelihood, own: Key) -> PyTree:
    """A draw of the noise for each key."""
    return jax.vmap(likelihood.sample_noise)(own)


class Mixture(Posterior):
    """Several posteriors of one model, equally weighted."""

    members: tuple[Posterior, ...]

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Each draw from a member chosen at random."""
        key_member, *keys = jax.random.split(key, 1 + len(self.members))
        chosen = jax.random.randint(key_member, (num,), 0, len(self.members))
        drawn = [member.sample(k, num) for member, k in zip(self.members, keys, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[chosen, jnp.arange(num)], *drawn)

    def starts(self, key: Key, num: int) -> Params:
        """One member a chain, in turn."""
        own = keys.split(key, num)
        starts = [self.members[i % len(self.members)].starts(keys.one(own, i), 1) for i in range(num)]
        return jax.tree.map(lambda *leaves: on_host(_joined, *leaves), *starts)

    def components(self, key: Key, num: int | None) -> Params:
        """Those of all members; with `num`, that many in all, as many of each."""
        each = self._each(num)
        parts = [member.components(k, each) for member, k in zip(self.members, self._keys(key), strict=True)]
        return jax.tree.map(lambda *leaves: on_host(_joined, *leaves), *parts)

    def _keys(self, key: Key) -> list[Key]:
        own = keys.split(key, len(self.members))
        return [keys.one(own, i) for i in range(len(self.members))]

    @property
    def linear(self) -> bool:
        """Whether a member is."""
        return any(member.linear for member in self.members)

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """Those of all members, where some of them take the network for linear."""
        if not self.linear:
            return super().pushed(x, key, num)
        each = self._each(num)
        return Outputs.join(
            [member.pushed(x, k, each) for member, k in zip(self.members, self._keys(key), strict=True)]
        )

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """Refused for networks taken for linear."""
        if self.linear:
            raise InputError("members that are networks", "linearised ones", "Compile one member by itself.")
        return super().prepared()

    def _each(self, num: int | None) -> int | None:
        each, rest = (None, 0) if num is None else divmod(num, len(self.members))
        if rest or each == 0:
            raise InputError(f"num as a multiple of the {len(self.members)} members", f"{num}", "Change num.")
        return each


def _joined(*parts: np.ndarray) -> np.ndarray:
    """Arrays one after another."""
    return np.concatenate(parts)
