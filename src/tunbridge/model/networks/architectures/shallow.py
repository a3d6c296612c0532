"""The network of one hidden layer beside a linear part, whose number of units can be unknown."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS, check_activation
from tunbridge.model.networks.layout import Leaf


class Shallow(Module):
    r"""One hidden layer and a linear part, :math:`f(x) = a^\top (1, x) + \sum_j \beta_j \, \phi(\gamma_j^\top (1, x))`.

    The network of :cite:t:`mueller1998issues`. Its weights are ``{"hidden": {"bias": (units,), "weight": (in, units)},
    "output": {"weight": (units, out)}, "linear": {"bias": (out,), "weight": (in, out)}}``, without "linear" if there is
    no linear part. With `priors.Exchangeable`, `tb.GibbsMetropolis` and `tb.ReversibleJump` sample them with
    :math:`a` and :math:`\beta` integrated out; every other method takes them like those of any network.

    Parameters
    ----------
    units
        Number of hidden units; where their number is unknown, the largest.
    activation
        :math:`\phi`, one of those of `MLP`.
    linear
        Whether there is a linear part, which includes the constant.
    nonlinear
        Indices of the inputs that hidden units take; None is all. The others have linear effects alone, so that each
        has one coefficient: a semi-parametric regression.
    outputs
        Number of outputs; None takes what the likelihood needs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network = Shallow(5, outputs=1)
    >>> weights = network.init(jax.random.key(0), jnp.zeros((4, 3)))
    >>> network.apply(weights, jnp.zeros((4, 3))).shape
    (4, 1)
    """

    units: int = eqx.field(static=True, default=10)
    activation: str = eqx.field(static=True, default="tanh")
    linear: bool = eqx.field(static=True, default=True)
    nonlinear: tuple[int, ...] | None = eqx.field(static=True, default=None)
    outputs: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        sizes.check(self, "units")
        check_activation(self.activation)
        taken = self.nonlinear
        if taken is not None:
            whole = isinstance(taken, tuple) and all(type(index) is int and index >= 0 for index in taken)
            if not whole or not taken or len(set(taken)) != len(taken):
                raise InputError(
                    "nonlinear as indices of inputs, each once, in a tuple", repr(taken)[:60], "Write (0, 2)."
                )

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights from N(0, 1/fan-in), with biases 0."""
        if x.ndim != 2:
            raise InputError("x of shape (points, features)", f"shape {x.shape}", "Flatten the features.")
        features, outputs = x.shape[1], sizes.outputs(self)
        if max(self.nonlinear or (0,)) >= features:
            raise InputError(f"nonlinear below {features}, the number of inputs", f"{self.nonlinear}", "Change it.")
        taken = features if self.nonlinear is None else len(self.nonlinear)
        key_hidden, key_output, key_linear = jax.random.split(key, 3)
        weights = {
            "hidden": {
                "bias": jnp.zeros(self.units),
                "weight": jax.random.normal(key_hidden, (taken, self.units)) / math.sqrt(taken),
            },
            "output": {"weight": jax.random.normal(key_output, (self.units, outputs)) / math.sqrt(self.units)},
        }
        if self.linear:
            coefficients = jax.random.normal(key_linear, (features, outputs)) / math.sqrt(features)
            weights["linear"] = {"bias": jnp.zeros(outputs), "weight": coefficients}
        return weights

    def hidden(self, weights: PyTree, x: Array) -> Array:
        """Values of the hidden units, (points, units)."""
        layer = weights["hidden"]
        x = x if self.nonlinear is None else x[:, self.nonlinear]
        return ACTIVATIONS[self.activation](x @ layer["weight"] + layer["bias"][None])

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        outputs = self.hidden(weights, x) @ weights["output"]["weight"]
        if not self.linear:
            return outputs
        return outputs + x @ weights["linear"]["weight"] + weights["linear"]["bias"][None]

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of weights (in, out) and biases (out,)."""
        weight, bias = Leaf("weight", inputs=(0,), outputs=(1,)), Leaf("bias", outputs=(0,))
        whole = {"bias": bias, "weight": weight}
        return {name: {"weight": weight} if name == "output" else whole for name in weights}

    def with_outputs(self, num: int) -> "Shallow":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)
