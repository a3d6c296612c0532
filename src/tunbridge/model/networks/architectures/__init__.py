"""The network architectures of this package."""
