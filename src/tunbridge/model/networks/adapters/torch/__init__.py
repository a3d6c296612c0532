"""PyTorch modules, read once into a graph that JAX runs."""
