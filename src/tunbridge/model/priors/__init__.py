"""Priors over weights, one file a family."""

from tunbridge.model.priors.normal import FanIn, Normal, fan_in

__all__ = ["FanIn", "Normal", "fan_in"]
