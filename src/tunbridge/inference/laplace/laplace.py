"""The Laplace approximation: a normal distribution around the mode, and its evidence."""

import dataclasses
from typing import ClassVar, Self, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from tunbridge.core import keys
from tunbridge.core.data import Data, Stream
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Params
from tunbridge.inference.base import Method
from tunbridge.inference.laplace.course import Course, mode_of
from tunbridge.inference.laplace.curvatures import GGN, Curvature, Outer
from tunbridge.inference.laplace.gaussian import Linearised
from tunbridge.inference.laplace.local import Local, num_outputs, scored
from tunbridge.inference.laplace.mode import Mode
from tunbridge.inference.laplace.structures import Full, Kronecker, Structure
from tunbridge.inference.laplace.tuning import Evidence, Online, Tuning, Validation, as_tuning
from tunbridge.inference.point.given import as_params, given
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.inference.promises import Promises
from tunbridge.model.model import Model
from tunbridge.model.subsets import All, Subset
from tunbridge.predict.links import Link, Quadrature
from tunbridge.runtime.loop import Options

_ROUNDS = 2
"""Rounds of tuning within a budget; in each round the mode is searched for up to three times."""
_MOST_FULL = 1500
"""The most weights, or rows of a root, for which `Full` is the default structure."""


class Laplace(Method):
    r"""A normal distribution around the mode, with the curvature there :cite:p:`mackay1992practical`.

    .. math::

        p(w \mid y) \approx N(\hat w, (H + V^{-1})^{-1}), \qquad
        H = - \sum_n \nabla^2 \log p(y_n \mid x_n, \hat w)

    The prior precision :math:`V^{-1}` enters once. The posterior is `Linearised`; its `gaussian` is the same
    distribution of weights, with predictions through the network itself. Unknown noise and prior scales maximise the
    evidence, and the mode is then found again.

    Parameters
    ----------
    curvature
        H, from `tunbridge.curvatures`: `GGN`, `Fisher`, `EmpiricalFisher`, `Hessian`.
    structure
        How H is approximated, from `tunbridge.structures`; None is `Full` for small problems, `Kronecker` for others.
    subset
        Which weights are random, from `tunbridge.subsets`; the others stay at the mode.
    point
        How the mode is found; None takes the weights that `fit` is given as ``init=``, and trains nothing.
    tune
        How unknown noise and prior scales are tuned: "evidence", "online" (while training), "validation", an object of
        `tunbridge.tuning`, or None, which leaves them where the point estimate has them.
    damping
        Precision added to every weight, in units of its prior precision.
    refine
        For classes, whether mean and covariance are refined for the whole distribution of the outputs: at a mode that
        separates the classes the normal is about as wide as the prior. Not for weights trained elsewhere, a subset, a
        stream, curvatures other than `GGN`, priors that are not normal, or more than 20,000 rows times outputs.
    link
        From normal outputs to class probabilities, from `tunbridge.links`.
    """

    promises: ClassVar[Promises] = {  # normal although the posterior is not; noise and scale at one value
        "linear": ("exact", 0.12),
        "linear_unknown": ("biased", 0.2),
        "logistic": ("biased", 0.25),
        "tanh_unit": ("none",),
    }

    curvature: Curvature = GGN()
    structure: Structure | None = None
    subset: Subset = All()
    point: MAP | None = MAP()
    tune: Tuning | None = eqx.field(default="evidence", converter=as_tuning)
    damping: float = eqx.field(default=0.0, converter=float)
    refine: bool = eqx.field(static=True, default=True)
    link: Link = Quadrature()

    def __check_init__(self):
        kinds = {
            "curvature": Curvature,
            "structure": Structure | None,
            "subset": Subset,
            "point": MAP | None,
            "link": Link,
        }
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                where = "tb.MAP() or None" if name == "point" else f"an object of tunbridge.{_MODULES[name]}"
                raise InputError(f"{name}= as {where}", repr(value)[:60], "Write tb.Laplace() for the defaults.")
        if self.damping < 0:
            raise InputError("damping of at least 0", f"{self.damping}", "Use 0, or a small number.")

    def within(self, gradients: int, rows: int) -> Self:
        """Return the method with a quarter of the budget for the mode if scales are tuned by the evidence.

        Tuning searches for the mode up to six more times, with half as many steps. Otherwise the mode gets all.
        """
        if self.point is None:
            return self
        if not isinstance(self.tune, Evidence):
            return dataclasses.replace(self, point=self.point.within(gradients, rows))
        point = self.point.within(gradients // (1 + 3 * _ROUNDS // 2), rows)
        return dataclasses.replace(self, point=point, tune=dataclasses.replace(self.tune, rounds=_ROUNDS))

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Number of per-row gradients: those of the steps, plus one pass over all rows per measured curvature."""
        curve = posterior.gaussian.curve if isinstance(posterior, Linearised) else None
        return super().gradients_spent(steps, posterior, rows) + sum(map(len, (curve or {}).values())) * rows

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Return `size` posteriors: finds all modes first, then the curvature around each."""
        model = model.marginal()
        self._refuse(model, data)
        pair = keys.split(key)
        points = self._points(model, data, keys.one(pair, 0), size, options)
        rows, course_keys = scored(model, data), keys.split(keys.one(pair, 1), size)
        posteriors: list[Posterior] = []
        for number, point in enumerate(points):
            course = Course(self, point.model, rows, keys.one(course_keys, number), options, number)
            posteriors.append(course.finish(cast(Point, point)))
        return posteriors

    def _refuse(self, model: Model, data: Data | Stream) -> None:
        """Raise InputError, before anything is computed, if curvature, prior or tuning cannot be used with this fit."""
        local = _blank(model, self.subset)
        jax.eval_shape(lambda at_mode: at_mode.log_heights(at_mode.params.scales), local)
        self.structured(local, data.num).check(local, self.curvature, data.num)
        if isinstance(self.tune, Validation) and isinstance(data, Stream):
            raise InputError("rows in memory for tuning by validation", "a stream", 'Use tune="evidence".')

    def structured(self, local: Local, rows: int) -> Structure:
        """Return the chosen structure, or the default for a problem of this size."""
        if self.structure is not None:
            return self.structure
        num = int(local.chosen(local.sites).sum())
        columns = self.curvature.num_columns(num_outputs(local)) if isinstance(self.curvature, Outer) else num
        small = min(num, rows * columns) <= _MOST_FULL and num <= 20 * _MOST_FULL
        return Full() if small or not isinstance(self.curvature, Outer) else Kronecker()

    def _points(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        if self.point is None:
            return [Point(model, key, given(model, options.init)) for _ in range(size)]
        options = dataclasses.replace(options, init=as_params(model, options.init))
        method: MAP | Mode = self.point
        if isinstance(self.tune, Online):
            method = mode_of(self.point, 1, model)
        return method.posteriors(model, data, key, size, options.within("mode"))


_MODULES = {"curvature": "curvatures", "structure": "structures", "subset": "subsets", "link": "links"}


def _blank(model: Model, subset: Subset) -> Local:
    """A `Local` of shapes only, for checks before the mode is known."""

    def params() -> Params:
        blank = model.example()
        weights = model.network.init(jax.random.key(0), jnp.zeros(blank.shape, blank.dtype))
        scales = model.prior.median_scales(weights, model.network.layout(weights))
        return Params(weights, scales, model.likelihood.median_noise())

    return Local(model, jax.eval_shape(params), subset)
