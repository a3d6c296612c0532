"""Markov chains driven by gradients of batches, and exact moves between their steps."""
