"""A network that computes in low precision."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Network, PyTree
from tunbridge.model.networks.architectures.offset import Offset


def _name(dtype: Any) -> str:
    try:
        if isinstance(dtype, jax.Array | np.ndarray):
            raise TypeError("an array")
        parsed = jnp.dtype(dtype)
    except TypeError as error:
        raise InputError('a dtype such as "bfloat16"', repr(dtype), "Check its name.") from error
    if not jnp.issubdtype(parsed, jnp.floating):
        raise InputError("a floating-point dtype", parsed.name, 'Use "bfloat16".')
    return parsed.name


class Cast(Module):
    """A network that computes in a precision other than that of its weights.

    Weights and floating-point x are rounded to `dtype` on the way in and outputs have the dtype of the weights, so that
    weights, their gradients and a method's state stay in float32 while most of the work is done in `dtype`.

    Parameters
    ----------
    network
        Any network but `tunbridge.networks.Offset`, which goes around `Cast`: ``Offset(Cast(network))``.
    dtype
        The dtype to compute in. "float16" overflows above 65,504.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from tunbridge.model.networks import MLP
    >>> network, x = Cast(MLP((50,), outputs=1)), jnp.ones((4, 13))
    >>> network.apply(network.init(jax.random.key(0), x), x).dtype
    dtype('float32')
    """

    network: Network
    dtype: str = eqx.field(default="bfloat16", static=True, converter=_name)

    def __check_init__(self):
        if isinstance(self.network, Offset):
            raise InputError("Offset(Cast(network))", "Cast(Offset(network))", "Keep the exposure in full precision.")

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights of the network, in their own precision."""
        return self.network.init(key, x)

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs) in the dtype of the weights."""
        low, x_low = jax.tree.map(self._cast, (weights, x))
        outputs = self.network.apply(low, x_low, key=key)
        return outputs.astype(jnp.result_type(*jax.tree.leaves(weights)))

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of the network's weights."""
        return self.network.layout(weights)

    def with_outputs(self, num: int) -> "Cast":
        """Return the same with a network of `num` outputs, if it left the number open."""
        return Cast(self.network.with_outputs(num), self.dtype)

    def _cast(self, leaf: Array) -> Array:
        return leaf.astype(self.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
