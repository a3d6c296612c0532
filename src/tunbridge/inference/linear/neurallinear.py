"""The neural linear model: features of a trained network, with an exact posterior of the last layer."""

import dataclasses
import warnings
from typing import Any, ClassVar, Self

import jax
import numpy as np

from tunbridge.core import memory
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import ConvergenceWarning, InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.base import Method, first_rows
from tunbridge.inference.linear import door, evidence, features
from tunbridge.inference.linear.conjugate import Family, Normal
from tunbridge.inference.linear.moments import Moments, alike, num_bytes
from tunbridge.inference.linear.posterior import LinearLayer
from tunbridge.inference.point.given import as_params, given
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.model.likelihoods.gaussian import Gaussian
from tunbridge.model.model import Model
from tunbridge.runtime.loop import Options


class NeuralLinear(Method):
    r"""Bayesian linear regression on the features of a trained network :cite:p:`snoek2015scalable`.

    The network is trained as a point estimate. The features that its last layer multiplies, :math:`\phi(x)` with a
    constant for the bias, are then fixed, and the posterior of the last layer is exact, with the exact evidence:
    `LinearLayer`. The noise must be normal, and the prior of the last layer normal and independent. Features are those
    of the point estimate with the same key.

    Unknown prior scales of the last layer maximise the evidence times their prior density. Features were trained on the
    same rows, so noise tuned by the evidence would be too small: `conjugate.Normal` keeps the noise that the point
    estimate measured on held-out rows, and tunes it along with the scales only if nothing is trained.

    Parameters
    ----------
    point
        How features are trained; None takes the weights that `fit` is given as ``init=`` (parameters, a posterior, or
        the network's own weights), and trains nothing.
    family
        The conjugate prior of noise and weights, from `tunbridge.conjugate`: `Normal`, with the noise at one value, or
        `NormalInverseGamma`, which integrates it out.

    Examples
    --------
    Thompson sampling: the maximiser of one drawn function is tried next.

    >>> import jax, numpy as np, tunbridge as tb
    >>> model = tb.Model(tb.networks.MLP((8,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    >>> x = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> method = tb.NeuralLinear(tb.MAP(train=tb.Train(100)))
    >>> posterior = method.fit(model, tb.Data(x, np.sin(3.0 * x)), key=jax.random.key(0))
    >>> grid = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> draw = jax.tree.map(lambda leaf: leaf[0], posterior.sample(jax.random.key(1), 1))
    >>> best = grid[np.argmax(posterior.model.outputs(draw, grid), axis=0)]
    >>> posterior = posterior.update(tb.Data(best, np.sin(3.0 * best)))
    >>> float(posterior.moments.num)
    9.0
    """

    promises: ClassVar[Promises] = {  # unknown noise is fixed at its measured value, and the spread depends on it
        "linear": ("exact", 0.05),
        "linear_unknown": ("mean", 0.15),
        "logistic": ("refused",),
        "tanh_unit": ("refused",),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.4, 1.0)}

    point: MAP | None = MAP()
    family: Family = Normal()

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with the whole budget spent on training the features."""
        return self if self.point is None else dataclasses.replace(self, point=self.point.within(gradients, rows))

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Return `size` posteriors: trains the features first, then solves for the layer above each."""
        model = model.marginal()
        self._refuse(model, np.asarray(first_rows(model, data).x)[: door.TRIED_ROWS])
        points: list[Any]
        if self.point is None:
            points = [Point(model, key, given(model, options.init))] * size
        else:
            options = dataclasses.replace(options, init=as_params(model, options.init))
            points = self.point.posteriors(model, data, key, size, options)
        keys = jax.random.split(jax.random.fold_in(key, 1), size)
        return [self._above(point, data, key_layer) for point, key_layer in zip(points, keys, strict=True)]

    def _above(self, point: Point, data: Data | Stream, key: Key) -> LinearLayer:
        """Return the posterior of the layer above a network's features."""
        model, params = point.model, point.params
        moments = features.gather(model, model.weights(params), data)
        params, notes = self._tuned(model, params, moments)
        return LinearLayer.given(model, key, params, self.family, moments, notes=(*point.notes, *notes))

    def _tuned(self, model: Model, params: Params, moments: Moments) -> tuple[Params, list[str]]:
        """The parameters with unknown scales (and noise, if nothing was trained) tuned by the evidence; and notes."""
        notes = []
        if self.family.integrates:
            notes.append("Given the features, noise is integrated out, under the inverse-gamma prior of the family.")
        free_noise = bool(params.noise) and self.point is None and not self.family.integrates
        if not params.scales and not free_noise:
            return params, notes
        tuned = evidence.maximise(self.family, model, params, moments, free_noise=free_noise)
        if tuned.at_bound:
            warnings.warn(
                f"{tuned.at_bound} of {tuned.num} unknowns stopped at the bound, a factor of 1,000 from their starting "
                "values, though the evidence still grows: give them narrower priors, or known values.",
                ConvergenceWarning,
                stacklevel=2,
            )
        if tuned.num:
            names = "noise and prior scales of the last layer" if free_noise else "prior scales of the last layer"
            notes.append(f"Given the features, unknown {names} maximise the exact evidence.")
        layout, weights = model.network.layout(params.weights), model.weights(params)
        return Params(model.prior.raw(weights, tuned.scales, layout), tuned.scales, tuned.noise), notes

    def _refuse(self, model: Model, x: np.ndarray) -> None:
        """Raise InputError, before anything is trained, if there is no closed form or not enough memory."""
        if not isinstance(model.likelihood, Gaussian):
            raise InputError(
                "a Gaussian likelihood, whose last layer has an exact posterior",
                type(model.likelihood).__name__,
                "Use tb.Laplace(subset=tb.subsets.LastLayer()).",
            )
        self.family.check(model.likelihood)
        params = door.check_layer(model, x)
        variances, noise = evidence.beliefs(model, *params).numbers()
        width, outputs = variances.shape
        needed = num_bytes(width, 1 if alike(self.family.unit(noise)[None] / variances) else outputs)
        if needed > (available := memory.available()):
            raise InputError(
                f"a last layer whose covariance fits in {available / 1e9:.1f} GB of memory",
                f"one of {width:,} features, which takes {needed / 1e9:.1f} GB",
                "Narrow the last hidden layer.",
            )
