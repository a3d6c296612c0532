"""Time to the first answer: the first fit of each method in a fresh process, against a bare scan of the same model.

python benchmarks/first_answer.py [method ...] -> benchmarks/results/first_answer.json

Diabetes, 50 tanh units, unknown noise, nothing compiled before. Every method runs in its own process, right after a
process with the scan: figures are ratios of the two, in seconds and in CPU seconds. Chains of HMC, NUTS, MCLMC are
short, since only the difference of first and second fit matters, and fits of a second or so leave little noise in it.
Programs are those that XLA compiles.
"""

import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

METHODS = {
    "MAP": ("tb.MAP()", 1.7, False),
    "Ensemble": ("tb.Ensemble(tb.MAP(), 5)", 1.7, False),
    "MCDropout": ("tb.MCDropout()", 1.7, False),
    "Laplace": ("tb.Laplace()", 3.5, False),
    "SWAG": ("tb.SWAG()", 3.5, False),
    "MeanField": ("tb.MeanField()", 4.5, True),
    "SGHMC": ("tb.SGHMC()", 4.5, True),
    "HMC": ("tb.HMC(run=tb.Run(warmup=10, draws=10))", 4.5, True),
    "NUTS": ("tb.NUTS(run=tb.Run(warmup=10, draws=10))", 4.5, True),
    "MCLMC": ("tb.MCLMC(run=tb.Run(warmup=10, draws=10, thin=1))", 4.5, True),
}
"""The method, its goal as a multiple of the scan's first call, and whether its second fit is subtracted first."""
GOALS = {
    "imports and data": 1.5,
    "tunbridge --help": 0.2,
    "tunbridge methods": 1.0,
    "tunbridge bench --list": 1.0,
    "tunbridge fit, a wrong path": 1.0,
    "tunbridge predict": 2.0,
    "tunbridge demo": 90.0,
}
"""CPU seconds, of `demo` seconds on the clock, that imports and commands may take."""


def clocks():
    return time.perf_counter(), time.process_time()


def since(began):
    return [round(now - then, 3) for now, then in zip(clocks(), began, strict=True)]


def scan():
    """First call of the same training written by hand: Adam with a cosine decay on the weights and the log noise."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    x, y = (((part - part.mean(0)) / part.std(0)).astype(np.float32) for part in (x, y[:, None]))

    @jax.jit
    def train(key, x, y):
        key_first, key_last = jax.random.split(key)
        first, last = jax.random.normal(key_first, (10, 50)) / 10**0.5, jax.random.normal(key_last, (50, 1)) / 50**0.5
        weights = first, jnp.zeros(50), last, jnp.zeros(1), jnp.zeros(())
        adam = optax.adam(optax.cosine_decay_schedule(1e-2, 2000), b2=0.99)

        def loss(weights):
            a, b, c, d, s = weights
            f = jnp.tanh(x @ a + b) @ c + d
            fit = -0.5 * jnp.sum(((y - f) * jnp.exp(-s)) ** 2) - len(y) * s
            prior = -0.5 * (10 * jnp.sum(a**2) + jnp.sum(b**2) + 50 * jnp.sum(c**2) + jnp.sum(d**2))
            return -(fit + prior - 0.5 * s - jnp.exp(s)) / len(y)

        def step(carry, _):
            weights, memory = carry
            value, gradient = jax.value_and_grad(loss)(weights)
            updates, memory = adam.update(gradient, memory, weights)
            return (optax.apply_updates(weights, updates), memory), value

        return jax.lax.scan(step, (weights, adam.init(weights)), None, length=2000)

    began = clocks()
    jax.block_until_ready(train(jax.random.key(0), x, y))
    return {"first": since(began)}


def fit(text):
    """Times and compiled programs of the first and second fit, of predictions, and of a table of another length."""
    import jax

    imported = clocks()
    import numpyro.distributions as dist

    import tunbridge as tb

    programs = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: programs.append(name) if name.endswith("backend_compile_duration") else None
    )
    data = tb.datasets.diabetes()
    noise = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
    model = tb.Model(tb.networks.MLP((50,)), tb.priors.Normal(tb.priors.fan_in(1.0)), noise)
    method = eval(text)
    found = {"imports and data": since(imported), "programs before": len(programs)}
    key, other = jax.random.key(0), jax.random.key(1)
    shorter = tb.Data(*(jax.device_get(part)[:400] for part in (data.x, data.y)))
    rows = jax.device_get(data.x)

    def timed(name, call):
        programs.clear()
        began = clocks()
        result = call()
        found[name], found[f"programs of {name}"] = since(began), len(programs)
        return result

    def asked(posterior, num):
        predictive = posterior.predict(rows[:num])
        return predictive.mean, predictive.std, predictive.interval(0.9)

    posterior = timed("first", lambda: method.fit(model, data, key=key, progress=False))
    timed("second", lambda: method.fit(model, data, key=other, progress=False))
    timed("other length", lambda: method.fit(model, shorter, key=other, progress=False))
    timed("predict", lambda: asked(posterior, 442))
    timed("predict other length", lambda: asked(posterior, 400))
    return found


def estimators():
    """Times of `BayesianRegressor` with its defaults: 506 rows and their three folds, then 20,000 rows."""
    import jax
    import numpy as np
    from sklearn.datasets import make_friedman1
    from sklearn.model_selection import cross_val_score

    import tunbridge as tb

    programs, found = [], {}
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: programs.append(name) if name.endswith("backend_compile_duration") else None
    )

    def timed(name, call):
        programs.clear()
        began = clocks()
        call()
        found[name], found[f"programs of {name}"] = since(began), len(programs)

    x, y = make_friedman1(506, 13, noise=1.0, random_state=0)
    regressor = tb.BayesianRegressor(progress=False, random_state=0)
    timed("506 x 13", lambda: regressor.fit(x, y).predict(x, return_std=True))
    timed("cross_val_score, cv=3", lambda: cross_val_score(regressor, x, y, cv=3))
    timed("cross_val_score, cv=3, again", lambda: cross_val_score(regressor, x + np.float64(1.0), y, cv=3))
    x, y = make_friedman1(20_000, 20, noise=1.0, random_state=0)
    timed("20,000 x 20", lambda: regressor.fit(x, y).predict(x, return_std=True))
    return found


def child(task):
    """Figures of one fresh process; nothing is compiled before and nothing is cached."""
    with tempfile.TemporaryDirectory() as nothing:
        environment = {**os.environ, "XDG_CACHE_HOME": nothing, "JAX_ENABLE_COMPILATION_CACHE": "false"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, "-W", "ignore", __file__, "--child", task]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def command_line(repeats=3):
    """CPU seconds of commands that compute nothing, and of `predict` with compiled programs already cached.

    Also the seconds on the clock of a first `demo`, with an empty cache.
    """
    from tunbridge import datasets

    with tempfile.TemporaryDirectory() as folder:
        table, run = Path(folder) / "diabetes.csv", Path(folder) / "run"
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)

        def call(*words, expected=0):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode != expected:
                raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
            return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

        tunbridge = [str(Path(sys.executable).parent / "tunbridge")]
        demo, _ = call(*tunbridge, "demo", "--out", str(Path(folder) / "demo"))
        data = datasets.diabetes()
        names = [f"x{i}" for i in range(data.x.shape[1])]
        lines = [",".join([*names, "y"])]
        lines += [",".join(map(str, (*x, *y))) for x, y in zip(data.x.tolist(), data.y.tolist(), strict=True)]
        table.write_text("\n".join(lines))
        predictions = Path(folder) / "p.csv"
        call(*tunbridge, "fit", str(table), "--target", "y", "--method", "map", "--out", str(run))
        calls = {
            "tunbridge --help": (["--help"], 0),
            "tunbridge methods": (["methods"], 0),
            "tunbridge bench --list": (["bench", "--list"], 0),
            "tunbridge fit, a wrong path": (["fit", "nowhere.csv", "--target", "y"], 2),
            "tunbridge predict": (["predict", str(run), str(table), "--out", str(predictions), "--overwrite"], 0),
        }
        call(*tunbridge, *calls["tunbridge predict"][0])
        medians = {
            name: round(statistics.median(call(*tunbridge, *words, expected=code)[1] for _ in range(repeats)), 2)
            for name, (words, code) in calls.items()
        }
        return medians | {"tunbridge demo": round(demo, 1)}


def row(name):
    """Figures of a method, and its ratios to the scan that ran next to it."""
    text, goal, less_second = METHODS[name]
    bare, found = child("scan")["first"], child(text)
    taken = [a - (b if less_second else 0.0) for a, b in zip(found["first"], found["second"], strict=True)]
    ratio, ratio_cpu = (round(a / b, 2) for a, b in zip(taken, bare, strict=True))
    return {"goal": goal, "ratio": ratio, "ratio_cpu": ratio_cpu, "less_second": less_second, "scan": bare, **found}


def main(names):
    from record import record

    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=1)  # as pip does when it installs a package
    rows = {}
    for name in names:
        rows[name] = row(name)
        print(name, json.dumps(rows[name]), flush=True)
    figures = {"methods": rows, "estimators": child("estimators"), "command line": command_line(), "goals": GOALS}
    record("first_answer", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        tasks = {"scan": scan, "estimators": estimators}
        print(json.dumps(tasks[sys.argv[2]]() if sys.argv[2] in tasks else fit(sys.argv[2])))
    else:
        main(sys.argv[1:] or list(METHODS))
