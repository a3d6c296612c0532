"""Draws of network outputs at inputs chosen beforehand, from chains whose weights were not kept."""

from typing import Any

import numpy as np
from jax import Array

from tunbridge.core.data import check_x
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Predictive, PyTree
from tunbridge.inference import mixing
from tunbridge.inference.posteriors import Weightless
from tunbridge.inference.summary import Summary
from tunbridge.predict.push import push_outputs
from tunbridge.runtime import programs


class Recorded(Weightless):
    """The network's outputs at some inputs, (chains, draws, points, outputs), with the noise of each draw.

    The posterior of a sampler with `Run(keep=x)`. It predicts at these inputs, and assesses convergence there.

    Parameters
    ----------
    inputs
        The inputs that were kept, (points, ...features).
    outputs
        The network's outputs there, (chains, draws, points, outputs).
    noise
        The likelihood's unknowns on the real line, with leading axes (chains, draws).
    stats
        As in `Chains`.
    """

    inputs: Array
    outputs: Array
    noise: PyTree
    stats: dict[str, Array]

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws)."""
        return self.outputs.shape[0], self.outputs.shape[1]

    @property
    def refusal(self) -> InputError:
        """The error raised when weights, which were not kept, are asked for."""
        return InputError("a posterior that kept weights", "one of Run(keep=x)", "Leave keep= out to keep weights.")

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network."""
        return self.outputs.shape[-1]

    @checked
    @programs.unforked
    def predict(self, x: Any = None, *, key: Key | None = None, num: Count | None = None) -> Predictive:
        """The distribution of y at recorded inputs: all of them, or the rows x among them."""
        if num is not None:
            raise InputError("no num=", f"{num}", "Leave it out: all recorded draws are averaged.")
        rows = np.arange(len(self.inputs)) if x is None else self._rows(check_x(x))
        flat = self.outputs.reshape(-1, *self.outputs.shape[2:])[:, rows]
        noise = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in self.noise]
        return push_outputs(self.model, flat, tuple(noise), np.asarray(self.inputs)[rows])

    def functions(self) -> np.ndarray:
        """Return what each draw predicts at the recorded inputs, (chains, draws, points, outputs or classes)."""
        values = np.asarray(self.predict().functions)
        return values.reshape(*self.shape, *values.shape[1:])

    def summary(self) -> Summary:
        """Return convergence diagnostics of the predictions at the recorded inputs."""
        return mixing.summarise_functions(self, self.functions())

    def doubts(self) -> list[str]:
        """Return reasons not to trust the draws; see `Chains.doubts`."""
        return mixing.doubts(self, self.functions())

    def _rows(self, x: np.ndarray) -> np.ndarray:
        known = {row.tobytes(): i for i, row in enumerate(np.asarray(self.inputs))}
        rows = [known.get(row.tobytes(), -1) for row in np.asarray(x, self.inputs.dtype)]
        if -1 in rows:
            raise InputError(
                "x among the inputs that were kept",
                f"{rows.count(-1)} rows of {len(rows)} that are not",
                "Name all inputs in Run(keep=x), or keep weights.",
            )
        return np.asarray(rows)
