"""How one learns: methods that turn a model and data into a posterior. Families do not know one another."""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
