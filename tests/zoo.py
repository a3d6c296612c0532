"""A prior of every kind, for a network with layers of 16 and 10 weights."""

import numpy as np
import numpyro.distributions as dist

import tunbridge as tb
from tunbridge import priors

NETWORK = tb.networks.MLP((4,), outputs=2)
"""Of three inputs."""


def _covariance(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size)) / np.sqrt(size)
    return root @ root.T + 0.3 * np.eye(size)


PRIORS = {
    "normal": priors.Normal(2.0),
    "normal fan-in": priors.Normal(priors.fan_in(2.0)),
    "normal per layer": priors.Normal((1.0, 0.5)),
    "normal unknown": priors.Normal(priors.fan_in(dist.HalfNormal(1.0))),
    "full": priors.FullNormal((_covariance(16), _covariance(10))),
    "matrix": priors.MatrixNormal(inputs=priors.Smooth(1.5), scale=0.7),
    "low rank": priors.LowRankNormal((np.ones((16, 2)), np.eye(10)[:, :1]), 0.5),
    "joint": priors.JointNormal(_covariance(26)),
    "laplace": priors.Laplace(0.5),
    "laplace unknown": priors.Laplace(priors.fan_in(dist.HalfNormal(1.0))),
    "student-t": priors.StudentT(3.0, 0.7),
    "cauchy": priors.Cauchy(0.5),
    "logistic": priors.Logistic(0.5),
    "two normals": priors.TwoNormals(0.3, 1.0, 0.05),
    "spike and slab": priors.SpikeAndSlab(dist.Beta(2.0, 5.0), 1.0, 0.05),
    "horseshoe": priors.Horseshoe(),
    "regularised horseshoe": priors.Horseshoe(priors.fan_in(0.3), slab=dist.HalfNormal(2.0)),
    "group horseshoe": priors.GroupHorseshoe(slab=2.0),
    "group horseshoe of outputs": priors.GroupHorseshoe(over="outputs"),
    "inverse-gamma variance": priors.ScaleMixture(dist.InverseGamma(2.0, 3.0), squared=True),
    "exponential variance": priors.ScaleMixture(dist.Exponential(2.0), squared=True, scale=dist.HalfNormal(1.0)),
    "half-cauchy scale": priors.ScaleMixture(dist.HalfCauchy(1.0), scale=0.5),
    "hierarchical": priors.Hierarchical(priors.TwoNormals(0.3, 1.0, 0.05), dist.HalfNormal(1.0)),
    "ard": priors.ARD(),
    "by path": priors.ByPath({"layers/0/weight": priors.Laplace(0.5), "*/bias": priors.Normal(dist.HalfNormal(1.0))}),
}
"""Every proper prior that a dense network can have."""

QUICK = ("normal unknown", "spike and slab", "regularised horseshoe", "by path")
"""Those that fast tests look at: one a mechanism."""

CORRELATED = ("full", "matrix", "low rank", "joint")
"""Those whose weights are not independent."""

FREE = tuple(name for name in PRIORS if name not in CORRELATED)
"""Those that any network can have: the others are written for the layers of `NETWORK`."""
