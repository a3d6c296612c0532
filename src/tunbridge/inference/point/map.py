"""The posterior mode, by any optimiser."""

from typing import ClassVar

from tunbridge.core.data import Data
from tunbridge.core.types import Key, Params, PyTree, Scalar
from tunbridge.inference.point.descent import Descent
from tunbridge.inference.posteriors import Point, Posterior
from tunbridge.inference.promises import Promises
from tunbridge.model.model import Model, Target
from tunbridge.runtime.loop import Trace


class MAP(Descent):
    r"""The maximum a posteriori estimate.

    .. math::

        \hat w = \arg\max_w \frac{N}{n} \sum_{i \in \text{batch}} \log p(y_i \mid x_i, w) + \log p(w)

    With a normal prior of scale :math:`s` it is weight decay: the objective divided by N is the mean negative log
    likelihood plus :math:`\lVert w \rVert^2 / (2 N s^2)`.

    A weight under a prior with a corner at zero (`priors.Laplace`) may end at exactly zero. Unknown prior scales are
    integrated out if that has a closed form (`priors.ScaleMixture`), else held at their medians. Unknown noise is
    never optimised together with the weights (a network that interpolates would send it to zero): it is measured on
    held-out rows, and then the weights are refitted to all rows.

    Parameters
    ----------
    step_size
        The optimiser's step size at the first step.
    optimiser
        A function of the step size that returns an optax transformation: ``optax.adam``, ``optax.sgd``,
        ``optax.lbfgs``, or your own. It is compared by identity, so define it once.
    decay
        How the step size falls: a schedule from `tunbridge.schedules`.
    train
        How long to train, and the batch size.
    """

    promises: ClassVar[Promises] = {
        "linear": ("mean", 0.001),
        "linear_unknown": ("none",),
        "logistic": ("mode", 0.001),
        "tanh_unit": ("mode", 0.001),
    }

    def objective(self, key: Key, target: Target, params: Params, extra: PyTree, batch: Data) -> Scalar:
        """Log likelihood of the batch, scaled to all rows, plus log prior of the weights."""
        return target.log_likelihood(params, batch) + target.log_prior_weights(params)

    def posterior(self, model: Model, data: Data, traces: list[Trace], key: Key) -> Posterior:
        """Return the point estimate at the last state."""
        (trace,) = traces
        params = self.reached(trace.state)
        notes = self.notes(params, int(trace.state.step))
        return Point(model, key, params, self.curve(trace.state, trace.info), notes=notes)
