"""The likelihood of ordered classes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from tunbridge.core.errors import InputError
from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.likelihoods.base import Noisy, OfClasses, check_classes, counted


class Ordinal(Noisy, OfClasses):
    r"""Ordered classes, by proportional odds :cite:p:`mccullagh1980regression`.

    .. math::

        \text{logit}\, P(y \le c) = \kappa_c - f(x), \qquad \kappa_0 < \kappa_1 < \dots

    The single output shifts the log odds of every threshold alike; the cutpoints :math:`\kappa` say how wide each class
    is. It is numpyro's ``OrderedLogistic``, written so that probabilities far from the cutpoints do not underflow
    before their logarithm is taken.

    Parameters
    ----------
    classes
        Number of classes; None takes it from the labels or the cutpoints.
    cutpoints
        An increasing array of length classes - 1; or a pair (first, gaps) of the first cutpoint and the positive
        distances between neighbours (classes - 2,), each numbers or a numpyro distribution if unknown. None makes them
        unknown, with medians that give each class the same probability at f = 0:
        ``(dist.Normal(., 2.0), dist.LogNormal(., 1.0))``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> made = Ordinal(cutpoints=jnp.array([-1.0, 1.0])).distribution(jnp.zeros((1, 1)))
    >>> [round(float(p), 3) for p in made.probs[0]]
    [0.269, 0.462, 0.269]
    """

    classes: int | None = eqx.field(static=True)
    cutpoints: Any

    def __init__(self, classes: int | None = None, cutpoints: Any = None):
        check_classes(classes)
        pair = isinstance(cutpoints, tuple) and len(cutpoints) == 2
        if cutpoints is not None:
            cutpoints = _checked_pair(*cutpoints) if pair else _checked(cutpoints)
            given = (transforms.shapes(cutpoints[1])[0] if pair else jnp.shape(cutpoints))[-1] + 1 + pair
            if classes not in (None, given):
                raise InputError(f"{classes - 1} cutpoints for {classes} classes", f"{given - 1}", "Leave one out.")
            classes = given
        elif classes is not None:
            cutpoints = _checked_pair(*_default(classes))
        self.classes, self.cutpoints = classes, cutpoints

    @property
    def numbers(self) -> PyTree:
        """The cutpoints, values or priors."""
        if self.cutpoints is None:
            raise InputError("a number of classes", "Ordinal()", "Say Ordinal(5), or fit it to data.")
        return self.cutpoints

    def num_classes(self, y: Array) -> int:
        """Number of classes: `classes` if given, else the largest label plus one."""
        return counted(self.classes, y)

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: one."""
        return 1

    def bind(self, y: Array) -> "Ordinal":
        """Return the same likelihood, with the number of classes taken from the labels if it was left open."""
        return self if self.classes is not None else Ordinal(self.num_classes(y))

    def cuts(self, noise: PyTree = ()) -> Array:
        """Cutpoints, given the unknowns, (classes - 1,)."""
        values = self.values(noise)
        if not isinstance(values, tuple):
            return jnp.asarray(values)
        first, gaps = values
        return first + jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.asarray(gaps))])

    def log_probs(self, outputs: Array, noise: PyTree = ()) -> Array:
        r"""Log probability per class, :math:`\sigma(b) - \sigma(a) = \sigma(b) \, \sigma(-a) \, (1 - e^{a - b})`."""
        edges = self.cuts(noise)[None] - outputs
        end = jnp.zeros_like(outputs)
        above = jnp.concatenate([jax.nn.log_sigmoid(edges), end], axis=-1)
        below = jnp.concatenate([end, jax.nn.log_sigmoid(-edges)], axis=-1)
        between = jnp.log(-jnp.expm1(edges[:, :-1] - edges[:, 1:]))
        return above + below + jnp.concatenate([end, between, end], axis=-1)

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        r"""Root of the Hessian, :math:`\sqrt{\sigma'(a) + \sigma'(b)}` at the edges of the class."""
        edges = self.cuts(noise)[None] - outputs
        end = jnp.full_like(outputs, -jnp.inf)
        log_derivatives = jnp.concatenate([end, jax.nn.log_sigmoid(edges) + jax.nn.log_sigmoid(-edges), end], axis=-1)
        log_hessians = jnp.logaddexp(log_derivatives[..., :-1], log_derivatives[..., 1:])
        return jnp.exp(0.5 * jnp.take_along_axis(log_hessians, y[..., None], axis=-1))[..., None]

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Distribution of the label, given the output and the cutpoints."""
        return dist.Categorical(logits=self.log_probs(outputs, noise), validate_args=False)


def _checked(cutpoints: Any) -> Any:
    if isinstance(cutpoints, jax.core.Tracer):
        return cutpoints
    try:
        values = np.asarray(cutpoints, float)
    except (TypeError, ValueError):
        values = np.zeros(())
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
        raise InputError(
            "cutpoints as an increasing array, or a pair (first, gaps)",
            f"{cutpoints!r}"[:60],
            "Write [-1.0, 1.0], or (dist.Normal(0.0, 2.0), dist.LogNormal(jnp.zeros(1), 1.0)); None takes a default.",
        )
    return jnp.asarray(values)


def _checked_pair(first: Any, gaps: Any) -> tuple[Any, Any]:
    gaps = transforms.check_positive(gaps, "gaps")
    shape, (gaps_shape,) = transforms.shapes(first), transforms.shapes(gaps)
    if shape != [()] or len(gaps_shape) != 1:
        raise InputError(
            "one first cutpoint, and gaps (classes - 2,)", f"shapes {shape}, {gaps_shape}", "Expand the prior."
        )
    return first, gaps if gaps_shape[0] else jnp.zeros(0)  # two classes have no gaps, known or not


def _default(classes: int) -> tuple[Distribution, Distribution]:
    share = np.arange(1, classes) / classes
    cutpoints = np.log(share / (1 - share))
    return dist.Normal(float(cutpoints[0]), 2.0), dist.LogNormal(jnp.asarray(np.log(np.diff(cutpoints))), 1.0)
