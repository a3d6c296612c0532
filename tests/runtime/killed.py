"""Two fits with checkpoints, as a process that may be killed at any moment; the results are written at the end."""

import sys
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist

import tunbridge as tb
from toys import Walk, model, table

folder, out, times = sys.argv[1:]
LENGTH = min(int(times), 4)
"""Runs that are killed once are shorter."""
FITS = {
    "walk": (
        Walk(run=tb.Run(chains=3, warmup=750 * LENGTH, draws=375 * LENGTH, thin=10, batch_size=16)),
        tb.likelihoods.Gaussian(0.1),
    ),
    "ensemble": (
        tb.Ensemble(tb.MAP(train=tb.Train(5000 * LENGTH, batch_size=8)), 3),
        tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)),
    ),
}
found = {}
for name, (method, likelihood) in FITS.items():
    checkpoint = Path(folder) / name if folder else None
    posterior = method.fit(model(likelihood=likelihood), table(), key=jax.random.key(7), checkpoint=checkpoint)
    for i, leaf in enumerate(jax.tree.leaves(posterior.components(jax.random.key(0), None))):
        found[f"{name}{i}"] = np.asarray(leaf)
np.savez(out, **found)
