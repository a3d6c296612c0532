"""Applications of posteriors: compressing networks, deciding, forecasting series."""

from tunbridge.applications import compression, decisions, series

__all__ = ["compression", "decisions", "series"]
