"""Right arguments for the public functions that share names of arguments but not meanings, room by room.

All are cheap: networks are linear or tiny, posteriors are made rather than fitted, and figures are drawn in given axes.
"""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import tunbridge as tb
from bench_fakes import line
from bench_rows import row
from faults.calls import installed
from toys import LeastSquares, labelled, model, table
from tunbridge.inference.checks import Check

KEY = jax.random.key(0)
NUMBERS, CLASSES = table(12, 2), labelled(12, 2)
NAMED = tb.Model(tb.networks.MLP((2,), outputs=1), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
SPLIT = {"train": NUMBERS, "test": (NUMBERS.x, NUMBERS.y)}


def _axes(num=1):
    made = Figure().subplots(1, num, squeeze=False)[0]
    return made[0] if num == 1 else list(made)


def _solved(data, likelihood=None):
    """The posterior of a straight line, and its predictive at the inputs of the data."""
    posterior = LeastSquares().fit(model((), likelihood), data, key=KEY, progress=False)
    return posterior, posterior.predict(data.x)


def _chains(posterior):
    """Two chains of eight draws around a line."""
    rng = np.random.default_rng(0)
    drawn = jax.tree.map(lambda leaf: leaf[None, None] + rng.normal(size=(2, 8, *leaf.shape)), posterior.params)
    return tb.Chains(posterior.model, KEY, drawn, {"energy": jnp.asarray(rng.normal(size=(2, 8)))}, NUMBERS.x)


def plots(_):
    """Every plot."""
    (numbers, regression), (_, labels) = _solved(NUMBERS), _solved(CLASSES, tb.likelihoods.Categorical(3))
    chains = {"chains": _chains(numbers)}
    of_numbers, of_classes = {"predictive": regression, "y": NUMBERS.y}, {"predictive": labels, "y": CLASSES.y}
    priors = {"priors": {"normal": tb.priors.Normal(1.0)}, "w": np.linspace(-1, 1, 3), "key": KEY}
    rows = [{"model": name, "NLL": nll, "its error": 0.1, "a row": -nll} for name, nll in (("a", 1.0), ("b", 2.0))]
    check = Check([], (), np.asarray(NUMBERS.y), np.random.default_rng(0).normal(size=(5, 12, 1)), None, None)
    pruned = [{"by": "snr", "removed": removed, "RMSE": 1.0 + removed} for removed in (0.0, 0.5, 1.0)]
    grid = {"x": np.linspace(-3, 3, 7), "y": np.linspace(-3, 3, 5), "masses": (0.5, 0.9)}
    normal = {"mean": [0.0, 1.0], "covariance": np.eye(2), "masses": (0.5,), "label": "a", "color": "red"}
    ranks = tb.diagnostics.Calibration({"f": np.linspace(0, 1, 20)}, {"f": np.full(20, 50)})
    functions = {"model": NAMED, "x": np.linspace(-1, 1, 5), "key": KEY, "num": 3}
    followed = tb.bench.PartialFunction("a", np.arange(3.0), np.ones((4, 3)), np.arange(2.0), np.ones(2))
    ours = tb.plots
    arguments = {
        ours.averaging: {"predictive": tb.Mixture(numbers.model, KEY, (numbers, numbers)).predict(NUMBERS.x)},
        ours.band: {"predictive": regression, "x": NUMBERS.x, "data": NUMBERS, "masses": (0.5,)},
        ours.calibration: of_numbers | {"label": "a"},
        ours.check: {"check": check, "output": 0, "axes": [_axes()]},
        ours.regret: {"runs": np.ones((2, 3)), "steps": None, "label": "a"},
        ours.coverage_risk: {"curve": tb.metrics.CoverageRisk(*np.ones((3, 4))), "label": "a"},
        ours.contours: {"log_density": lambda w: -jnp.sum(w**2), **grid},
        ours.densities: priors,
        ours.ellipses: normal,
        ours.energy: chains,
        ours.evidence: {"ranking": tb.bench.ModelRanking(rows, (), {}, None)},
        ours.influence: priors,
        ours.observed: of_numbers | {"output": 0, "mass": 0.5},
        ours.partial_function: {"found": followed, "masses": (0.5,)},
        ours.parts: {"predictive": regression, "output": 0},
        ours.path: {"means": np.zeros((3, 2)), "covariances": np.tile(np.eye(2), (3, 1, 1)), "mass": 0.5},
        ours.prior_functions: functions,
        ours.pruning: {"rows": pruned, "score": "RMSE"},
        ours.ranks: chains | {"x": NUMBERS.x, "bins": 4},
        ours.reliability: of_classes | {"bins": 4, "label": "a"},
        ours.sbc: {"calibration": ranks},
        ours.signal_to_noise: {"decibels": {"w": np.linspace(-9, 9, 6)}, "removed": (0.5,), "axes": _axes(2)},
        ours.split: {"predictive": labels, "x": CLASSES.x},
        ours.trace: chains | {"x": NUMBERS.x},
        ours.weight_histograms: {"posterior": numbers, "fixed": numbers, "numbers": [0, 2], "key": KEY},
    }
    arguments[ours.averaging] |= {"y": NUMBERS.y, "label": "a"}
    return {function: {"axes": _axes()} | given for function, given in arguments.items()}


OPEN = contextlib.ExitStack()
"""What the arguments of a test hold open: the test closes it."""


def _counted():
    """Draws of a network with an unknown number of units."""
    prior = tb.priors.Exchangeable(alpha=0.5)
    bound, data = tb.Model(tb.networks.Shallow(2), prior, tb.likelihoods.Gaussian(0.3)).bind(NUMBERS)
    params = jax.tree.map(lambda leaf: jnp.stack([leaf] * 8)[None], bound.sample_params(KEY, data.x))
    return tb.Chains(bound, KEY, params, {}, data.x)


def bench(folder):
    """Every function of `tb.bench`; the results of a benchmark are in a folder."""
    posterior, _ = _solved(NUMBERS)
    curve, _ = _solved(tb.datasets.curve(KEY, 9))
    problem = tb.bench.PROBLEMS["linear"]()
    exact = LeastSquares().fit(problem.model, problem.data, key=KEY, progress=False)
    wide = tb.Model(tb.networks.MLP((3,), "relu"), tb.priors.Normal(tb.priors.fan_in(1.0)), NAMED.likelihood)
    straight = tb.Model(tb.networks.MLP((), outputs=1), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    laplace, quiet = tb.Laplace(point=tb.MAP(train=tb.Train(2))), {"checkpoint": None, "progress": False}
    planned = {"suite": "toy", "tasks": [line(splits=1)], "methods": {"map": LeastSquares()}, "key": 1, "tune": False}
    store = OPEN.enter_context(tb.bench.Store(folder / "results.sqlite", {}))
    compared = {"methods": {"map": LeastSquares()}, "baselines": False, "strict": False, "max_seconds": 9.0}
    reference = {"method": tb.HMC(run=tb.Run(2, 3, 8)), "draws": 3, "places": [0] * 6 + [1] * 6, "name": "a"}
    ranked = {"models": {"a": NAMED}, "data": NUMBERS, "test": NUMBERS, "method": laplace, "starts": 1}
    simulated = {"method": LeastSquares(), "x": NUMBERS.x[:5], "simulations": 20, "inputs": NUMBERS.x[:2]}
    ours, stored = tb.bench, [row(), row(method="nuts")]
    return {
        ours.compare: {"model": straight, **SPLIT, **compared, **quiet, "key": KEY},
        ours.cost: {"posterior": posterior, "x": NUMBERS.x, "y": NUMBERS.y},
        ours.deviation: {"problem": problem, "posterior": exact, "kind": "mode", "key": KEY, "num": 3},
        ours.drop_inputs: {
            "model": straight,
            "data": (np.asarray(CLASSES.x), NUMBERS.y),
            "inputs": [0],
            "names": ["a", "b"],
            "key": KEY,
        }
        | {"method": laplace, "repeats": 1},
        ours.num_units: {"posterior": _counted()},
        ours.partial_effects: {"posterior": posterior, "x": NUMBERS.x, "names": ["a", "b"], "output": 0},
        ours.partial_function: {"posterior": posterior, "data": NUMBERS, "feature": 1}
        | {"name": "b", "output": 0, "num": 3},
        ours.fidelity: {"posterior": curve, "reference": tb.bench.load_reference("curve")},
        ours.load_reference: {"path": "curve", "folder": "missing"},
        ours.make_reference: {"model": NAMED, "data": NUMBERS, "inputs": NUMBERS.x, "key": KEY, **reference, **quiet},
        ours.page: {"rows": stored, "title": "a", "command": "b", "figure": "NLL"},
        ours.plan: planned | {"splits": [0]},
        ours.prior_predictive: {"model": NAMED, "data": NUMBERS, "key": KEY, "num": 5},
        ours.published: {"suite": "uci"},
        ours.rank_models: ranked | {"key": KEY},
        ours.rank_priors: {"model": NAMED, "priors": {"a": NAMED.prior}, **SPLIT, "key": KEY}
        | {"method": tb.TemperedSMC(20, 1, stages=50)},
        ours.references: {"folder": "missing"},
        ours.run: {"jobs": ours.plan(**planned), "store": store, "each": lambda done: None},
        ours.Leaderboard.of: {"rows": stored, "figure": "NLL", "level": 0.9},
        ours.sbc: simulated | {"model": straight, "key": KEY, "progress": False},
        ours.sensitivity: {"model": straight, **SPLIT, "make": tb.priors.Normal, "scales": (1.0,), "key": KEY}
        | {"method": LeastSquares()},
        ours.wide_kernel: {"model": wide, "features": 2},
    }


def networks(_):
    """The functions of `tb.networks` that need no other framework."""
    network = tb.networks.MLP((3,), outputs=1)
    module = eqx.nn.MLP(2, 1, 3, 1, key=KEY)
    weights = jax.vmap(lambda key: network.init(key, NUMBERS.x))(jax.random.split(KEY, 2))
    one = jax.tree.map(lambda leaf: leaf[0], weights)
    pair = {"init": lambda key, x: jnp.zeros(x.shape[1]), "apply": lambda w, x: x @ w}
    ours = tb.networks
    return {
        ours.from_functions: pair | {"layout": ours.Leaf("weight", (0,))},
        ours.from_equinox: {"module": module},
        ours.from_module: {"module": module, "x": NUMBERS.x},
        ours.aligned: {"network": network, "weights": weights, "reference": one},
        ours.canonical: {"network": network, "weights": weights},
    }


def frameworks(_):
    """The functions of `tb.networks` that need another framework; those that are not installed are asked for."""
    arguments = {tb.networks.from_flax: {}, tb.networks.from_keras: {}, tb.networks.from_torch: {}}
    if installed("flax"):
        from flax import linen

        arguments[tb.networks.from_flax] = {"module": linen.Dense(1), "x": NUMBERS.x, "variables": None}
    if installed("keras"):
        import keras

        arguments[tb.networks.from_keras] = {"model": keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])}
    if installed("torch"):
        import torch

        arguments[tb.networks.from_torch] = {"module": torch.nn.Linear(2, 1)}
    return {function: given or {"module": None} for function, given in arguments.items()}


def others(_):
    """`tb.applications`, `tb.decisions`, `tb.selection`, `tb.integrators` and `tb.cite`."""
    solved, _ = _solved(NUMBERS)
    weights = solved.params.weights
    spread = jax.tree.map(jnp.ones_like, weights), jax.tree.map(lambda leaf: jnp.ones((1, *leaf.shape)), weights)
    posterior = tb.LowRankGaussian(solved.model, KEY, solved.params, *spread)
    pruned = {"posterior": posterior, "fraction": 0.5, "biases": True}
    curve = {"posterior": posterior, "data": NUMBERS, "fractions": (0.5,), "by": "snr", "biases": True, "key": KEY}
    path = {"log_density": lambda w: -jnp.sum(w**2), "position": np.ones(2), "momentum": np.ones(2)}
    path |= {"step_size": 0.1, "num_steps": 3, "inverse_mass": 1.0}
    ours = tb.applications.compression
    columns = {"columns": np.ones((3, 2)), "y": np.ones(3), "sigma": 1.0, "slab": 1.0, "spike": 0.0, "probability": 0.5}
    acted = {"actions": np.arange(3.0), "utility": lambda a, y: a * y, "key": KEY, "num": 8}
    pooled = {"model": NAMED, "method": LeastSquares(), "pool": NUMBERS.x, "oracle": NUMBERS.y, "test": NUMBERS}
    pooled |= {"acquisition": tb.acquisition.Random(), "costs": None, "first": None, "progress": None}
    arena, player = tb.bandits.labelled(CLASSES.x, CLASSES.y), tb.bandits.Agent(LeastSquares(), model(()), block=2)
    simulated = {"recent": np.ones(2), "steps": 2, "key": KEY, "num": 3}
    return {
        tb.applications.series.simulate: {"posterior": solved, **simulated},
        tb.selection.enumerated: columns,
        tb.selection.sampled: columns | {"key": KEY, "num": 3, "warmup": 1},
        ours.decibels: {"ratios": {"w": np.ones(3)}},
        ours.prune_by_magnitude: pruned,
        ours.prune_by_snr: pruned,
        ours.pruning_curve: curve | {"num": 2},
        ours.signal_to_noise: {"posterior": posterior},
        tb.integrators.leapfrog: path,
        tb.integrators.euler: path,
        tb.bandits.play: {
            "agent": player,
            "environment": arena,
            "steps": 3,
            "key": KEY,
            "folder": None,
            "progress": None,
        },
        tb.bandits.regrets: {"played": [tb.bandits.play(player, arena, 3, key=KEY)]},
        tb.bandits.labelled: {"x": CLASSES.x, "y": CLASSES.y, "payoffs": None},
        tb.bandits.linear: {"key": KEY, "num": 5, "features": 2, "arms": 3, "noise": 0.1},
        tb.bandits.mushrooms: {"x": CLASSES.x, "edible": np.arange(12) % 2},
        tb.bandits.wheel: {"key": KEY, "num": 5, "delta": 0.5, "noise": 0.1},
        tb.cite: {"posterior": solved},
        tb.acquisition.learn: {**pooled, "key": KEY, "start": 3, "most": 4, "batch": 1, "folder": None},
        tb.decisions.decide: acted | {"predictive": solved.predict(NUMBERS.x), "referral": 0.5},
        tb.decisions.value_of_information: acted
        | {"posterior": solved, "x": NUMBERS.x, "further": NUMBERS.x, "simulations": 4},
    }


ROOMS = (plots, bench, networks, frameworks, others)
