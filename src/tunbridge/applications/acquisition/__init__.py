"""Active learning: which rows of a pool to label next, and a runner that labels them."""

from tunbridge.applications.acquisition.base import BALD, Acquisition, Entropy, Random, VariationRatios
from tunbridge.applications.acquisition.joint import BatchBALD, CoreSet
from tunbridge.applications.acquisition.pool import Learning, learn

__all__ = [
    "BALD",
    "Acquisition",
    "BatchBALD",
    "CoreSet",
    "Entropy",
    "Learning",
    "Random",
    "VariationRatios",
    "learn",
]
