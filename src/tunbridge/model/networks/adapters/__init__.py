"""Adapters that make networks from modules of other frameworks."""
