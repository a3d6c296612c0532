"""A network from a module of any supported framework."""

import sys
from typing import Any

import equinox as eqx

from tunbridge.core.errors import InputError
from tunbridge.core.types import Network
from tunbridge.model.networks.adapters.equinox import from_equinox
from tunbridge.model.networks.adapters.flax import from_flax
from tunbridge.model.networks.adapters.keras import from_keras
from tunbridge.model.networks.adapters.torch.network import from_torch


def from_module(module: Any, x: Any = None) -> Network:
    """A network from an Equinox, Flax, Keras or PyTorch module; Tunbridge's own networks are returned unchanged.

    Parameters
    ----------
    module
        The module.
    x
        Some rows of inputs; only Flax's Linen modules need them.
    """
    if _made_by("torch.nn", module):
        return from_torch(module)
    if _made_by("keras", module, "Model"):
        return from_keras(module)
    if _made_by("flax.linen", module) or _made_by("flax.nnx", module):
        return from_flax(module, x if _made_by("flax.linen", module) else None)
    if isinstance(module, Network):
        return module
    if isinstance(module, eqx.Module):
        return from_equinox(module)  # type: ignore[arg-type]
    kinds = "a module of Equinox, Flax, Keras or PyTorch"
    raise InputError(kinds, type(module).__name__, "Use tb.networks.from_functions for others.")


def _made_by(framework: str, module: Any, base: str = "Module") -> bool:
    """Whether a module is of a framework's base class; a framework that is not imported cannot have made it."""
    return framework in sys.modules and isinstance(module, getattr(sys.modules[framework], base))
