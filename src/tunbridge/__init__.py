"""Bayesian deep learning you can check.

A Model is a Network, a Prior and a Likelihood. A Method turns a model and data into a Posterior. A posterior pushed
through the network is a Predictive.
"""

import logging
from typing import Any

from tunbridge.core import names
from tunbridge.runtime import programs

logging.getLogger("tunbridge").addHandler(logging.NullHandler())
programs.silence_loader()
_find, __dir__, __all__ = names.attach(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # a tenth of a second that help texts do not need

        return version("tunbridge")
    return _find(name)
