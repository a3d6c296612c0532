"""Variational methods, one for each family of q."""

from typing import ClassVar

import equinox as eqx

from tunbridge.inference.promises import Promises, Spreads
from tunbridge.inference.vi import families
from tunbridge.inference.vi.divergences import KL, Divergence
from tunbridge.inference.vi.families import Family
from tunbridge.inference.vi.gradients import Gradient, LocalReparameterised
from tunbridge.inference.vi.variational import Variational


class MeanField(Variational):
    r"""Independent normal weights, each with a mean and a standard deviation :math:`\sigma = \log(1 + e^\rho)`.

    For a normal posterior with precision :math:`\Lambda` the best such q has its mean, and variances
    :math:`1 / \Lambda_{ii}`: at most the true ones. Means start at the posterior mode, standard deviations at those
    that the curvature there implies. Unknown noise and prior scales are part of q.

    Parameters
    ----------
    gradient
        How gradients of the expected log likelihood are estimated: an object of `tunbridge.gradients`.
    divergence
        Divergence to minimise: an object of `tunbridge.divergences`.
    kl_weights
        How the KL is spread over the batches of an epoch: an object of `tunbridge.klweights`.
    num_samples
        Draws from q per step.
    step_size, optimiser, decay
        As for `tunbridge.MAP`, for the parameters of q.
    point
        Point estimate at which means start: a `tunbridge.MAP`; "map" is its default with the batches of `train`; None
        is the network's own initial weights. With ``fit(..., init=)`` they start there instead.
    initial_sd
        Initial standard deviations; None measures the curvature.
    train
        Length of training; with `patience`, until the bound stops rising.
    """

    promises: ClassVar[Promises] = {  # independent weights
        "linear": ("diagonal", 0.12),
        "linear_unknown": ("mean", 0.2),
        "logistic": ("mean", 0.2),
        "tanh_unit": ("mean", 0.5),
    }

    gradient: Gradient = eqx.field(default=LocalReparameterised(), kw_only=True)
    divergence: Divergence = eqx.field(default=KL(), kw_only=True)

    @property
    def form(self) -> Family:
        """A diagonal covariance, of independent unknowns."""
        return families.Diagonal()


class LowRank(Variational):
    r"""A covariance with a diagonal and a few directions, :math:`S (I + U U^\top) S`, :math:`S = \text{diag}(\sigma)`.

    Parameters
    ----------
    rank
        Number of directions.
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    promises: ClassVar[Promises] = {  # its rank of ten exceeds the number of weights
        "linear": ("exact", 0.12),
        "linear_unknown": ("biased", 0.12),
        "logistic": ("biased", 0.12),
        "tanh_unit": ("mean", 0.3),
    }

    rank: int = eqx.field(default=10, static=True)
    gradient: Gradient = eqx.field(default=LocalReparameterised(), kw_only=True)
    divergence: Divergence = eqx.field(default=KL(), kw_only=True)

    @property
    def form(self) -> Family:
        """A diagonal and a few directions."""
        return families.LowRank(self.rank)


class MatrixNormalVI(Variational):
    r"""Each weight matrix matrix-variate normal, :math:`\text{Cov}(\text{vec} W) = V \otimes U`.

    U over inputs and V over outputs are arbitrary covariances :cite:p:`louizos2016structured`. Mean-field is not a
    special case: it may have a variance for each weight.

    Parameters
    ----------
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    promises: ClassVar[Promises] = {  # the bias is independent of the weights
        "linear": ("mean", 0.12),
        "linear_unknown": ("mean", 0.2),
        "logistic": ("mean", 0.2),
        "tanh_unit": ("mean", 0.5),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.8, 3.0), "classes": (1.0, 1.2)}

    @property
    def form(self) -> Family:
        """Matrix-variate normal weight matrices."""
        return families.Matrix()


class FullRank(Variational):
    """Any covariance of all unknowns: exact where the posterior is normal.

    Gradient estimates are those that vanish there (`tunbridge.gradients.StickTheLanding`). Memory grows with the
    square of the number of unknowns: for small networks. ``tb.ADVI(tb.families.Layers())`` has any covariance within a
    layer.

    Parameters
    ----------
    gradient, divergence, kl_weights, num_samples, step_size, optimiser, decay, point, initial_sd, train
        As for `tunbridge.MeanField`.
    """

    promises: ClassVar[Promises] = {  # normal although the posterior is not
        "linear": ("exact", 0.12),
        "linear_unknown": ("biased", 0.12),
        "logistic": ("biased", 0.12),
        "tanh_unit": ("mean", 0.3),
    }

    @property
    def form(self) -> Family:
        """Any covariance of all unknowns."""
        return families.Full()
