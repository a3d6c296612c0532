"""Times of the stochastic-gradient samplers of posteriors (torch). Runs in a separate environment, without tunbridge.

    python -W ignore benchmarks/peers_sgmcmc.py ARRAYS.npz < CASES

CASES are lines with one name of `CASES` each, any number of times; the answer to each is a line of JSON, after a first
line with the versions. ARRAYS.npz has x (500, 13) and y (500, 1), as written by benchmarks/sgmcmc_speed.py. A case
continues where it stopped; its first call begins with some untimed steps.

The environment: torch 2.13.0, posteriors 0.1.3, numpy.
"""

import argparse
import json
import math
import platform
import sys
import time
from importlib.metadata import version

import numpy as np
import posteriors
import torch
from torch import nn

WARM, STEPS, BATCH = 3, 300, 32
NOISE = 0.3
PACKAGES = ("torch", "posteriors", "tensordict", "numpy")
SETTINGS = {"sgld": {"lr": 1e-5}, "sghmc": {"lr": 1e-2, "alpha": 0.1}, "sgnht": {"lr": 1e-2, "alpha": 0.1}}


def begin(name, num):
    """A function that takes a step on a minibatch from the current state, updated in place, which is faster."""
    model = nn.Sequential(nn.Linear(13, 50), nn.Tanh(), nn.Linear(50, 1))
    params = dict(model.named_parameters())

    def log_posterior(params, batch):
        x, y = batch
        output = torch.func.functional_call(model, params, (x,))
        likelihood = torch.distributions.Normal(output, NOISE, validate_args=False).log_prob(y).mean()
        return likelihood + posteriors.diag_normal_log_prob(params) / num, output

    transform = getattr(posteriors.sgmcmc, name).build(log_posterior, temperature=1 / num, **SETTINGS[name])
    state = transform.init(params)

    def step(x, y):
        nonlocal state
        state, _ = transform.update(state, (x, y), inplace=True)
        return state.log_posterior

    return step


def batches(num, steps):
    """Row indices of full minibatches, from one permutation after another."""
    epochs = math.ceil(steps * BATCH / num)
    return torch.cat([torch.randperm(num) for _ in range(epochs)])[: steps * BATCH].view(steps, BATCH)


def run(step, x, y, steps):
    """Seconds per step, and the last log posterior divided by the number of rows."""
    rows = batches(len(x), steps)
    began = time.process_time()
    for row in rows:
        value = step(x[row], y[row])
    return {"seconds a step": (time.process_time() - began) / steps, "log posterior": float(value)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrays")
    held = {name: torch.as_tensor(value) for name, value in np.load(parser.parse_args().arrays).items()}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    begun = {}
    print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}), flush=True)
    for line in sys.stdin:
        name, x, y = line.strip(), held["x"], held["y"]
        if name not in begun:
            begun[name] = begin(name, len(x))
            run(begun[name], x, y, WARM)
        print(json.dumps(run(begun[name], x, y, STEPS)), flush=True)
