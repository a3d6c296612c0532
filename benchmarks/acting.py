"""Labels that active learning needs, by rule and by posterior; regret of bandits, by policy and by method.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/acting.py [PART ...] [--seeds 5] [--jobs 1] [--rows WORDS]
    -> benchmarks/results/acting.json, one run at a time     (--help names the parts)

`digits` takes the 1,797 small images that come with the package; `mnist` and `repeated` need mnist.npz in FOLDER, and
take an hour of a GPU. Each run starts with 20 labels drawn at random, and is scored on rows that are never labelled.
`mushroom` needs mushroom.csv in FOLDER: 50,000 mushrooms, to eat or not, with rewards in tens. `mnist_bandit`: 4,096
guesses of a digit. `speed` measures here what must be fast. Runs that are recorded are not repeated; an interrupted
run goes on from build/acting. `--jobs` runs so many processes at once, each on its own core.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import jax
import numpy as np
from real_sets import mushrooms
from record import append, put, recorded

import tunbridge as tb
from tunbridge.model.networks.architectures import convolution

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
NOTES = Path("build/acting")


# Active learning

RULES = {
    "random": tb.acquisition.Random(),
    "entropy": tb.acquisition.Entropy(),
    "variation ratios": tb.acquisition.VariationRatios(),
    "BALD": tb.acquisition.BALD(),
    "BatchBALD": tb.acquisition.BatchBALD(candidates=200),
    "core set": tb.acquisition.CoreSet(),
}
SMALL = tb.Train(500)
METHODS = {
    "dropout": tb.MCDropout(train=SMALL),
    "ensemble": tb.Ensemble(tb.MAP(train=SMALL), 5),
    "last-layer Laplace": tb.Laplace(point=tb.MAP(train=SMALL), subset=tb.subsets.LastLayer()),
}
SCORES = (0.8, 0.85, 0.9, 0.95)


class Contest(NamedTuple):
    """What the runs of active learning of one part have in common."""

    load: Callable[[], tuple]
    network: Any
    most: int
    entrants: dict[str, tuple[Any, Any, int]]
    """Method, rule and rows per round, by name."""


def model(network):
    """A network under a standard normal prior: under fan-in scaling the mode of 20 rows has all weights at 0."""
    return tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(10))


def digits():
    """Rows (pool, test) of the bundled digits, pixels scaled to at most 1."""
    data = tb.datasets.digits()
    x, y = np.asarray(data.x) / 16.0, np.asarray(data.y)
    order = np.random.default_rng(0).permutation(len(y))
    return (x[order[:1200]], y[order[:1200]]), (x[order[1200:]], y[order[1200:]])


@cache
def mnist():
    """Images of MNIST: a pool of 10,000 of the training images, and all test images."""
    with np.load(FOLDER / "mnist.npz") as file:
        pool, test = (
            ((file[f"x_{part}"][..., None] / 255.0).astype(np.float32), file[f"y_{part}"].astype(int))
            for part in ("train", "test")
        )
    some = np.random.default_rng(0).permutation(len(pool[1]))[:10_000]
    return (pool[0][some], pool[1][some]), test


def repeated():
    """A third of MNIST's pool three times, with a little noise: most batches of high scores are copies."""
    (x, y), test = mnist()
    rng = np.random.default_rng(0)
    some = np.tile(rng.permutation(len(y))[: len(y) // 3], 3)
    return ((x[some] + 0.1 * rng.normal(size=x[some].shape)).astype(np.float32), y[some]), test


def convolutional():
    """The network of BatchBALD's runs: 32 and 64 filters of 5 x 5 pixels, each with 2 x 2 maxima, then 128 units."""

    def draw(key, x):
        shapes = {
            "filters": [convolution.layer(5, 5, x.shape[-1], 32), convolution.layer(5, 5, 32, 64)],
            "layers": [convolution.layer(1024, 128), convolution.layer(128, 10)],
        }
        return convolution.drawn(key, shapes, convolution.layout(shapes), gain=2.0)

    def outputs(weights, x):
        z = x
        for filters in weights["filters"]:
            z = jax.nn.relu(convolution.max_pool(convolution.convolve(filters, z, padding="VALID"), 2))
        hidden, last = weights["layers"]
        z = jax.nn.relu(convolution.dense(hidden, z.reshape(len(z), -1)))
        return convolution.dense(last, z)

    shapes = jax.eval_shape(draw, jax.random.key(0), jax.ShapeDtypeStruct((1, 28, 28, 1), np.float32))
    return tb.networks.from_functions(draw, outputs, convolution.layout(shapes))


STEPS = tb.Train(1000, batch_size=64)
DEEP = {
    "dropout": tb.MCDropout(rate=0.5, train=STEPS),
    "ensemble": tb.Ensemble(tb.MAP(train=STEPS), 5),
    "last-layer Laplace": tb.Laplace(point=tb.MAP(train=STEPS), subset=tb.subsets.LastLayer()),
}
BATCHES = [("random", 10), ("BALD", 10), ("BatchBALD", 10)]
CONTESTS = {
    "digits": Contest(
        digits,
        tb.networks.MLP((100,), "relu"),
        200,
        {f"{name}, {rule}": (METHODS[name], RULES[rule], 10) for name in METHODS for rule in RULES},
    ),
    "mnist": Contest(
        mnist,
        convolutional(),
        260,
        {f"dropout, {rule}, {size}s": (DEEP["dropout"], RULES[rule], size) for rule, size in BATCHES}
        | {f"{name}, BatchBALD, 10s": (DEEP[name], RULES["BatchBALD"], 10) for name in DEEP},
    ),
    "repeated": Contest(
        repeated,
        convolutional(),
        260,
        {f"dropout, {rule}, 10s": (DEEP["dropout"], RULES[rule], 10) for rule in ("random", "BALD", "BatchBALD")},
    ),
}


def learned(part: str, name: str, seed: int) -> dict[str, Any]:
    contest = CONTESTS[part]
    method, rule, batch = contest.entrants[name]
    (x, y), test = contest.load()
    began = time.perf_counter()
    found = tb.acquisition.learn(
        model(contest.network),
        method,
        x,
        y,
        rule,
        test=test,
        most=contest.most,
        batch=batch,
        key=jax.random.key(seed),
        folder=NOTES / part / name.replace(" ", "-").replace(",", "") / str(seed),
    )
    return {
        "labels": [line["labels"] for line in found.rows],
        "accuracy": [line["accuracy"] for line in found.rows],
        "NLL": [line["NLL"] for line in found.rows],
        "labels to": {str(score): found.labels_to(score) for score in SCORES},
        "seconds": time.perf_counter() - began,
    }


# Bandits

SHOWN = 100
"""Points of a curve of regret."""
USE = tb.bandits
FIT = tb.MAP(train=tb.Train(500, batch_size=256))
POLICIES = {
    "Thompson": USE.Thompson(),
    "UCB": USE.UCB(1.0),
    "greedy": USE.Greedy(),
    "1 % at random": USE.EpsilonGreedy(0.01),
    "5 % at random": USE.EpsilonGreedy(0.05),
}


class Tournament(NamedTuple):
    """What the runs of one bandit have in common."""

    load: Callable[[], Any]
    steps: int
    unit: float
    """Reward in the units of the problem per unit of the model's."""
    agents: dict[str, Any]


@cache
def eaten():
    x, y = mushrooms()
    whole = USE.mushrooms(x, y == 0)
    return USE.Environment(whole.contexts, whole.values / 10.0, whole.chances)


@cache
def guessed():
    (x, y), _ = mnist()
    return USE.labelled(x.reshape(len(x), -1), y)


def reward(network, scale, noise):
    return tb.Model(network, tb.priors.Normal(scale), tb.likelihoods.Gaussian(noise))


def eaters():
    """Agents by name: those of :cite:t:`blundell2015weight`, and other methods with Thompson sampling."""
    deep, line = reward(tb.networks.MLP((100, 100), "relu"), 0.3, 0.2), reward(USE.PerArm(2, ()), 1.0, 1.0)
    neural = tb.NeuralLinear(FIT)
    methods = {
        "Bayes by Backprop": tb.MeanField(train=tb.Train(1000, batch_size=256), point=FIT),
        "last-layer Laplace": tb.Laplace(point=FIT, subset=tb.subsets.LastLayer()),
        "ensemble": tb.Ensemble(FIT, 10),
        "dropout": tb.MCDropout(train=tb.Train(500, batch_size=256)),
        "SGHMC": tb.SGHMC(run=tb.Run(chains=2, warmup=500, draws=20, thin=25, batch_size=256)),
    }
    agents = {f"{name}, Thompson": USE.Agent(method, deep) for name, method in methods.items()}
    agents |= {f"network, {name}": USE.Agent(FIT, deep, POLICIES[name]) for name in list(POLICIES)[2:]}
    agents |= {f"neural linear, {name}": USE.Agent(neural, deep, POLICIES[name]) for name in list(POLICIES)[:3]}
    return agents | {"linear, Thompson": USE.Agent(tb.NeuralLinear(tb.MAP(train=tb.Train(1))), line)}


def guessers():
    """Agents of three layers of 128 units, as in the public run of NeuralTS and others, with an output per arm."""
    deep, line = reward(USE.PerArm(10, (128, 128, 128)), 1.0, 0.1), reward(USE.PerArm(10, ()), 1.0, 0.3)
    point = tb.MAP(train=tb.Train(1000, batch_size=128))
    return {
        "neural linear, Thompson": USE.Agent(tb.NeuralLinear(point), deep, growth=1.1),
        "neural linear, UCB": USE.Agent(tb.NeuralLinear(point), deep, USE.UCB(1.0), growth=1.1),
        "ensemble, Thompson": USE.Agent(tb.Ensemble(point, 5), deep, growth=1.1),
        "network, greedy": USE.Agent(point, deep, USE.Greedy(), growth=1.1),
        "linear, Thompson": USE.Agent(tb.NeuralLinear(tb.MAP(train=tb.Train(1))), line, growth=1.1),
    }


TOURNAMENTS = {
    "mushroom": Tournament(eaten, 50_000, 10.0, eaters()),
    "mnist_bandit": Tournament(guessed, 4096, 1.0, guessers()),
}


def played(part: str, name: str, seed: int) -> dict[str, Any]:
    contest = TOURNAMENTS[part]
    folder = NOTES / part / name.replace(" ", "-").replace(",", "") / str(seed)
    found = USE.play(contest.agents[name], contest.load(), contest.steps, key=jax.random.key(seed), folder=folder)
    regret = contest.unit * found.cumulative
    ends = np.linspace(0, contest.steps, SHOWN + 1).round().astype(int)[1:]
    return {
        "steps": ends.tolist(),
        "regret": regret[ends - 1].round(1).tolist(),
        "simple": contest.unit * found.simple,
        "seconds": found.seconds,
        "fits": found.fits,
    }


# Speed


def speed():
    """Seconds here of 50,000 mushrooms with an exact last layer, and of scoring 60,000 images beside forward passes."""
    name = "neural linear, Thompson"
    for row in ("with compilation", "compiled before"):
        wall, processor = time.perf_counter(), time.process_time()
        USE.play(TOURNAMENTS["mushroom"].agents[name], eaten(), 50_000, key=jax.random.key(0))
        put_speed(f"50,000 mushrooms, {name}, {row}", wall, processor)
    with np.load(FOLDER / "mnist.npz") as file:
        x, y = (file["x_train"].reshape(-1, 784) / 255.0).astype(np.float32), file["y_train"].astype(int)
    posterior = METHODS["dropout"].fit(
        model(tb.networks.MLP((100,), "relu")), (x[:200], y[:200]), key=jax.random.key(0), progress=False
    )
    params = posterior.sample(jax.random.key(1), 100)

    @jax.jit
    def passes(params, rows):
        return jax.nn.softmax(jax.vmap(lambda p: posterior.model.outputs(p, rows))(params))

    def forward():
        for rows in np.split(x, 30):
            np.asarray(passes(params, rows))

    ways = {"forward passes": forward, "BALD": lambda: tb.acquisition.BALD().scores(posterior.predict(x))}
    for warm in (False, True):
        for way, call in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            call()
            if warm:
                put_speed(f"60,000 images, 100 draws, {way}", wall, processor)


def put_speed(row: str, wall: float, processor: float) -> None:
    found = {"seconds": time.perf_counter() - wall, "CPU seconds": time.process_time() - processor}
    print(row, found, flush=True)
    put("acting", "speed", row, found, "acting.py")


# Runs

RUNS = {part: (learned, list(contest.entrants)) for part, contest in CONTESTS.items()}
RUNS |= {part: (played, list(contest.agents)) for part, contest in TOURNAMENTS.items()}


def missing(part: str, seeds: int, words: str) -> Iterator[tuple[str, int]]:
    """Names and seeds of the runs that are not recorded, all names of one seed after another."""
    rows = recorded("acting").get(part, {})
    for seed in range(seeds):
        for name in RUNS[part][1]:
            known = {run["seed"] for run in rows.get(name, {"runs": []})["runs"]}
            if words in name and seed not in known:
                yield name, seed


def once(part: str, name: str, seed: int) -> None:
    found = {"seed": seed, **RUNS[part][0](part, name, seed)}
    append("acting", part, name, found, "acting.py")
    told = found["labels to"] if "labels to" in found else round(found["regret"][-1])
    print(part, name, seed, told, f"{found['seconds']:.0f} s", flush=True)


def spread(part: str, runs: list[tuple[str, int]], jobs: int) -> None:
    """Each run in a process of its own, on one core."""
    free: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[:jobs]:
        free.put(core)

    def process(run: tuple[str, int]) -> None:
        core = free.get()
        words = ["taskset", "-c", str(core), sys.executable, __file__, part, "--once", run[0], str(run[1])]
        if subprocess.run(words).returncode:
            print("failed:", part, *run, flush=True)
        free.put(core)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(process, runs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*RUNS, "speed"], help=f"of {', '.join(RUNS)}, speed")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--rows", default="", help="only rows with these words in their name")
    parser.add_argument("--once", nargs=2, metavar=("NAME", "SEED"), help="one run")
    warnings.simplefilter("ignore", tb.ConvergenceWarning)
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part == "speed":
            speed()
        elif arguments.once:
            once(part, arguments.once[0], int(arguments.once[1]))
        elif arguments.jobs > 1:
            spread(part, list(missing(part, arguments.seeds, arguments.rows)), arguments.jobs)
        else:
            for name, seed in missing(part, arguments.seeds, arguments.rows):
                once(part, name, seed)
