"""Laplace approximations: a normal distribution around a mode, by choice of curvature, structure and subset."""
