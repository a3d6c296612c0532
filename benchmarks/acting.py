"""Labels that active learning needs, by rule and by posterior; regret of bandits, by policy.

    [TUNBRIDGE_DATA=FOLDER] python benchmarks/acting.py [PART ...] [--seeds 5]    (--help names the parts)
    -> benchmarks/results/acting.json, one row at a time

`digits` takes the 1,797 small images that come with the package, `mnist` needs mnist.npz in FOLDER. Each run starts
with 20 labels drawn at random and is scored on rows that are never labelled. `mushroom` needs mushroom.csv in FOLDER:
50,000 mushrooms, to eat or not, with rewards in tens. A run that is stopped goes on from build/acting.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from real_sets import mushrooms
from record import put, recorded

import tunbridge as tb

FOLDER = Path(os.environ.get("TUNBRIDGE_DATA", "."))
NOTES = Path("build/acting")
RULES = {
    "random": tb.acquisition.Random(),
    "entropy": tb.acquisition.Entropy(),
    "variation ratios": tb.acquisition.VariationRatios(),
    "BALD": tb.acquisition.BALD(),
    "BatchBALD": tb.acquisition.BatchBALD(candidates=300),
    "core set": tb.acquisition.CoreSet(),
}
METHODS = {
    "dropout": tb.MCDropout(train=tb.Train(500)),
    "ensemble": tb.Ensemble(tb.MAP(train=tb.Train(500)), 5),
    "last-layer Laplace": tb.Laplace(point=tb.MAP(train=tb.Train(500)), subset=tb.subsets.LastLayer()),
}


def model(hidden):
    """A network under a standard normal prior: under fan-in scaling the mode of 20 rows has all weights at 0."""
    return tb.Model(tb.networks.MLP((hidden,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Categorical(10))


def digits():
    """Rows (pool, test) of the bundled digits, pixels scaled to at most 1."""
    data = tb.datasets.digits()
    x, y = np.asarray(data.x) / 16.0, np.asarray(data.y)
    order = np.random.default_rng(0).permutation(len(y))
    return (x[order[:1200]], y[order[:1200]]), (x[order[1200:]], y[order[1200:]])


def mnist(pool=6000, tested=2000):
    """Some rows (pool, test) of MNIST, flat."""
    with np.load(FOLDER / "mnist.npz") as file:
        parts = [(file[f"x_{part}"].reshape(-1, 784) / 255.0, file[f"y_{part}"]) for part in ("train", "test")]
    (x, y), (x_test, y_test) = parts
    some = np.random.default_rng(0).permutation(len(y))[:pool]
    return (x[some].astype(np.float32), y[some].astype(int)), (
        x_test[:tested].astype(np.float32),
        y_test[:tested].astype(int),
    )


def curves(part, load, hidden, most, batch, seeds, methods):
    (x, y), test = load()
    for name in methods:
        for rule, acquisition in RULES.items():
            row = f"{name}, {rule}"
            done = recorded("acting").get(part, {}).get(row, {"runs": []})["runs"]
            for seed in range(len(done), seeds):
                began = time.process_time()
                found = tb.acquisition.learn(
                    model(hidden),
                    METHODS[name],
                    x,
                    y,
                    acquisition,
                    test=test,
                    most=most,
                    batch=batch,
                    key=jax.random.key(seed),
                    folder=NOTES / part / row.replace(" ", "-") / str(seed),
                )
                seconds = time.process_time() - began
                labels = {score: found.labels_to(score) for score in (0.8, 0.85, 0.9, 0.95)}
                print(part, row, seed, labels, f"{seconds:.0f} s", flush=True)
                done.append(
                    {
                        "labels": [line["labels"] for line in found.rows],
                        "accuracy": [line["accuracy"] for line in found.rows],
                        "NLL": [line["NLL"] for line in found.rows],
                        "labels to": {str(score): num for score, num in labels.items()},
                        "seconds": seconds,
                    }
                )
                put("acting", part, row, {"runs": done}, "acting.py")


# Bandits

SHOWN = 500
"""Steps between the points of a curve of regret."""


def players():
    """Agents by name: two models of the reward, and how each is used."""
    neural = tb.NeuralLinear(tb.MAP(train=tb.Train(500, batch_size=256)))
    deep = tb.Model(tb.networks.MLP((100,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    line = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))
    use = tb.bandits
    policies = {
        "Thompson": use.Thompson(),
        "UCB": use.UCB(1.0),
        "greedy": use.Greedy(),
        "1 % at random": use.EpsilonGreedy(0.01),
        "5 % at random": use.EpsilonGreedy(0.05),
    }
    found = {f"neural linear, {name}": use.Agent(neural, deep, policy) for name, policy in policies.items()}
    exact = tb.NeuralLinear(tb.MAP(train=tb.Train(1)))
    return found | {"linear, Thompson": use.Agent(exact, line, use.Thompson())}


def mushroom(seeds, steps=50_000):
    x, y = mushrooms()
    whole = tb.bandits.mushrooms(x, y == 0)
    arena = tb.bandits.Environment(whole.contexts, whole.values / 10.0, whole.chances)
    for name, agent in players().items():
        done = recorded("acting").get("mushroom", {}).get(name, {"runs": []})["runs"]
        for seed in range(len(done), seeds):
            played = tb.bandits.play(agent, arena, steps, key=jax.random.key(seed))
            regret = 10.0 * played.cumulative
            print("mushroom", name, seed, round(regret[-1]), f"{played.seconds:.0f} s, {played.fits} fits", flush=True)
            done.append(
                {
                    "regret": regret[SHOWN - 1 :: SHOWN].round(1).tolist(),
                    "simple": 10.0 * played.simple,
                    "seconds": played.seconds,
                    "fits": played.fits,
                }
            )
            put("acting", "mushroom", name, {"runs": done}, "acting.py")


PARTS = {
    "digits": lambda seeds: curves("digits", digits, 100, 200, 10, seeds, METHODS),
    "mnist": lambda seeds: curves("mnist", mnist, 100, 220, 10, seeds, ["dropout"]),
    "mushroom": mushroom,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each rule")
    warnings.simplefilter("ignore", tb.ConvergenceWarning)
    arguments = parser.parse_args()
    for part in arguments.parts:
        PARTS[part](arguments.seeds)
