"""Stochastic-gradient MCMC: samplers whose step costs one minibatch."""
