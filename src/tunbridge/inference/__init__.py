"""Inference: methods that turn a model and data into a posterior. Families of methods do not import one another."""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
