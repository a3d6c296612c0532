"""Networks of this package."""
