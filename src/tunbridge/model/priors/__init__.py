"""Priors over weights, one file per family."""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
