"""Laplace's method: a normal distribution around the mode, and the evidence that comes with it."""

import dataclasses
from typing import Self, cast

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
from tunbridge.model.model import Model
from tunbridge.model.subsets import All, Subset
from tunbridge.predict.links import Link, Quadrature
from tunbridge.runtime.loop import Options

_ROUNDS = 2
"""How often scales are tuned within a budget; in each round the mode is looked for up to three times."""
_MOST_FULL = 1500
"""The most rows of a root, or weights, for which the whole matrix is kept unless told."""


class Laplace(Method):
    r"""A normal distribution around the mode, with the curvature there :cite:p:`mackay1992practical`.

    .. math::

        p(w \mid y) \approx N(\hat w, (H + V^{-1})^{-1}), \qquad
        H = - \sum_n \nabla^2 \log p(y_n \mid x_n, \hat w)

    The prior's precision :math:`V^{-1}` enters once. The posterior is `Linearised`; its `gaussian` is the same
    distribution of weights for predictions through the network itself. Unknown noise and prior scales maximise the
    evidence, and the mode is found again for them.

    Parameters
    ----------
    curvature
        H, from `tunbridge.curvatures`: `GGN`, `Fisher`, `EmpiricalFisher`, `Hessian`.
    structure
        What is kept of it, from `tunbridge.structures`; None is `Full` for small problems, `Kronecker` for others.
    subset
        Which weights are random, from `tunbridge.subsets`.
    point
        How the mode is found; None takes the weights that `fit` is given as ``init=``, and trains nothing.
    tune
        How unknown noise and prior scales are found: "evidence", "online" (while training), "validation", an object of
        `tunbridge.tuning`, or None, which leaves them where the point estimate has them.
    damping
        Precision that is added to every weight, in units of its prior precision.
    link
        From normal outputs to class probabilities, from `tunbridge.links`.
    """

    curvature: Curvature = GGN()
    structure: Structure | None = None
    subset: Subset = All()
    point: MAP | None = MAP()
    tune: Tuning | None = eqx.field(default="evidence", converter=as_tuning)
    damping: float = eqx.field(default=0.0, converter=float)
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
            if not isinstance(given := getattr(self, name), kind):
                where = "tb.MAP() or None" if name == "point" else f"an object of tunbridge.{_ROOMS[name]}"
                raise InputError(f"{name}= as {where}", repr(given)[:60], "Write tb.Laplace() for the defaults.")
        if self.damping < 0:
            raise InputError("damping of at least 0", f"{self.damping}", "Use 0, or a small number.")

    def within(self, gradients: int, rows: int) -> Self:
        """A quarter for the mode: tuning looks for it again up to six times, with half as many steps."""
        if self.point is None:
            return self
        if not isinstance(self.tune, Evidence):
            return dataclasses.replace(self, point=self.point.within(gradients, rows))
        point = self.point.within(gradients // (1 + 3 * _ROUNDS // 2), rows)
        return dataclasses.replace(self, point=point, tune=dataclasses.replace(self.tune, rounds=_ROUNDS))

    def gradients_spent(self, steps: int, posterior: Posterior, rows: int) -> float:
        """Those of the steps, and for each time the curvature was measured one of all rows."""
        curve = posterior.gaussian.curve if isinstance(posterior, Linearised) else None
        return super().gradients_spent(steps, posterior, rows) + len(curve["log_evidence"] if curve else ()) * rows

    def posteriors(self, model: Model, data: Data | Stream, key: Key, size: int, options: Options) -> list[Posterior]:
        """Modes first, then the curvature around each."""
        model = model.marginal()
        self._refuse(model, data)
        pair = keys.split(key)
        points = self._points(model, data, keys.one(pair, 0), size, options)
        rows, each = scored(model, data), keys.split(keys.one(pair, 1), size)
        found: list[Posterior] = []
        for number, point in enumerate(points):
            course = Course(self, point.model, rows, keys.one(each, number), options, number)
            found.append(course.finish(cast(Point, point)))
        return found

    def _refuse(self, model: Model, data: Data | Stream) -> None:
        """InputError, before anything is computed, where the curvature or the prior cannot be had."""
        local = _blank(model, self.subset)
        jax.eval_shape(lambda one: one.variances(one.params.scales), local)
        self.structured(local, data.num).check(local, self.curvature, data.num)
        if isinstance(self.tune, Validation) and isinstance(data, Stream):
            raise InputError("rows in memory for tuning by validation", "a stream", 'Use tune="evidence".')

    def structured(self, local: Local, rows: int) -> Structure:
        """The structure as told, or by the size of the problem."""
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


_ROOMS = {"curvature": "curvatures", "structure": "structures", "subset": "subsets", "link": "links"}


def _blank(model: Model, subset: Subset) -> Local:
    """The shapes of a model at some mode."""

    def made() -> Params:
        blank = model.example()
        weights = model.network.init(jax.random.key(0), jnp.zeros(blank.shape, blank.dtype))
        scales = model.prior.median_scales(weights, model.network.layout(weights))
        return Params(weights, scales, model.likelihood.median_noise())

    return Local(model, jax.eval_shape(made), subset)
