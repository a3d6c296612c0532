"""What a prior means, and what the evidence says of a model."""
