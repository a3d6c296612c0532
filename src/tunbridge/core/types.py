"""The protocols between the rooms, and `Params`, everything that is unknown."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
from jax import Array

if jax.__version__ == "0.10.2":
    raise ImportError("jax 0.10.2 gives wrong vmapped products on CPUs: pip install 'jax!=0.10.2'.")

from numpyro.distributions import Distribution

PyTree = Any
Key = Array
Scalar = Array
Role = Literal["weight", "bias", "norm", "embedding", "unknown"]


class Params(NamedTuple):
    """Everything unknown, on the real line."""

    weights: PyTree
    """The network's, in the prior's raw coordinates."""
    scales: PyTree = ()
    """The prior's own unknowns."""
    noise: PyTree = ()
    """The likelihood's own unknowns."""


@runtime_checkable
class Network(Protocol):
    """A function of weights and inputs."""

    def init(self, key: Key, x: Array) -> PyTree:
        """Weights to start an optimiser from."""
        ...

    def apply(self, weights: PyTree, x: Array, *, key: Key | None = None) -> Array:
        """Outputs (points, outputs); `key` only for stochastic networks."""
        ...

    def layout(self, weights: PyTree) -> PyTree:
        """Each leaf's `Leaf`: its axes and role."""
        ...

    def with_outputs(self, num: int) -> "Network":
        """The same network with that many outputs, where it leaves the number open."""
        ...


@runtime_checkable
class Normalised(Protocol):
    """A network in which a normalisation follows some layers, so that the norms of their filters do not matter."""

    def normalised(self, weights: PyTree) -> Sequence[tuple[str, str | None]]:
        """Paths of the weight and the bias (None if there is none) of each such layer, as `tree.paths` gives them."""
        ...


@runtime_checkable
class Prior(Protocol):
    """A density over weights in raw coordinates, given its own unknown scales."""

    @property
    def proper(self) -> bool:
        """Whether it integrates to one."""
        ...

    @property
    def gaussian(self) -> bool:
        """Whether raw coordinates are normal around 0, and independent of the scales."""
        ...

    def bind(self, weights: PyTree, layout: PyTree) -> "Prior":
        """The prior of these very weights (or of their shapes); InputError if they cannot have it."""
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
        """Of each weight in the independent normal that stands for the prior there; InputError if none does."""
        ...

    def log_hyper(self, scales: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(scales), by default with the Jacobian of the transform."""
        ...

    def sample(self, key: Key, like: PyTree, layout: PyTree) -> tuple[PyTree, PyTree]:
        """A draw of (raw, scales); scales is () if there are none."""
        ...

    def median_scales(self, like: PyTree, layout: PyTree) -> PyTree:
        """Where point methods hold the scales."""
        ...

    def values(self, scales: PyTree) -> PyTree:
        """The scales in their own units, by name where they have names."""
        ...

    def marginal(self) -> "Prior":
        """The same with scales integrated out where that has a closed form."""
        ...

    def corners(self, raw: PyTree, scales: PyTree, layout: PyTree) -> PyTree | None:
        """How fast -log p rises from its corner at 0, for each raw coordinate; None if there is no corner."""
        ...


@runtime_checkable
class Likelihood(Protocol):
    """A distribution over y given the network's outputs and its own unknown noise."""

    def check(self, y: Array) -> Array:
        """Y in the form that `distribution` scores; InputError if it cannot be."""
        ...

    def num_outputs(self, y: Array) -> int:
        """How many outputs the network needs."""
        ...

    def with_outputs(self, num: int) -> "Likelihood":
        """The same likelihood for that many outputs, where they settle what it leaves open."""
        ...

    def bind(self, y: Array) -> "Likelihood":
        """The same likelihood with what it leaves open, such as how many classes there are, settled by y."""
        ...

    def sample_noise(self, key: Key) -> PyTree:
        """A draw of its own unknowns from their prior; () if none."""
        ...

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log p(noise), by default with the Jacobian of the transform."""
        ...

    def median_noise(self) -> PyTree:
        """The unknowns at their prior's median; () if none."""
        ...

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Over y: batch shape (points,), all else is event."""
        ...

    def measured(self, y: Array) -> Any:
        """Which columns of y have units and may be standardised, (columns,) of bool."""
        ...

    def in_units(self, scale: Array) -> "Likelihood":
        """The same likelihood for y / scale: known numbers are converted."""
        ...

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Fisher information of the outputs."""
        ...

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        """R (points, outputs, columns) with R R^T the Hessian of -log p(y), or the Fisher information if not convex."""
        ...

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Y with residuals of that share of their size, where it has residuals: point methods start there."""
        ...


@runtime_checkable
class NormalNoise(Protocol):
    """What a likelihood declares whose y is normal around the outputs: normal outputs then have a normal y."""

    def noise_variance(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Of y given the outputs, (points, outputs)."""
        ...


@runtime_checkable
class Logits(Protocol):
    """What a likelihood declares whose classes have probabilities by the softmax of linear functions of outputs."""

    def logits(self, mean: Array, covariance: Array, noise: PyTree = ()) -> tuple[Array, Array]:
        """Mean (points, classes) and covariance of the logits, where outputs are normal."""
        ...


class Posterior(Protocol):
    """What is believed about `Params` after the data; it holds its model."""

    def sample(self, key: Key, num: int) -> Params:
        """Draws with a leading axis `num`."""
        ...

    def predict(self, x: Array, *, key: Key | None = None, num: int | None = None) -> "Predictive":
        """The `Predictive` at x."""
        ...

    def save(self, path: str | os.PathLike) -> None:
        """Write it into a folder; `tunbridge.load` gives it back."""
        ...


class Predictive(Protocol):
    """A distribution over y at each of some points. What needs no argument is a property.

    Uncertainty is split by the law of total variance (numbers) or of total entropy (classes, in nats):
    `total` = `aleatoric` + `epistemic`, exactly. Aleatoric is what the noise would leave if the weights were known,
    epistemic what is due to not knowing them.
    """

    @property
    def discrete(self) -> bool:
        """Whether y is whole numbers in an order: counts, or the numbers of ordered classes."""
        ...

    @property
    def mean(self) -> Array:
        """Expected y, (points, outputs)."""
        ...

    @property
    def variance(self) -> Array:
        """Variance of y, (points, outputs): the same as `total`."""
        ...

    @property
    def std(self) -> Array:
        """Standard deviation of y, (points, outputs)."""
        ...

    @property
    def mode(self) -> Array:
        """The most probable value: (points, outputs), or classes (points,)."""
        ...

    @property
    def probs(self) -> Array:
        """Probability of each class, (points, classes)."""
        ...

    @property
    def entropy(self) -> Array:
        """In nats: (points, outputs), or of the class (points,)."""
        ...

    @property
    def total(self) -> Array:
        """Aleatoric + epistemic."""
        ...

    @property
    def aleatoric(self) -> Array:
        """What the noise would leave if the weights were known."""
        ...

    @property
    def epistemic(self) -> Array:
        """What is due to not knowing the weights; never negative."""
        ...

    @property
    def functions(self) -> Array:
        """What each network expects: y, or the probability of each class, (networks, points, outputs or classes)."""
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
        """Quantiles, (points, outputs); for several levels (levels, points, outputs)."""
        ...

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds `mass`: lower and upper end, (points, outputs) each."""
        ...

    def cdf(self, y: Any) -> Array:
        """P(Y <= y) an output, (..., points, outputs)."""
        ...

    def log_prob(self, y: Any) -> Array:
        """Log p(y), (points,), of all outputs jointly."""
        ...

    def sample(self, key: Key, num: int) -> Array:
        """Draws of y, (num, points, ...). Each uses one network at all points."""
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
        """The posterior of `model` given `data`."""
        ...
