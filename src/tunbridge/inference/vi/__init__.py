"""Variational inference: four choices, of a family, a divergence, a gradient estimator and KL weights."""
