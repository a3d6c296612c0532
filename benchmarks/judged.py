"""Score a method against a reference posterior: shared by scripts that measure distances to references."""

import time
import warnings

import jax
import numpy as np

import tunbridge as tb
from tunbridge.bench import fidelity, load_reference
from tunbridge.bench.truth.recipes import RECIPES, halves

FEW = 10
"""Minibatch size for the curve."""
TEST = 400
"""Number of points of the curve to score on."""


class Problem:
    """Training data, the reference to score against, and the minibatch size."""

    def __init__(self, name):
        recipe = RECIPES[name]()
        self.model, self.data, self.reference = recipe.model, recipe.data, load_reference(name)
        self.test = tb.datasets.curve(jax.random.key(5), TEST) if name == "curve" else halves(name)[1]
        self.batch = FEW if name == "curve" else 32


class Counter:
    """A callback that counts the steps of all members of all fits."""

    def __init__(self):
        self.steps, self.last, self.course = 0, {}, []
        self.began = time.process_time()

    def __call__(self, event):
        members = tuple(event.members)
        before = self.last.get(members, 0)
        fresh = event.step - (before if event.step > before else 0)
        self.last[members] = event.step
        self.steps += fresh * len(members)
        self.course.append((time.process_time() - self.began, event.step, members))

    def when(self, step):
        """Seconds until every member had done `step` steps."""
        return max(min(took for took, done, who in self.course if who == one and done >= step) for one in self.last)


def fit(method, model, data, key, **options):
    """A posterior, its CPU seconds, and the step counter."""
    counter = Counter()
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(model, data, key=key, progress=False, callbacks=(counter,), **options)
    jax.block_until_ready(jax.tree.leaves(posterior))
    return posterior, time.process_time() - began, counter


def example_gradients(method, posterior, counter, num):
    """Rows of all gradient evaluations, summed over members; None where the number of rows per step is unknown.

    Samplers report the passes over the data per kept draw, fractions for minibatches; warm-up steps are assumed to need
    as many. For methods without gradients, density evaluations are counted instead.
    """
    if isinstance(method, tb.TemperedSMC):
        return None
    if isinstance(posterior, tb.Chains):
        return counter.steps * num * float(np.mean(posterior.stats["gradients"]))
    rows = method.batch_size(num) if hasattr(method, "batch_size") else None
    return counter.steps * min(rows or num, num) * getattr(method, "num_samples", 1)


def scores(posterior, test, classes):
    """NLL, and accuracy or RMSE."""
    predictive = posterior.predict(test.x)
    found = {"NLL": -tb.metrics.log_score(predictive, test.y)}
    by, score = ("accuracy", tb.metrics.accuracy) if classes else ("RMSE", tb.metrics.rmse)
    return {by: score(predictive, test.y), **found}


def mixing(posterior, x):
    """R-hat of functions at 95 %, mean temperatures and notes of chains; for other methods the notes alone."""
    if not isinstance(posterior, tb.Chains):
        return {"notes": list(posterior.notes)}
    values = np.asarray(posterior.functions(x))
    rhat = tb.diagnostics.rhat(values)
    warm = {part.split(" ")[-1]: float(np.mean(v)) for part, v in posterior.stats.items() if "temperature" in part}
    return {"R-hat at 95 %": float(np.nanquantile(rhat, 0.95)), "temperature": warm, "notes": list(posterior.notes)}


def judge(method, problem, key, **options):
    """One fit: scores on test rows, distances to the reference, per-example gradients and seconds."""
    posterior, seconds, counter = fit(method, problem.model, problem.data, key, **options)
    return {
        **scores(posterior, problem.test, problem.reference.classes),
        **fidelity(posterior, problem.reference),
        "example_gradients": example_gradients(method, posterior, counter, problem.data.num),
        "seconds": seconds,
        **mixing(posterior, problem.reference.x),
    }


def reference_row(problem):
    """Scores of the reference itself, where its inputs are the rows to score on."""
    reference, y = problem.reference, np.asarray(problem.test.y).reshape(-1)
    found = {"rows": problem.data.num, **reference.checks}
    if reference.classes:
        chosen = reference.probs[np.arange(len(y)), y.astype(int)]
        return {
            "accuracy": float(np.mean(reference.probs.argmax(1) == y)),
            "NLL": -float(np.log(chosen).mean()),
            **found,
        }
    if len(reference.x) != len(y):
        return found
    f, sd = reference.predictions[..., 0], reference.noise
    density = np.exp(-0.5 * ((y - f) / sd) ** 2) / (np.sqrt(2 * np.pi) * sd)
    rmse = np.sqrt(np.mean((f.mean(0) - y) ** 2))
    return {"RMSE": float(rmse), "NLL": -float(np.log(density.mean(0)).mean()), **found}
