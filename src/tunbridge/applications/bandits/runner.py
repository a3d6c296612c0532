"""An agent in a bandit: it tries arms, sees rewards, and fits again; every fit is on disk before the next step."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tunbridge.applications.bandits.environments import Environment
from tunbridge.applications.bandits.policies import Policy, Thompson
from tunbridge.core import archive, files, keys, tables
from tunbridge.core.data import Data, room_for
from tunbridge.core.declared import Count, Module, checked, shown
from tunbridge.core.errors import CheckpointError, InputError, LoadError
from tunbridge.core.types import Key
from tunbridge.inference.base import Method
from tunbridge.inference.linear.posterior import LinearLayer
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.store import load
from tunbridge.model.model import Model
from tunbridge.runtime.fingerprint import fingerprint

FILE = "steps.npz"
_FORMAT = 1
_SLOTS = ("fit-even", "fit-odd")
"""Folders of the last two fits: the one that the steps name is whole while the other is written."""
_SHARES = (0.25, 0.5, 0.75, 1.0)


class Agent(Module):
    """A model of the reward of one arm in one context, a method that fits it, and a policy that uses the fit.

    The input of the model is the context followed by the arm, one-hot. Arms are tried at random during the first block
    of steps; then the model is fitted, and again whenever the number of steps has grown by `growth`. In between, an
    exact last layer (`NeuralLinear`) learns from every block, at the features of the last fit.

    Parameters
    ----------
    method, model
        How rewards are learnt; the likelihood is one of numbers with one output.
    policy
        How arms are chosen.
    block
        Steps that are decided with one posterior, whose rewards are seen together.
    growth
        Factor by which the number of steps grows between fits, above 1.
    warm
        Whether each fit starts from the last posterior (``init=``), for methods that can.
    """

    method: Method
    model: Model
    policy: Policy = Thompson()
    block: Count = eqx.field(static=True, default=20)
    growth: float = eqx.field(static=True, default=1.2)
    warm: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not self.growth > 1.0:
            raise InputError("growth above 1", f"{self.growth}", "Write 1.2.")


@dataclasses.dataclass(frozen=True)
class Played(tables.Table):
    """The result of `play`: what was tried and what it brought."""

    caption = "regret"
    sentences = ()

    contexts: np.ndarray
    """The row of the environment at each step, (steps,)."""
    arms: np.ndarray
    """The arm tried at each step, (steps,)."""
    rewards: np.ndarray
    """Its reward, (steps,)."""
    regret: np.ndarray
    """Expected reward of the best arm minus that of the one tried, (steps,)."""
    fits: int
    """Number of fits."""
    seconds: float
    """CPU-seconds of this call."""
    posterior: Posterior
    """The posterior after the last step."""

    @property
    def cumulative(self) -> np.ndarray:
        """Cumulative regret, (steps,)."""
        return np.cumsum(self.regret)

    @property
    def simple(self) -> float:
        """Mean regret of the last tenth of the steps."""
        return self._late(len(self.regret))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Regret after a quarter, a half, three quarters and all of the steps."""
        ends = [max(round(share * len(self.regret)), 1) for share in _SHARES]
        total = self.cumulative
        return [
            {"steps": end, "regret": float(total[end - 1]), "per step, last tenth": self._late(end)} for end in ends
        ]

    def _late(self, end: int) -> float:
        return float(self.regret[end - max(end // 10, 1) : end].mean())


@checked
def play(
    agent: Agent,
    environment: Environment,
    steps: Count,
    *,
    key: Key,
    folder: str | os.PathLike | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Played:
    """Let an agent play a bandit.

    Parameters
    ----------
    agent, environment
        Who plays, and what.
    steps
        Number of steps.
    key
        Seeds contexts, rewards and decisions.
    folder
        Where steps and the posterior are kept at each fit: a run that is stopped goes on from the last one, and ends as
        it would have. None keeps nothing.
    progress
        Called after each block with the number of steps and the regret so far.
    """
    key_world, key_agent = jax.random.split(key)
    order = environment.order(key_world, steps)
    contexts = np.asarray(environment.contexts, np.float32)
    rows = contexts.reshape(len(contexts), -1)
    state, began = _State.begin(), time.process_time()
    run = fingerprint(agent, environment, steps, key) if folder is not None else ""
    means = environment.means
    with contextlib.nullcontext() if folder is None else files.locked(Path(folder)):
        if folder is not None:
            state = _State.read(Path(folder), run, agent.model)
        posterior: Any = state.posterior
        while len(state.arms) < steps:
            done = len(state.arms)
            now = order[done : done + agent.block]
            key_choose, key_fit = keys.split(keys.fold_in(key_agent, done))
            arms = _chosen(agent, posterior, rows[now], environment.arms, key_choose)
            state.add(arms, environment.reward(key_world, done, now, arms))
            seen = len(state.arms)
            if seen >= agent.growth * state.fitted or state.fitted == 0:
                data = _data(rows[order[:seen]], state.arms, state.rewards, environment.arms)
                start = posterior if agent.warm else None
                posterior = agent.method.fit(agent.model, data, key=key_fit, init=start, progress=False)
                state.refitted(posterior)
                if folder is not None:
                    state.write(Path(folder), run)
            elif isinstance(posterior, LinearLayer):
                new = slice(done, seen)
                posterior = posterior.update(
                    (_inputs(rows[now], state.arms[new], environment.arms), state.rewards[new, None])
                )
            if progress is not None:
                progress(seen, float(_regret(means, order[:seen], state.arms).sum()))
    regret, seconds = _regret(means, order, state.arms), time.process_time() - began
    return Played(order, state.arms, state.rewards, regret, state.fits, seconds, posterior)


def _regret(means: np.ndarray, order: np.ndarray, arms: np.ndarray) -> np.ndarray:
    return means[order].max(axis=1) - means[order, arms]


def _chosen(agent: Agent, posterior: Any, contexts: np.ndarray, arms: int, key: Key) -> np.ndarray:
    """The arm to try in each context; at random before the first fit, and among equal scores."""
    num, block = len(contexts), agent.block
    ties = np.asarray(jax.random.uniform(keys.fold_in(key, 1), (block, arms)))[:num]
    if posterior is None:
        return ties.argmax(axis=1)
    filled = np.concatenate([contexts, np.repeat(contexts[:1], block - num, axis=0)])
    every = np.tile(np.arange(arms), block)
    x = _inputs(np.repeat(filled, arms, axis=0), every, arms).reshape(block, arms, -1)
    scores = agent.policy.scores(keys.fold_in(key, 0), posterior, x)[:num]
    return np.where(scores == scores.max(axis=1, keepdims=True), ties, -1.0).argmax(axis=1)


def _inputs(contexts: np.ndarray, arms: np.ndarray, num: int) -> np.ndarray:
    """Contexts followed by the arm, one-hot, (rows, features + arms)."""
    return np.concatenate([contexts, np.eye(num, dtype=contexts.dtype)[arms]], axis=1)


def _data(contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray, num: int) -> Data:
    """All steps so far, in arrays of one of few sizes, so that few programs are compiled."""
    return Data(_inputs(contexts, arms, num), rewards[:, None]).padded(capacity=room_for(len(arms)))


@dataclasses.dataclass
class _State:
    """Steps so far, and the last fit."""

    arms: np.ndarray
    rewards: np.ndarray
    fitted: int
    """Number of steps at the last fit, 0 if there was none."""
    fits: int
    posterior: Any

    @classmethod
    def begin(cls) -> "_State":
        return cls(np.zeros(0, np.int32), np.zeros(0), 0, 0, None)

    def add(self, arms: np.ndarray, rewards: np.ndarray) -> None:
        """Add the steps of a block."""
        self.arms = np.concatenate([self.arms, arms.astype(np.int32)])
        self.rewards = np.concatenate([self.rewards, rewards])

    def refitted(self, posterior: Posterior) -> None:
        """Note a fit to all steps so far."""
        self.posterior, self.fitted, self.fits = posterior, len(self.arms), self.fits + 1

    def write(self, folder: Path, run: str) -> None:
        """Keep the posterior, then the steps that it was fitted to, which name it."""
        name = _SLOTS[self.fits % 2]
        self.posterior.save(folder / name)
        facts = {"format": _FORMAT, "run": run, "fits": self.fits, "posterior": name}
        archive.write(folder / FILE, facts, {"0": self.arms, "1": self.rewards})

    @classmethod
    def read(cls, folder: Path, run: str, model: Model) -> "_State":
        """The steps and the posterior of the last fit that was kept; the beginning if there is none."""
        path = folder / FILE
        files.remove_unfinished(path)
        if not path.exists():
            return cls.begin()
        try:
            facts, arrays = archive.read(path)
            kept, fits, name = (facts["format"], facts["run"]), int(facts["fits"]), str(facts["posterior"])
            arms, rewards = arrays["0"], arrays["1"]
        except (LoadError, KeyError, TypeError, ValueError) as error:
            raise LoadError(f"{path} is damaged ({error}). Delete the folder {folder} to start anew.") from error
        if kept != (_FORMAT, run):
            raise CheckpointError(f"{path} holds another run. Give the same arguments, or name another folder.")
        if name not in _SLOTS or len(arms) != len(rewards):
            raise LoadError(f"{path} is damaged. Delete the folder {folder} to start anew.")
        return cls(arms, rewards, len(arms), fits, load(folder / name, model))


@checked
def regrets(played: Sequence[Played]) -> tables.Listing:
    """Return mean cumulative regret at a quarter, a half, three quarters and all of the steps, and its error.

    Parameters
    ----------
    played
        Runs of one agent with different keys.
    """
    if not len(played) or not all(isinstance(run, Played) for run in played):
        raise InputError("runs, as returned by play", shown(played), "Write [play(..., key=key) for key in keys].")
    if len({len(run.regret) for run in played}) > 1:
        raise InputError("runs of the same number of steps", "others", "Play each as long.")
    rows = []
    for place, row in enumerate(played[0].rows):
        found = np.array([run.rows[place]["regret"] for run in played])
        error = {"its error": float(found.std(ddof=1) / np.sqrt(len(found)))} if len(found) > 1 else {}
        rows.append({"steps": row["steps"], "regret": float(found.mean()), **error})
    return tables.Listing("regret", rows)
