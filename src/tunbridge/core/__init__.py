"""Shared by all packages: data, the unknown parameters, protocols, pytree utilities and errors."""
