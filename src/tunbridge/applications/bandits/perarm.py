"""A network of the context with an output per arm, as a model of the reward of one arm."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, PyTree
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS, MLP


class PerArm(Module):
    r"""A multilayer perceptron of the context with an output per arm, of which that of the arm tried is the reward.

    With last hidden units :math:`z(c)` of context c, the reward of arm a is :math:`w_a^\top z(c) + b_a`: arms share
    features and nothing else. An `MLP` of context and arm lets them share everything.

    Parameters
    ----------
    arms
        Number of arms, the last columns of x: one-hot, as `Agent` writes them.
    hidden, activation
        As for `MLP`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, tunbridge as tb
    >>> network, x = tb.bandits.PerArm(3, (50,)), jnp.zeros((4, 8 + 3))
    >>> network.apply(network.init(jax.random.key(0), x), x).shape
    (4, 1)
    """

    arms: int = eqx.field(static=True)
    network: MLP

    def __init__(self, arms: int, hidden: Sequence[int] = (50,), activation: str = "relu"):
        if arms < 2:
            raise InputError("two arms or more", f"{arms}", "Give their number.")
        self.arms, self.network = arms, MLP(hidden, activation, outputs=arms)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights of the perceptron of contexts."""
        if x.ndim != 2 or x.shape[1] <= self.arms:
            raise InputError(f"x (points, features + {self.arms} arms)", f"shape {x.shape}", "Append the arm, one-hot.")
        return self.network.init(key, x[:, : -self.arms])

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Rewards of the arms in x, (points, 1)."""
        phi = ACTIVATIONS[self.network.activation]
        *hidden, last = weights["layers"]
        z, arm = x[:, : -self.arms], x[:, -self.arms :]
        for layer in hidden:
            z = phi(z @ layer["weight"] + layer["bias"][None])
        z = jnp.concatenate([z, jnp.ones((len(z), 1), z.dtype)], axis=1)
        heads = jnp.concatenate([last["weight"], last["bias"][None]])
        # one matrix product, so that methods of the last layer find all heads in one layer
        return (z[:, :, None] * arm[:, None, :]).reshape(len(z), -1) @ heads.reshape(-1, 1)

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of the perceptron's weights."""
        return self.network.layout(weights)

    def with_outputs(self, num: int) -> "PerArm":
        """Return itself: a reward is one number."""
        return self
