"""Times of Laplace and of laplace-torch on the same weights and data, in one run.

    python benchmarks/laplace_speed.py --peer PYTHON [--threads 1]
    -> benchmarks/results/laplace_speed.json

PYTHON is an interpreter with torch and laplace-torch 0.3; it runs benchmarks/peers_laplace.py, which also makes the
arrays. Fits are whole calls of `tb.Laplace(point=None)`: checks, curvature, evidence and the distance from the mode;
`curvature` is the part that a fit of laplace-torch computes. Times are medians after the first call, which is recorded
separately.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from record import record

import tunbridge as tb
from tunbridge.inference.laplace import evidence, fitting, structures
from tunbridge.inference.laplace.local import Local, scored

HERE = Path(__file__).parent
STRUCTURES = {"full": tb.structures.Full(), "kron": tb.structures.Kronecker(), "diag": tb.structures.Diagonal()}


def problem(arrays, size, likelihood):
    x, y = arrays[f"{size}_x"], arrays[f"{size}_y"]
    layers = [
        {"weight": jnp.asarray(arrays[f"{size}_w{i}"]), "bias": jnp.asarray(arrays[f"{size}_b{i}"])} for i in (0, 1)
    ]
    network = tb.networks.MLP((layers[0]["bias"].shape[0],))
    return tb.Model(network, tb.priors.Normal(1.0), likelihood), tb.Data(x, y), {"layers": layers}


def seconds(call, repeats):
    """Seconds of the first call, and the median of the others."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(call()))
        times.append(time.perf_counter() - began)
    return {"first": times[0], "again": float(np.median(times[1:]))}


def unknown(model):
    """The same model with unknown prior scale and noise, to be tuned."""
    prior, noise = tb.priors.Normal(dist.LogNormal(0.0, 3.0)), tb.likelihoods.Gaussian(dist.LogNormal(0.0, 3.0))
    return tb.Model(model.network, prior, noise)


def small(arrays):
    model, data, weights = problem(arrays, "small", tb.likelihoods.Gaussian(1.0))
    rows, key = {}, jax.random.key(0)
    for subset, chosen in {"all": tb.subsets.All(), "last layer": tb.subsets.LastLayer()}.items():
        for name, structure in STRUCTURES.items():
            method = tb.Laplace(structure=structure, subset=chosen, point=None, tune=None)
            posterior = method.fit(model, data, init=weights, key=key)
            row = {"fit": seconds(lambda m=method: m.fit(model, data, init=weights, key=key).gaussian.covariance, 7)}
            row["curvature"] = seconds(lambda m=method, p=posterior: curvature(m, p, data), 7)
            row["predict 500"] = seconds(lambda p=posterior: p.moments(data.x), 7)
            if subset == "all":
                tuned = method.fit(unknown(model), data, init=weights, key=key).gaussian
                found = evidence_of(method, unknown(model), data, tuned.params)
                row["tune 100"] = seconds(lambda f=found: evidence.maximise(f, jnp.zeros(2), True, 100), 5)
            rows[f"{name}, {subset}"] = row
    return rows


def curvature(method, posterior, data):
    """Time of the curvature and its eigenvectors alone, which is what the fit of laplace-torch computes."""
    local, variances = posterior.gaussian.local, np.ones(posterior.gaussian.covariance.size)
    measured = method.structure.measure(local, method.curvature, data, variances, jax.random.key(0))
    return structures.blocks(method.structure, measured, variances, lambda _: True)[0]


def evidence_of(method, model, data, params):
    model, data = model.bind(data)
    local = Local.at(model, params, method.subset)
    return fitting.fit(local, method.structure, method.curvature, scored(model, data), 0.0, jax.random.key(0)).evidence


def large(arrays):
    model, data, weights = problem(arrays, "large", tb.likelihoods.Categorical(10))
    rows, key = {}, jax.random.key(0)
    for name, structure in list(STRUCTURES.items())[1:]:
        method = tb.Laplace(structure=structure, point=None, tune=None)
        row = {"fit": seconds(lambda m=method: m.fit(model, data, init=weights, key=key).gaussian.covariance, 3)}
        posterior = method.fit(model, data, init=weights, key=key)
        row["curvature"] = seconds(lambda m=method, p=posterior: curvature(m, p, data), 3)
        few = np.asarray(data.x[:1000])
        found = seconds(lambda p=posterior, few=few: p.with_link(tb.links.Probit()).predict(few).probs, 3)
        row["predict a point"] = {turn: value / len(few) for turn, value in found.items()}
        rows[f"{name}, all"] = row
    method = tb.Laplace(structure=STRUCTURES["kron"], subset=tb.subsets.LastLayer(), point=None, tune=None)
    rows["kron, last layer"] = {
        "fit": seconds(lambda: method.fit(model, data, init=weights, key=key).gaussian.covariance, 3)
    }
    rows["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--threads", default="1")
    options = parser.parse_args()
    if options.threads == "1" and "intra_op" not in os.environ.get("XLA_FLAGS", ""):
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        one = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run(["taskset", "-c", "0", sys.executable, *sys.argv], env=one, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        made, theirs = Path(folder) / "arrays.npz", Path(folder) / "peer.json"
        peer = [
            options.peer,
            str(HERE / "peers_laplace.py"),
            "speed",
            str(theirs),
            "--arrays",
            str(made),
            "--threads",
            options.threads,
        ]
        subprocess.run(peer, check=True)
        arrays = dict(np.load(made))
        ours = {"13-50-1": small(arrays), "784-256-10": large(arrays)}
        record(
            "laplace_speed",
            {"threads": options.threads, "tunbridge": ours, "laplace-torch": json.loads(theirs.read_text())},
        )
