"""The main job: which method tells the truth about its uncertainty, on a real table and on a curve?

Run with `make demo`. Prints two tables and writes demo/demo.png.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from rich.console import Console

import tunbridge as tb

METHODS = {"map": tb.MAP(), "ensemble": tb.Ensemble(tb.MAP(), 5)}


def main() -> None:
    console = Console()
    unknown_noise = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
    fan_in = tb.priors.Normal(tb.priors.fan_in(1.0))

    console.rule("Diabetes: disease progression of 442 patients, a fifth held out")
    train, test = tb.datasets.split(tb.datasets.diabetes(), jax.random.key(0))
    table = tb.compare(tb.Model(tb.networks.MLP((50, 50)), fan_in, unknown_noise), train, test, METHODS)
    console.print(table)

    console.rule("A curve with a gap: 60 points")
    wide = tb.priors.Normal((3.0, 1.0, tb.priors.fan_in(1.0)))
    curve_train, curve_test = tb.datasets.curve(jax.random.key(1), 60), tb.datasets.curve(jax.random.key(2), 200)
    curve = tb.compare(tb.Model(tb.networks.MLP((50, 50)), wide, unknown_noise), curve_train, curve_test, METHODS)
    console.print(curve)

    x = np.linspace(-3, 3, 300)[:, None]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    for place, name in zip(axes[0], METHODS, strict=True):
        tb.plots.band(curve.predict(name, x), x, data=curve_train, axes=place).set_title(name)
        place.set_ylim(-3.5, 3.5)
    tb.plots.split(curve.predict("ensemble", x), x, axes=axes[1, 0]).set_title("ensemble: what is not known, and why")
    for name in METHODS:
        tb.plots.calibration(table.predictives[name], test.y, label=name, axes=axes[1, 1])
    axes[1, 1].set_title("diabetes: do intervals hold what they claim?")
    path = Path("demo") / "demo.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    console.print(f"Pictures: {path}")


if __name__ == "__main__":
    main()
