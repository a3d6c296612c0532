"""Variational methods by their family."""

import equinox as eqx

from tunbridge.inference.vi import families
from tunbridge.inference.vi.divergences import KL, Divergence
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gradients import Gradient, LocalReparameterised, StickTheLanding
from tunbridge.inference.vi.variational import Variational


class MeanField(Variational):
    r"""Independent normal weights, each with a mean and a standard deviation :math:`\sigma = \log(1 + e^\rho)`.

    For a normal posterior with precision :math:`\Lambda` the best such q has its mean, and variances
    :math:`1 / \Lambda_{ii}`: at most the true ones. Means begin at the posterior mode, standard deviations at what the
    curvature there says. Unknown noise and prior scales are part of q.

    Parameters
    ----------
    gradient
        How gradients of the expected log likelihood are estimated: an object of `tunbridge.gradients`.
    divergence
        What is made small: an object of `tunbridge.divergences`.
    kl_weights
        How the KL is spread over the batches of an epoch: an object of `tunbridge.klweights`.
    num_samples
        Draws of q a step.
    step_size, optimiser, decay
        As for `tunbridge.MAP`; of the parameters of q.
    point
        The point estimate where means begin: a `tunbridge.MAP`; "map" is its default with the batches of `train`;
        None the network's own initial weights. With ``fit(..., init=)`` they begin there.
    initial_sd
        Where standard deviations begin; None measures the curvature.
    train
        How long; with `patience`, until the bound no longer rises.
    """

    gradient: Gradient = eqx.field(default=LocalReparameterised(), kw_only=True)

    @property
    def form(self) -> Family:
        """Independent numbers."""
        return families.Diagonal()


class LowRank(Variational):
    r"""A covariance of a diagonal and a few directions, :math:`S (I + U U^\top) S`, :math:`S = \text{diag}(\sigma)`.

    Parameters
    ----------
    rank
        How many directions.
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    rank: int = eqx.field(default=10, static=True)
    gradient: Gradient = eqx.field(default=LocalReparameterised(), kw_only=True)

    @property
    def form(self) -> Family:
        """A diagonal and some directions."""
        return families.LowRank(self.rank)


class MatrixNormalVI(Variational):
    r"""Each matrix of weights matrix-variate normal, :math:`\text{Cov}(\text{vec} W) = V \otimes U`.

    U over inputs and V over outputs are any covariances :cite:p:`louizos2016structured`. Mean-field is not a special
    case: it may have a variance for each weight.

    Parameters
    ----------
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    @property
    def form(self) -> Family:
        """Matrices."""
        return families.Matrix()


class FullRank(Variational):
    """Any covariance of everything unknown: exact where the posterior is normal.

    Gradients are those that vanish there (`tunbridge.gradients.StickTheLanding`). It takes the square of the number of
    unknowns: for small networks. ``tb.ADVI(tb.families.Layers())`` has any covariance within a layer.

    Parameters
    ----------
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    gradient: Gradient = eqx.field(default=StickTheLanding(), kw_only=True)
    divergence: Divergence = eqx.field(default=KL(closed=False), kw_only=True)

    @property
    def form(self) -> Family:
        """Any covariance."""
        return families.Full()
