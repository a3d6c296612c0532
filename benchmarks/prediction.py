"""Cost of predictions: a million rows against the bare forward pass, memory, and milliseconds against passes.

python benchmarks/prediction.py -> benchmarks/results/prediction.json
"""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from record import record

import tunbridge as tb

ROWS, FEATURES, SIZE, BLOCK = 1_000_000, 10, 5, 16_384
MODEL = tb.Model(tb.networks.MLP((50, 50)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))


def fitted(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, FEATURES))
    return method.fit(MODEL, tb.Data(x, np.sin(x[:, 0])), key=jax.random.key(0), progress=False)


def rows(num):
    return np.random.default_rng(1).normal(size=(num, FEATURES)).astype(np.float32)


@jax.jit
def forward(weights, x):
    """The forward pass of one network, written by hand."""
    first, second, last = weights["layers"]
    z = jnp.tanh(x @ first["weight"] + first["bias"])
    z = jnp.tanh(z @ second["weight"] + second["bias"])
    return z @ last["weight"] + last["bias"]


def bare(networks, x):
    """Mean and variance over the networks, block by block, without any overhead."""
    means, spreads = [], []
    for start in range(0, len(x), BLOCK):
        outputs = [np.asarray(forward(weights, x[start : start + BLOCK])) for weights in networks]
        means.append(np.mean(outputs, axis=0))
        spreads.append(np.var(outputs, axis=0))
    return np.concatenate(means), np.concatenate(spreads)


def a_million_rows(repeats=5):
    posterior, x = fitted(tb.Ensemble(tb.MAP(train=tb.Train(50)), SIZE)), rows(ROWS)
    networks = [member.params.weights for member in posterior.members]

    def ours():
        predictive = posterior.predict(x)
        return np.asarray(predictive.mean), np.asarray(predictive.epistemic)

    for one, two in zip(ours(), bare(networks, x), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)
    seconds = {"ours": [], "bare": []}
    for _ in range(repeats):
        for name, call in (("ours", ours), ("bare", lambda: bare(networks, x))):
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    ratio = float(np.median(np.array(seconds["bare"]) / np.array(seconds["ours"])))
    return {"rows": ROWS, "members": SIZE, "seconds": float(np.median(seconds["ours"])), "share_of_bare_forward": ratio}


def memory():
    """Peak memory of a process that predicts the million rows, JAX and the rows included."""
    code = (
        "import resource, prediction, numpy as np, tunbridge as tb; "
        "posterior = prediction.fitted(tb.Ensemble(tb.MAP(train=tb.Train(50)), prediction.SIZE)); "
        "predictive = posterior.predict(prediction.rows(prediction.ROWS)); "
        "np.asarray(predictive.mean), np.asarray(predictive.std); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=__file__.rpartition("/")[0] or ".", capture_output=True, text=True, check=True
    )
    return int(run.stdout) / 2**20


def cost_of_methods(num=1000, repeats=20):
    """Milliseconds for a thousand rows, passes, and size of the posterior, for every method with its defaults."""
    x, found = rows(num), []
    tiny = tb.MAP(train=tb.Train(50))
    methods = {
        "map": tiny,
        "ensemble": tb.Ensemble(tiny, 5),
        "mcdropout": tb.MCDropout(train=tb.Train(50)),
        "swag": tb.SWAG(point=tiny, steps=100),
    }
    for name, method in methods.items():
        posterior = fitted(method)
        for passes in (None, 10, 1000) if name in ("mcdropout", "swag") else (None,):
            seconds = []
            for _ in range(repeats + 1):
                began = time.perf_counter()
                predictive = posterior.predict(x, num=passes)
                np.asarray(predictive.std)
                seconds.append(time.perf_counter() - began)
            leaves = jax.tree.leaves(posterior.components(posterior.key, passes))
            size = sum(leaf.nbytes for leaf in leaves) / 2**20
            row = {"method": name, "passes": int(leaves[0].shape[0])}
            found.append({**row, "ms": 1e3 * float(np.median(seconds[1:])), "megabytes": size})
    return found


def help_seconds(repeats=5):
    """Seconds of `tunbridge --help`, from the start of the process to its end."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "tunbridge", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


if __name__ == "__main__":
    figures = {"million": a_million_rows(), "gigabytes": memory(), "methods": cost_of_methods()}
    record("prediction", {**figures, "help_seconds": help_seconds()})
