"""Predictive distributions: from network outputs to a distribution over y, with aleatoric and epistemic parts."""
