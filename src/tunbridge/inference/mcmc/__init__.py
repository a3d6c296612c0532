"""Markov chain Monte Carlo: kernels on the full data, tuned on the way."""
