"""What posteriors are good for: smaller networks."""

from tunbridge.applications import compression

__all__ = ["compression"]
