"""Gaussian processes: what priors over weights become in wide networks, and the reference without parameters."""

from tunbridge.bench.baselines.processes.regression import ExactProcess, FittedProcess, SparseProcess
from tunbridge.bench.baselines.processes.wide import WideKernel, wide_kernel

__all__ = ["ExactProcess", "FittedProcess", "SparseProcess", "WideKernel", "wide_kernel"]
