"""Networks: functions of weights and inputs, with a layout of their weights."""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
