"""Whether to believe draws: arrays in, numbers out."""
