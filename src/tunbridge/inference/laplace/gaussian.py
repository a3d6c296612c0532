"""Normal weights around a mode, pushed through the network itself or through its linearisation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.special import entr

from tunbridge.core.blocks import blockwise, few_sizes
from tunbridge.core.compiling import once
from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.linalg import Covariance, Diagonal, Kronecker, Spectral, kronecker_covariance
from tunbridge.core.types import Key, Logits, NormalNoise, Params, Predictive
from tunbridge.inference.laplace.local import Local, Slopes
from tunbridge.inference.laplace.structures import Structure
from tunbridge.inference.posteriors import DRAWS, Posterior
from tunbridge.model.networks.programs.sites import Sites
from tunbridge.model.subsets import Subset
from tunbridge.predict.linearised import LinkedPredictive, NormalPredictive
from tunbridge.predict.links import Link, MonteCarlo, Quadrature
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.parts import Parts
from tunbridge.predict.push import push

_BLOCK_NUMBERS = 2**24
_BLOCK_ROWS = 1024


class StructuredGaussian(Posterior):
    """Normal weights around a mode with a structured covariance; noise and scales at one value.

    A prediction averages networks with drawn weights. `Linearised` is the same with a network taken for linear.
    """

    params: Params
    """The mode."""
    covariance: Covariance
    """Of the network's weights in one vector."""
    structure: Structure
    subset: Subset
    log_evidence: Array | None = None
    """Laplace's approximation of log p(y) at these scales and this noise, all constants included."""
    decrement: Array | None = None
    """How far the mode of the quadratic approximation is from here, in posterior standard deviations."""
    curve: dict[str, Array] | None = None
    """The log evidence of each round of tuning, and other figures along the way."""

    @property
    def local(self) -> Local:
        """The network near the mode."""
        return Local.at(self.model, self.params, self.subset)

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Draws of the weights around the mode."""
        weights, back = ravel_pytree(self.model.weights(self.params))
        layout = self.model.network.layout(self.params.weights)

        def one(key_draw: Key) -> Params:
            z = jax.random.normal(key_draw, weights.shape, weights.dtype)
            drawn = back(weights + self.covariance.sample(z).astype(weights.dtype))
            return self.params._replace(weights=self.model.prior.raw(drawn, self.params.scales, layout))

        return jax.vmap(one)(jax.random.split(key, num))

    def one(self) -> Params:
        """The mode."""
        return self.params

    def components(self, key: Key, num: int | None) -> Params:
        """`num` draws, 100 unless told."""
        return self.sample(key, DRAWS if num is None else num)


class Linearised(Posterior):
    r"""Normal weights pushed through the network's linearisation around the mode :cite:p:`immer2021improving`.

    Outputs at x are normal with mean :math:`f(x, \hat w)` and covariance :math:`J(x) \Sigma J(x)^\top`. With normal
    noise y is normal too; of two or more classes a link gives the probabilities; every other likelihood is averaged
    over draws of linear functions. `gaussian` is the same distribution pushed through the network itself.

    Parameters
    ----------
    gaussian
        The distribution of the weights.
    link
        From normal outputs to class probabilities: `links.Quadrature`, `links.Probit`, `links.Bridge` or
        `links.MonteCarlo`.
    """

    gaussian: StructuredGaussian
    link: Link = Quadrature()

    @property
    def linear(self) -> bool:
        """Yes."""
        return True

    @property
    def log_evidence(self) -> Array | None:
        """Of the normal distribution: Laplace's approximation of log p(y)."""
        return self.gaussian.log_evidence

    @property
    def decrement(self) -> Array | None:
        """How far the mode of the quadratic approximation is from here, in posterior standard deviations."""
        return self.gaussian.decrement

    def with_link(self, link: Link) -> "Linearised":
        """The same with another way to class probabilities."""
        return dataclasses.replace(self, link=link)

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """Draws of the weights."""
        return self.gaussian.sample(key, num)

    def one(self) -> Params:
        """The mode."""
        return self.gaussian.params

    def components(self, key: Key, num: int | None) -> Params:
        """`num` draws of the weights, 100 unless told."""
        return self.gaussian.components(key, num)

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """The outputs of draws of linear functions, computed when they are asked for."""
        self._check(x)
        return Outputs(self.model, lambda: self.components(key, num), x, centre=self.gaussian.params)

    def moments(self, x: Any) -> tuple[Array, Array]:
        """Mean (points, outputs) and covariance (points, outputs, outputs) of the linearised outputs."""
        x = check_x(x)
        self._check(x)
        mean, covariance = _blockwise(self, x, None)
        return mean, covariance

    def _check(self, x: np.ndarray) -> None:
        self.model.check_inputs(jax.eval_shape(self.model.weights, self.gaussian.params), x)

    @checked
    def predict(self, x: Any, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at x; see `Posterior.predict`. `num` is for likelihoods without a closed form."""
        x = check_x(x)
        key = self.key if key is None else key
        likelihood = self.model.likelihood
        if isinstance(self.link, MonteCarlo) and isinstance(likelihood, Logits):
            num = self.link.num if num is None else num
        elif isinstance(likelihood, NormalNoise | Logits):
            if num is not None:
                raise InputError("no num= where the answer has a closed form", f"num={num}", "Leave it out.")
            draws = self.pushed(x, key, None)
            if isinstance(likelihood, NormalNoise):
                return NormalPredictive(draws, *_blockwise(self, x, _noisy))
            return LinkedPredictive(draws, *_blockwise(self, x, _linked))
        return push(self.pushed(x, key, num))

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """One pass: outputs, and their variances in closed form."""
        if not isinstance(self.model.likelihood, NormalNoise | Logits):
            return self.gaussian.prepared()
        gaussian = self.gaussian
        return _at_once, (gaussian.local, gaussian.structure, gaussian.covariance, self.link)


def _at_once(state: tuple[Local, Structure, Covariance, Link], x: Array) -> Parts:
    local, structure, weights, link = state
    likelihood, noise = local.model.likelihood, local.params.noise
    mean, covariance = linear_moments(local, structure, weights, x)
    if isinstance(likelihood, NormalNoise):
        return Parts(mean, likelihood.noise_variance(mean, noise), jnp.diagonal(covariance, axis1=1, axis2=2))
    probs, aleatoric = _linked(link, likelihood, mean, covariance, noise)
    return Parts(probs, aleatoric, jnp.maximum(jnp.sum(entr(probs), axis=-1) - aleatoric, 0.0))


@once
def _linked(link: Link, likelihood: Any, mean: Array, covariance: Array, noise: Any) -> tuple[Array, Array]:
    return link.probs(*likelihood.logits(mean, covariance, noise))


@once
def _noisy(_: Link, likelihood: Any, mean: Array, covariance: Array, noise: Any) -> tuple[Array, Array, Array]:
    """Mean and covariance of the outputs, and the variance of the noise."""
    return mean, covariance, likelihood.noise_variance(mean, noise)


def _blockwise(posterior: Linearised, x: np.ndarray, question: Callable | None) -> tuple[Array, ...]:
    """`linear_moments`, or a function of them, in blocks of rows of a few sizes."""
    gaussian, local = posterior.gaussian, posterior.gaussian.local

    def block(own: slice, fill: Callable) -> tuple[Array, ...]:
        found = linear_moments(local, gaussian.structure, gaussian.covariance, fill(x[own]))
        return (
            found if question is None else question(posterior.link, local.model.likelihood, *found, local.params.noise)
        )

    return jax.device_put(blockwise(block, len(x), min(_most_rows(gaussian), few_sizes(len(x), 64))))


def _most_rows(gaussian: StructuredGaussian) -> int:
    """How many rows' gradients fit a block."""
    widths = [int(np.prod(block.index.shape)) for block in gaussian.covariance.blocks if isinstance(block, Spectral)]
    numbers = max([2 * gaussian.num_outputs * width for width in widths], default=1)
    return int(np.clip(_BLOCK_NUMBERS // numbers, 1, _BLOCK_ROWS))


@once
def linear_moments(local: Local, structure: Structure, covariance: Covariance, x: Array) -> tuple[Array, Array]:
    """Mean and covariance of the linearised outputs at rows x."""
    sites = local.sites
    parts = structure.parts(local, sites)

    def one(row: Array) -> tuple[Array, Array]:
        outputs, slopes = local.slopes(sites, row, lambda outputs: jnp.eye(len(outputs), dtype=outputs.dtype))
        found = jnp.zeros((len(outputs), len(outputs)), outputs.dtype)
        for part, block in zip(parts, covariance.blocks, strict=True):
            found += _covariance(part, block, slopes, sites, local.size)
        return outputs, found

    return jax.vmap(one)(x)


def _covariance(part: Any, block: Any, slopes: Slopes, sites: Sites, size: int) -> Array:
    """What one block adds to the covariance of the outputs of a row."""
    if isinstance(block, Kronecker):
        return block.covariance(*slopes.matrix(part))
    if isinstance(block, Diagonal) and part.group is not None:
        return kronecker_covariance(*slopes.matrix(part), block.diagonal())
    rows = slopes.rows(sites, part.index.ravel(), size)
    return block.covariance(rows) if isinstance(block, Spectral) else (rows * block.diagonal()[None]) @ rows.T
