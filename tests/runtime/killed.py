"""Fit with a checkpoint, as a process that may be killed at any moment; write the result at the end."""

import sys

import jax
import numpy as np
import numpyro.distributions as dist

import tunbridge as tb
from toys import Walk, model, table

folder, out, kind = sys.argv[1:]
METHODS = {
    "walk": (Walk(run=tb.Run(chains=3, warmup=3000, draws=2000, thin=10, batch_size=16)), model()),
    "ensemble": (
        tb.Ensemble(tb.MAP(train=tb.Train(30_000, batch_size=8)), 3),
        model(likelihood=tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))),
    ),
}
method, made = METHODS[kind]
posterior = method.fit(made, table(), key=jax.random.key(7), checkpoint=folder or None)
leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.sample(jax.random.key(0), 50))]
np.savez(out, *leaves)
