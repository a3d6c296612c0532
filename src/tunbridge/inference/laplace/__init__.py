"""A normal distribution around a mode: curvature, structure and subset are three choices."""
