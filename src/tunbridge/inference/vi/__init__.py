"""Variational inference: a family, a divergence, a gradient estimator and KL weights, four choices."""
