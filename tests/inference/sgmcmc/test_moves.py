"""Moves along symmetries leave priors, functions and posteriors as they are, and what they cannot is refused.

Each p-value has to be above 1e-5; some 100 of them, keys being fixed: a false alarm in a thousand.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import tunbridge as tb
from toys import quick, table
from tunbridge import priors
from tunbridge.core.types import Normalised
from tunbridge.inference.sgmcmc import moves
from tunbridge.model.networks import MLP, Leaf, Offset, from_functions

NUM = 4000
RARE = 1e-5
GAUSSIAN = tb.likelihoods.Gaussian(0.5)
RELU = MLP((3, 4), "relu")
MIXED = priors.ByPath({"layers/1/*": priors.Normal(dist.HalfNormal(1.0))}, priors.Normal(priors.fan_in(1.0)))
"""The weights of one layer are their own coordinates times an unknown scale, those of the others are their own."""


class Normed(eqx.Module):
    """Channels of a sequence (points, positions, features) divided by their root mean squares, then a linear layer."""

    epsilon: float = eqx.field(default=1e-6, static=True)

    def init(self, key, x):
        conv = {"weight": jax.random.normal(key, (x.shape[2], 3)), "bias": jnp.zeros(3)}
        return {"conv": conv, "head": {"weight": jnp.ones((3, 1))}}

    def apply(self, weights, x, *, key=None):
        z = x @ weights["conv"]["weight"] + weights["conv"]["bias"][None, None]
        z = z / jnp.sqrt(jnp.mean(z**2, axis=1, keepdims=True) + self.epsilon)
        return jnp.mean(jnp.tanh(z), axis=1) @ weights["head"]["weight"]

    def layout(self, weights):
        weight = Leaf("weight", inputs=(0,), outputs=(1,))
        return {"conv": {"weight": weight, "bias": Leaf("bias", outputs=(0,))}, "head": {"weight": weight}}

    def with_outputs(self, num):
        return self

    def normalised(self, weights):
        return [("conv/weight", "conv/bias")]


CONV = Normed().normalised(None)
SEQUENCES = tb.Data(np.random.default_rng(0).normal(size=(5, 6, 2)), np.zeros(5))


def bound(network=RELU, prior=None, data=None):
    return tb.Model(network, prior or MIXED, GAUSSIAN).bind(data or table(5))


@jax.jit
def moved(move, target, params, key):
    """One move of each of many parameters."""
    keys = jax.random.split(key, len(jax.tree.leaves(params)[0]))
    return jax.lax.map(lambda row: move(row[0], target, row[1]), (keys, params))


@jax.jit
def prior_draws(model, key):
    return jax.lax.map(lambda k: model.sample_params(k, model.example()), jax.random.split(key, NUM))


def unit(weights, layer, number, divided=False):
    """(draws, numbers) of what enters a unit of a layer, or leaves it."""
    if divided:
        return np.asarray(weights["layers"][layer + 1]["weight"][:, number])
    entering = weights["layers"][layer]
    return np.concatenate([entering["weight"][:, :, number], entering["bias"][:, number][:, None]], axis=1)


def ratio_pvalue(weights, layer, number):
    """Of the ratio of what enters a unit to what leaves it, which is F distributed if all are standard normal."""
    entering, leaving = (np.mean(unit(weights, layer, number, divided) ** 2, axis=1) for divided in (False, True))
    degrees = unit(weights, layer, number).shape[1], unit(weights, layer, number, divided=True).shape[1]
    return stats.kstest(entering / leaving, stats.f(*degrees).cdf).pvalue


@jax.jit
def standard(model, params, temperature=1.0):
    """Weights in prior standard deviations."""

    def one(params):
        variances = model.prior.variances(params.weights, params.scales, model.network.layout(params.weights))
        return jax.tree.map(lambda w, v: w / jnp.sqrt(v * temperature), model.weights(params), variances)

    return jax.vmap(one)(params)


@jax.jit
def outputs(model, params, x):
    return jax.vmap(lambda p: model.outputs(p, x))(params)


def rescaled_pvalues(model, params, temperature=1.0):
    weights = standard(model, params, temperature)
    ratios = [ratio_pvalue(weights, layer, number) for layer in (0, 1) for number in (0, 2)]
    single = [stats.kstest(unit(weights, 1, 0, divided)[:, 0], "norm").pvalue for divided in (False, True)]
    return np.array(ratios + single)


PRIORS = {
    "known and unknown": MIXED,
    "fan-in": priors.Normal(priors.fan_in(1.0)),
    "unknown": priors.Normal((dist.HalfNormal(1.0), 0.3, dist.HalfNormal(2.0))),
    "horseshoe": priors.Horseshoe(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(PRIORS, ("known and unknown",)))
def test_rescaling_leaves_the_prior_and_functions_as_they_are_and_forgets_the_ratio(name, key):
    model, data = bound(prior=PRIORS[name])
    before = prior_draws(model, key)
    after = moved(moves.Rescaling(), tb.Target(model, 5.0), before, key)
    assert rescaled_pvalues(model, after).min() > RARE
    logs = [np.log((unit(params.weights, 0, 0) ** 2).sum(axis=1)) for params in (before, after)]
    assert stats.spearmanr(*logs).statistic < 0.9
    for own, other in zip(jax.tree.leaves(before.scales), jax.tree.leaves(after.scales), strict=True):
        np.testing.assert_array_equal(own, other)
    old, new = (np.asarray(outputs(model, params, data.x)) for params in (before, after))
    assert (np.abs(new - old) / np.abs(old).max(axis=(1, 2), keepdims=True)).max() < 1e-4


@pytest.mark.slow
def test_a_temperature_enters_the_law_of_the_ratio(key):
    """Draws of the prior to the power of 1 / T stay such draws; a move for another temperature is noticed."""
    model, _ = bound()
    draws = prior_draws(model, key)
    cold = draws._replace(weights=jax.tree.map(lambda leaf: 0.3 * leaf, draws.weights))
    for temperature, right in ((0.09, True), (1.0, False)):
        after = moved(moves.Rescaling(), tb.Target(model, 5.0, temperature), cold, key)
        assert (rescaled_pvalues(model, after, 0.09).min() > RARE) == right


@pytest.mark.slow
def test_without_the_jacobian_of_what_leaves_the_prior_is_lost(key, monkeypatch):
    model, _ = bound()
    monkeypatch.setattr(moves, "_power", lambda entering, leaving: entering / 2.0)
    again = jax.jit(lambda *arguments: moved.__wrapped__(*arguments))
    after = again(moves.Rescaling(), tb.Target(model, 5.0), prior_draws(model, key), key)
    assert rescaled_pvalues(model, after).min() < 1e-20


class Pair:
    """y = b relu(a x) + noise: two weights, whose posterior is had on a grid."""

    x = np.array([0.5, 1.0, 1.5, 2.0])
    scales = 1.0, 0.5

    def __init__(self):
        layer = {"weight": Leaf("weight", inputs=(0,), outputs=(1,))}
        network = from_functions(
            lambda key, x: {"a": {"weight": jnp.ones((1, 1))}, "b": {"weight": jnp.ones((1, 1))}},
            lambda w, x: jax.nn.relu(x @ w["a"]["weight"]) @ w["b"]["weight"],
            {"a": layer, "b": layer},
        )
        rows = tb.Data(self.x[:, None], 0.4 * self.x)
        model, self.data = tb.Model(network, priors.Normal(self.scales), GAUSSIAN).bind(rows)
        self.target = tb.Target(model, 4.0)
        self.move = moves.Rescaling(paths=[("a/weight", None, "b/weight")])
        self.a, self.b = np.linspace(-5, 5, 1501), np.linspace(-2.5, 2.5, 1001)
        slope = np.maximum(self.a, 0.0)[:, None] * self.b[None]
        fit = -0.5 * sum((0.4 * x - slope * x) ** 2 for x in self.x) / 0.25
        prior = -0.5 * (self.a[:, None] / self.scales[0]) ** 2 - 0.5 * (self.b[None] / self.scales[1]) ** 2
        self.mass = np.exp(fit + prior)
        self.mass /= self.mass.sum()

    def params(self, a, b):
        return tb.Params(
            {name: {"weight": jnp.asarray(w, jnp.float32)[:, None, None]} for name, w in zip("ab", (a, b), strict=True)}
        )

    def draw(self, seed):
        rng = np.random.default_rng(seed)
        place = np.unravel_index(rng.choice(self.mass.size, NUM, p=self.mass.ravel()), self.mass.shape)
        jitter = rng.uniform(-0.5, 0.5, (2, NUM))
        grids = zip((self.a, self.b), place, jitter, strict=True)
        return self.params(*(grid[i] + u * (grid[1] - grid[0]) for grid, i, u in grids))

    def pvalues(self, params):
        """Of both weights, against their marginals."""
        found = []
        for axis, (name, grid) in enumerate((("a", self.a), ("b", self.b))):
            cdf = np.cumsum(self.mass.sum(axis=1 - axis))
            edges = grid + 0.5 * (grid[1] - grid[0])
            weights = np.ravel(params.weights[name]["weight"])
            found.append(stats.kstest(weights, lambda w, edges=edges, cdf=cdf: np.interp(w, edges, cdf)).pvalue)
        return np.array(found)

    def metropolis(self, key, params):
        """One random-walk step of the posterior."""
        key_move, key_accept = jax.random.split(key)
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        new = unravel(flat + 0.5 * jax.random.normal(key_move, flat.shape))
        gain = self.target.log_density(new, self.data) - self.target.log_density(params, self.data)
        accepted = jnp.log(jax.random.uniform(key_accept)) < gain
        return jax.tree.map(lambda one, other: jnp.where(accepted, one, other), new, params)

    def alternate(self, key, params):
        """Three times a Metropolis step and a move."""

        def turn(params, key):
            key_step, key_move = jax.random.split(key)
            return self.move(key_move, self.target, self.metropolis(key_step, params)), None

        def one(row):
            return jax.lax.scan(turn, row[1], jax.random.split(row[0], 3))[0]

        return jax.jit(lambda rows: jax.lax.map(one, rows))((jax.random.split(key, NUM), params))


@pytest.fixture(scope="module")
def pair():
    return Pair()


def test_draws_of_a_posterior_stay_such_draws(pair, key):
    pair.move.check(pair.target.model)
    assert pair.pvalues(pair.draw(0)).min() > RARE
    assert pair.pvalues(pair.alternate(key, pair.draw(1))).min() > RARE


@pytest.mark.slow
def test_without_the_jacobian_of_what_leaves_a_posterior_is_lost(pair, key, monkeypatch):
    monkeypatch.setattr(moves, "_power", lambda entering, leaving: entering / 2.0)
    assert pair.pvalues(pair.alternate(key, pair.draw(1))).min() < 1e-20


def test_a_place_on_an_orbit_has_the_law_that_quadrature_gives(pair, key):
    r"""On a b = k, in log a and k of Jacobian 1, the density is that of the prior."""
    start = pair.params(*(np.full(NUM, w) for w in (0.1, 3.0)))
    after = moved(pair.move, pair.target, start, key)
    t = np.linspace(-8.0, 4.0, 4001)
    density = np.exp(-0.5 * np.exp(2 * t) - 0.5 * (0.3 / 0.5) ** 2 * np.exp(-2 * t))
    cdf = np.cumsum(density) / density.sum()
    logs = np.log(np.ravel(after.weights["a"]["weight"]))
    assert stats.kstest(logs, lambda x: np.interp(x, t + 0.5 * (t[1] - t[0]), cdf)).pvalue > RARE
    products = np.ravel(after.weights["a"]["weight"] * after.weights["b"]["weight"])
    np.testing.assert_allclose(products, 0.3, rtol=1e-5)


def norms(model, params, temperature=1.0):
    """Squares of the norms of filters (draws, channels)."""
    conv = standard(model, params, temperature)["conv"]
    return (conv["weight"] ** 2).sum(axis=1) + conv["bias"] ** 2


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_norms_are_chi_distributed_whatever_they_were_and_functions_stay(temperature, key):
    """A network of two functions, paths given; the start is far from the prior."""
    own = Normed()
    network = from_functions(own.init, own.apply, own.layout(None))
    model, data = bound(network, priors.Normal(0.4), SEQUENCES)
    move = moves.NormRedraw(paths=CONV)
    move.check(model)
    before = jax.tree.map(lambda leaf: 2.0 * leaf, prior_draws(model, key))
    after = moved(move, tb.Target(model, 5.0, temperature), before, key)
    squares = norms(model, after, temperature)
    assert min(stats.kstest(column, stats.chi2(3).cdf).pvalue for column in squares.T) > RARE
    assert np.abs(np.corrcoef(squares.T) - np.eye(3)).max() < 0.1
    single = standard(model, after, temperature)["conv"]["weight"][:, 0, 0]
    assert stats.kstest(single, "norm").pvalue > RARE
    directions = [
        params.weights["conv"]["weight"] / jnp.linalg.norm(params.weights["conv"]["weight"], axis=1, keepdims=True)
        for params in (before, after)
    ]
    np.testing.assert_allclose(*directions, atol=1e-5)
    np.testing.assert_array_equal(before.weights["head"]["weight"], after.weights["head"]["weight"])
    old, new = (np.asarray(outputs(model, params, data.x)) for params in (before, after))
    assert np.quantile(np.abs(new - old), 0.99) < 1e-3 * np.abs(old).max()


def test_filters_without_their_bias_are_noticed():
    model, _ = bound(Normed(), priors.Normal(0.4), SEQUENCES)
    with pytest.raises(tb.InputError, match="units of conv/weight"):
        moves.NormRedraw(paths=[("conv/weight", None)]).check(model)


def test_networks_tell_what_they_normalise():
    assert isinstance(Normed(), Normalised)
    assert not isinstance(RELU, Normalised)
    model, _ = bound(Normed(), priors.Normal(0.4), SEQUENCES)
    moves.NormRedraw().check(model)
    with pytest.raises(tb.InputError, match="which of its layers are normalised"):
        moves.NormRedraw().check(bound()[0])


def test_a_large_epsilon_is_noticed():
    model, _ = bound(Normed(epsilon=0.1), priors.Normal(0.4), SEQUENCES)
    with pytest.raises(tb.InputError, match=r"within 0.01 .* conv/weight; got a change by"):
        moves.NormRedraw().check(model)
    moves.NormRedraw(tolerance=1.0).check(model)


def test_networks_behind_an_offset_are_moved(key):
    rows = np.random.default_rng(0).uniform(0.5, 1.0, (5, 4)), np.ones(5, int)
    model, data = tb.Model(Offset(MLP((3,), "relu")), priors.Normal(1.0), tb.likelihoods.Poisson()).bind(tb.Data(*rows))
    move = moves.Rescaling()
    move.check(model)
    before = jax.jit(model.sample_params)(key, data.x)
    after = jax.jit(move)(key, tb.Target(model, 5.0), before)
    ratios = [np.asarray(a / b) for a, b in zip(*map(jax.tree.leaves, (after.weights, before.weights)), strict=True)]
    assert max(np.abs(np.log(ratio)).max() for ratio in ratios) > 0.01
    old, new = (np.asarray(model.outputs(params, data.x)) for params in (before, after))
    np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", quick(("tanh", "gelu", "softplus"), ("tanh",)))
def test_other_activations_are_refused(activation):
    with pytest.raises(tb.InputError, match="scales the units of layers/0/weight"):
        moves.Rescaling().check(bound(MLP((3,), activation), priors.Normal(1.0))[0])


@pytest.mark.parametrize(
    "prior",
    [
        priors.Laplace(1.0),
        priors.StudentT(3.0),
        priors.TwoNormals(),
        priors.MatrixNormal(),
        priors.Hierarchical(priors.Laplace(1.0), dist.HalfNormal(1.0)),
        priors.ByPath({"*bias": priors.Laplace(1.0)}),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_whose_weights_are_not_independent_normals_are_refused(prior):
    with pytest.raises(tb.InputError, match="independent weights, normal given its scales"):
        moves.Rescaling().check(bound(prior=prior)[0])


@pytest.mark.parametrize(
    ("paths", "sentence"),
    [
        ([("layers/0/weight", "layers/0/bias", "nowhere")], "a path among .* got 'nowhere'"),
        ([("layers/0/weight", "layers/1/bias", "layers/1/weight")], "the same units; got .* layers/1/bias with"),
    ],
)
def test_wrong_paths_are_refused(paths, sentence):
    with pytest.raises(tb.InputError, match=sentence):
        moves.Rescaling(paths=paths).check(bound()[0])


def test_wrong_calls_are_refused():
    with pytest.raises(tb.InputError, match="paths= as a list"):
        moves.NormRedraw(paths=["conv"])
    with pytest.raises(tb.InputError, match="list of"):
        moves.Rescaling(paths=[])
    with pytest.raises(tb.InputError, match="at least 1"):
        moves.Rescaling(every=0)
    with pytest.raises(tb.InputError, match="an MLP with hidden layers"):
        moves.Rescaling().check(bound(MLP(()), priors.Normal(1.0))[0])
    with pytest.raises(tb.InputError, match="bound to data"):
        moves.Rescaling().check(tb.Model(RELU, priors.Normal(1.0), GAUSSIAN))
    unknown = from_functions(RELU.with_outputs(1).init, RELU.apply)
    rows = [("layers/0/weight", "layers/0/bias", "layers/1/weight")]
    with pytest.raises(tb.InputError, match="a layout that identifies the units of layers/0/weight"):
        moves.Rescaling(paths=rows).check(bound(unknown, priors.Normal(1.0))[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", [0.0, np.nan])
def test_units_that_are_zero_or_not_numbers_stay(number, key):
    model, _ = bound()
    params = prior_draws(model, key)
    rest = np.arange(NUM) > 0
    broken = params._replace(
        weights=jax.tree.map(
            lambda leaf: np.where(rest.reshape(-1, *(leaf.ndim - 1) * [1]), leaf, np.float32(number)), params.weights
        )
    )
    after = moved(moves.Rescaling(), tb.Target(model, 5.0), broken, key)
    for leaf in jax.tree.leaves(after.weights):
        np.testing.assert_array_equal(leaf[0], np.full(leaf.shape[1:], number))
        assert np.isfinite(leaf[1:]).all()
