"""Prior predictive checks, sensitivity to the prior, and rankings of priors and models by evidence."""
