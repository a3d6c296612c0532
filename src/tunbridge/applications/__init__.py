"""Applications of posteriors: active learning, bandits, compressing networks, decisions, forecasts of series."""

from tunbridge.applications import acquisition, bandits, compression, decisions, series

__all__ = ["acquisition", "bandits", "compression", "decisions", "series"]
