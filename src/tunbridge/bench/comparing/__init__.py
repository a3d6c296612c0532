"""Comparison of methods on one data set: scores, costs, a recommendation, and the report."""
