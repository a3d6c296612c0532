"""Shallow networks: Gibbs sampling with the output layer integrated out, and an unknown number of hidden units."""
