"""Saves one of two posteriors after another into a folder, for ever: a process to be killed."""

import sys

import jax
import numpy as np

import tunbridge as tb
from toys import model, table

bound, rows = model().bind(table())
like = jax.eval_shape(bound.sample_params, jax.random.key(0), rows.x)


def filled(num):
    params = jax.tree.map(lambda leaf: np.full((num, *leaf.shape), num, leaf.dtype), like)
    return tb.Draws(bound, jax.random.key(0), params)


posteriors = [filled(2), filled(2000)]
while True:
    for posterior in posteriors:
        posterior.save(sys.argv[1])
        print(posterior.num, flush=True)
