"""Applications of posteriors: active learning, compressing networks, decisions, forecasts of series."""

from tunbridge.applications import acquisition, compression, decisions, series

__all__ = ["acquisition", "compression", "decisions", "series"]
