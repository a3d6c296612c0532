"""Automatic relevance determination: one scale per input, small where the input does not matter."""

from typing import Any

import equinox as eqx
import jax
import numpyro.distributions as dist

from tunbridge.core.errors import InputError
from tunbridge.core.tree import paths
from tunbridge.core.types import PyTree
from tunbridge.model import transforms
from tunbridge.model.networks import layout as axes
from tunbridge.model.priors.base import fan_in
from tunbridge.model.priors.delegating import Delegating
from tunbridge.model.priors.grouped import Factor, Grouped
from tunbridge.model.priors.normal import Normal


class Relevance(Grouped):
    """One scale per input unit."""

    scale: Any

    def factors(self) -> dict[str, Factor]:
        """One scale per input."""
        return {"relevance": Factor(self.scale, "inputs")}


class ARD(Delegating):
    r"""A scale for each input, shared by all weights that leave it: :math:`\tau_i` for input *i*.

    Automatic relevance determination :cite:p:`mackay1994bayesian,neal1996bayesian`: an input that the data do not need
    is switched off by a small :math:`\tau_i`. ``prior.values(scales)["inputs"]["relevance"]`` holds the scales.
    (For one scale per unit of every layer use `GroupHorseshoe`.)

    Parameters
    ----------
    scale
        The prior of :math:`\tau_i`.
    path
        Path of the weights that read the inputs, such as "layers/0/weight"; None takes the network's first weights.
    rest
        The prior of all other weights.
    """

    scale: Any = eqx.field(
        default_factory=lambda: dist.HalfCauchy(1.0), converter=lambda scale: transforms.check_positive(scale, "scale")
    )
    path: str | None = eqx.field(default=None, static=True)
    rest: Any = eqx.field(default_factory=lambda: Normal(fan_in(1.0)))

    def parts(self) -> dict[str, Any]:
        """The priors of the input weights and of the rest."""
        return {"inputs": Relevance(self.scale), "rest": self.rest}

    def with_parts(self, parts: dict[str, Any]) -> "ARD":
        """Return the same prior with another one for the rest."""
        return ARD(self.scale, self.path, parts["rest"])

    def assign(self, layout: PyTree) -> list[str]:
        """Name of each array's part: "inputs" for the weights that read the inputs, "rest" for all others."""
        names, roles = paths(layout), jax.tree.leaves(layout)
        first = self.path
        if first is None:
            axes.require_known(layout, "priors.ARD")
            first = next((name for name, role in zip(names, roles, strict=True) if role.role == "weight"), None)
        if first not in names:
            raise InputError(
                f"path= as one of {', '.join(names)}", f"{first}", "Name the weights that read the inputs."
            )
        return ["inputs" if name == first else "rest" for name in names]
