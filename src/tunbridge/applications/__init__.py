"""Applications of posteriors: compressing networks, forecasting series."""

from tunbridge.applications import compression, series

__all__ = ["compression", "series"]
