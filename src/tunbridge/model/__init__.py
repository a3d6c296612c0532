"""The model: a network, a prior over its weights and a likelihood of the data."""
