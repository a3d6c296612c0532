"""Example data sets: synthetic, bundled with scikit-learn, or images; and how data are split and standardised.

Names are imported on first use: reading a table does not import JAX.
"""

from tunbridge.core import names

__getattr__, __dir__, __all__ = names.attach(__name__)
