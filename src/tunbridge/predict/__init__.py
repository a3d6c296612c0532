"""From a network's outputs to a distribution over y, with its aleatoric and epistemic parts."""
