"""Parts of `tunbridge bandit`: the table as an environment, agents by name, the runs, the progress bar, the report."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tunbridge import plots
from tunbridge.applications import bandits
from tunbridge.applications.bandits import Agent, Environment, Played
from tunbridge.bench.comparing.report.page import Page, subplots
from tunbridge.cli.study import Rows, widths
from tunbridge.core.errors import InputError
from tunbridge.datasets import table as tables
from tunbridge.datasets.encoding import is_number
from tunbridge.datasets.scaling import Scaling
from tunbridge.inference.base import Method
from tunbridge.model import defaults
from tunbridge.model.model import Model
from tunbridge.plots.regret import interval

POLICIES = {
    "thompson": bandits.Thompson(),
    "ucb": bandits.UCB(),
    "greedy": bandits.Greedy(),
    "epsilon": bandits.EpsilonGreedy(),
}
"""Policies by the name that the command takes."""
_UNITS = (50,)
_GRADIENTS = 64_000
"""Per-row gradients of a fit: a game takes dozens of them."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One game: an agent's name, the agent, and the seed."""

    name: str
    agent: Agent
    steps: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Arena:
    """A table as a bandit, with rewards in units of their standard deviation."""

    rows: Rows
    environment: Environment
    actions: list[str]
    unit: float
    """The standard deviation of the payoffs over rows and actions."""

    @classmethod
    def read(cls, path: Path, target: str, payoffs: Path | None, **options: Any) -> "Arena":
        """Read and check the table and the payoffs."""
        rows = Rows.read(path, [target], task="classification", **options)
        classes = list(rows.encoding.classes)
        actions, brings = (classes, np.eye(len(classes))) if payoffs is None else _payoffs(payoffs, classes)
        x, y = rows.encoding.x(rows.table), rows.encoding.y(rows.table)
        scaling = Scaling.of(x)
        whole = brings[y]
        if not (unit := float(whole.std())) > 0.0:
            raise InputError("payoffs that differ", f"{brings.ravel()[0]:g} everywhere", "Correct the payoffs.")
        environment = bandits.labelled((x - scaling.x_shift) / scaling.x_scale, y, brings / unit)
        return cls(rows, environment, actions, unit)

    def said(self) -> str:
        """A sentence on the game."""
        return f"{len(self.environment.contexts)} rows, {len(self.actions)} actions: {tables.listed(self.actions)}."

    def agents(self, policies: str, method: Method, hidden: str | None) -> dict[str, Agent]:
        """Agents by the names of their policies."""
        asked = [name.strip() for name in policies.split(",") if name.strip()]
        unknown = sorted(set(asked) - set(POLICIES))
        if unknown or not asked:
            raise InputError(f"policies of {', '.join(POLICIES)}", tables.listed(unknown) or "none", "Choose of these.")
        network = bandits.PerArm(len(self.actions), _UNITS if hidden is None else widths(hidden))
        model = Model(network, defaults.prior(), defaults.of_numbers())
        brief = method.within(_GRADIENTS, len(self.environment.contexts))
        return {name: Agent(brief, model, POLICIES[name]) for name in dict.fromkeys(asked)}

    def plan(self, agents: dict[str, Agent], steps: int | None, runs: int, seed: int) -> list[Run]:
        """All games."""
        if runs < 1:
            raise InputError("--runs of at least 1", f"{runs}", "Use 5.")
        steps = len(self.environment.contexts) if steps is None else steps
        if steps < 1:
            raise InputError("--steps of at least 1", f"{steps}", "Leave it out to see each row once.")
        return [Run(name, agent, steps, seed + number) for number in range(runs) for name, agent in agents.items()]

    def play(self, plan: Sequence[Run], folder: Path, each: Any) -> "Results":
        """Play all games; an interrupted one goes on from its last fit."""
        found: dict[str, list[Played]] = {}
        for run in plan:
            played = bandits.play(
                run.agent,
                self.environment,
                run.steps,
                key=jax.random.key(run.seed),
                folder=folder / run.name / str(run.seed),
                progress=each(run),
            )
            found.setdefault(run.name, []).append(played)
        return Results(self, found)


@dataclasses.dataclass(frozen=True)
class Results:
    """The games that were played, by policy."""

    arena: Arena
    played: dict[str, list[Played]]

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """Cumulative regret, (runs, steps), by policy."""
        return {
            name: self.arena.unit * np.stack([run.cumulative for run in runs]) for name, runs in self.played.items()
        }

    @property
    def chance(self) -> float:
        """Expected regret per step of actions at random."""
        means = self.arena.environment.means
        return self.arena.unit * float((means.max(axis=1) - means.mean(axis=1)).mean())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per policy, and one for actions at random."""
        rows = []
        for name, curves in self.curves.items():
            ends, runs = curves[:, -1], self.played[name]
            late = self.arena.unit * float(np.mean([run.simple for run in runs]))
            seconds, fits = (float(np.mean([getattr(run, what) for run in runs])) for what in ("seconds", "fits"))
            rows.append(_row(name, len(runs), ends, late) | {"fits": fits, "CPU seconds": seconds})
        steps = len(next(iter(self.played.values()))[0].regret)
        nothing = {"fits": 0.0, "CPU seconds": 0.0}
        return [*rows, _row("at random", 0, np.array([steps * self.chance]), self.chance) | nothing]

    @property
    def verdict(self) -> str:
        """The policy of least regret, and by how much."""
        *found, chance = self.rows
        best = min(found, key=lambda row: row["regret"])
        share = best["regret"] / chance["regret"]
        return f"Least regret: {best['policy']}, {best['regret']:.4g}, {share:.0%} of that of actions at random."

    def report(self, title: str, method: str) -> str:
        """The HTML report."""
        page = Page(title, f"{self.arena.said()} Rewards are learnt by {method}.", self.verdict)
        rows = self.rows
        page.table(rows, min(range(len(self.played)), key=lambda place: rows[place]["regret"]))
        figure, axes = subplots(1, 2, size=(10.5, 4.0))
        for name, curves in self.curves.items():
            plots.regret(curves, label=name, axes=axes[0])
            plots.regret(self._window(curves), label=name, axes=axes[1])
        steps = curves.shape[1]
        axes[0].plot([0, steps], [0, steps * self.chance], "k:", lw=1, label="at random")
        axes[1].axhline(self.chance, color="k", ls=":", lw=1)
        axes[0].legend(frameon=False, fontsize="small")
        axes[1].set(ylabel="regret per step, running mean", ylim=(0, None))
        page.figure(
            figure,
            "Regret: what the best action of a row brings minus what the one tried brings. Bands: 90 % interval of the "
            "mean over runs.",
        )
        page.heading("Once more")
        page.code(shlex.join(["tunbridge", *sys.argv[1:]]))
        return page.html()

    def _window(self, curves: np.ndarray) -> np.ndarray:
        """Mean regret per step over the last tenth of all steps, (runs, steps)."""
        width = max(curves.shape[1] // 10, 1)
        before = np.concatenate([np.zeros((len(curves), width)), curves[:, :-width]], axis=1)[:, : curves.shape[1]]
        return (curves - before) / np.minimum(np.arange(1, curves.shape[1] + 1), width)


class Bar:
    """A progress bar over all steps of all games; hidden if there is no terminal."""

    def __init__(self, plan: Sequence[Run], show: bool):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
            transient=True,
            disable=not (show and sys.stderr.isatty()),
        )
        self._task = self._bar.add_task("steps", total=sum(run.steps for run in plan), last="")
        self._before = 0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, run: Run) -> Any:
        """Return what `play` calls during this game."""
        before, self._before = self._before, self._before + run.steps

        def each(steps: int, regret: float) -> None:
            last = f"{run.name}, seed {run.seed}: regret per step {regret / steps:.3g}"
            self._bar.update(self._task, completed=before + steps, last=last)

        return each


def _row(name: str, runs: int, ends: np.ndarray, late: float) -> dict[str, Any]:
    """Mean regret and half the width of its 90 % interval, by Student's t."""
    half = interval(ends) if len(ends) > 1 else np.nan
    return {"policy": name, "runs": runs, "regret": float(ends.mean()), "+-": float(half), "last tenth": late}


def _payoffs(path: Path, classes: list[str]) -> tuple[list[str], np.ndarray]:
    """Names of actions, and what each brings in each class, (classes, actions)."""
    sheet = tables.read(path, ())
    name, *actions = sheet.table.column_names
    given = [str(value) for value in sheet.table[name].to_pylist()]
    if sorted(given) != sorted(classes):
        raise InputError(
            f"a row of payoffs for each of {tables.listed(classes)}", tables.listed(given), f"Edit {path}."
        )
    if len(actions) < 2 or not all(is_number(sheet.table[action].type) for action in actions):
        raise InputError("two columns of numbers or more after the classes", tables.listed(actions), f"Edit {path}.")
    numbers = np.array([sheet.table[action].to_pylist() for action in actions], float).T
    if not np.isfinite(numbers).all():
        raise InputError("a finite payoff in every cell", "others", f"Edit {path}.")
    return actions, numbers[[given.index(value) for value in classes]]
