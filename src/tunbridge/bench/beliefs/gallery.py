"""A figure that compares priors: densities of one weight, and functions of a network."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
import numpyro.distributions as dist

from tunbridge import plots
from tunbridge.core.errors import InputError
from tunbridge.core.files import replacing
from tunbridge.core.types import Prior
from tunbridge.model.likelihoods import Gaussian
from tunbridge.model.model import Model
from tunbridge.model.networks import MLP
from tunbridge.model.priors import (
    ByPath,
    Cauchy,
    Horseshoe,
    Laplace,
    Logistic,
    Normal,
    ScaleMixture,
    SpikeAndSlab,
    StudentT,
    TwoNormals,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = (".png", ".svg", ".pdf")


def gallery() -> dict[str, Prior]:
    """Example priors by name; those with a free scale have about half of their mass between -0.7 and 0.7."""
    return {
        "normal": Normal(1.0),
        "Laplace": Laplace(1.0),
        "logistic": Logistic(0.6),
        "Student-t, df 3": StudentT(3.0, 0.9),
        "Cauchy": Cauchy(0.7),
        "horseshoe": Horseshoe(0.7),
        "two normals": TwoNormals(0.5, 1.4, 0.1),
        "spike and slab": SpikeAndSlab(0.5, 1.4, 0.02),
    }


def mixing_laws() -> dict[str, Prior]:
    """Scale mixtures of normals, by the mixing distribution of each weight's scale."""
    return {
        "z^2 ~ inverse gamma: Student-t": ScaleMixture(dist.InverseGamma(1.5, 1.5), squared=True),
        "z^2 ~ exponential: Laplace": ScaleMixture(dist.Exponential(0.5), squared=True),
        "z ~ half-Cauchy: horseshoe": ScaleMixture(dist.HalfCauchy(1.0)),
        "z ~ half-normal": ScaleMixture(dist.HalfNormal(1.0)),
        "z ~ gamma(2, 2)": ScaleMixture(dist.Gamma(2.0, 2.0)),
        "z ~ log-normal": ScaleMixture(dist.LogNormal(0.0, 1.0)),
    }


def save(path: str | os.PathLike) -> None:
    """Save the gallery as a figure, in the format that the name of the file ends in."""
    path = Path(path)
    if path.suffix not in _KINDS:
        raise InputError(f"a file that ends in {', '.join(_KINDS)}", f"{path}", "Change the name.")
    if not path.resolve().parent.is_dir():
        raise InputError("a file in a folder that exists", f"{path}", "Make the folder first.")
    figure = draw()
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=110)


def draw() -> "Figure":
    """The gallery: densities and pulls, scale mixtures, functions of a network under four priors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 12), layout="constrained")
    top, mid, low = cast(Any, figure.subfigures(3, 1))
    left, right = top.subplots(1, 2)
    plots.densities(gallery(), axes=left)
    plots.influence(gallery(), axes=right)
    (centre,) = mid.subplots(1, 1, squeeze=False)[0]
    plots.densities(mixing_laws(), np.linspace(-6.0, 6.0, 121), axes=centre)
    centre.set_title("Normal weights mixed over their scale")
    chosen = ("normal", "Laplace", "Cauchy", "horseshoe")
    for axes, name in zip(low.subplots(1, len(chosen)), chosen, strict=True):
        prior = ByPath({"layers/1/weight": gallery()[name]}, default=Normal(3.0))
        model = Model(MLP((50,), outputs=1), prior, Gaussian(1.0))
        plots.prior_functions(model, np.linspace(-3.0, 3.0, 200), key=jax.random.key(0), num=8, axes=axes)
        axes.set_title(f"output weights: {name}")
    return figure
