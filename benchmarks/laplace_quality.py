"""Laplace on real data: NLL against MAP with the same noise and prior, out-of-distribution detection, latency.

    python benchmarks/laplace_quality.py uci --sets boston yacht --splits 3 --jobs 15
    python benchmarks/laplace_quality.py classes --splits 3 --jobs 15
    python benchmarks/laplace_quality.py latency
    python benchmarks/laplace_quality.py table
    -> benchmarks/results/laplace_quality.json

TUNBRIDGE_DATA names the folder of uci/NAME.npz, mnist.npz and notmnist_test.npz. Each set and split runs in a process
with one thread; fits already in the file are not repeated, so a run that was stopped (--minutes) resumes where it was.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import queue
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import numpy as np
import real_sets
from laplace_summary import gains, gains_table, judged_table, latency_table, summarise, tables
from record import RESULTS, record

import tunbridge as tb
from tunbridge.bench.comparing.compare import CLASSES, NUMBERS

NAME = "laplace_quality"
OUT = RESULTS / f"{NAME}.json"
STRUCTURES = {
    "last layer": {"structure": tb.structures.Full(), "subset": tb.subsets.LastLayer()},
    "last layer kronecker": {"structure": tb.structures.Kronecker(), "subset": tb.subsets.LastLayer()},
    "kronecker": {"structure": tb.structures.Kronecker()},
    "ekfac": {"structure": tb.structures.Kronecker(corrected=True)},
    "diagonal": {"structure": tb.structures.Diagonal()},
    "full": {"structure": tb.structures.Full()},
}
LINKS = {
    "quadrature": tb.links.Quadrature(),
    "probit": tb.links.Probit(),
    "bridge": tb.links.Bridge(),
    "montecarlo": tb.links.MonteCarlo(100),
}
SAMPLED = ("kronecker", "full")
"""Structures whose draws are also put through the network itself."""
CHAINED = ("yacht", "boston", "energy", "concrete")
"""Sets small enough for NUTS."""
GROUPS = ("none", "evidence", "online", "validation", "ensemble", "nuts")
_LEAST_TURNS, _MOST_SECONDS = 5, 30.0
_WORKER: dict[str, Any] = {}


def plan(name: str, task: real_sets.Task, steps: int) -> dict[str, Any]:
    """Methods for a set by label: the method, and after the comma how its hyperparameters are chosen."""
    point = tb.MAP(train=tb.Train(steps, batch_size=task.batch_size))
    structures = {label: kept for label, kept in STRUCTURES.items() if task.full or label != "full"}
    found: dict[str, Any] = {}
    for label, kept in structures.items():
        found[f"{label}, none"] = tb.Laplace(**kept, point=None, tune=None)
    for label, kept in structures.items():
        found[f"{label}, evidence"] = tb.Laplace(**kept, point=point, tune="evidence")
    for tune in ("online", "validation"):
        found[f"kronecker, {tune}"] = tb.Laplace(**STRUCTURES["kronecker"], point=point, tune=tune)
    found["ensemble"] = tb.Ensemble(point, 5)
    if name in CHAINED:
        found["nuts"] = tb.NUTS(max_depth=8, run=tb.Run(chains=4, warmup=500, draws=500))
    return {"map": point, **found}


def group(label: str) -> str:
    return label.rpartition(", ")[2]


def ways(label: str, fitted: tb.Standardised) -> Iterator[tuple[str, tb.Standardised]]:
    """Ways of predicting with one fit, by name; the point estimate that it is centred on comes first."""
    posterior = fitted.posterior
    if not isinstance(posterior, tb.Linearised):
        yield "networks", fitted
        return

    def swapped(other: Any) -> tb.Standardised:
        return dataclasses.replace(fitted, posterior=other)

    gaussian = posterior.gaussian
    yield "point", swapped(tb.Point(posterior.model, posterior.key, gaussian.params))
    if isinstance(posterior.model.likelihood, tb.likelihoods.Gaussian):
        yield "linearised", fitted
    else:
        yield from ((link, swapped(posterior.with_link(made))) for link, made in LINKS.items())
    if label.startswith(SAMPLED):
        yield "sampled", swapped(gaussian)


def scores(predictive: tb.Predictive, y: np.ndarray, of_classes: bool) -> dict[str, float]:
    chosen = ("accuracy", "ECE") if of_classes else ("RMSE", "90 % coverage")
    judges = CLASSES if of_classes else NUMBERS
    rows = y if of_classes else y.reshape(-1, 1)
    return {name: float(judges[name](predictive, rows)) for name in chosen}


def paired(log_p: np.ndarray, base: np.ndarray) -> dict[str, float]:
    """Excess NLL over a baseline, with its standard error over test points."""
    difference = base - log_p
    return {"mean": float(difference.mean()), "se": float(difference.std(ddof=1) / np.sqrt(len(difference)))}


def strangers(predictive: tb.Predictive, strange: tb.Predictive) -> dict[str, float]:
    """AUROC of detecting out-of-distribution inputs by the entropy and by its epistemic part."""
    found = {}
    for what in ("entropy", "epistemic"):
        values = [np.asarray(getattr(one, what)) for one in (predictive, strange)]
        truth = np.repeat([False, True], [len(one) for one in values])
        found[f"AUROC of {what}"] = tb.metrics.auroc(np.concatenate(values), truth)
    return found


def judged(label: str, fitted: tb.Standardised, task: real_sets.Task, of_map: np.ndarray | None) -> dict[str, Any]:
    """Scores of all predictives of one fit, each compared with MAP and with the point that has its noise and prior."""
    (x, y), rows, own = task.test, {}, None
    for way, posterior in ways(label, fitted):
        predictive = posterior.predict(x)
        log_p = np.asarray(predictive.log_prob(y), np.float64)
        own = log_p if way == "point" else own
        row = {"NLL": float(-log_p.mean()), **scores(predictive, y, task.of_classes)}
        if own is not None and way != "point":
            row["over_point"] = paired(log_p, own)
        if of_map is not None:
            row["over_map"] = paired(log_p, of_map)
        if task.strange is not None:
            row |= strangers(predictive, posterior.predict(task.strange))
        rows[way] = row
    return {"rows": rows}


def facts(fitted: tb.Standardised, task: real_sets.Task) -> dict[str, Any]:
    """Further facts about a fit: evidence and Newton decrement, or the largest R-hat."""
    posterior = fitted.posterior
    if isinstance(posterior, tb.Linearised):
        return {"log_evidence": float(posterior.log_evidence), "decrement": float(posterior.decrement)}
    if isinstance(posterior, tb.Chains):
        at = fitted.scaling.inputs(task.test[0][:20])
        return {"rhat_max": float(np.max(tb.diagnostics.rhat(posterior.functions(at))))}
    return {}


def work(name: str, split: int, steps: int, wanted: list[str], until: float) -> None:
    """Run the wanted fits of one split, and put each into the queue when it is done."""
    task, key = real_sets.load(name, split), jax.random.key(split)
    put, size = _WORKER["queue"].put, {"train": len(task.train[0]), "test": len(task.test[0])}
    methods, of_map, init = plan(name, task, steps), None, None
    for label in ["map", *(one for one in methods if one in wanted and one != "map")]:
        if time.time() > until:
            return
        began = time.perf_counter()
        try:
            fitted = task.fit(methods[label], key, **({"init": init} if group(label) == "none" else {}))
            seconds = time.perf_counter() - began
            if label == "map":
                init = fitted.posterior.params
                of_map = np.asarray(fitted.predict(task.test[0]).log_prob(task.test[1]), np.float64)
            if label in wanted:
                found = judged(label, fitted, task, of_map)
                put((name, split, label, size, {**found, **facts(fitted, task), "seconds": seconds}))
        except Exception:
            if label == "map":
                raise
            put((name, split, label, size, {"error": traceback.format_exc(limit=-3)}))


def begin(results: Any, numbers: Any) -> None:
    """Pin a worker to a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[numbers.get() % len(cores)]})
    _WORKER["queue"] = results


def read(steps: int | None = None) -> dict[str, Any]:
    """The recorded figures, or an empty record."""
    figures = json.loads(OUT.read_text()) if OUT.exists() else {"steps": steps, "sets": {}}
    figures.pop("machine", None)
    if steps is not None and figures.setdefault("steps", steps) != steps:
        sys.exit(f"{OUT} holds fits of {figures['steps']} steps: move it away, or pass --steps {figures['steps']}.")
    return figures


def write(figures: dict[str, Any]) -> None:
    figures["summary"] = summarise(figures["sets"])
    figures["strangers"] = gains(figures["summary"])
    record(NAME, figures, f"{NAME}.py {' '.join(sys.argv[1:])}", show=False)


def missing(figures: dict[str, Any], name: str, split: int, options: argparse.Namespace) -> list[str]:
    """Labels of the wanted fits that are missing; failed fits are tried again."""
    there = figures["sets"].get(name, {}).get(str(split), {}).get("fits", {})
    labels = plan(name, real_sets.load(name, split), options.steps)
    wanted = [label for label in labels if group(label) in (*options.only, "map")]
    return [label for label in wanted if "rows" not in there.get(label, {})]


def run(options: argparse.Namespace) -> None:
    """Run every set and split in a pool of processes, and write rows as they arrive."""
    figures, until = read(options.steps), time.time() + 60 * options.minutes
    pairs = [(name, split) for name in reversed(options.sets) for split in range(options.splits)]
    jobs = [(*pair, options.steps, labels, until) for pair in pairs if (labels := missing(figures, *pair, options))]
    os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    context = multiprocessing.get_context("spawn")
    results, numbers = context.Queue(), context.Queue()
    for number in range(options.jobs):
        numbers.put(number)
    with ProcessPoolExecutor(options.jobs, context, begin, (results, numbers)) as pool:
        futures = [pool.submit(work, *job) for job in jobs]
        while not results.empty() or not all(future.done() for future in futures):
            try:
                name, split, label, size, found = results.get(timeout=2.0)
            except queue.Empty:
                continue
            place = figures["sets"].setdefault(name, {}).setdefault(str(split), {**size, "fits": {}})
            place["fits"][label] = found
            print(name, split, label, found.get("error", f"{found.get('seconds', 0):.1f} s"), flush=True)
            write(figures)
    for future in futures:
        future.result()


def milliseconds(calls: dict[str, Any], x: np.ndarray, repeats: int) -> dict[str, float]:
    """Median milliseconds of each call, timed in turn; slow calls get fewer rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    until = time.perf_counter() + _MOST_SECONDS
    for turn in range(repeats):
        if turn >= _LEAST_TURNS and time.perf_counter() > until:
            break
        for name, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call(x))
            seconds[name].append(time.perf_counter() - began)
    return {name: 1e3 * float(np.median(values)) for name, values in seconds.items()}


def latency(options: argparse.Namespace) -> None:
    """Time compiled predictions against the plain forward pass.

    Networks have 100 hidden units, and 2 x 1,000, whose last layer is too large for a full matrix.
    """
    jax.config.update("jax_platforms", "cpu")
    task, key, rows = real_sets.load("mnist", 0), jax.random.key(0), []
    point = tb.MAP(train=tb.Train(options.steps, batch_size=task.batch_size))
    for hidden in ((100,), (1000, 1000)):
        network = tb.networks.MLP(hidden, "relu")
        shown = task._replace(model=dataclasses.replace(task.model, network=network))
        best = shown.fit(point, key).posterior
        posteriors = {"map": best, "ensemble of 5": shown.fit(tb.Ensemble(point, 5), key).posterior}
        for label in ("last layer", "last layer kronecker", "kronecker")[len(hidden) > 1 :]:
            method = tb.Laplace(**STRUCTURES[label], point=None, tune=None)
            found = shown.fit(method, key, init=best.params).posterior
            posteriors[f"{label}, quadrature"] = found
            posteriors[f"{label}, bridge"] = found.with_link(LINKS["bridge"])
        weights, apply = best.model.weights(best.params), jax.jit(best.model.network.apply)
        for num in (1, 100):
            x = jax.numpy.asarray(task.test[0][:num])
            compiled = {name: posterior.compile(x.shape) for name, posterior in posteriors.items()}
            calls = {"forward pass": lambda x, weights=weights, apply=apply: apply(weights, x), **compiled}
            milliseconds(calls, x, _LEAST_TURNS)
            times = milliseconds(calls, x, options.repeats)
            shape = "-".join(str(size) for size in (784, *hidden, 10))
            made = {"network": shape, "rows": num}
            rows += [{**made, "method": m, "ms": ms, "ratio": ms / times["forward pass"]} for m, ms in times.items()]
            print(latency_table(rows[-len(times) :]), flush=True)
        write({**read(), "latency": rows})


def table(_: argparse.Namespace) -> None:
    figures = read()
    summary = figures["summary"]
    parts = [tables(summary), judged_table(summary), gains_table(figures["strangers"])]
    print("\n\n".join([*parts, latency_table(figures.get("latency", []))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, sets in (("uci", real_sets.UCI), ("classes", real_sets.CLASSES)):
        command = commands.add_parser(name)
        command.add_argument("--sets", nargs="+", choices=sets, default=list(sets))
        command.add_argument("--splits", type=int, default=3)
        command.add_argument("--jobs", type=int, default=1)
        command.add_argument("--steps", type=int, default=2000, help="steps per training (default: 2000)")
        command.add_argument("--minutes", type=float, default=1e6, help="start no fit after this many minutes")
        command.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="fits besides MAP")
        command.set_defaults(call=run)
    command = commands.add_parser("latency")
    command.add_argument("--steps", type=int, default=200)
    command.add_argument("--repeats", type=int, default=300)
    command.set_defaults(call=latency)
    commands.add_parser("table").set_defaults(call=table)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
