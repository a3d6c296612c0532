"""Draws of Markov chains: a posterior that keeps its chains apart, with the statistics of each step."""

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
from tunbridge.runtime import programs

_MOST_INPUTS = 64
"""Number of stored inputs, evenly spaced, at which convergence of functions is assessed by default."""


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
        Some rows of x, (points, ...features), at which convergence of functions is assessed.
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
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Return `num` draws chosen at random, with replacement."""
        joined = jax.tree.map(_joined, self.params)
        return Draws(self.model, self.key, joined).sample(key, num)

    def starts(self, key: Key, num: int) -> Params:
        """Return starting points of `num` chains: the last draws of these chains in turn, noise included."""
        chains = np.arange(num) % self.shape[0]
        return jax.tree.map(lambda leaf: on_host(lambda draws: draws[chains, -1], leaf), self.params)

    def components(self, key: Key, num: int | None) -> Params:
        """Return all draws, chain after chain, or `num` evenly spaced ones."""
        joined = jax.tree.map(lambda leaf: on_host(_joined, leaf), self.params)
        return Draws(self.model, self.key, joined).components(key, num)

    def functions(self, x: Any = None) -> np.ndarray:
        """Return what each draw predicts at x, means of y or class probabilities.

        The shape is (chains, draws, points, outputs or classes). None takes up to 64 of the posterior's own inputs.
        """
        if x is None:
            num = len(self.inputs)
            x = np.asarray(self.inputs)[np.linspace(0, num - 1, min(num, _MOST_INPUTS)).round().astype(int)]
        values = np.asarray(self.predict(x).functions)
        return values.reshape(*self.shape, *values.shape[1:])

    def summary(self, x: Any = None) -> Summary:
        """Return convergence diagnostics, and the mean and standard deviation of each array of unknowns.

        R-hat, effective sample sizes and Monte Carlo errors of the predictions, of the weights once permutations and
        signs of hidden units are undone, and of scales and noise, worst and median over up to 64 elements; the energies
        and divergences; and reasons for doubt. Chains that predict differently are named.

        Parameters
        ----------
        x
            Inputs at which predictions are assessed; None takes up to 64 of the posterior's own.
        """
        if self.shape[1] < mixing.LEAST_DRAWS:
            return super().summary()
        return mixing.summarise_chains(self, self.functions(x))

    def doubts(self, x: Any = None) -> list[str]:
        """Return reasons not to trust the draws, each with its number and the next step; [] if there are none.

        They are R-hat above 1.01 and bulk ESS below 400 of predictions at x, chains that predict differently,
        divergences, and E-BFMI below 0.3.
        """
        return mixing.doubts(self, self.functions(x))

    def _by_chain(self) -> tuple[Params, dict[str, Array]]:
        return self.params, self.stats


def _joined(draws: Any) -> Any:
    """Draws (chains, draws, ...) with the first two axes merged."""
    return draws.reshape(-1, *draws.shape[2:])
