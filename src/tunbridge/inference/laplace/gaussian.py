"""Posteriors with normal weights around a mode, pushed through the network itself or through its linearisation."""

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
from tunbridge.inference.laplace.local import Local, RowGradients
from tunbridge.inference.laplace.structures import Structure
from tunbridge.inference.posteriors import Posterior, Symmetric
from tunbridge.model.networks.programs.sites import Sites
from tunbridge.model.subsets import Subset
from tunbridge.predict.linearised import LinkedPredictive, NormalPredictive
from tunbridge.predict.links import Link, MonteCarlo, Quadrature
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.parts import Parts
from tunbridge.predict.push import push
from tunbridge.runtime import programs

_BLOCK_NUMBERS = 2**24
_BLOCK_ROWS = 1024


class StructuredGaussian(Symmetric):
    """Normal weights around a mode with a structured covariance; noise and scales at one value.

    A prediction averages networks with drawn weights. `Linearised` has the same weights, with the network linearised.
    """

    params: Params
    """The mode."""
    covariance: Covariance
    """Covariance of the network's weights as one vector."""
    structure: Structure
    subset: Subset
    log_evidence: Array | None = None
    """Laplace's approximation of log p(y) at these scales and this noise, all constants included."""
    decrement: Array | None = None
    """Distance from `params` to the mode of the quadratic approximation, in posterior standard deviations."""
    curve: dict[str, Array] | None = None
    """Statistics along the fit by name, among them the log evidence of each round of tuning."""

    @property
    def local(self) -> Local:
        """The model at the mode."""
        return Local.at(self.model, self.params, self.subset)

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw weights around the mode."""
        weights, unravel = ravel_pytree(self.model.weights(self.params))
        layout = self.model.network.layout(self.params.weights)

        def draw(key_draw: Key) -> Params:
            z = jax.random.normal(key_draw, weights.shape, weights.dtype)
            drawn = unravel(weights + self.covariance.sample(z).astype(weights.dtype))
            return self.params._replace(weights=self.model.prior.raw(drawn, self.params.scales, layout))

        return jax.vmap(draw)(jax.random.split(key, num))

    def one(self) -> Params:
        """Return the mode."""
        return self.params


class Linearised(Posterior):
    r"""Normal weights pushed through the network's linearisation around the mode :cite:p:`immer2021improving`.

    Outputs at x are normal with mean :math:`f(x, \hat w)` and covariance :math:`J(x) \Sigma J(x)^\top`. With normal
    noise y is normal too; for two or more classes a link gives the probabilities; any other likelihood is averaged over
    draws of the linearised network. `gaussian` is the same distribution pushed through the network itself.

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
        """True, as predictions linearise the network."""
        return True

    @property
    def log_evidence(self) -> Array | None:
        """Laplace's approximation of log p(y), from `gaussian`."""
        return self.gaussian.log_evidence

    @property
    def decrement(self) -> Array | None:
        """Distance from `params` to the mode of the quadratic approximation, in posterior standard deviations."""
        return self.gaussian.decrement

    def with_link(self, link: Link) -> "Linearised":
        """Return the same posterior with another link to class probabilities."""
        return dataclasses.replace(self, link=link)

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw weights around the mode."""
        return self.gaussian.sample(key, num)

    def one(self) -> Params:
        """Return the mode."""
        return self.gaussian.params

    def components(self, key: Key, num: int | None) -> Params:
        """Return `num` draws of the weights, by default 200, in mirrored pairs."""
        return self.gaussian.components(key, num)

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """Return the outputs at x of draws of the linearised network, computed on first use."""
        self._check(x)
        return Outputs(self.model, lambda: self.components(key, num), x, centre=self.gaussian.params)

    def moments(self, x: Any) -> tuple[Array, Array]:
        """Return mean (points, outputs) and covariance (points, outputs, outputs) of the linearised outputs."""
        x = check_x(x)
        self._check(x)
        mean, covariance = _blockwise(self, x, None)
        return mean, covariance

    def _check(self, x: np.ndarray) -> None:
        self.model.check_inputs(jax.eval_shape(self.model.weights, self.gaussian.params), x)

    @checked
    @programs.unforked
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
        """As `Posterior.prepared`, in one pass if there is a closed form: outputs and their variances."""
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


def _blockwise(posterior: Linearised, x: np.ndarray, function: Callable | None) -> tuple[Array, ...]:
    """`linear_moments`, or a function of them, in blocks of rows of a few sizes."""
    gaussian, local = posterior.gaussian, posterior.gaussian.local

    def block(rows: slice, fill: Callable) -> tuple[Array, ...]:
        moments = linear_moments(local, gaussian.structure, gaussian.covariance, fill(x[rows]))
        return (
            moments
            if function is None
            else function(posterior.link, local.model.likelihood, *moments, local.params.noise)
        )

    return jax.device_put(blockwise(block, len(x), min(_most_rows(gaussian), few_sizes(len(x), 64))))


def _most_rows(gaussian: StructuredGaussian) -> int:
    """Number of rows whose gradients fit in a block."""
    widths = [int(np.prod(block.index.shape)) for block in gaussian.covariance.blocks if isinstance(block, Spectral)]
    numbers = max([2 * gaussian.num_outputs * width for width in widths], default=1)
    return int(np.clip(_BLOCK_NUMBERS // numbers, 1, _BLOCK_ROWS))


@once
def linear_moments(local: Local, structure: Structure, covariance: Covariance, x: Array) -> tuple[Array, Array]:
    """Return mean and covariance of the linearised outputs at rows x."""
    sites = local.sites
    parts = structure.parts(local, sites)

    def row_moments(row: Array) -> tuple[Array, Array]:
        outputs, gradients = local.gradients(sites, row, lambda outputs: jnp.eye(len(outputs), dtype=outputs.dtype))
        total = jnp.zeros((len(outputs), len(outputs)), outputs.dtype)
        for part, block in zip(parts, covariance.blocks, strict=True):
            total += _covariance(part, block, gradients, sites, local.size)
        return outputs, total

    return jax.vmap(row_moments)(x)


def _covariance(part: Any, block: Any, gradients: RowGradients, sites: Sites, size: int) -> Array:
    """The contribution of one block to the covariance of a row's outputs."""
    if isinstance(block, Kronecker):
        return block.covariance(*gradients.matrix(part))
    if isinstance(block, Diagonal) and part.group is not None:
        return kronecker_covariance(*gradients.matrix(part), block.diagonal())
    rows = gradients.rows(sites, part.index.ravel(), size)
    return block.covariance(rows) if isinstance(block, Spectral) else (rows * block.diagonal()[None]) @ rows.T
