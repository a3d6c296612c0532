"""Times of variational inference in torch. Runs in a separate environment, without tunbridge.

    python -W ignore benchmarks/peers_vi.py ARRAYS.npz < CASES

CASES are lines with one name of `CASES` each, any number of times; the answer to each is a line of JSON, after a first
line with the versions. ARRAYS.npz has large_x, large_y, small_x and small_y, as written by benchmarks/vi_speed.py. A
case continues where it stopped; its first call begins with some untimed steps.

Training loops and settings are those of the packages' own introductions. Minibatches are rows of a tensor, without a
DataLoader, whose overhead would be added to every method.

The environment: torch 2.13.0, bayesian-torch 0.5.0, ivon-opt 0.1.3, vbll 0.4.9, posteriors 0.1.3, numpy.
"""

import argparse
import json
import math
import platform
import sys
import time
from importlib.metadata import version

import ivon
import numpy as np
import posteriors
import torch
import torchopt
import vbll
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from torch import nn

WARM = 3
"""Untimed steps before the first timed one."""
NOISE = 0.3
PACKAGES = ("torch", "bayesian-torch", "ivon-opt", "vbll", "posteriors", "torchopt", "tensordict", "numpy")


def classifier():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def point(num):
    """Cross-entropy and Adam, with weight decay as the prior."""
    model = classifier()
    optimiser = torch.optim.Adam(model.parameters(), weight_decay=1 / num)

    def step(x, y):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        return loss

    return step


def layers(kind):
    """bayesian-torch layers in place of the linear ones, with the KL divergence scaled as in its README."""

    def begin(_):
        model = classifier()
        settings = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0}
        dnn_to_bnn(model, {**settings, "type": kind, "moped_enable": False, "moped_delta": 0.5})
        optimiser = torch.optim.Adam(model.parameters())

        def step(x, y):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y) + get_kl_loss(model) / len(x)
            loss.backward()
            optimiser.step()
            return loss

        return step

    return begin


def newton(num):
    """IVON with one draw per step."""
    model = classifier()
    optimiser = ivon.IVON(model.parameters(), lr=0.1, ess=num)

    def step(x, y):
        with optimiser.sampled_params(train=True):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        optimiser.step()
        return loss

    return step


def last_layer(covariance):
    """VBLL's discriminative classification; the layer computes predictions at every step, used or not."""

    def begin(num):
        inner = nn.Sequential(nn.Linear(784, 256), nn.ReLU())
        outer = vbll.DiscClassification(256, 10, 1 / num, parameterization=covariance)
        groups = [
            {"params": inner.parameters(), "weight_decay": 1e-4},
            {"params": outer.parameters(), "weight_decay": 0.0},
        ]
        optimiser = torch.optim.AdamW(groups, lr=3e-3)

        def step(x, y):
            optimiser.zero_grad()
            loss = outer(inner(x)).train_loss_fn(y)
            loss.backward()
            optimiser.step()
            return loss

        return step

    return begin


def diagonal(num):
    """posteriors.vi.diag with one draw per step and known noise."""
    model = nn.Sequential(nn.Linear(13, 50), nn.Tanh(), nn.Linear(50, 1))
    params = dict(model.named_parameters())

    def log_posterior(params, batch):
        x, y = batch
        output = torch.func.functional_call(model, params, (x,))
        likelihood = torch.distributions.Normal(output, NOISE, validate_args=False).log_prob(y).mean()
        return likelihood + posteriors.diag_normal_log_prob(params) / num, output

    transform = posteriors.vi.diag.build(log_posterior, torchopt.adam(), temperature=1 / num)
    state = transform.init(params)

    def step(x, y):
        nonlocal state
        state, _ = transform.update(state, (x, y))
        return state.nelbo

    return step


CASES = {
    "torch, Adam": ("large", point, 79),
    "bayesian-torch, Reparameterization": ("large", layers("Reparameterization"), 79),
    "bayesian-torch, Flipout": ("large", layers("Flipout"), 79),
    "ivon-opt": ("large", newton, 79),
    "vbll, diagonal": ("large", last_layer("diagonal"), 79),
    "vbll, dense": ("large", last_layer("dense"), 16),
    "posteriors.vi.diag": ("small", diagonal, 300),
}
"""Data, setup, and number of timed steps: an epoch of large, or part of one where it would take a minute."""
BATCH = {"large": 128, "small": 32}


def batches(num, size, steps):
    """Row indices of full minibatches, from one permutation after another."""
    epochs = math.ceil(steps * size / num)
    return torch.cat([torch.randperm(num) for _ in range(epochs)])[: steps * size].view(steps, size)


def run(step, x, y, size, steps):
    """Seconds per step and the last loss."""
    rows = batches(len(x), size, steps)
    began = time.perf_counter()
    for row in rows:
        loss = step(x[row], y[row])
    return {"seconds a step": (time.perf_counter() - began) / steps, "loss": float(loss)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrays")
    held = {name: torch.as_tensor(value) for name, value in np.load(parser.parse_args().arrays).items()}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    begun = {}
    print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}), flush=True)
    for line in sys.stdin:
        size, begin, steps = CASES[line.strip()]
        x, y = held[f"{size}_x"], held[f"{size}_y"]
        if line not in begun:
            begun[line] = begin(len(x))
            run(begun[line], x, y, BATCH[size], WARM)
        print(json.dumps(run(begun[line], x, y, BATCH[size], steps)), flush=True)
