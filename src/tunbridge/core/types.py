"""The protocols between the packages, and `Params`, all unknown parameters of a model."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
from jax import Array

if jax.__version__ == "0.10.2":
    raise ImportError("jax 0.10.2 gives wrong vmapped products on CPUs: pip install 'jax!=0.10.2'.")

from numpyro.distributions import Distribution

if TYPE_CHECKING:
    from tunbridge.core.data import Data

PyTree = Any
Key = Array
Scalar = Array
Role = Literal["weight", "bias", "norm", "embedding", "unknown"]


class Params(NamedTuple):
    """All unknown parameters of a model, in unconstrained coordinates."""

    weights: PyTree
    """The network's weights, in the prior's raw coordinates."""
    scales: PyTree = ()
    """The prior's hyperparameters, unconstrained."""
    noise: PyTree = ()
    """The likelihood's noise parameters, unconstrained."""


@runtime_checkable
class Network(Protocol):
    """A function of weights and inputs."""

    def init(self, key: Key, x: Array) -> PyTree:
        """Initial weights for an optimiser, for inputs like `x`."""
        ...

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs); `key` is only for stochastic networks."""
        ...

    def layout(self, weights: PyTree) -> PyTree:
        """Each leaf's `Leaf`: its axes and role."""
        ...

    def with_outputs(self, num: int) -> "Network":
        """The same network with `num` outputs, if its number of outputs was left open."""
        ...


@runtime_checkable
class Normalised(Protocol):
    """A network with normalisation after some layers, so that its outputs ignore the norms of their filters."""

    def normalised(self, weights: PyTree) -> Sequence[tuple[str, str | None]]:
        """Paths of the weight and the bias (None if there is none) of each such layer, as `tree.paths` gives them."""
        ...


@runtime_checkable
class Prior(Protocol):
    """A density over weights in raw coordinates, given its own hyperparameters (`scales`)."""

    @property
    def proper(self) -> bool:
        """Whether the density integrates to one."""
        ...

    @property
    def gaussian(self) -> bool:
        """Whether raw coordinates are normal with mean 0, and independent of the scales."""
        ...

    @property
    def discrete(self) -> bool:
        """Whether the scales include a whole number, which only a method that changes it can infer."""
        ...

    def given(self, network: "Network", data: "Data") -> "Prior":
        """The prior that knows the network and the data's inputs: itself unless its density depends on them."""
        ...

    def bind(self, weights: PyTree, layout: PyTree) -> "Prior":
        """The prior bound to these weights (or their shapes); InputError if it does not fit them."""
        ...

    def weights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Weights from raw coordinates: the identity unless non-centred."""
        ...

    def raw(self, weights: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Raw coordinates from weights: the inverse of `weights`."""
        ...

    def log_prob(self, raw: PyTree, scales: PyTree, layout: PyTree) -> Scalar:
        """Log p(raw | scales)."""
        ...

    def variances(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Variances of the independent normal that approximates the prior at `raw`; InputError if there is none."""
        ...

    def log_heights(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree:
        """Log density of each weight relative to the peak of that normal; InputError if there is none."""
        ...

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(scales), by default with the log Jacobian of the transform."""
        ...

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of (raw, scales); scales is () if the prior has no hyperparameters."""
        ...

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """The scales at the median of their prior, where point methods fix them."""
        ...

    def values(self, scales: PyTree) -> PyTree:
        """The scales transformed to their natural units, by name where they have names."""
        ...

    def marginal(self) -> "Prior":
        """The same prior with the scales integrated out, where that has a closed form."""
        ...

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """One-sided derivative of -log p at its kink at 0, for each raw coordinate; None if there is no kink."""
        ...


@runtime_checkable
class Likelihood(Protocol):
    """A distribution over y given the network's outputs and its own noise parameters (`noise`)."""

    def check(self, y: Array) -> Array:
        """Return y in the form that `distribution` scores; InputError if y is not a valid target."""
        ...

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs."""
        ...

    def with_outputs(self, num: int) -> "Likelihood":
        """The same likelihood for `num` outputs, with settings left open filled in where `num` determines them."""
        ...

    def bind(self, y: Array) -> "Likelihood":
        """The same likelihood with settings left open, such as the number of classes, filled in from y."""
        ...

    def sample_noise(self, key: Key) -> PyTree:
        """A draw of the noise parameters from their prior; () if there are none."""
        ...

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(noise), by default with the log Jacobian of the transform."""
        ...

    def median_noise(self) -> PyTree:
        """The noise parameters at the median of their prior; () if there are none."""
        ...

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """The distribution of y: batch shape (points,), all other axes are event axes."""
        ...

    def measured(self, y: Array) -> Any:
        """Which columns of y have units and may be standardised, (columns,) of bool."""
        ...

    def in_units(self, scale: Array) -> "Likelihood":
        """The same likelihood for y / scale, with known parameters converted."""
        ...

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Fisher information of the outputs."""
        ...

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Hessian of -log p(y), or the Fisher information if not convex."""
        ...

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Return y with its residuals multiplied by `share`, where it has residuals; point methods start from it."""
        ...


@runtime_checkable
class NormalNoise(Protocol):
    """A likelihood whose y is normal around the outputs, so that y is normal if the outputs are."""

    def noise_variance(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Variance of y given the outputs, (points, outputs)."""
        ...


@runtime_checkable
class Logits(Protocol):
    """A likelihood whose class probabilities are the softmax of linear functions of the outputs."""

    def logits(self, mean: Array, covariance: Array, noise: PyTree = ()) -> tuple[Array, Array]:
        """Mean (points, classes) and covariance of the logits, given those of normal outputs."""
        ...


class Posterior(Protocol):
    """The posterior distribution of `Params` given the data, together with its model."""

    def sample(self, key: Key, num: int) -> Params:
        """Draws from the posterior, with a leading axis of length `num`."""
        ...

    def predict(self, x: Array, *, key: Key | None = None, num: int | None = None) -> "Predictive":
        """The predictive distribution at x."""
        ...

    def save(self, path: str | os.PathLike) -> None:
        """Save the posterior to the folder `path`, from which `tunbridge.load` reads it."""
        ...


class Predictive(Protocol):
    """The predictive distribution of y at each of several points. Members without arguments are properties.

    Uncertainty is split by the law of total variance (regression) or by entropies in nats (classification):
    `total` = `aleatoric` + `epistemic`, exactly. Aleatoric uncertainty would remain if the weights were known;
    epistemic uncertainty is due to not knowing them.
    """

    @property
    def discrete(self) -> bool:
        """Whether y are ordered whole numbers, either counts or indices of ordered classes."""
        ...

    @property
    def mean(self) -> Array:
        """Expected y, (points, outputs)."""
        ...

    @property
    def variance(self) -> Array:
        """Variance of y, (points, outputs), the same as `total`."""
        ...

    @property
    def std(self) -> Array:
        """Standard deviation of y, (points, outputs)."""
        ...

    @property
    def mode(self) -> Array:
        """The most probable value, (points, outputs), or classes (points,)."""
        ...

    @property
    def probs(self) -> Array:
        """Probability of each class, (points, classes)."""
        ...

    @property
    def entropy(self) -> Array:
        """Entropy of y in nats, (points, outputs), or (points,) for classes."""
        ...

    @property
    def total(self) -> Array:
        """Total uncertainty, aleatoric + epistemic."""
        ...

    @property
    def aleatoric(self) -> Array:
        """Uncertainty that would remain if the weights were known, due to noise."""
        ...

    @property
    def epistemic(self) -> Array:
        """Uncertainty due to not knowing the weights; never negative."""
        ...

    @property
    def functions(self) -> Array:
        """Expected y, or class probabilities, under each network, (networks, points, outputs or classes)."""
        ...

    def log_probs(self, y: Any) -> Array:
        """Log p(y) under each network, (networks, points)."""
        ...

    def cdfs(self, y: Any) -> Array:
        """P(Y <= y) under each network, (networks, points, outputs)."""
        ...

    def replicates(self, key: Key) -> Array:
        """A draw of y from each network, (networks, points, ...)."""
        ...

    def quantile(self, q: Any) -> Array:
        """Quantiles at level q, (points, outputs); for several levels (levels, points, outputs)."""
        ...

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Central predictive interval with probability `mass`: lower and upper end, (points, outputs) each."""
        ...

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) per output, (..., points, outputs)."""
        ...

    def log_prob(self, y: Any) -> Array:
        """Joint log density of all outputs, log p(y), (points,)."""
        ...

    def sample(self, key: Key, num: int) -> Array:
        """Draws of y, (num, points, ...); each draw uses the same network at all points."""
        ...


class Method(Protocol):
    """A way to turn a model and data into a posterior."""

    def fit(
        self,
        model: Any,
        data: Any,
        *,
        key: Key,
        init: "Params | Posterior | None" = None,
        progress: bool = True,
        checkpoint: str | None = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Callable] = (),
    ) -> Posterior:
        """Return the posterior of `model` given `data`."""
        ...
