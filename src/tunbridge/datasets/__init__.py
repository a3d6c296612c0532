"""Data to try things on: made from a key, bundled with scikit-learn, or images; and the one way to standardise it.

They are imported when they are asked for: reading a table needs no JAX.
"""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
