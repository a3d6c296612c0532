"""CIFAR-10: a ResNet-20 by many methods against predictions of full-batch HMC, and three networks by SGHMC; GPU.

    TUNBRIDGE_DATA=FOLDER python benchmarks/cifar10.py ROW [--key K] [--validate] [--scale S] [--epochs E]
        [--reference FILE] [--work FOLDER] [--out FILE] [--small] [--batch B] [--chains C] [--again]
    -> benchmarks/results/cifar10.json; a row replaces its own entry

ROW is one of `cifar10_rows.ROWS`, or "all" for those that are not in the file. FOLDER holds CIFAR-10; images are
normalised and never augmented, the temperature is 1. Methods are trained on all 50,000 training images and scored on
the 10,000 test images; agreement and total variation use the test images that the reference has (`index`, `probs`).

--validate   trains on the first 45,000 training images and scores on the last 5,000, to choose settings. --epochs
replaces the epochs of this row; --scale multiplies those of every row and of its cycles. --batch      images per step;
--chains: chains of a sampler, or networks it starts from. Defaults are the row's own. --reference
by default cifar10_hmc_probs_half.npz in FOLDER; without it agreement and total variation are left out. --work keeps one
folder per row, from which a killed run resumes, and ROW-keyK.npz: probabilities, and 12 examples. --small a trial of
the script: tiny networks on 200 synthetic images of 8 x 8, a twentieth of the epochs. --again      scores a row again
even if the file has it; remove its folder to fit it again.

Rows may be run side by side, each in its own process. Seconds are for the whole fit, including compilation and the fit
that it starts from. The ECE has 20 bins with equally many images each. A curve gives the scores of the mean of the
draws so far, pooled over chains.
"""

import argparse
import contextlib
import datetime
import fcntl
import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from cifar10_problem import EXAMPLES, LEAST, Problem, examples, problem, scores
from cifar10_rows import ROWS, Budget
from record import RESULTS, record

import tunbridge as tb
from tunbridge.inference.mixing import TEMPERATURE

POINTS = 16
"""Number of points of a curve."""
SMALL_SCALE, SMALL_BATCH = 0.05, 50


class Clock:
    """A callback that records when each lane reached each step count; a resumed run continues the record."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.course = np.loadtxt(path, ndmin=2).tolist() if path.exists() else []
        self.before = self.course[-1][0] if self.course else 0.0
        self.ended = bool(self.course) and self.course[-1][2] < 0
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.before if self.ended else self.before + time.perf_counter() - self.began

    def __call__(self, event: Any) -> None:
        self._note(event.step, event.members[0])

    def end(self) -> None:
        if not self.ended:
            self._note(0, -1)
            self.before, self.ended = self.course[-1][0], True

    def when(self, step: int) -> float:
        """Seconds until every lane had done `step` steps."""
        lanes = {lane for _, _, lane in self.course if lane >= 0}
        reached = [[took for took, done, who in self.course if who == lane and done >= step] for lane in lanes]
        return max(min(times, default=self.seconds) for times in reached)

    def _note(self, step: int, member: int) -> None:
        self.course.append([round(self.seconds, 3), step, member])
        with open(self.path, "a") as file:
            file.write(f"{self.course[-1][0]} {step} {member}\n")


class Fit(NamedTuple):
    """A posterior, its method and its clock; `before` is the time in seconds of the fit it started from."""

    posterior: Any
    method: Any
    clock: Clock
    before: float

    @property
    def seconds(self) -> float:
        return self.before + self.clock.seconds


def budget(data: Problem, options: argparse.Namespace) -> Budget:
    scale = options.scale * (SMALL_SCALE if options.small else 1.0)
    batch = options.batch or (SMALL_BATCH if options.small else ROWS[options.row].batch)
    blocks = 1 if options.small else 3
    return Budget(
        len(data.train.y), batch, options.chains or ROWS[options.row].chains, scale, np.asarray(data.judged.x), blocks
    )


def epochs(name: str, options: argparse.Namespace) -> float:
    """The epochs of a row: the value of --epochs for the requested row, else the row's own."""
    return options.epochs if options.epochs and name == options.row else ROWS[name].epochs


def probabilities(name: str, options: argparse.Namespace) -> Path:
    return Path(options.work) / f"{name}-key{options.key}{'-validate' if options.validate else ''}.npz"


def folder(name: str, data: Problem, options: argparse.Namespace) -> Path:
    """The folder of a run with these settings."""
    digest = hashlib.sha256(json.dumps(settings(name, data, options)).encode()).hexdigest()
    return probabilities(name, options).with_suffix("") / digest[:8]


def fitted(name: str, data: Problem, options: argparse.Namespace) -> Fit:
    """The posterior of a row, resumed or read from its folder if a run is saved there."""
    place = folder(name, data, options)
    place.mkdir(parents=True, exist_ok=True)
    with held(place / "run"):
        return _fitted(name, place, data, options)


def _fitted(name: str, place: Path, data: Problem, options: argparse.Namespace) -> Fit:
    row = ROWS[name]
    started = fitted(row.start, data, options) if row.start else None
    method = row.method(budget(data, options), epochs(name, options))
    clock = Clock(place / "clock.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(
            row.model(options.small),
            data.train,
            key=jax.random.key(options.key),
            init=started.posterior if started else None,
            progress=False,
            checkpoint=place,
            callbacks=[clock],
        )
    jax.block_until_ready(jax.tree.leaves(posterior))
    clock.end()
    return Fit(posterior, method, clock, started.seconds if started else 0.0)


def curve(fit: Fit, functions: np.ndarray, data: Problem, epoch: int) -> dict[str, list[float]]:
    """Scores of the mean of the first draws of all chains, with the seconds and epochs they took."""
    run = fit.method.run
    after = run.thin * (1 + np.arange(run.draws))
    steps = run.warmup + after[fit.method.schedule.samples(after - 1)]
    found: dict[str, list[float]] = {}
    total, done = 0.0, 0
    for num in np.unique(np.geomspace(1, functions.shape[1], POINTS).round().astype(int)):
        total = total + functions[:, done:num].sum((0, 1))
        done = num
        spent = {"seconds": fit.before + fit.clock.when(steps[num - 1]), "epochs": float(steps[num - 1] / epoch)}
        for what, value in {**spent, **scores(total / (num * len(functions)), data)}.items():
            found.setdefault(what, []).append(value)
    return found


def by_chains(functions: np.ndarray, data: Problem) -> dict[str, list[float]]:
    """Scores of the mean of all draws, by the number of chains."""
    found: dict[str, list[float]] = {}
    for num in range(1, len(functions) + 1):
        for what, value in {"chains": num, **scores(functions[:num].mean((0, 1)), data)}.items():
            found.setdefault(what, []).append(value)
    return found


def entropy(probs: np.ndarray) -> float:
    return float(-(probs * np.log(np.maximum(probs, LEAST))).sum(-1).mean())


def spread(functions: np.ndarray, data: Problem) -> dict[str, float]:
    """Scores of single draws, and total variation between chains and between the halves of each chain."""
    y, means, cut = np.asarray(data.judged.y), functions.mean(1), functions.shape[1] // 2
    mean = means.mean(0)
    alone = np.take_along_axis(functions, y[None, None, :, None], -1)
    found = {
        "draw_accuracy": float(np.mean(functions.argmax(-1) == y)),
        "draw_NLL": float(-np.log(np.maximum(alone, LEAST)).mean()),
        "entropy": entropy(mean),
    }
    if len(means) > 1:
        pairs = itertools.combinations(means, 2)
        found["between_chains"] = float(np.mean([0.5 * np.abs(a - b).sum(-1).mean() for a, b in pairs]))
    if cut:
        early, late = functions[:, :cut].mean(1), functions[:, cut:].mean(1)
        found["between_halves"] = float(0.5 * np.abs(early - late).sum(-1).mean())
    return found


def judged(name: str, fit: Fit, data: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """All recorded figures of a row; its probabilities are saved to the folder."""
    epoch = budget(data, options).epoch
    found: dict[str, Any] = {"seconds": fit.seconds, "steps": steps(fit.method), "epochs": steps(fit.method) / epoch}
    kept: dict[str, Any] = {}
    if isinstance(fit.posterior, tb.Recorded):
        functions = fit.posterior.functions()
        probs = functions.mean((0, 1))
        found |= {"chains": functions.shape[0], "draws": functions.shape[1]}
        found["curve"] = curve(fit, functions, data, epoch)
        found["by_chains"] = by_chains(functions, data)
        found["spread"] = spread(functions, data)
        found["temperature"] = {
            path.removeprefix(TEMPERATURE): float(np.mean(values))
            for path, values in fit.posterior.stats.items()
            if path.startswith(TEMPERATURE)
        }
        if ROWS[name].table == "networks":
            found["examples"] = examples(functions, data)
            kept = {f"example_{what}": value for what, value in found["examples"].items()}
            kept["example_x"] = np.asarray(data.judged.x[:EXAMPLES])
    else:
        probs = np.asarray(fit.posterior.predict(data.judged.x).probs)
    curves = {f"curve_{what}": value for what, value in found.get("curve", {}).items()}
    np.savez(probabilities(name, options), probs=probs.astype(np.float16), **curves, **kept)
    return scores(probs, data) | found


def steps(method: Any) -> int:
    """Steps per chain or member; zero for a method that only uses the fit it starts from."""
    if isinstance(method, tb.Ensemble):
        return steps(method.method)
    return 0 if isinstance(method, tb.Laplace) else method.duration.plan().steps


def settings(name: str, data: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """The settings of an entry; it is made again if any of them differ."""
    row = ROWS[name]
    parts = {"method": row.method(budget(data, options), epochs(name, options)), "model": row.model(options.small)}
    spent = budget(data, options)
    chosen = {"key": options.key, "scale": options.scale, "small": options.small, "validate": options.validate}
    chosen |= {"batch": spent.batch, "chains": spent.chains}
    found = {what: " ".join(repr(part).split()) for what, part in parts.items()} | chosen
    return found | ({"start": settings(row.start, data, options)["method"]} if row.start else {})


def done(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; other processes that write to it wait."""
    with open(path.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def one(name: str, data: Problem, options: argparse.Namespace) -> None:
    """Fit and score a row, unless the file has it with the same settings, and write it to the file."""
    path, key = Path(options.out).resolve(), str(options.key)
    data = data.flat() if ROWS[name].flat else data
    table, wanted = "validation" if options.validate else ROWS[name].table, settings(name, data, options)
    there = done(path).get(table, {}).get(name, {}).get(key)
    if there is not None and there.get("settings") == wanted and not options.again:
        print(f"{name}, key {key}: {path} has it", flush=True)
        return
    found = judged(name, fitted(name, data, options), data, options)
    device = {"device": jax.devices()[0].device_kind, "date": datetime.date.today().isoformat()}
    with held(path):
        figures = done(path)
        figures.pop("machine", None)
        if data.probs is not None:
            own = data._replace(judged=tb.Data(data.judged.x[data.index], data.judged.y[data.index]), index=None)
            figures["reference"] = {
                "images": len(data.probs),
                "entropy": entropy(data.probs),
                **scores(data.probs, own),
            }
        figures.setdefault(table, {}).setdefault(name, {})[key] = {**found, **device, "settings": wanted}
        record(str(path.with_suffix("")), figures, command="cifar10.py ROW", show=False)
    shown = ", ".join(f"{what} {value:.4g}" for what, value in found.items() if isinstance(value, float | int))
    print(f"{name}, key {key}: {shown}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=[*ROWS, "all"])
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--reference")
    parser.add_argument("--work", default=".cache/cifar10")
    parser.add_argument("--out", default=str(RESULTS / "cifar10.json"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--chains", type=int)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    data = problem(options.small, options.validate, options.reference)
    for name in ROWS if options.row == "all" else [options.row]:
        one(name, data, argparse.Namespace(**vars(options) | {"row": name}))


if __name__ == "__main__":
    main()
