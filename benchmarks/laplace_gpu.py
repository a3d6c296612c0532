"""Kronecker Laplace of a ResNet-20 on images of CIFAR-10's shape: seconds and peak memory.

    python benchmarks/laplace_gpu.py [--images 10000]
    -> benchmarks/results/laplace_gpu.json

The network has filter response normalisation and swish; pixels and weights are random, since neither changes the
computation.
"""

import argparse
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from record import record

import tunbridge as tb


class Filtered(nn.Module):
    """A convolution, filter response normalisation, swish."""

    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (3, 3), (self.stride, self.stride))(x)
        x = x * jax.lax.rsqrt(jnp.mean(x**2, axis=(1, 2), keepdims=True) + 1e-6)
        scale = self.param("scale", nn.initializers.ones, (self.width,))
        shift = self.param("shift", nn.initializers.zeros, (self.width,))
        return nn.swish(x * scale[None, None, None] + shift[None, None, None])


class ResNet20(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = Filtered(16)(x)
        for width, first in ((16, 1), (32, 2), (64, 2)):
            for stride in (first, 1, 1):
                inner = Filtered(width)(Filtered(width, stride)(x))
                skip = x if x.shape == inner.shape else nn.Conv(width, (1, 1), (stride, stride))(x)
                x = skip + inner
        return nn.Dense(10)(x.mean(axis=(1, 2)))


def peak():
    """Peak bytes in use on the device, if it reports them."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use")


def main(num):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 32, 32, 3)).astype(np.float32)
    y = rng.integers(0, 10, num)
    network = tb.networks.from_flax(ResNet20(), x[:1])
    model = tb.Model(network, tb.priors.Normal(0.2**0.5), tb.likelihoods.Categorical(10))
    weights = network.init(jax.random.key(0), jnp.asarray(x[:1]))
    rows = []
    for label, method in {
        "kronecker": tb.Laplace(structure=tb.structures.Kronecker(), point=None, tune=None),
        "diagonal": tb.Laplace(structure=tb.structures.Diagonal(), point=None, tune=None),
        "last layer": tb.Laplace(
            structure=tb.structures.Kronecker(), subset=tb.subsets.LastLayer(), point=None, tune=None
        ),
    }.items():
        row = {"structure": label, "weights": sum(leaf.size for leaf in jax.tree.leaves(weights)), "images": num}
        for turn in ("first", "again"):
            began = time.perf_counter()
            posterior = method.fit(model, tb.Data(x, y), init=weights, key=jax.random.key(0))
            row[f"fit s, {turn}"] = time.perf_counter() - began
            began = time.perf_counter()
            jax.block_until_ready(posterior.predict(x).probs)
            row[f"predict s, {turn}"] = time.perf_counter() - began
        row["peak GB"] = None if peak() is None else peak() / 1e9
        row["notes"] = list(posterior.notes)
        rows.append(row)
        print(row, flush=True)
    record("laplace_gpu", {"device": str(jax.devices()[0].device_kind), "rows": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    main(parser.parse_args().images)
