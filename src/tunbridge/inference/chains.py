"""Draws of Markov chains: a posterior that remembers which chain said what, and how each step went."""

from typing import Any

import jax
import numpy as np
from jax import Array

from tunbridge.core.declared import Count, checked
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key, Params
from tunbridge.inference import mixing
from tunbridge.inference.posteriors import Draws, Posterior
from tunbridge.inference.summary import Summary

_MOST_INPUTS = 64
"""At how many of its inputs, evenly spaced, functions are judged."""


class Chains(Posterior):
    """Draws of several chains, with leading axes (chains, draws).

    Parameters
    ----------
    params
        The draws.
    stats
        The statistics of the kept steps by name, (chains, draws) each: ``log_density``, ``acceptance``, ``divergent``,
        ``energy``, ``gradients``, as far as the sampler has them.
    inputs
        Some rows of x, (points, ...features), at which convergence of functions is judged.
    """

    params: Params
    stats: dict[str, Array]
    inputs: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws)."""
        chains, draws = jax.tree.leaves(self.params)[0].shape[:2]
        return chains, draws

    @checked
    def sample(self, key: Key, num: Count) -> Params:
        """`num` draws at random, with replacement."""
        joined = jax.tree.map(_joined, self.params)
        return Draws(self.model, self.key, joined).sample(key, num)

    def starts(self, key: Key, num: int) -> Params:
        """The last draw of each chain in turn, noise included."""
        turns = np.arange(num) % self.shape[0]
        return jax.tree.map(lambda leaf: on_host(lambda draws: draws[turns, -1], leaf), self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """All draws, chain after chain, or `num` evenly spaced."""
        joined = jax.tree.map(lambda leaf: on_host(_joined, leaf), self.params)
        return Draws(self.model, self.key, joined).components(key, num)

    def functions(self, x: Any = None) -> np.ndarray:
        """What each network expects at x, (chains, draws, points, outputs or classes); None takes up to 64 inputs."""
        if x is None:
            num = len(self.inputs)
            x = np.asarray(self.inputs)[np.linspace(0, num - 1, min(num, _MOST_INPUTS)).round().astype(int)]
        values = np.asarray(self.predict(x).functions)
        return values.reshape(*self.shape, *values.shape[1:])

    def summary(self, x: Any = None) -> Summary:
        """Whether the chains agree, and what is believed about each array of unknowns.

        R-hat, effective sample sizes and Monte Carlo errors of the predictions, of the weights once permutations and
        signs of hidden units are undone, and of scales and noise, worst and median over up to 64 elements; the energies
        and divergences; and what gives reason for doubt. Chains that predict differently are named.

        Parameters
        ----------
        x
            Inputs at which predictions are judged; None takes up to 64 of the posterior's own.
        """
        if self.shape[1] < mixing.LEAST_DRAWS:
            return super().summary()
        return mixing.summarise_chains(self, self.functions(x))

    def doubts(self, x: Any = None) -> list[str]:
        """Reasons not to believe the draws, each with its number and the next step; [] where there are none.

        They are R-hat above 1.01 and bulk ESS below 400 of predictions at x, chains that predict differently,
        divergences, and E-BFMI below 0.3.
        """
        return mixing.doubts(self, self.functions(x))

    def _by_chain(self) -> tuple[Params, dict[str, Array]]:
        return self.params, self.stats


def _joined(draws: Any) -> Any:
    """Draws (chains, draws, ...) one after another."""
    return draws.reshape(-1, *draws.shape[2:])
