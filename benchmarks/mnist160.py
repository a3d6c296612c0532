"""160 digits and a network 784-256-256-10, prior N(0, 1): chains, an ensemble and MAP compared, on a GPU or a CPU.

python benchmarks/mnist160.py mnist.npz [--sampler mclmc|hmc] [--chains 8] [--warmup N] [--draws N] [--thin N]
    [--out FOLDER] [--tiny]

mnist.npz has x_train (rows, 28, 28) of 0 to 255, y_train, x_test, y_test. The data is the first 16 images of each
class, pixels / 255. Writes FOLDER/mnist160.json, with histograms of R-hat of functions and weights, accuracy, and
agreement and total variation between chains and of other methods with them; and FOLDER/mnist160.npz, with the
probabilities that each chain gives the test images. --tiny is a trial with 20 images, a network 784-8-8-10 and a few
steps.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import tunbridge as tb

EACH, CLASSES, TEST, JUDGED, WEIGHTS = 16, 10, 2000, 100, 500
"""Training images per class, classes, test images, and the numbers of test images and weights used for R-hat."""
EDGES = [1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0]


def digits(path: str, each: int, test: int) -> tuple[tb.Data, np.ndarray, np.ndarray]:
    file = np.load(path)
    rows = np.concatenate([np.flatnonzero(file["y_train"] == digit)[:each] for digit in range(CLASSES)])
    x, x_test = (
        pixels.reshape(len(pixels), -1) / np.float32(255) for pixels in (file["x_train"][rows], file["x_test"])
    )
    return tb.Data(x, file["y_train"][rows].astype(np.int32)), x_test[:test], file["y_test"][:test].astype(np.int32)


def sampler(name: str, run: tb.Run) -> tb.MCLMC | tb.HMC:
    return tb.MCLMC(run=run) if name == "mclmc" else tb.HMC(length=1.5, max_steps=50_000, run=run)


def spread(values: np.ndarray) -> dict:
    """R-hat and ESS of values (chains, draws, quantities)."""
    rhat, ess = tb.diagnostics.rhat(values).ravel(), tb.diagnostics.ess_bulk(values).ravel()
    known = rhat[np.isfinite(rhat)]
    return {
        "rhat_histogram": np.histogram(np.clip(known, EDGES[0], EDGES[-1]), EDGES)[0].tolist(),
        "rhat_median": float(np.median(known)),
        "rhat_99": float(np.quantile(known, 0.99)),
        "share_below_1.01": float(np.mean(known < 1.01)),
        "ess_median": float(np.nanmedian(ess)),
    }


def mixing(chains: tb.Chains, functions: np.ndarray) -> dict:
    leaves = [np.asarray(leaf).reshape(*chains.shape, -1) for leaf in jax.tree.leaves(chains.params)]
    flat = np.concatenate(leaves, axis=-1)
    weights = flat[..., np.linspace(0, flat.shape[-1] - 1, WEIGHTS).round().astype(int)]
    density = np.asarray(chains.stats["log_density"], np.float64)
    tenths = np.array_split(density, min(10, density.shape[1]), axis=1)
    return {
        "functions": spread(functions[:, :, :JUDGED].reshape(*functions.shape[:2], -1)),
        "weights": spread(weights),
        "log_density_by_tenth": [float(part.mean()) for part in tenths],
        "notes": chains.notes,
    }


def scores(probs: np.ndarray, labels: np.ndarray) -> dict:
    picked = np.maximum(probs[np.arange(len(labels)), labels], 1e-12)
    return {"accuracy": float(np.mean(probs.argmax(1) == labels)), "NLL": float(-np.mean(np.log(picked)))}


def near(probs: np.ndarray, truth: np.ndarray) -> dict:
    """Agreement and total variation between two arrays of probabilities (images, classes)."""
    same = np.mean(probs.argmax(-1) == truth.argmax(-1))
    return {"agreement": float(same), "total_variation": float(0.5 * np.abs(probs - truth).sum(-1).mean())}


def between(by_chain: np.ndarray) -> dict:
    """Agreement and total variation of each chain with the mean of the others, the best that a method could reach."""
    rest = [np.delete(by_chain, one, axis=0).mean(0) for one in range(len(by_chain))]
    found = [near(probs, other) for probs, other in zip(by_chain, rest, strict=True)]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def main(args: argparse.Namespace) -> None:
    hidden, each, test, steps = ((8, 8), 2, 50, 50) if args.tiny else ((256, 256), EACH, TEST, 3000)
    data, x, labels = digits(args.data, each, test)
    network = tb.networks.MLP(hidden, "relu", outputs=CLASSES)
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(CLASSES))
    run = tb.Run(args.chains, 100, 20, 2) if args.tiny else tb.Run(args.chains, args.warmup, args.draws, args.thin)
    point = tb.MAP(train=tb.Train(steps))
    methods = {args.sampler: sampler(args.sampler, run), "map": point, "ensemble": tb.Ensemble(point, args.chains)}
    found, probs = {}, {}
    for name, method in methods.items():
        began = time.perf_counter()
        posterior = method.fit(model, data, key=jax.random.key(0), progress=True)
        functions = np.asarray(posterior.predict(x).functions)
        probs[name] = functions.mean(axis=0)
        found[name] = {"settings": posterior.provenance.method, **scores(probs[name], labels)}
        if isinstance(posterior, tb.Chains):
            functions = functions.reshape(*posterior.shape, *functions.shape[1:])
            probs["chains"] = functions.mean(axis=1)
            found[name] |= mixing(posterior, functions) | {"between_chains": between(probs["chains"])}
        found[name] |= near(probs[name], probs[args.sampler]) | {"seconds": time.perf_counter() - began}
        print(name, found[name], flush=True)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "tiny": args.tiny, "rhat_edges": EDGES}
    (out / "mnist160.json").write_text(json.dumps({**facts, "methods": found}, indent=1) + "\n")
    np.savez(out / "mnist160.npz", labels=labels, **{name: values.astype(np.float32) for name, values in probs.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="mnist.npz")
    parser.add_argument("--sampler", choices=("mclmc", "hmc"), default="mclmc")
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--thin", type=int, default=200)
    parser.add_argument("--out", default="mnist160")
    parser.add_argument("--tiny", action="store_true")
    main(parser.parse_args())
