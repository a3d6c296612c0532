"""Numerical integration over an interval."""

import numpy as np


def panels(num: int = 32, order: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of composite Gauss-Legendre quadrature on [0, 1]: `num` panels of `order` nodes."""
    node, weight = np.polynomial.legendre.leggauss(order)
    starts = np.arange(num)[:, None]
    return ((starts + (node + 1) / 2) / num).reshape(-1), np.tile(weight / 2 / num, num)
