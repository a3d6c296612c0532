"""Stochastic-gradient MCMC on known densities: biases of its steps, and their corrections.

python benchmarks/sgmcmc.py [--quick] [bias] [ravine] [chen]

-> benchmarks/results/sgmcmc.json, one section per argument; without arguments all sections. A minute or two each on
two cores; --quick takes a tenth of that and records nothing. `sgmcmc_rows.py` and `sgmcmc_review.py` add studies on
data.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import RESULTS, record
from scipy.linalg import solve_discrete_lyapunov

import tunbridge as tb
from tunbridge.bench.truth.noisy import known

KEY = jax.random.key(0)
QUICK = "--quick" in sys.argv
CHAINS = 4
COPIES = 100
"""Independent copies of a density that are sampled together and pooled to estimate its variance."""
STEPS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FRICTION = 0.1
ACCEPTED = (0.01, 0.03, 0.1, 0.3, 1.0)


def few(num: int) -> int:
    """`num`, or a tenth of it with --quick."""
    return max(num // 10, 20) if QUICK else num


def run(draws: int, thin: int = 1, warmup: int = 1000, **options: Any) -> tb.Run:
    return tb.Run(chains=options.pop("chains", CHAINS), warmup=few(warmup), draws=few(draws), thin=thin, **options)


def drawn(method: Any, problem: tuple[tb.Model, tb.Data], **options: Any) -> tuple[np.ndarray, Any]:
    """Draws (chains, draws, num), and the posterior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.ConvergenceWarning)
        posterior = method.fit(*problem, key=KEY, progress=False, **options)
    return np.asarray(posterior.params.weights["w"], np.float64), posterior


def variance(values: np.ndarray) -> dict[str, float]:
    """Variance of draws (chains, draws, copies) with mean 0, and its standard error over chains and copies."""
    each = (values**2).mean(1)
    return {"variance": float(each.mean()), "error": float(each.std(ddof=1) / np.sqrt(each.size))}


def standard(w: Any) -> Any:
    return -0.5 * jnp.sum(w**2)


def theory(name: str, eta: float, alpha: float) -> float | None:
    """Stationary variance of a sampler's linear recursion on N(0, 1)."""
    kept, half = 1.0 - alpha, 0.5 * eta
    if name == "SGLD":
        return 1.0 / (1.0 - eta / 2.0)
    if name == "SGLD, literal rule":
        return 1.0 / (2.0 - eta)
    if name == "SGHMC, Euler":
        moves, noise = np.array([[1 - eta, eta * kept], [-1.0, kept]]), np.array([eta, 1.0]) * np.sqrt(2 * alpha / eta)
    elif name == "SGHMC, BAOAB":
        kick = np.array([[1.0, 0.0], [-1.0, 1.0]])
        drift = np.array([[1.0, half], [0.0, 1.0]])
        moves, noise = drift @ np.diag([1.0, kept]) @ drift @ kick, np.array([half, 1.0])
        noise = noise * np.sqrt((1 - kept**2) / eta)
    else:
        return None
    return float(solve_discrete_lyapunov(moves, np.outer(noise, noise))[0, 0])


def bias() -> dict[str, Any]:
    """Variances on N(0, 1), a hundred copies, full gradients; acceptance on ten copies; and a decaying step size."""
    problem = known(standard, COPIES)
    momentum = {"friction": FRICTION, "run": run(4000)}
    methods: dict[str, Callable[[float], Any]] = {
        "SGLD": lambda eta: tb.SGLD(eta, run=run(4000)),
        "SGLD, literal rule": lambda eta: tb.SGLD(eta, noise=0.5**0.5, run=run(4000)),
        "SGHMC, Euler": lambda eta: tb.SGHMC(eta, **momentum),
        "SGHMC, BAOAB": lambda eta: tb.SGHMC(eta, integrator=tb.splittings.BAOAB(), **momentum),
        "SGNHT, Thermostat": lambda eta: tb.SGNHT(eta, **momentum),
        "SGNHT, BADODAB": lambda eta: tb.SGNHT(eta, integrator=tb.splittings.BADODAB(), **momentum),
    }
    found: dict[str, Any] = {"steps": STEPS, "friction": FRICTION, "samplers": {}}
    for name, method in methods.items():
        rows = []
        for eta in STEPS:
            values = drawn(method(eta), problem)[0]
            rows.append({**variance(values), "theory": theory(name, eta, FRICTION)})
        found["samplers"][name] = rows
        print(name, [f"{r['variance']:.3f} ({r['theory'] or np.nan:.3f})" for r in rows], flush=True)
    ten = known(standard, 10)
    found["acceptance"] = [accepted(ten, eta) for eta in ACCEPTED]
    found["decaying"] = decaying(problem, ten)
    return found


def accepted(problem: Any, eta: float) -> dict[str, float]:
    """Acceptance rate of SGLD steps with a Metropolis correction, and the resulting variance."""
    values, posterior = drawn(tb.SGLD(eta, correction=tb.corrections.Metropolis(1), run=run(4000, 5)), problem)
    row = {"step": eta, "acceptance": float(np.mean(posterior.stats["acceptance"])), **variance(values)}
    print(row, flush=True)
    return row


def decaying(problem: Any, ten: Any) -> dict[str, Any]:
    """Variance and acceptance by eighths of a run whose step size decays from 1."""
    pacing = {"schedule": tb.schedules.Decaying(b=50.0, gamma=0.8), "run": run(8000, warmup=200)}
    plain = drawn(tb.SGLD(1.0, **pacing), problem)[0]
    corrected = drawn(tb.SGLD(1.0, correction=tb.corrections.Metropolis(1), **pacing), ten)[1]
    edges = np.linspace(0, plain.shape[1], 9).astype(int)
    parts = [slice(*pair) for pair in pairwise(edges)]
    rates = np.asarray(corrected.stats["acceptance"])
    found = {
        "b": 50.0,
        "gamma": 0.8,
        "step": [float((1 + edges[i] / 50.0) ** -0.8) for i in range(8)],
        "variances": [variance(plain[:, part]) for part in parts],
        "acceptance": [float(rates[:, part].mean()) for part in parts],
    }
    print("decaying", [f"{v['variance']:.3f}" for v in found["variances"]], found["acceptance"], flush=True)
    return found


NARROW = 1e-4
PAIRS = 10
"""Independent pairs of one narrow and one wide direction."""


def ravine() -> dict[str, Any]:
    """Ten copies of N(0, diag(1e-4, 1)), full gradients: variances relative to the truth in both directions."""
    widths = jnp.tile(jnp.array([NARROW, 1.0]), PAIRS)

    def log_density(w: Any) -> Any:
        return -0.5 * jnp.sum(w**2 / widths)

    problem = known(log_density, 2 * PAIRS)
    long, cycles = run(2000, 50, 5000), run(1000, 100, 5000)
    prec = {"preconditioner": tb.preconditioners.RMSprop(), "friction": 0.05}
    following = {"preconditioner": tb.preconditioners.RMSprop(forever=True), "friction": 0.05}
    methods = {
        "SGLD 1e-4": tb.SGLD(1e-4, run=long),
        "SGLD 1e-5": tb.SGLD(1e-5, run=long),
        "SGHMC 1e-4": tb.SGHMC(1e-4, friction=0.05, run=long),
        "SGHMC-RMSprop 1e-2": tb.SGHMC(1e-2, run=long, **prec),
        "SGHMC-RMSprop 1e-2, never stops": tb.SGHMC(1e-2, run=long, **following),
        "SGHMC-CLR 1e-4": tb.SGHMC(1e-4, friction=0.05, schedule=tb.schedules.Cyclical(), run=cycles),
        "SGHMC-CLR-Prec 1e-2": tb.SGHMC(1e-2, schedule=tb.schedules.Cyclical(), run=cycles, **prec),
        "SGHMC-CLR-Prec 1e-2, never stops": tb.SGHMC(1e-2, schedule=tb.schedules.Cyclical(), run=cycles, **following),
        "SGLD, default": tb.SGLD(run=long),
        "SGHMC, default": tb.SGHMC(run=long),
        "SGNHT, default": tb.SGNHT(run=long),
    }
    found = {}
    for name, method in methods.items():
        values, posterior = drawn(method, problem)
        scaled = values / np.sqrt(np.asarray(widths, float))
        ess = tb.diagnostics.ess_bulk(values)
        found[name] = {
            "narrow": variance(scaled[..., ::2]),
            "wide": variance(scaled[..., 1::2]),
            "ess_per_1000_steps": float(1e3 * np.mean(ess[1::2]) / (values[..., 0].size * method.run.thin)),
            "note": posterior.notes[0],
        }
        print(name, found[name], flush=True)
    return found


CHEN_STEP, CHEN_FRICTION, CHEN_NOISE = 0.1, 3.0, 4.0
"""Step size, friction C and variance of the gradient noise, in the units of the paper."""
EDGES = np.linspace(-2.4, 2.4, 49)
WELLS = 50
"""Independent double wells."""


def double_well(w: Any) -> Any:
    return jnp.sum(2.0 * w**2 - w**4)


def share(values: np.ndarray) -> np.ndarray:
    """Share of draws in each bin; draws beyond the outermost edges count in the outermost bins."""
    return np.histogram(np.clip(values, EDGES[0], EDGES[-1]), EDGES)[0] / values.size


def exact_share() -> np.ndarray:
    x = np.linspace(-4, 4, 400_001)
    density = np.exp(2 * x**2 - x**4)
    cumulated = np.concatenate([[0.0], np.cumsum(density) / density.sum()])
    inner = np.interp(EDGES[1:-1], x + (x[1] - x[0]) / 2, cumulated[1:])
    return np.diff(np.concatenate([[0.0], inner, [1.0]]))


def naive(key: Any, noise: float, friction: bool, metropolis: bool, chains: int = 4000, paths: int = 300) -> np.ndarray:
    """HMC with noisy gradients and no friction to offset the noise; momentum is redrawn every 50 steps.

    With `friction`, equation 9 of the paper instead; with `metropolis`, paths are accepted by the exact energy.
    """
    step = CHEN_STEP

    def turn(_: Any, state: Any) -> Any:
        w, r, key = state
        key, key_gradient, key_noise = jax.random.split(key, 3)
        g = 4.0 * w - 4.0 * w**3 + jnp.sqrt(noise) * jax.random.normal(key_gradient, w.shape)
        r = r + step * g
        if friction:
            wide = jnp.sqrt(2.0 * (CHEN_FRICTION - 0.5 * noise * step) * step)
            r = r - step * CHEN_FRICTION * (r - step * g) + wide * jax.random.normal(key_noise, w.shape)
        return w + step * r, r, key

    def energy(w: Any, r: Any) -> Any:
        return -2.0 * w**2 + w**4 + 0.5 * r**2

    def path(carry: Any, key: Any) -> Any:
        w, r = carry
        key_momentum, key_path, key_accept = jax.random.split(key, 3)
        r = r if friction else jax.random.normal(key_momentum, w.shape)
        moved, pushed, _ = jax.lax.fori_loop(0, 50, turn, (w, r, key_path))
        if metropolis:
            taken = jnp.log(jax.random.uniform(key_accept, w.shape)) < energy(w, r) - energy(moved, pushed)
            moved = jnp.where(taken, moved, w)
        return (moved, pushed), moved

    start = jnp.zeros(chains), jnp.zeros(chains)
    draws = jax.lax.scan(path, start, jax.random.split(key, few(paths)))[1]
    return np.asarray(draws[len(draws) // 3 :], float)


def chen() -> dict[str, Any]:
    """Total variation of histograms for exp(2 x^2 - x^4), with noise of variance 4 in the gradient."""
    truth = exact_share()
    found: dict[str, Any] = {"edges": EDGES.tolist(), "truth": truth.round(6).tolist(), "samplers": {}}
    problem, pairs = (known(double_well, WELLS, CHEN_NOISE * n, 5000) for n in (1, 2))
    alone = {"friction": CHEN_STEP * CHEN_FRICTION, "run": run(2000, 10, batch_size=1)}
    paired = {"friction": CHEN_STEP * CHEN_FRICTION, "run": run(2000, 10, batch_size=2)}
    eta = CHEN_STEP**2
    methods = {
        "SGHMC, friction alone": (tb.SGHMC(eta, **alone), problem),
        "SGHMC, noise known": (tb.SGHMC(eta, noise_estimate=CHEN_NOISE, **alone), problem),
        "SGHMC, noise measured": (tb.SGHMC(eta, noise_estimate=None, **paired), pairs),
        "SGHMC, BAOAB, noise known": (
            tb.SGHMC(eta, noise_estimate=CHEN_NOISE, integrator=tb.splittings.BAOAB(), **alone),
            problem,
        ),
    }
    for name, (method, target) in methods.items():
        found["samplers"][name] = judged(name, drawn(method, target)[0].swapaxes(0, 1), truth)
    by_hand = {
        "naive, no noise": (0.0, False, False),
        "naive": (CHEN_NOISE, False, False),
        "naive, with Metropolis steps": (CHEN_NOISE, False, True),
        "equation 9, by hand": (CHEN_NOISE, True, False),
    }
    for name, setting in by_hand.items():
        found["samplers"][name] = judged(name, naive(KEY, *setting), truth)
    return found


def judged(name: str, values: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Total variation of draws (draws, chains, ...) from the truth, and between the halves of the chains."""
    found = share(values)
    chains = values.shape[1]
    halves = [share(values[:, part]) for part in (slice(0, chains // 2), slice(chains // 2, None))]
    row = {
        "total_variation": float(0.5 * np.abs(found - truth).sum()),
        "between_halves": float(0.5 * np.abs(halves[0] - halves[1]).sum()),
        "share": found.round(6).tolist(),
    }
    print(name, row["total_variation"], row["between_halves"], flush=True)
    return row


SECTIONS = {"bias": bias, "ravine": ravine, "chen": chen}


def save(word: str, section: dict[str, Any], script: str) -> None:
    """Write a section of the file, and leave the others unchanged."""
    if QUICK:
        return
    path = RESULTS / "sgmcmc.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    before.pop("machine", None)
    record("sgmcmc", {**before, word: section}, script, show=False)


def main(sections: dict[str, Callable[[], dict[str, Any]]], script: str) -> None:
    """Run the requested sections, and save each as soon as it is done."""
    for word in [word for word in sys.argv[1:] if word != "--quick"] or sections:
        began = time.perf_counter()
        section = sections[word]()
        seconds = time.perf_counter() - began
        print(word, f"{seconds:.0f} s", flush=True)
        save(word, {**section, "seconds": seconds}, script)


if __name__ == "__main__":
    main(SECTIONS, "sgmcmc.py")
