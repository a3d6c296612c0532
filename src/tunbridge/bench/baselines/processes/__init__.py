"""Gaussian process regression, and the kernels of infinitely wide networks with random weights."""

from tunbridge.bench.baselines.processes.regression import ExactProcess, FittedProcess, SparseProcess
from tunbridge.bench.baselines.processes.wide import WideKernel, wide_kernel

__all__ = ["ExactProcess", "FittedProcess", "SparseProcess", "WideKernel", "wide_kernel"]
