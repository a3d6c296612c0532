"""The Gaussian process kernel of a network in the limit of infinitely wide hidden layers."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from tinygp.kernels import Kernel

from tunbridge.bench.baselines.processes.moments import moment
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.model.model import Model
from tunbridge.model.networks.architectures.mlp import ACTIVATIONS, MLP
from tunbridge.model.priors import FanIn, Normal


class WideKernel(Kernel):
    r"""The covariance of the outputs of an infinitely wide network.

    .. math::

        K_0(x, x') = b_0 + \frac{w_0}{D} \, x \cdot x', \qquad
        K_{l+1}(x, x') = b_{l+1} + w_{l+1} \, E[\phi(u) \phi(v)], \quad
        (u, v) \sim N\Big(0, \begin{pmatrix} K_l(x, x) & K_l(x, x') \\ K_l(x, x') & K_l(x', x') \end{pmatrix}\Big),

    for one hidden layer :cite:p:`neal1996bayesian,williams1996infinite` and for several
    :cite:p:`matthews2018gaussian,lee2018deep`. The expectation has a closed form for relu and step units (arc-cosine
    kernels :cite:p:`cho2009kernel`), sign, erf (the arc-sine kernel), sine and the identity; other activations use
    two-dimensional quadrature. This is a tinygp kernel: add, multiply and condition it like any other.

    Parameters
    ----------
    activations
        One per hidden layer; () is a linear model, and "identity" a linear bottleneck between wide layers.
    weights, biases
        The variances :math:`w_l` of the weights times their fan-in, and :math:`b_l` of the biases, one per layer.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> kernel = WideKernel(("relu",), weights=(2.0, 2.0), biases=(0.0, 0.0))
    >>> x = jnp.array([[1.0], [2.0]])
    >>> kernel(x, x).round(3).tolist()  # 2 x x' while signs agree
    [[2.0, 4.0], [4.0, 8.0]]
    """

    activations: tuple[str, ...] = eqx.field(static=True)
    weights: tuple[Any, ...]
    biases: tuple[Any, ...]

    @checked
    def __init__(self, activations: Sequence[str], weights: Sequence[Any], biases: Sequence[Any]):
        unknown = [name for name in activations if name not in ACTIVATIONS]
        if unknown:
            raise InputError(f"activations of {', '.join(ACTIVATIONS)}", f"{unknown}", "Choose among these.")
        if not len(weights) == len(biases) == len(activations) + 1:
            raise InputError(
                f"{len(activations) + 1} variances of weights and of biases, one per layer",
                f"{len(weights)} and {len(biases)}",
                "Count the output layer too.",
            )
        self.activations, self.weights, self.biases = tuple(activations), tuple(weights), tuple(biases)

    def evaluate(self, X1: Array, X2: Array) -> Array:
        """Covariance of the outputs at two inputs (features,)."""
        features = X1.shape[0]
        a, c, b = (self.biases[0] + self.weights[0] * (p @ q) / features for p, q in ((X1, X1), (X1, X2), (X2, X2)))
        for phi, weight, bias in zip(self.activations, self.weights[1:], self.biases[1:], strict=True):
            a, c, b = (bias + weight * moment(phi, *three) for three in ((a, a, a), (a, c, b), (b, b, b)))
        return jnp.asarray(c)


@checked
def wide_kernel(model: Model, features: Count | None = None) -> WideKernel:
    """Kernel of a model's network in the limit of infinitely wide hidden layers, whatever widths it has.

    Parameters
    ----------
    model
        An `MLP` whose prior is `Normal` with `fan_in` scales that are known.
    features
        Number of features of x: needed only if the first layer's scale is a number, not a `fan_in`, and the model is
        not bound to data.

    Examples
    --------
    >>> import tunbridge as tb
    >>> prior = tb.priors.Normal(tb.priors.fan_in(1.5))
    >>> model = tb.Model(tb.networks.MLP((50, 50), "erf"), prior, tb.likelihoods.Gaussian(0.1))
    >>> wide_kernel(model).weights
    (2.25, 2.25, 2.25)
    """
    network, prior = model.network, model.prior
    if not isinstance(network, MLP) or not isinstance(prior, Normal):
        raise InputError(
            "an MLP with a Normal prior",
            f"{type(network).__name__} with {type(prior).__name__}",
            "Other priors have other limits; write a WideKernel where one is known.",
        )
    layers = len(network.hidden) + 1
    entries = prior.scale if isinstance(prior.scale, tuple) else (prior.scale,) * layers
    if len(entries) != layers:
        raise InputError(f"one scale per layer, {layers}", f"{len(entries)}", "Match the network's layers.")
    first, *rest = entries
    if not all(isinstance(entry, FanIn) for entry in rest):
        raise InputError(
            "scales that fall with the width above the first layer",
            "a fixed scale",
            "Write tb.priors.fan_in(scale): without it the outputs of a wide network have no limit.",
        )
    variances = tuple(_known(entry) ** 2 for entry in entries)
    times = 1 if isinstance(first, FanIn) else _features(model, features)
    weights = (variances[0] * times, *variances[1:])
    return WideKernel((network.activation,) * len(network.hidden), weights, variances)


def _known(entry: Any) -> float:
    scale = entry.scale if isinstance(entry, FanIn) else entry
    if isinstance(scale, dist.Distribution):
        raise InputError("known scales", f"a prior on a scale, {scale}", "Average over the kernels of sampled scales.")
    return float(scale)


def _features(model: Model, features: int | None) -> int:
    if features is not None:
        return features
    return model.example().shape[-1]
