"""MNIST as in "Weight uncertainty in neural networks" (2015): test errors, pruning, weights of the KL; GPU or CPU.

    TUNBRIDGE_DATA=FOLDER python benchmarks/blundell.py table|prune|kl|tune [--out FILE] [--epochs N] [--units N ...]
        [--rows sgd dropout gaussian mixture] [--seeds N] [--by NAME:STEP ...] [--kl NAME ...] [--rho R ...]
        [--pi P ...] [--sigma1 S ...] [--sigma2 S ...] [--tuned FILE] [--limit N] [--minutes M] [--keep FOLDER]

FOLDER has mnist.npz: the first 50,000 images for training, 10,000 for validation, 10,000 for testing; pixels / 126, two
hidden relu layers, minibatches of 128. A command is a grid: each combination of the values of its flags is fitted once
and written to FILE as soon as it is done; combinations already in FILE are not fitted again. All seeds of a combination
are fitted at once. The paper's figures are printed beside ours. Flags, several values each:

--by       optimiser and step size. Losses are divided by the rows N, so a step size of the paper, whose loss is a
           minibatch's sum, is 128 times as large here: its 1e-3, 1e-4, 1e-5 are sgd:0.128, sgd:0.0128, sgd:0.00128.
           adam averages squared gradients over 100 steps, adam999 over 1,000; momentum is 0.9. --kl       uniform,
           geometric, tempered:FACTOR (cold below 1), or mean: the KL divided by the number of weights. --rho
           initial rho, sigma = log(1 + exp(rho)); "measured" takes sigma from the curvature. --sigma1   x for exp(-x):
           the wide part of the mixture, and the scale of the normal prior. --sigma2: the narrow part.

The test errors of Bayes by Backprop are those of the mean of 10 draws and of the mean weights; the same for dropout,
whose mean network has the weights times (1 - rate). Weights are pruned by |mu| / sigma or |mu|, all layers and biases
together. Decibels are 20 log10 |mu| / sigma.
"""

import argparse
import itertools
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from signal_to_noise import FRACTIONS, pruning, scores, spread

import tunbridge as tb

PIXELS, CLASSES, SCALE, HELD, BATCH = 784, 10, 126, 10_000, 128
DRAWS, FLAT, RATES = 10, 10.0, (0.5, 0.2)
"""Networks averaged; the prior scale of SGD and dropout; the dropout rates of hidden units and pixels."""
PAPER = {
    "sgd": {400: 1.83, 800: 1.84, 1200: 1.88},
    "dropout": {400: 1.51, 800: 1.33, 1200: 1.36},
    "gaussian": {400: 1.82, 800: 1.99, 1200: 2.04},
    "mixture": {400: 1.36, 800: 1.34, 1200: 1.32},
}
PAPER_PRUNED = (1.24, 1.24, 1.24, 1.29, 1.39)
"""The paper's test errors of the mixture with 1200 units after pruning."""
BY = {"sgd": "sgd:0.1", "dropout": "adam:0.001", "gaussian": "adam:0.001", "mixture": "adam:0.001"}
TRIED = {
    "sgd": ("sgd:0.1", "sgd:0.03", "momentum:0.03", "momentum:0.01", "adam:0.001", "adam:0.0003"),
    "dropout": ("momentum:0.1", "momentum:0.03", "adam:0.001", "adam:0.0003"),
    "gaussian": ("adam:0.003", "adam:0.001", "adam:0.0003", "sgd:0.128", "sgd:0.0128"),
    "mixture": ("adam:0.003", "adam:0.001", "adam:0.0003", "sgd:0.128", "sgd:0.0128"),
}
GRIDS: dict[str, dict[str, Any]] = {
    "table": {"units": [400, 800, 1200], "rows": list(PAPER), "epochs": 600},
    "prune": {"units": [1200], "rows": ["mixture", "gaussian"], "epochs": 600},
    "kl": {
        "units": [400],
        "rows": ["mixture"],
        "epochs": 100,
        "kl": ["uniform", "geometric"],
        "rho": [None, -8.0, -4.0],
    },
    "tune": {"units": [400], "rows": list(PAPER), "epochs": 20},
}


def adam(step_size):
    return optax.adam(step_size, b2=0.99)


def momentum(step_size):
    return optax.sgd(step_size, momentum=0.9)


OPTIMISERS = {"adam": adam, "adam999": optax.adam, "sgd": optax.sgd, "momentum": momentum}
DECAYS = {"cosine": tb.schedules.Cosine(), "constant": tb.schedules.Constant()}


class Setting(NamedTuple):
    """One fit of all seeds; settings that do not apply to a row are None."""

    row: str
    units: int
    epochs: int
    seeds: int
    limit: int | None
    by: str
    decay: str
    kl: str | None = None
    rho: float | None = None
    samples: int | None = None
    sigma1: float | None = None
    pi: float | None = None
    sigma2: float | None = None

    @property
    def num_weights(self) -> int:
        return (PIXELS + 1 + self.units + 1 + CLASSES) * self.units + CLASSES

    def prior(self):
        if self.row == "mixture":
            return tb.priors.TwoNormals(self.pi, math.exp(-self.sigma1), math.exp(-self.sigma2))
        return tb.priors.Normal(math.exp(-self.sigma1) if self.row == "gaussian" else FLAT)

    def kl_weights(self):
        name, _, factor = self.kl.partition(":")
        if name in ("tempered", "mean"):
            return tb.klweights.Tempered(float(factor) if name == "tempered" else 1 / self.num_weights)
        return {"uniform": tb.klweights.Uniform(), "geometric": tb.klweights.Geometric()}[name]

    def method(self, rows: int):
        name, step_size = self.by.split(":")
        train = tb.Train(self.epochs * -(-rows // BATCH), BATCH)
        how = {
            "step_size": float(step_size),
            "optimiser": OPTIMISERS[name],
            "decay": DECAYS[self.decay],
            "train": train,
        }
        if self.row == "sgd":
            return tb.MAP(**how)
        if self.row == "dropout":
            return tb.MCDropout(**how, rate=RATES[0], input_rate=RATES[1])
        if self.rho is not None:
            how["initial_sd"] = math.log1p(math.exp(self.rho))
        return tb.BayesByBackprop(**how, point=None, kl_weights=self.kl_weights(), num_samples=self.samples)


class Images(NamedTuple):
    """Pixels and classes for training, validation and testing."""

    train: tuple[np.ndarray, np.ndarray]
    valid: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def images(limit: int | None) -> Images:
    """Images of which only the first `limit` of each part are kept."""
    file = np.load(Path(os.environ.get("TUNBRIDGE_DATA", ".")) / "mnist.npz")

    def part(name: str, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        x, y = file[f"x_{name}"][rows][:limit], file[f"y_{name}"][rows][:limit]
        return x.reshape(len(x), -1).astype(np.float32) / SCALE, y.astype(np.int32)

    return Images(part("train", slice(-HELD)), part("train", slice(-HELD, None)), part("test", slice(None)))


def networks(posterior: Any, row: str, key: Any) -> dict[str, Any]:
    """Stacked parameters for each way of predicting."""
    if row == "sgd":
        return {"mean": posterior.sample(key, 1)}
    if row == "dropout":
        leaves, treedef = jax.tree.flatten(posterior.params.weights)
        kept = [leaf if p is None else leaf * (1 - p) for leaf, p in zip(leaves, posterior.rates, strict=True)]
        mean = posterior.params._replace(weights=jax.tree.unflatten(treedef, kept))
    else:
        mean = posterior.q.mean
    return {"draws": posterior.sample(key, DRAWS), "mean": jax.tree.map(lambda leaf: leaf[None], mean)}


def judged(setting: Setting, posterior: Any, parts: Images) -> dict[str, Any]:
    """All recorded figures of one posterior."""
    ways = networks(posterior, setting.row, jax.random.key(1))
    found: dict[str, Any] = {
        name: {how: scores(posterior.model, params, getattr(parts, name)) for how, params in ways.items()}
        for name in ("valid", "test")
    }
    if setting.row in ("gaussian", "mixture"):
        found["elbo"] = posterior.elbo(tb.Data(*parts.train), num=5)._asdict()
        found["spread"] = spread(posterior)
        found["pruning"] = pruning(posterior, ways, parts.test)
    return found


def fitted(setting: Setting, parts: Images, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fit a setting, and return one record per seed."""
    network = tb.networks.MLP((setting.units, setting.units), "relu", outputs=CLASSES)
    model = tb.Model(network, setting.prior(), tb.likelihoods.Categorical(CLASSES))
    method = setting.method(len(parts.train[0]))
    began = time.perf_counter()
    members = tb.Ensemble(method, setting.seeds).fit(
        model, tb.Data(*parts.train), key=jax.random.key(options.key), progress=False
    )
    jax.block_until_ready(jax.tree.leaves(members.members))
    took = time.perf_counter() - began
    records = []
    for number, posterior in enumerate(members.members):
        began = time.perf_counter()
        found = judged(setting, posterior, parts)
        times = {"seconds": took, "ms a step": 1e3 * took / method.train.steps, "judging": time.perf_counter() - began}
        paper = PAPER[setting.row].get(setting.units)
        records.append(
            {"setting": setting._asdict(), "key": options.key, "member": number, "paper": paper, **times, **found}
        )
        if options.keep is not None:
            posterior.save(Path(options.keep) / f"{setting.row}-{setting.units}-{options.key}-{number}")
    return records


def line(record: dict[str, Any]) -> str:
    """One record as a line of text."""
    setting = {name: value for name, value in record["setting"].items() if value is not None}
    row, units = setting.pop("row"), setting.pop("units")
    errors = ", ".join(
        f"{part} " + " / ".join(f"{how} {one['error']:.2f}" for how, one in record[part].items())
        for part in ("test", "valid")
    )
    text = f"{row} {units} key {record['key']}.{record['member']}: {errors} % (paper {record['paper']})"
    if "elbo" in record:
        bound, snr = record["elbo"], record["spread"]
        text += f"; ELBO {bound['value']:.0f} = {bound['log_likelihood']:.0f} - KL {bound['kl']:.0f}"
        text += f"; SNR < 0.1 {snr['share below 0.1']:.1%}, < 1 {snr['share below 1']:.1%}, "
        text += f"two modes {snr.get('peak, dip, peak')}" if snr["bimodal"] else "one mode"
    settings = ", ".join(f"{name} {value}" for name, value in setting.items())
    return f"{text}; {record['seconds']:.1f} s, {record['ms a step']:.3f} ms a step; {settings}"


def pruned_table(record: dict[str, Any]) -> str:
    """Errors in percent by the fraction removed."""
    shown = PAPER_PRUNED if (record["setting"]["row"], record["setting"]["units"]) == ("mixture", 1200) else None
    head = "removed            " + "".join(f"{fraction:>9.0%}" for fraction in FRACTIONS)
    lines = [head] if shown is None else [head, "paper              " + "".join(f"{error:>9.2f}" for error in shown)]
    for by, how in itertools.product(("snr", "magnitude"), ("draws", "mean")):
        errors = [row[how] for row in record["pruning"] if row["by"] == by]
        lines.append(f"{by + ', ' + how:<19}" + "".join(f"{error:>9.2f}" for error in errors))
    snr = record["spread"]
    quantiles = ", ".join(f"{q:g}: {value:.3g}" for q, value in zip(snr["quantiles at"], snr["decibels"], strict=True))
    sigmas = ", ".join(f"{value:.2g}" for value in snr["sigma"])
    return "\n".join([*lines, f"dB at {quantiles}; sigma {sigmas}; {snr.get('share below dip', 0):.1%} below the dip"])


def grid(options: argparse.Namespace) -> list[Setting]:
    """Every combination of the flags, with only the settings that apply to its row."""
    best = tuned(options.tuned) if options.tuned else {}
    found = []
    for units, row in itertools.product(options.units, options.rows):
        common = [row], [units], [options.epochs], [options.seeds], [options.limit]
        by = options.by or (TRIED[row] if options.command == "tune" else [BY[row]])
        own: tuple[Any, ...] = (by, options.decay)
        if row in ("gaussian", "mixture"):
            own += options.kl, options.rho, options.samples, options.sigma1
        if row == "mixture":
            own += options.pi, options.sigma2
        if row in best:
            own = tuple([value] for value in best[row][len(common) : len(common) + len(own)])
        found += [Setting(*values) for values in itertools.product(*common, *own)]
    return found


def tuned(path: str) -> dict[str, Setting]:
    """For each row the setting with the lowest mean validation error over its seeds, whatever the units and epochs."""
    errors: dict[Setting, list[float]] = {}
    for record in json.loads(Path(path).read_text())["records"]:
        ways = record["valid"]
        errors.setdefault(Setting(**record["setting"]), []).append(ways.get("draws", ways["mean"])["error"])
    ranked = sorted(errors, key=lambda setting: -np.mean(errors[setting]))
    return {setting.row: setting for setting in ranked}


def run(options: argparse.Namespace) -> None:
    """Fit the combinations of the grid that the file does not have."""
    path = Path(options.out)
    records = json.loads(path.read_text())["records"] if path.exists() else []
    parts, until = images(options.limit), time.time() + 60 * options.minutes
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": [len(part[1]) for part in parts]}
    print(facts, flush=True)
    for setting in grid(options):
        there = [one for one in records if one["setting"] == setting._asdict() and one["key"] == options.key]
        if not there and time.time() > until:
            print("left out for want of time:", setting, flush=True)
            continue
        if not there:
            there = fitted(setting, parts, options)
            records += there
            half = path.with_suffix(".part")
            half.write_text(json.dumps({**facts, "records": records}, indent=1) + "\n")
            half.replace(path)
        for record in there:
            print(line(record), flush=True)
            if "pruning" in record and options.command in ("prune", "kl"):
                print(pruned_table(record), flush=True)


def rho(text: str) -> float | None:
    return None if text == "measured" else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, given in GRIDS.items():
        command = commands.add_parser(name)
        command.add_argument("--rows", nargs="+", choices=list(PAPER), default=given["rows"])
        command.add_argument("--units", nargs="+", type=int, default=given["units"])
        command.add_argument("--epochs", type=int, default=given["epochs"])
        command.add_argument("--seeds", type=int, default=1)
        command.add_argument("--key", type=int, default=0)
        command.add_argument("--by", nargs="+")
        command.add_argument("--decay", nargs="+", choices=list(DECAYS), default=["cosine"])
        command.add_argument("--kl", nargs="+", default=given.get("kl", ["uniform"]))
        command.add_argument("--rho", nargs="+", type=rho, default=given.get("rho", [None]))
        command.add_argument("--samples", nargs="+", type=int, default=[1], help="draws per step (default: 1)")
        command.add_argument("--pi", nargs="+", type=float, default=[0.5])
        command.add_argument("--sigma1", nargs="+", type=float, default=[1.0])
        command.add_argument("--sigma2", nargs="+", type=float, default=[6.0])
        command.add_argument("--tuned", help="file of `tune` from which the best settings are taken")
        command.add_argument("--limit", type=int)
        command.add_argument("--minutes", type=float, default=1e6, help="start no fit after this many minutes")
        command.add_argument("--keep", help="folder in which to save the posteriors")
        command.add_argument("--out", default="blundell.json")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
