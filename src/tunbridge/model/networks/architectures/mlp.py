"""The multilayer perceptron."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks import sizes
from tunbridge.model.networks.layout import Leaf

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "erf": jax.scipy.special.erf,
    "sin": jnp.sin,
    "identity": lambda a: a,
    "sign": jnp.sign,
    "step": lambda a: jnp.heaviside(a, 1.0),
}


def check_activation(name: str) -> None:
    """Raise InputError unless there is an activation of this name."""
    if name not in ACTIVATIONS:
        raise InputError(f"an activation of {', '.join(ACTIVATIONS)}", repr(name), "Choose one of these.")


class MLP(Module):
    r"""A multilayer perceptron, :math:`z_l = \phi(z_{l-1} W_l + b_l)`, the last layer without :math:`\phi`.

    Its weights are ``{"layers": [{"weight": (in, out), "bias": (out,)}, ...]}``.

    Parameters
    ----------
    hidden
        Number of units of each hidden layer; () is a linear model with a bias.
    activation
        One of `ACTIVATIONS`. "step" and "sign" are for the study of priors: they have no gradient to learn from.
    outputs
        Number of outputs; None takes what the likelihood needs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> network = MLP((50, 50), outputs=1)
    >>> weights = network.init(jax.random.key(0), jnp.zeros((4, 13)))
    >>> network.apply(weights, jnp.zeros((4, 13))).shape
    (4, 1)
    """

    hidden: tuple[int, ...] = eqx.field(static=True, converter=tuple)
    activation: str = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True)

    def __init__(self, hidden: Sequence[int] = (50,), activation: str = "tanh", outputs: int | None = None):
        hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
        if any(units < 1 for units in hidden) or (outputs is not None and outputs < 1):
            raise InputError("at least one unit per layer", f"{hidden}, outputs {outputs}", "Use positive numbers.")
        check_activation(activation)
        self.hidden, self.activation, self.outputs = hidden, activation, outputs

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights from N(0, 1/fan-in), with biases 0."""
        if x.ndim != 2:
            raise InputError("x of shape (points, features) for an MLP", f"shape {x.shape}", "Flatten the features.")
        widths = (x.shape[1], *self.hidden, sizes.outputs(self))
        keys = jax.random.split(key, len(widths) - 1)
        layers = [
            {"weight": jax.random.normal(k, (a, b)) / math.sqrt(a), "bias": jnp.zeros(b)}
            for k, a, b in zip(keys, widths[:-1], widths[1:], strict=True)
        ]
        return {"layers": layers}

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        phi = ACTIVATIONS[self.activation]
        *hidden, last = weights["layers"]
        z = x
        for layer in hidden:
            z = phi(z @ layer["weight"] + layer["bias"][None])
        return z @ last["weight"] + last["bias"][None]

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of weights (in, out) and biases (out,)."""
        layer = {"weight": Leaf("weight", inputs=(0,), outputs=(1,)), "bias": Leaf("bias", outputs=(0,))}
        return {"layers": [layer for _ in weights["layers"]]}

    def with_outputs(self, num: int) -> "MLP":
        """The same network with `num` outputs, if it left the number open."""
        return self if self.outputs is not None else dataclasses.replace(self, outputs=num)
