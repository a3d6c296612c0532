"""A residual network of GPU programs."""
