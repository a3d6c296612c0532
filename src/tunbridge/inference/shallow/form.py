"""What the samplers of shallow networks need of a model: that it has the form, and its parts as arrays."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data
from tunbridge.core.errors import InputError
from tunbridge.core.types import Params, Scalar
from tunbridge.inference.shallow.marginal import Regression
from tunbridge.model import transforms
from tunbridge.model.likelihoods.gaussian import Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS
from tunbridge.model.networks.architectures.shallow import Shallow
from tunbridge.model.priors.exchangeable import Exchangeable, joined, parted, spread


def check(model: Model, rows: int, name: str) -> None:
    """Raise InputError unless the model has the form that can be integrated, with fewer units than rows."""
    for part, kind in ((model.network, Shallow), (model.prior, Exchangeable), (model.likelihood, Gaussian)):
        if type(part) is not kind:
            raise InputError(
                f"a model of Shallow, Exchangeable and Gaussian, which tb.{name} needs",
                type(part).__name__,
                "Write tb.Model(networks.Shallow(10), priors.Exchangeable(), likelihoods.Gaussian(0.1)), or use NUTS.",
            )
    network = Form.of(model).network
    if network.outputs != 1:
        raise InputError("y with one column", f"{network.outputs}", "Fit one model per column, or use tb.NUTS().")
    if network.units > rows:
        raise InputError(f"at most as many units as rows, {rows}", f"{network.units}", "Use fewer units.")


class Rows(NamedTuple):
    """The data in the form that the samplers use."""

    inputs: Array
    """(1, x), (points, 1 + features)."""
    y: Array
    root: Array
    """Square roots of the row weights, (points,)."""

    def whitened(self, sigma: Scalar) -> Array:
        """The targets divided by the noise of their row, (points,)."""
        return self.root * self.y / sigma

    @classmethod
    def of(cls, data: Data) -> "Rows":
        """The rows of all data; a row of weight w counts w times."""
        ones = jnp.ones((data.x.shape[0], 1), data.y.dtype)
        root = ones[:, 0] if data.weight is None else jnp.sqrt(data.weight)
        return cls(jnp.concatenate([ones, data.x.astype(data.y.dtype)], axis=1), data.y[:, 0], root)


class Unknowns(NamedTuple):
    """All unknowns in natural units; weights in raw coordinates, whose prior is standard normal."""

    hidden: Array
    r"""Raw :math:`\gamma`, (1 + features, units)."""
    output: Array
    r"""Raw :math:`\beta`, (units,)."""
    linear: Array
    """Raw a, (1 + features,), or (0,) without a linear part."""
    numbers: dict[str, Array]
    """The numbers of the prior."""
    number: Array
    """The number of units in use."""
    sigma: Array
    """The standard deviation of the noise."""

    @property
    def used(self) -> Array:
        """Mask (units,) of the units in use."""
        return jnp.arange(self.output.shape[0]) < self.number

    @property
    def shifts(self) -> Array:
        r"""Prior means of whitened coefficients (columns,), 0 if linear, else :math:`\mu_\beta / \sigma_\beta`."""
        mean = self.numbers["output_mean"] / jnp.sqrt(self.numbers["output_variance"])
        return jnp.concatenate([jnp.zeros_like(self.linear), jnp.full_like(self.output, mean)])


class Work(NamedTuple):
    """Hidden units while they move, and the regression on them."""

    hidden: Array
    """Raw weights, (1 + features, units)."""
    columns: Array
    """Whitened columns (points, columns), linear ones first, zeros for units left out."""
    regression: Regression
    number: Array
    """The number of units in use, an integer: they are the first ones."""


class Form(eqx.Module):
    """The parts of a model of the form."""

    network: Shallow
    prior: Exchangeable
    likelihood: Gaussian

    @classmethod
    def of(cls, model: Model) -> "Form":
        """The form of a model that `check` accepts."""
        return cls(*cast(Any, (model.network, model.prior, model.likelihood)))

    def unknowns(self, params: Params) -> Unknowns:
        """All unknowns of a chain's position."""
        prior, raw = self.prior, params.weights
        dtype = raw["output"]["weight"].dtype
        numbers = {name: jnp.asarray(value, dtype) for name, value in prior.known(params.scales).items()}
        linear = raw["linear"] if "linear" in raw else {"bias": jnp.zeros(0), "weight": jnp.zeros((0, 1))}
        return Unknowns(
            joined(raw["hidden"]),
            raw["output"]["weight"][:, 0],
            jnp.concatenate([linear["bias"], linear["weight"][:, 0]]),
            numbers,
            jnp.asarray(prior.count(params.scales), dtype),
            self.likelihood.sigma(params.noise).reshape(()),
        )

    def params(self, unknowns: Unknowns) -> Params:
        """The chain's position."""
        weights = {"hidden": parted(unknowns.hidden), "output": {"weight": unknowns.output[:, None]}}
        if unknowns.linear.size:
            weights["linear"] = {"bias": unknowns.linear[:1], "weight": unknowns.linear[1:, None]}
        prior, noise = self.prior, self.likelihood.numbers
        real = transforms.real(prior.numbers, unknowns.numbers)
        sigma = jnp.broadcast_to(unknowns.sigma, transforms.shapes(noise)[0])
        return Params(weights, prior.with_count(real, unknowns.number), transforms.real(noise, sigma))

    def column(self, unknowns: Unknowns, rows: Rows, raw: Array) -> Array:
        """Whitened columns (points, units) of hidden units with raw weights (1 + features, units)."""
        numbers = unknowns.numbers
        mean = jnp.broadcast_to(numbers["hidden_mean"], raw.shape[:1])[:, None]
        taken = self.network.nonlinear
        inputs = rows.inputs if taken is None else rows.inputs[:, np.array([0, *(1 + index for index in taken)])]
        values = ACTIVATIONS[self.network.activation](inputs @ (mean + spread(numbers["hidden_precision"], raw)))
        return values * (jnp.sqrt(numbers["output_variance"]) / unknowns.sigma * rows.root)[:, None]

    def columns(self, unknowns: Unknowns, rows: Rows) -> Array:
        """All whitened columns (points, columns), linear ones first, zeros for units left out."""
        units = jnp.where(unknowns.used[None], self.column(unknowns, rows, unknowns.hidden), 0.0)
        size = unknowns.linear.size
        scale = jnp.sqrt(unknowns.numbers["linear_variance"]) / unknowns.sigma
        return jnp.concatenate([scale * rows.root[:, None] * rows.inputs[:, :size], units], axis=1)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute a function in double precision, whatever the precision of its arguments; results return in theirs.

    What is random within it must be drawn by `in_single`: bits of 64-bit numbers are made when a program is compiled,
    under the precision of the caller.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with jax.enable_x64(True):
            result = function(*jax.tree.map(_widened, args))
        return jax.tree.map(lambda leaf: leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)), result)

    return call


def in_single(sampler: Callable[..., Any], *args: Any) -> Any:
    """Draw by a function of `jax.random` in single precision."""
    with jax.enable_x64(False):
        return sampler(*args)


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.convert_element_type(leaf, np.float64)
    return leaf
