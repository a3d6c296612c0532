"""Markov chain Monte Carlo: kernels on the full data, tuned in warm-up."""
