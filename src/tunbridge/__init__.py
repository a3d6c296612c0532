"""Bayesian deep learning you can check.

A Model is a Network, a Prior and a Likelihood. A Method turns a Model and data into a Posterior. A Posterior pushed
through the Network is a Predictive.
"""

import logging
from typing import Any

from tunbridge.core import names
from tunbridge.runtime import compiler, programs

logging.getLogger("tunbridge").addHandler(logging.NullHandler())
compiler.settle()
programs.silence_loader()
_find, __dir__, __all__ = names.attach(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # importing takes 0.1 s, which help texts do not need

        return version("tunbridge")
    return _find(name)
