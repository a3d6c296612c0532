"""Trained features, and above them a linear layer whose posterior is known exactly."""
