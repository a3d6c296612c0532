"""Forty points with a gap: what the page of each family shows its methods on."""

import jax
import matplotlib.pyplot as plt
import numpy as np
from figures import results, table
from IPython.display import Markdown

import tunbridge as tb
from tunbridge.inference.posteriors import Posterior

prior = tb.priors.Normal((2.0, tb.priors.fan_in(2.0)))
model = tb.Model(tb.networks.MLP((20,)), prior, tb.likelihoods.Gaussian(0.1))
data = tb.datasets.curve(jax.random.key(1), 40)

PLACES = {
    "inside": np.r_[np.linspace(-1.9, -0.8, 20), np.linspace(0.4, 1.9, 20)],
    "gap": np.linspace(-0.5, 0.1, 20),
    "beyond": np.r_[np.linspace(-4, -2.5, 10), np.linspace(2.5, 4, 10)],
}


def picture(posteriors: dict[str, Posterior]) -> None:
    """The mean and 90 % of y by each posterior; dashed lines hold 90 % by four long chains of NUTS."""
    chains = results("criticism")["gap"]["NUTS"]["curve"]
    x = np.linspace(-3, 3, 121)[:, None]
    figure = plt.figure(figsize=(3.6 * len(posteriors), 3.2), layout="constrained")
    panels = figure.subplots(1, len(posteriors), sharey=True, squeeze=False)[0]
    for axes, (name, posterior) in zip(panels, posteriors.items(), strict=True):
        tb.plots.band(posterior.predict(x), x, data=data, masses=(0.9,), axes=axes)
        for edge in ("lower", "upper"):
            axes.plot(chains["x"], chains[edge], "--", color="0.3", lw=0.9, label="NUTS" if edge == "lower" else None)
        axes.set(title=name, ylim=(-3.5, 3.5), ylabel="y" if axes is panels[0] else "")
        axes.get_legend().remove()
    panels[0].legend(frameon=False, fontsize="x-small", loc="upper left")


def spreads(posteriors: dict[str, Posterior]) -> Markdown:
    """The median standard deviation of f in three places, over that of NUTS."""
    chains = results("criticism")["gap"]["NUTS"]
    rows = []
    for name, posterior in posteriors.items():
        sds = {place: np.sqrt(np.asarray(posterior.predict(x[:, None]).epistemic)) for place, x in PLACES.items()}
        rows.append([name, *(f"{np.median(sd) / chains[f'sd_{place}']:.2f}" for place, sd in sds.items())])
    return Markdown(table(["sd of f, over that of NUTS", "among the data", "in the gap", "beyond"], rows))
