"""Applications of posteriors: compressing networks."""

from tunbridge.applications import compression

__all__ = ["compression"]
