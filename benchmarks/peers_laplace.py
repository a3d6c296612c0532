"""laplace-torch: its results on small problems, and its times. Runs in a separate environment, without tunbridge.

python benchmarks/peers_laplace.py reference tests/inference/laplace/laplace_torch.json
python benchmarks/peers_laplace.py speed OUT.json --arrays ARRAYS.npz   the arrays are written for the other half

The environment: torch 2.13.0, laplace-torch 0.3 (which brings curvlinops and BackPACK), numpy.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import laplace_by_hand as by_hand
import numpy as np
import torch
from laplace import Laplace
from laplace.curvature import BackPackGGN, CurvlinopsGGN
from torch.utils.data import DataLoader, TensorDataset

STRUCTURES = ("full", "kron", "diag")
SUBSETS = ("all", "last_layer")
BACKENDS = {"curvlinops": CurvlinopsGGN, "backpack": BackPackGGN}
DIAGONAL = {"curvlinops": (100, 5), "backpack": (10_000, 1000)}
"""Points and batch size for the diagonal of 784-256-10: a subset, where all points would take minutes."""
CONVENTIONS = {
    "weights": "per layer [W, b], W is (inputs, outputs): outputs = tanh(x W1 + b1) W2 + b2; factors below likewise",
    "log_evidence": "log p(y | w) + log p(w) + d/2 log 2 pi - 1/2 log det P at the weights given, all constants in it; "
    "w and d are the weights of the subset, so with last_layer the prior of the first layer is not in it",
    "precision": "P = H / sigma^2 + precision I, H the GGN summed over the data; sigma = 1 for classes",
    "kron": "weights B (x) A in rows of W', bias B, A = sum_n a a' / N, B = sum_n G' L G; L = I or diag(p) - p p', "
    "G the outputs by what the layer adds up; P in the eigenbasis of A and B, so exact for one precision",
    "covariance": "J P^-1 J' of the outputs of the linearised network, without the noise: (points, k, k)",
    "probit": "softmax(f / sqrt(1 + pi/8 diag covariance))",
    "bridge": "conditioned on a sum of zero, then alpha = (1 - 2/K + exp(f) / K^2 sum exp(-f)) / var, normalised",
    "bridge_norm": "the same after f and var are divided by sqrt(c) and c, c = mean(var) / sqrt(K/2)",
    "mc": "mean softmax of 100,000 draws of f",
    "slopes": "derivatives of the log evidence at fixed weights; 'autograd' is theirs, 'by_hand' closed form; they "
    "part for log_sigma with kron, where theirs leaves log det P out (its factors are scaled by a power of a float)",
    "apart": "largest difference of theirs from laplace_by_hand.py, of what is deterministic",
}


def random_weights(rng, sizes):
    """Random weights: per layer W (inputs, outputs) of variance 1 / inputs, and b."""
    return [(rng.normal(size=(i, o)) / np.sqrt(i), 0.3 * rng.normal(size=o)) for i, o in pairwise(sizes)]


def problems():
    """Regression with two outputs and classification with three classes, from a network near the recorded weights."""
    rng = np.random.default_rng(0)
    found = {}
    for kind, num, sizes, sigma in (("regression", 40, (3, 5, 2), 0.3), ("classification", 60, (4, 6, 3), 1.0)):
        x, test = rng.normal(size=(num, sizes[0])), rng.normal(size=(5, sizes[0]))
        weights = [(2 * w, b) for w, b in random_weights(rng, sizes)]
        outputs, _ = by_hand.layers([(w + 0.05 * rng.normal(size=w.shape), b) for w, b in weights], x)
        noise = rng.normal(size=outputs.shape) if kind == "regression" else rng.gumbel(size=outputs.shape)
        y = outputs + sigma * noise
        y = y if kind == "regression" else y.argmax(-1)
        found[kind] = {
            "kind": kind, "sigma": sigma, "precision": 2.0, "weights": weights, "x": x, "y": y, "test": test,
        }  # fmt: skip
    return found


def network(weights, dtype):
    """The same network as a torch module."""
    (first, _), (second, _) = weights
    linear = [torch.nn.Linear(*w.shape, dtype=dtype) for w in (first, second)]
    with torch.no_grad():
        for layer, (w, b) in zip(linear, weights, strict=True):
            layer.weight.copy_(torch.as_tensor(w.T))
            layer.bias.copy_(torch.as_tensor(b))
    return torch.nn.Sequential(linear[0], torch.nn.Tanh(), linear[1])


def loader(x, y, dtype, batch=None):
    """Loader of the rows in order; all at once unless a batch size is given."""
    x, y = torch.as_tensor(x, dtype=dtype), torch.as_tensor(y)
    return DataLoader(TensorDataset(x, y.to(dtype) if y.is_floating_point() else y), batch_size=batch or len(x))


def slopes_of(fitted, problem):
    """Derivatives of the log evidence by laplace-torch, as computed in its tuning."""
    logs = [torch.tensor([problem["precision"]]).log().requires_grad_()]
    if problem["kind"] == "regression":
        logs.append(torch.tensor([problem["sigma"]]).log().requires_grad_())
    fitted.log_marginal_likelihood(*(log.exp() for log in logs)).backward()
    found = {name: float(log.grad) for name, log in zip(("log_precision", "log_sigma"), logs, strict=False)}
    fitted.prior_precision = problem["precision"]
    fitted.sigma_noise = problem["sigma"]
    return found


def one(problem, structure, subset):
    """Results of laplace-torch for one structure and subset, and their differences from numpy."""
    fitted = Laplace(
        network(problem["weights"], torch.float64),
        problem["kind"],
        subset_of_weights=subset,
        hessian_structure=structure,
        prior_precision=problem["precision"],
        backend=CurvlinopsGGN,
        **({"sigma_noise": problem["sigma"]} if problem["kind"] == "regression" else {}),
    )
    fitted.fit(loader(problem["x"], problem["y"], torch.float64))
    test = torch.as_tensor(problem["test"])
    evidence, slopes, outputs, covariance = by_hand.laplace(problem, structure, subset)
    f, spread = (t.numpy() for t in fitted._glm_predictive_distribution(test))
    numbers = {"log_evidence": float(fitted.log_marginal_likelihood()), "covariance": spread}
    pairs = [(numbers["log_evidence"], evidence), (spread, covariance), (f, outputs)]
    if problem["kind"] == "classification":
        for link in ("probit", "bridge", "bridge_norm"):
            numbers[link] = fitted(test, pred_type="glm", link_approx=link).numpy()
        torch.manual_seed(0)
        numbers["mc"] = fitted(test, pred_type="glm", link_approx="mc", n_samples=100_000).numpy().round(6)
        pairs.append((numbers["probit"], by_hand.probit(outputs, covariance)))
        pairs.append((numbers["bridge"], by_hand.bridge(outputs, covariance)))
        pairs.append((numbers["bridge_norm"], by_hand.bridge(outputs, covariance, normed=True)))
    numbers["apart"] = float(max(np.abs(ours - theirs).max() for ours, theirs in pairs))
    numbers["slopes"] = {"autograd": slopes_of(fitted, problem), "by_hand": slopes}
    return numbers


def plain(value):
    """Arrays as lists, for JSON."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def versions():
    names = ("torch", "laplace-torch", "curvlinops-for-pytorch", "backpack-for-pytorch", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def reference(path):
    """Every structure and subset on both problems."""
    torch.set_default_dtype(torch.float64)
    found = {"versions": versions(), "backend": "CurvlinopsGGN", "conventions": CONVENTIONS, "problems": {}}
    for kind, problem in problems().items():
        outputs, parts = by_hand.layers(problem["weights"], problem["x"])
        factors = by_hand.factors(parts, by_hand.output_curvature(kind, outputs))
        fits = {subset: {name: one(problem, name, subset) for name in STRUCTURES} for subset in SUBSETS}
        found["problems"][kind] = {**problem, "factors": [{"A": a, "B": b} for a, b in factors], "fits": fits}
        for subset, by_structure in fits.items():
            for name, numbers in by_structure.items():
                print(kind, subset, name, numbers["log_evidence"], numbers["apart"], numbers["slopes"])
    path.write_text(json.dumps(plain(found), separators=(",", ":")) + "\n")


def timed(times, work):
    """Median seconds over repeated calls."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def peak(work):
    """The return value of `work`, and the peak MiB of the process during it (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    found = work()
    lines = Path("/proc/self/status").read_text().splitlines()
    return found, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def arrays(path):
    """Problems to time: 784-256-10 with 10,000 points and 13-50-1 with 500, float32."""
    rng = np.random.default_rng(1)
    found = {"large_x": rng.normal(size=(10_000, 784)), "large_y": rng.integers(0, 10, size=10_000)}
    found["small_x"] = rng.normal(size=(500, 13))
    found["small_y"] = np.sin(found["small_x"][:, :1]) + 0.3 * rng.normal(size=(500, 1))
    for name, sizes in (("large", (784, 256, 10)), ("small", (13, 50, 1))):
        for i, (w, b) in enumerate(random_weights(rng, sizes)):
            found[f"{name}_w{i}"], found[f"{name}_b{i}"] = w, b
    found = {name: value.astype(np.float32) if value.dtype == float else value for name, value in found.items()}
    if path:
        np.savez(path, **found)
    return found


def fitting(held, name, structure, subset, backend, rows=None, batch=None):
    """A function that fits, and a list of what it fitted."""
    model = network([(held[f"{name}_w{i}"], held[f"{name}_b{i}"]) for i in (0, 1)], torch.float32)
    data = loader(held[f"{name}_x"][:rows], held[f"{name}_y"][:rows], torch.float32, batch)
    kind = "classification" if name == "large" else "regression"
    kept = []

    def fit():
        made = Laplace(model, kind, subset_of_weights=subset, hessian_structure=structure, backend=BACKENDS[backend])
        made.fit(data)
        kept[:] = [made]

    return fit, kept


def large(held, backend, batch):
    """Times for 784-256-10 tanh with 10,000 points."""
    _, before = peak(lambda: None)
    last, _ = fitting(held, "large", "kron", "last_layer", backend, batch=batch)
    every, kept = fitting(held, "large", "kron", "all", backend, batch=batch)
    rows, size = DIAGONAL[backend]
    diagonal, _ = fitting(held, "large", "diag", "all", backend, rows=rows, batch=size)
    x = torch.as_tensor(held["large_x"][:20])
    steps = {
        "fit kron last_layer": (last, 1),
        "fit kron all": (every, 1),
        "predict kron all, a point of 20": (lambda: kept[0](x, pred_type="glm", link_approx="probit"), 1 / 20),
        f"fit diag all, from {rows} points in batches of {size}": (diagonal, len(held["large_x"]) / rows),
    }
    found = {"held before MiB": before}
    for name, (work, scale) in steps.items():
        seconds, most = peak(lambda work=work: timed(3, work))
        found[name] = {"s": scale * seconds, "peak MiB": most}
    return found


def tune(fitted):
    """100 steps of Adam on log precision and log sigma, as in its regression example."""
    logs = [torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)]
    optimiser = torch.optim.Adam(logs, lr=1e-1)
    for _ in range(100):
        optimiser.zero_grad()
        loss = -fitted.log_marginal_likelihood(*(log.exp() for log in logs))
        loss.backward()
        optimiser.step()
    return [float(log.exp()) for log in logs]


def small(held, backend):
    """Times for 13-50-1 tanh with 500 points in one batch."""
    found = {}
    x = torch.as_tensor(held["small_x"])
    for structure, subset in ((name, subset) for subset in SUBSETS for name in STRUCTURES):
        fit, kept = fitting(held, "small", structure, subset, backend)
        row = {"fit ms": 1000 * timed(5, fit)}
        row["predict glm 500 points ms"] = 1000 * timed(5, lambda kept=kept: kept[0](x, pred_type="glm"))
        if subset == "all":
            began = time.perf_counter()
            row["tuned precision, sigma"] = tune(kept[0])
            row["tune 100 steps s"] = time.perf_counter() - began
            row["log evidence tuned"] = float(kept[0].log_marginal_likelihood())
        found[f"{structure} {subset}"] = row
    return found


def case(threads, backend, batch):
    """Times with one number of threads and one backend, in a process of its own."""
    torch.set_num_threads(threads)
    held = arrays(None)
    load = os.getloadavg()[0]
    return {"load before": load, "784-256-10": large(held, backend, batch), "13-50-1": small(held, backend)}


def speed(path, batch, threads):
    """Times of both networks and backends, for several numbers of threads."""
    found = {"versions": versions(), "machine": platform.machine(), "dtype": "float32", "batch": batch}
    for num in threads:
        os.environ["OMP_NUM_THREADS"] = str(num)  # some of its loops ignore set_num_threads
        for backend in BACKENDS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[f"{backend}, threads {num}"] = pool.submit(case, num, backend, batch).result()
    text = json.dumps(found, indent=1)
    print(text)
    if path:
        path.write_text(text + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reference").add_argument("path", type=Path)
    times = commands.add_parser("speed")
    times.add_argument("path", type=Path, nargs="?")
    times.add_argument("--arrays", type=Path)
    times.add_argument("--batch", type=int, default=1000)
    times.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    if given.command == "reference":
        reference(given.path)
    else:
        if given.arrays:
            arrays(given.arrays)
        speed(given.path, given.batch, given.threads)
