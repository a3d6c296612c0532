"""A residual network whose layers are fused GPU kernels."""
