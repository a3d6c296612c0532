"""Posteriors fitted to standardised rows that take x and predict y in the data's own units."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core.data import Data, check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.types import Key, Params, Predictive
from tunbridge.datasets.scaling import Scaling
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.summary import Summary
from tunbridge.model.model import Model
from tunbridge.model.networks.architectures.offset import Offset
from tunbridge.predict.parts import Parts
from tunbridge.predict.scaled import in_units
from tunbridge.runtime import programs


class Standardised(Posterior):
    """A posterior of the standardised model, which predicts in the units of the data.

    Parameters
    ----------
    posterior
        The posterior fitted to standardised rows; draws are of its model's unknowns.
    scaling
        How rows were standardised.
    """

    posterior: Posterior
    scaling: Scaling

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw the unknowns of the standardised model."""
        return self.posterior.sample(key, num)

    def components(self, key: Key, num: int | None) -> Params:
        """Return the components of the standardised model's posterior."""
        return self.posterior.components(key, num)

    @checked
    @programs.unforked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x, both in the units of the data; see `Posterior.predict`."""
        predictive = self.posterior.predict(self.scaling.inputs(check_x(x)), key=key, num=num)
        if self.scaling.y_shift is None:
            return predictive
        return in_units(predictive, self.scaling.y_shift, self.scaling.y_scale)

    @property
    def linear(self) -> bool:
        """Whether the standardised model's posterior linearises the network."""
        return self.posterior.linear

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """As for the standardised model's posterior, with units converted before and after."""
        function, state = self.posterior.prepared()
        return partial(_in_units, function), (state, self.scaling)

    def summary(self) -> Summary:
        """Return the summary of the standardised model's posterior; see `Posterior.summary`."""
        return self.posterior.summary()

    def prior(self, key: Key, num: int) -> "Standardised":
        """Return draws from the prior of the standardised model, which predict in the units of the data."""
        return Standardised(self.model, key, self.posterior.prior(key, num), self.scaling)

    def _by_chain(self) -> tuple[Params, dict[str, Array]]:
        return self.posterior._by_chain()


def inner(posterior: Posterior) -> Posterior:
    """The posterior inside a `Standardised`; any other posterior itself."""
    return posterior.posterior if isinstance(posterior, Standardised) else posterior


def _in_units(function: Callable[[Any, Array], Parts], state: Any, x: Array) -> Parts:
    fitted, scaling = state
    shift, scale = (jnp.asarray(values)[None] for values in (scaling.x_shift, scaling.x_scale))
    parts = function(fitted, (x - shift) / scale)
    if scaling.y_shift is None:
        return parts
    shift, scale = (jnp.asarray(values)[None] for values in (scaling.y_shift, scaling.y_scale))
    return Parts(shift + scale * parts.expected, scale**2 * parts.aleatoric, scale**2 * parts.epistemic)


def fit_standardised(
    method: Method, model: Model, x: Any, y: Any, weight: Any = None, *, key: Key, **options: Any
) -> Standardised:
    """Standardise x, and y if it is real-valued, by these rows; then fit, and return a posterior in the data's units.

    Known noise is in the units of y; a prior on noise refers to y / sd(y). Counts, classes and an exposure that
    `tunbridge.networks.Offset` reads are not scaled.

    Parameters
    ----------
    method, model
        The method, and the model to fit.
    x, y, weight
        Rows as for `Data`. Means and scales are computed in the precision given, before rows are cast for the device.
    key, options
        As for `Method.fit`.
    """
    _, bound = model.bind(Data(x, y, weight))
    x, y, measured = np.asarray(x), np.asarray(y), np.asarray(model.likelihood.measured(bound.y))
    exposure = [model.network.column] if isinstance(model.network, Offset) else []
    scaling = Scaling.of(x, y if measured.any() else None, weight).keeping(exposure, ~measured)
    if scaling.y_scale is not None:
        model = dataclasses.replace(model, likelihood=model.likelihood.in_units(jnp.asarray(scaling.y_scale)))
    rows = Data(scaling.inputs(x), scaling.targets(y), weight)
    posterior = method.fit(model, rows, key=key, **options)
    notes, provenance = posterior.notes, posterior.provenance
    return Standardised(posterior.model, posterior.key, posterior, scaling, notes=notes, provenance=provenance)
