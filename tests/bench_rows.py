"""Made-up rows of a benchmark: what the runner stores, without running anything."""

import numpy as np

METHODS = ("map", "ensemble", "laplace", "nuts")


def row(suite="small", task="diabetes", split=0, method="map", key=0, **rest):
    """One finished fit of 90 training and 10 test rows."""
    made = {"suite": suite, "task": task, "split": split, "method": method, "key": key, "status": "done", "error": None}
    made |= {"kind": "numbers", "settings": {}, "train_rows": 90, "test_rows": 10, "figures": {"NLL": 1.0}}
    made |= {"cost": {}, "curves": {}, "provenance": {}}
    return made | rest


def failed(**rest):
    """One fit that did not finish."""
    return row(status="failed", error="NumericalError: Stopped at step 3", figures={}, **rest)


def rows(suite="small", tasks=("diabetes", "wine"), splits=4, methods=METHODS, seed=0):
    """Every method on every split, with every curve and figure that a page can show; nuts fails once."""
    rng = np.random.default_rng(seed)
    made = []
    for t, task in enumerate(tasks):
        numbers = t % 2 == 0
        for split in range(splits):
            shared = rng.normal(size=1)[0] * 0.1
            for m, method in enumerate(methods):
                if method == "nuts" and split == 1 and t == 0:
                    made.append(failed(suite=suite, task=task, split=split, method=method))
                    continue
                made.append(_full(rng, suite, task, split, method, m, numbers, shared))
    return made


def _full(rng, suite, task, split, method, m, numbers, shared):
    nll = 1.0 + shared - 0.1 * m + 0.02 * rng.normal()
    if numbers:
        figures = {"NLL": nll, "RMSE": 3 - 0.2 * m + shared, "CRPS": 1.5, "90 % coverage": 0.8 + 0.03 * m}
        figures |= {"interval score": 9.0, "sliced Wasserstein": 0.5 / (m + 1), "sd ratio": 0.6 + 0.1 * m}
        figures |= {"in-between": 1.0 + 0.3 * m}
    else:
        figures = {"NLL": nll, "accuracy": 0.9 + 0.01 * m, "Brier": 0.2, "ECE": 0.05, "AUROC": 0.8 + 0.04 * m}
        figures |= {"agreement": 0.9 + 0.02 * m, "total variation": 0.1 / (m + 1)}
    cost = {"seconds": 2.0 * 4**m, "tuning seconds": 8.0 * 4**m, "gradients": 1e5 * 3**m * (1 + 0.1 * rng.random())}
    cost |= {"networks": 1 + 50 * m, "ms a row": 0.01 * (1 + m), "MB": 0.1 * (1 + m)}
    provenance = {"versions": ["tunbridge 0.1.0", "jax 0.10.1"], "device": "cpu", "date": "2025-01-01"}
    provenance["doubts"] = ["R-hat is 1.2"] if method == "nuts" else []
    kind, curves = ("numbers" if numbers else "classes"), _curves(rng, m, numbers)
    settings = {"step_size": [0.01, 0.1][int(rng.integers(2))]}
    made = row(suite, task, split, method, kind=kind, figures=figures, cost=cost, curves=curves, settings=settings)
    return made | {"provenance": provenance, "train_rows": 90, "test_rows": 10}


def _curves(rng, m, numbers):
    x = np.linspace(0, 1, 11)
    curves = {"calibration": {"x": x.tolist(), "y": np.clip(x ** (1.5 - 0.15 * m), 0, 1).tolist()}}
    if not numbers:
        edges = np.linspace(0, 2.3, 21)
        inside, outside = rng.exponential(0.2, 500), rng.normal(0.5 + 0.3 * m, 0.3, 500)
        for name, values in (("inside", inside), ("outside", outside)):
            curves[f"entropy {name}"] = {
                "x": edges.tolist(),
                "y": np.histogram(values, edges, density=True)[0].tolist(),
            }
        return curves
    far, num = np.linspace(0, 4, 9), np.array([10, 100, 1000, 10000])
    curves["sd by distance"] = {"x": far.tolist(), "y": (0.2 + 0.1 * m * far).tolist()}
    curves["sd by rows"] = {"x": num.tolist(), "y": ((0.5 + 0.5 * m) / np.sqrt(num)).tolist()}
    line, mean = np.linspace(-2, 2, 40), np.sin(2 * np.linspace(-2, 2, 40))
    half = 0.2 + 0.1 * m * line**2
    function = {"x": line, "y": mean, "low": mean - half, "high": mean + half}
    return curves | {"function": {name: values.tolist() for name, values in function.items()}}
