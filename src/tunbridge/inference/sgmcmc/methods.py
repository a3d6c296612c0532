"""Samplers at the cost of SGD: with friction alone (SGLD), with momentum (SGHMC), with a thermostat (SGNHT)."""

from typing import Any, ClassVar

import equinox as eqx

from tunbridge.core.errors import InputError
from tunbridge.inference.promises import Promises
from tunbridge.inference.sgmcmc.noise import GradientNoise, Halves, Known
from tunbridge.inference.sgmcmc.sampler import StochasticGradient
from tunbridge.inference.sgmcmc.splittings import BADODAB, BAOAB, Euler, Overdamped, Splitting, Thermostat


class SGLD(StochasticGradient):
    r"""Stochastic-gradient Langevin dynamics :cite:p:`welling2011sgld`: SGD plus noise.

    .. math::

        w_{t+1} = w_t + \eta_t A \hat g(w_t) + \sqrt{2 \eta_t A} \, \xi_t, \qquad
        \hat g = \nabla \log p(w) + \frac{N}{n} \sum_{i \in \text{batch}} \nabla \log p(y_i \mid x_i, w)

    With full gradients and a step size :math:`\eta` it samples N(0, :math:`1 / (1 - \eta / 2)`) for the target N(0, 1).
    The noise of :math:`\hat g` heats the chain further, by :math:`\eta / 2` times its variance.

    Parameters
    ----------
    step_size
        :math:`\eta`, of the first step; None measures it in warm-up: see `tunbridge.inference.sgmcmc.tuning`.
    schedule
        How the step size changes after warm-up: `tunbridge.schedules.Constant`, `Decaying`, `Cyclical` or `Annealed`.
    preconditioner
        A, from `tunbridge.preconditioners`; None is `Identity` for a given step size and `Fisher` for a measured one.
    gradient
        :math:`\hat g`, from `tunbridge.subsampling`: `Plain`, `ControlVariate` or `SVRG`.
    correction
        A Metropolis step from `tunbridge.corrections`; None accepts every step.
    moves
        Exact redraws along symmetries, from `tunbridge.moves`.
    noise
        Standard deviation of :math:`\xi`: 1 for the posterior; 0 is SGD, bit for bit.
    run
        Length of the run. ``batch_size=None`` is 128 rows, or all if fewer. A step is cheap: keep one of many.
    """

    promises: ClassVar[Promises] = {  # bias of its step size: twice that of SGHMC, and slower
        "linear": ("biased", 0.15),
        "linear_unknown": ("biased", 0.2),
        "logistic": ("biased", 0.15),
        "tanh_unit": ("biased", 0.2),
    }

    @property
    def splitting(self) -> Splitting:
        """Overdamped steps, without momentum."""
        return Overdamped()

    @property
    def damping(self) -> float:
        """1, as each step loses all momentum."""
        return 1.0


class SGHMC(StochasticGradient):
    r"""Stochastic-gradient Hamiltonian Monte Carlo :cite:p:`chen2014sghmc`: SGD with momentum, plus noise.

    .. math::

        r_{t+1} = (1 - \alpha) r_t + \hat g(w_t) + \sqrt{2 (\alpha - \hat\beta) / \eta} \, A^{-1/2} \xi_t, \qquad
        w_{t+1} = w_t + \eta A r_{t+1}

    Friction :math:`\alpha` dissipates the energy that the noise of :math:`\hat g` adds; without friction, gradient
    noise alone would heat the chain without bound. In the notation of :cite:t:`izmailov2021what`
    :math:`\mu = 1 - \alpha` is the momentum and :math:`\eta` the learning rate.

    Parameters
    ----------
    step_size, schedule, preconditioner, gradient, correction, moves, noise, run
        As in `tunbridge.SGLD`. ``noise=0`` is SGD with momentum, bit for bit.
    friction
        :math:`\alpha`, the share of momentum lost per step.
    integrator
        `tunbridge.splittings.Euler`, as above, or `BAOAB`, whose steps have a smaller bias.
    noise_estimate
        :math:`\hat V`, the variance of each entry of :math:`\hat g`: :math:`\hat\beta = \eta A \hat V / 2` is left out
        of the injected noise. None measures it throughout the run, from the two halves of each batch.
    """

    promises: ClassVar[Promises] = {
        "linear": ("biased", 0.12),
        "linear_unknown": ("biased", 0.15),
        "logistic": ("biased", 0.12),
        "tanh_unit": ("biased", 0.15),
    }

    friction: float = eqx.field(default=0.03, converter=float, kw_only=True)
    integrator: Splitting = eqx.field(default=Euler(), kw_only=True)
    noise_estimate: float | None = eqx.field(
        default=0.0, converter=lambda number: None if number is None else float(number), kw_only=True
    )

    def __check_init__(self):
        _check(self.friction, self.integrator, (Euler, BAOAB))
        if self.noise_estimate is not None and not self.noise_estimate >= 0:
            raise InputError(
                "a noise estimate of at least 0", f"{self.noise_estimate}", "Use None to have it measured."
            )
        if self.correction is not None and not isinstance(self.integrator, Euler):
            raise InputError("no integrator= beside correction=", f"{self.integrator}", "A corrected path has its own.")
        if self.correction is not None and self.noise_estimate != 0.0:
            raise InputError("no noise_estimate= beside correction=", f"{self.noise_estimate}", "Leave it out.")

    @property
    def splitting(self) -> Splitting:
        """The given integrator."""
        return self.integrator

    @property
    def damping(self) -> float:
        """The initial friction."""
        return self.friction

    @property
    def gradient_noise(self) -> GradientNoise:
        """The given variance, or one measured from the halves of each batch."""
        return Halves() if self.noise_estimate is None else Known(self.noise_estimate)


class SGNHT(StochasticGradient):
    r"""The stochastic-gradient Nose-Hoover thermostat :cite:p:`ding2014sgnht`: `SGHMC` with adaptive friction.

    .. math::

        r_{t+1} = (1 - \alpha_t) r_t + \hat g(w_t) + \sqrt{2 a / \eta} \, A^{-1/2} \xi_t, \quad
        w_{t+1} = w_t + \eta A r_{t+1}, \quad
        \alpha_{t+1} = \alpha_t + \frac{\eta}{Q} \big( \tfrac{\eta}{d} r_{t+1}^\top A r_{t+1} - 1 \big)

    The mean kinetic energy is then correct however noisy :math:`\hat g` is, and so is the posterior if the noise is
    the same in all directions, in the units of A.

    Parameters
    ----------
    step_size, schedule, preconditioner, gradient, moves, noise, run
        As in `tunbridge.SGLD`.
    friction
        a, the injected noise, and the initial friction of a chain.
    integrator
        `tunbridge.splittings.Thermostat`, as above, or `BADODAB`, whose steps have a smaller bias.
    """

    promises: ClassVar[Promises] = {
        "linear": ("biased", 0.12),
        "linear_unknown": ("biased", 0.15),
        "logistic": ("biased", 0.12),
        "tanh_unit": ("biased", 0.15),
    }

    friction: float = eqx.field(default=0.03, converter=float, kw_only=True)
    integrator: Splitting = eqx.field(default=Thermostat(), kw_only=True)

    def __check_init__(self):
        _check(self.friction, self.integrator, (Thermostat, BADODAB))
        if self.correction is not None:
            raise InputError("no correction= with a thermostat", f"{self.correction}", "Use tb.SGHMC(correction=...).")

    @property
    def splitting(self) -> Splitting:
        """The given integrator."""
        return self.integrator

    @property
    def damping(self) -> float:
        """The initial friction."""
        return self.friction


def _check(friction: float, integrator: Any, kinds: tuple[type, ...]) -> None:
    if not 0.0 < friction <= 1.0:
        raise InputError("a friction above 0 and at most 1", f"{friction}", "Try 0.1: a momentum of 0.9.")
    if not isinstance(integrator, kinds):
        names = " or ".join(f"tb.splittings.{kind.__name__}()" for kind in kinds)
        raise InputError(f"integrator={names}", repr(integrator)[:60], "Choose one of these.")
