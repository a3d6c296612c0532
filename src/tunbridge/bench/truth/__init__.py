"""Checks against the true posterior: exact problems, reference posteriors, and simulation-based calibration."""
