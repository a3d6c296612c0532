"""Priors that say little: flat and Jeffreys' within a bound, and the log-uniform, which is improper."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Logistic

from tunbridge.core.data import Data
from tunbridge.core.declared import checked
from tunbridge.core.errors import InputError
from tunbridge.core.tree import ravel, size, unravel
from tunbridge.core.types import Key, Network, Prior, PyTree, Scalar
from tunbridge.model import transforms
from tunbridge.model.priors.base import AbstractPrior, check_scale, deviations, draw, total

_LAW = Logistic(0.0, 1.0)
_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695
"""Coefficients of `LogUniform.kl`."""
_STEPS = 1000
"""Steps of the Metropolis sampler behind a draw from `Jeffreys`."""


def _as_bound(bound: Any) -> Any:
    if transforms.unknowns(bound):
        raise InputError("a known bound", f"{bound}", "Give a number, or one per layer.")
    bound = tuple(bound) if isinstance(bound, list | tuple) else bound
    bound = transforms.check_positive(bound, "bound")
    if not isinstance(bound, jax.core.Tracer) and not np.all(np.isfinite(jax.tree.leaves(bound))):
        raise InputError(
            "a finite bound",
            f"{bound}",
            "Give a large number: without a bound the prior is improper.",
        )
    return bound


class _Bounded(AbstractPrior):
    """Weights within a bound, whose raw coordinates are those of a logistic distribution where they are uniform."""

    bound: Any = eqx.field(default=10.0, converter=_as_bound)

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights within the bound from raw coordinates."""
        return jax.tree.map(lambda r, b: b * jnp.tanh(0.5 * r), raw, deviations(self.bound, raw, layout))

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates from weights; those at the bound or beyond are put just within it."""

        def inverse(w: Array, b: Any) -> Array:
            most = 1.0 - jnp.finfo(w.dtype).eps
            return 2.0 * jnp.arctanh(jnp.clip(w / b, -most, most))

        return jax.tree.map(inverse, weights, deviations(self.bound, weights, layout))


class Flat(_Bounded):
    r"""All weights within a bound alike: :math:`w` uniform on :math:`[-b, b]`.

    The flat prior of :cite:t:`lee2003noninformative`, whose posterior is proper only within a bound. The raw
    coordinates are those of :math:`w = b \tanh(r / 2)`: no sampler meets a wall.

    Parameters
    ----------
    bound
        :math:`b`, or a sequence with one per layer. In the units of the weights: at 10, an input of standard deviation
        1 saturates a unit well within the bound.

    Examples
    --------
    >>> from tunbridge import priors
    >>> prior = priors.Flat(bound=(10.0, 3.0))
    """

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return self; InputError unless the bounds fit the layers."""
        check_scale(self.bound, layout)
        return self

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates."""
        return _log_flat(raw)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, ()) from the prior."""
        return draw(_LAW, key, like), ()


class Jeffreys(_Bounded):
    r"""Jeffreys' prior of the weights within a bound, by the Fisher information of the network.

    .. math::

        p(w) \propto |I(w)|^{1/2}, \qquad I(w) = \sum_i J_i^\top J_i, \qquad J_i = \partial f(x_i; w) / \partial w

    :cite:p:`lee2004bayesian`: equal mass for equal volumes of functions at the inputs, so that weights that hardly
    change the outputs, as those of saturated units or of two equal ones, have little. *I* is the information of normal
    observations up to their variance, which the prior of the noise takes on: ``numpyro.distributions.LogUniform``, with
    :math:`p(\sigma) \propto 1 / \sigma`, makes the two independent; ``RootInverseGamma(p / 2, e)``, with *p* weights
    and a small *e*, is the joint Jeffreys prior.

    The density is not normalised: bounds on the evidence by variational methods are to be compared within one network
    and bound alone. A draw is the end of 1,000 steps of Metropolis from the flat prior.

    Parameters
    ----------
    bound
        As of `Flat`.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import tunbridge as tb
    >>> noise = tb.likelihoods.Gaussian(dist.LogUniform(0.001, 10.0))
    >>> model = tb.Model(tb.networks.MLP((3,)), tb.priors.Jeffreys(), noise)
    """

    network: Network | None = eqx.field(default=None, kw_only=True)
    x: Any = eqx.field(default=None, kw_only=True)
    weight: Any = eqx.field(default=None, kw_only=True)
    """The network, the inputs and their weights that the information is of; set when the model is bound."""

    def given(self, network: Network, data: Data) -> Prior:
        """Return the prior that knows the network, and the inputs at which its information is counted."""
        rows = data.padded()
        return dataclasses.replace(self, network=network, x=rows.x, weight=rows.weight)

    def bind(self, weights: PyTree, layout: PyTree) -> Prior:
        """Return self; InputError for a part of a network, or for fewer observations than weights."""
        if self.network is None:
            raise InputError(
                "priors.Jeffreys for all weights of a model",
                "for some of them, or without data",
                "Give it to tb.Model as the prior, and bind the model.",
            )
        outputs = jax.eval_shape(self.network.apply, weights, self.x).shape[1]
        rows = len(self.x) if self.weight is None else np.count_nonzero(self.weight)
        if rows * outputs < size(weights):
            raise InputError(
                f"at least as many observations as weights, {size(weights)}, for priors.Jeffreys",
                f"{rows * outputs}, whose information is singular",
                "Use fewer hidden units, or priors.Flat.",
            )
        check_scale(self.bound, layout)
        return self

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log density of raw coordinates, up to a constant."""
        assert self.network is not None
        columns = _jacobian(self.network, self.weights(raw, scales, layout), self.x, self.weight)
        return _log_flat(raw) + _half_log_det(columns)

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Draw (raw, ()), by random-walk Metropolis."""
        key_start, key_steps = jax.random.split(key)
        scale = 2.4 / size(like) ** 0.5

        def log_density(position: Array) -> Scalar:
            return self.log_prob(unravel(like, position), (), layout)

        def step(state: tuple[Array, Scalar], key_step: Key) -> tuple[tuple[Array, Scalar], None]:
            position, height = state
            key_move, key_accept = jax.random.split(key_step)
            moved = position + scale * jax.random.normal(key_move, position.shape)
            risen = log_density(moved)
            taken = risen - height > jnp.log(jax.random.uniform(key_accept))
            return (jnp.where(taken, moved, position), jnp.where(taken, risen, height)), None

        start = ravel(draw(_LAW, key_start, like))
        (end, _), _ = jax.lax.scan(step, (start, log_density(start)), jax.random.split(key_steps, _STEPS))
        return unravel(like, end), ()


@jax.custom_jvp
def _half_log_det(columns: Array) -> Scalar:
    r""":math:`\tfrac12 \log |J^\top J|`, from the R of J = Q R."""
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(jnp.linalg.qr(columns, mode="r")))))


@_half_log_det.defjvp
def _change(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Scalar, Scalar]:
    r""":math:`\mathrm{tr}(J^+ dJ)` with :math:`J^+ = R^{-1} Q^\top`: nothing to differentiate through Q and R."""
    (columns,), (change,) = primals, tangents
    q, r = jnp.linalg.qr(columns)
    inverse = jax.scipy.linalg.solve_triangular(r, q.T)
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(r)))), jnp.sum(inverse.T * change)


class LogUniform(AbstractPrior):
    r"""Equal mass for every order of magnitude, :math:`p(w) \propto 1 / |w|`, as under normal-Jeffreys scales.

    Improper, and so is its posterior: any finite data leave infinite mass at :math:`w = 0`
    :cite:p:`hron2018variational`. Its only use is in the objective of variational dropout, through `kl`; every
    other method refuses it.
    """

    @property
    def proper(self) -> bool:
        """False, as the density does not integrate to one."""
        return False

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Unnormalised log density, the sum of -log |w|, constant near 0; no normalising constant exists."""

        def log_density(leaf: Array) -> Scalar:
            return -jnp.sum(jnp.log(jnp.maximum(jnp.abs(leaf), jnp.finfo(leaf.dtype).tiny)))

        return total(jax.tree.map(log_density, raw))

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """Raise InputError: an improper prior has no draws."""
        raise improper("LogUniform")

    @staticmethod
    def kl(log_alpha: Array) -> Array:
        r"""KL of :math:`N(\mu, \alpha \mu^2)` from the prior, per weight, shifted to tend to 0 as alpha grows.

        The fit of :cite:t:`molchanov2017variational` to :math:`\frac12 \log\alpha - E\log|1 + \sqrt\alpha \epsilon|`.
        """
        sigmoid = jax.nn.sigmoid(_K2 + _K3 * log_alpha)
        return 0.5 * jnp.log1p(jnp.exp(-log_alpha)) + _K1 * (1.0 - sigmoid)


@checked
def information(network: Network, weights: PyTree, data: Data) -> Array:
    r"""Return the Fisher information of the weights at the inputs of `data`, (weights, weights).

    That of normal observations of variance 1, :math:`\sum_i J_i^\top J_i`, with the weights in the order of
    `jax.tree.leaves`.
    """
    expected = jax.eval_shape(network.init, jax.random.key(0), data.x)
    if _shapes(weights) != _shapes(expected):
        raise InputError(f"weights of shapes {_shapes(expected)}", f"{_shapes(weights)}", "Give those of the network.")
    columns = _jacobian(network, weights, data.x, data.weight)
    return columns.T @ columns


def _log_flat(raw: PyTree) -> Scalar:
    """Log density of raw coordinates where weights are uniform: standard logistic."""
    return jnp.sum(_LAW.log_prob(ravel(raw)))


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(np.shape, tree)


def _jacobian(network: Network, weights: PyTree, x: Array, weight: Array | None) -> Array:
    """Derivatives of all outputs at all rows, times the root of each row's weight, (rows * outputs, weights)."""

    def outputs(position: Array) -> Array:
        values = network.apply(unravel(weights, position), x)
        return (values if weight is None else values * jnp.sqrt(weight)[:, None]).reshape(-1)

    return jax.jacfwd(outputs)(ravel(weights))


def improper(name: str) -> InputError:
    """InputError for an improper prior."""
    return InputError(
        "a proper prior",
        f"{name}, whose posterior is improper too: infinite mass at 0 whatever the data",
        "Use priors.Horseshoe or StudentT; LogUniform is for variational dropout's objective alone.",
    )
