"""Threads or vmap: four members on two cores as the work of a step grows. Ratios within one run, about four minutes.

python benchmarks/members.py -> benchmarks/results/members.json
"""

from functools import partial

import jax
import numpy as np
from loop import timed
from record import record

import tunbridge as tb
from tunbridge.runtime import loop, members

SIZES = [
    ((13, (50,), 500, None), 1500),
    ((64, (256, 256), 2000, 128), 400),
    ((784, (256,), 4000, 128), 300),
    ((784, (800, 800), 4000, 128), 60),
    ((784, (1200, 1200), 4000, None), 4),
]


def crossover():
    """Speed of two worker threads against one, and against vmap, for four members as the work of a step grows."""
    rows = []
    for (features, hidden, num, batch_size), steps in SIZES:
        rng = np.random.default_rng(0)
        data = tb.Data(rng.normal(size=(num, features)), rng.integers(0, 10, num))
        model = tb.Model(tb.networks.MLP(hidden, "relu"), tb.priors.Normal(1.0), tb.likelihoods.Categorical())
        method = tb.Ensemble(tb.MAP(train=tb.Train(steps, batch_size)), 4)
        seconds = {}
        for name, workers in (("one", 1), ("two", 2), ("vmap", None)):
            loop.cores = (lambda: 1) if workers is None else (lambda workers=workers: workers)
            loop.spread = members.spread if workers else (lambda n: [(list(range(n)), None)])
            seconds[name] = timed(partial(method.fit, model, data, key=jax.random.key(0)), 1)[0]
        loop.cores, loop.spread = members.cores, members.spread
        network = "-".join(map(str, (features, *hidden, 10)))
        rows.append(
            {
                "network": network,
                "rows_a_step": batch_size or num,
                "two_threads_against_one": seconds["one"] / seconds["two"],
                "two_threads_against_vmap": seconds["vmap"] / seconds["two"],
            }
        )
    return rows


if __name__ == "__main__":
    record("members", {"crossover": crossover()})
