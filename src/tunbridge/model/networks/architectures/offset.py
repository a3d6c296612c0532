"""A network of log rates, with one column of x as the exposure: the time or amount over which events were counted."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Network, PyTree


class Offset(Module):
    r"""A network whose outputs have the log of one column of x added: :math:`f(x) = g(x_{\text{rest}}) + \log e`.

    With `Poisson` or `NegativeBinomial`, whose outputs are log rates, the expected count is
    :math:`e \cdot \exp g(x_{\text{rest}})`, proportional to the exposure *e*. Where x is standardised (estimators,
    `compare`), this column is left as it is.

    Parameters
    ----------
    network
        *g*, which does not see the exposure column.
    column
        Index of the column of x that is the exposure: positive, in the user's units.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from tunbridge.model.networks import MLP
    >>> network, x = Offset(MLP((), outputs=1)), jnp.array([[0.3, 1.0], [0.3, 2.0]])
    >>> outputs = network.apply(network.init(jax.random.key(0), x), x)
    >>> float(jnp.exp(outputs[1, 0] - outputs[0, 0]).round(4))
    2.0
    """

    network: Network
    column: int = eqx.field(default=-1, static=True)

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights of the network, from the other columns of x."""
        return self.network.init(key, self._rest(x))

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs)."""
        exposure = x[:, self.column].astype(jnp.result_type(float))
        return self.network.apply(weights, self._rest(x), key=key) + jnp.log(exposure)[:, None]

    def layout(self, weights: PyTree) -> PyTree:
        """Layout of the network's weights."""
        return self.network.layout(weights)

    def with_outputs(self, num: int) -> "Offset":
        """Return the same with a network of `num` outputs, if it left the number open."""
        return Offset(self.network.with_outputs(num), self.column)

    def check(self, x: Any) -> None:
        """Raise InputError unless x has the exposure column, other columns and positive exposures."""
        if x.ndim != 2 or not -x.shape[1] <= self.column < x.shape[1] or x.shape[1] < 2:
            raise InputError(
                f"x (points, features) with an exposure in column {self.column} and others besides",
                f"shape {x.shape}",
                "Append the exposure as the last column.",
            )
        least = np.asarray(x)[:, self.column].min()
        if not least > 0:
            raise InputError(
                "exposures above 0",
                f"{least:g} in column {self.column} of x",
                "Leave such rows out.",
            )

    def _rest(self, x: Any) -> Any:
        column = self.column % x.shape[1]
        return jnp.concatenate([x[:, :column], x[:, column + 1 :]], axis=1)
