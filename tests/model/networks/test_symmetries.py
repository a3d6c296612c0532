"""C1: permutations and signs of hidden units change nothing that is believed. C2: scales of ReLU units do."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.model.networks import symmetries


def draws(network, num=6, features=3, seed=0):
    rng = np.random.default_rng(seed)
    like = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, features)))
    return jax.tree.map(lambda leaf: rng.normal(size=(num, *leaf.shape)).astype(leaf.dtype), like)


def transformed(weights, number, order, sign):
    """Units of hidden layer `number` in another order with other signs, written as matrix products."""
    units = len(order)
    matrix = np.zeros((units, units))
    matrix[order, np.arange(units)] = sign
    layers = [{name: np.asarray(leaf, np.float64) for name, leaf in layer.items()} for layer in weights["layers"]]
    layers[number] = {"weight": layers[number]["weight"] @ matrix, "bias": layers[number]["bias"] @ matrix}
    layers[number + 1]["weight"] = matrix.T @ layers[number + 1]["weight"]
    return {"layers": layers}


def copies(weights, number, units, odd):
    for order in itertools.permutations(range(units)):
        for sign in itertools.product((1.0, -1.0), repeat=units) if odd else [(1.0,) * units]:
            yield transformed(weights, number, list(order), list(sign))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("activation", "odd"), [("tanh", True), ("relu", False)])
def test_the_log_posterior_is_equal_over_all_permutations_and_signs(activation, odd, key):
    network = tb.networks.MLP((3,), activation)
    made = tb.Model(network, tb.priors.Normal((0.7, 1.3)), tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0)))
    bound, data = made.bind(table())
    target = tb.Target(bound, float(data.num))
    params = jax.jit(bound.sample_params)(key, data.x)
    density = jax.jit(target.log_density)
    wanted = density(params, data)
    found = [density(params._replace(weights=w), data) for w in copies(params.weights, 0, 3, odd)]
    assert len(found) == (48 if odd else 6)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_relu_units_can_be_rescaled_under_the_likelihood_but_not_under_the_prior(key):
    bound, data = tb.Model(tb.networks.MLP((3,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1)).bind(
        table()
    )
    target = tb.Target(bound, float(data.num))
    params = jax.jit(bound.sample_params)(key, data.x)

    def scaled(alpha):
        first, last = params.weights["layers"]
        unit = jnp.array([alpha, 1.0, 1.0])
        first = {"weight": first["weight"] * unit[None], "bias": first["bias"] * unit}
        last = {**last, "weight": last["weight"] / unit[:, None]}
        return params._replace(weights={"layers": [first, last]})

    alphas = np.geomspace(0.1, 10.0, 9)
    likelihood = jax.jit(jax.vmap(lambda alpha: target.log_likelihood(scaled(alpha), data)))(alphas)
    prior = jax.jit(jax.vmap(lambda alpha: target.log_prior(scaled(alpha))))(alphas)
    np.testing.assert_allclose(likelihood, likelihood[0], rtol=0, atol=1e-9)
    assert np.ptp(prior) > 1.0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("hidden", "activation"), [((3,), "tanh"), ((3,), "relu"), ((3, 2), "tanh")])
def test_copies_have_one_canonical_form_and_one_aligned_form(hidden, activation):
    network = tb.networks.MLP(hidden, activation, outputs=2)
    weights = jax.tree.map(lambda leaf: leaf[0], draws(network))
    odd = activation in symmetries.ODD
    others = list(copies(weights, len(hidden) - 1, hidden[-1], odd))
    if len(hidden) > 1:
        others = [again for other in others for again in copies(other, 0, hidden[0], odd)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *others)
    for made in (symmetries.canonical(network, stacked), symmetries.aligned(network, stacked, weights)):
        for leaf in jax.tree.leaves(made):
            np.testing.assert_allclose(leaf, np.broadcast_to(leaf[0], leaf.shape), rtol=0, atol=1e-12)
    assert equal(jax.tree.map(lambda leaf: leaf[-1], made), weights)


@pytest.mark.parametrize(("hidden", "activation"), [((5,), "tanh"), ((4, 3), "erf"), ((4, 3), "relu"), ((), "tanh")])
def test_the_function_stays_and_the_distance_shrinks(hidden, activation):
    network = tb.networks.MLP(hidden, activation, outputs=2)
    weights, x = draws(network), table().x
    reference = jax.tree.map(lambda leaf: leaf[0], weights)
    outputs = jax.jit(jax.vmap(lambda w: network.apply(w, x)))
    moved = symmetries.aligned(network, weights, reference)
    for made in (symmetries.canonical(network, weights), moved):
        assert jax.tree.structure(made) == jax.tree.structure(weights)
        np.testing.assert_allclose(outputs(made), outputs(weights), atol=2e-6)

    def far(tree):
        gaps = jax.tree.map(lambda a, b: ((np.asarray(a) - np.asarray(b)[None]) ** 2).sum(), tree, reference)
        return sum(jax.tree.leaves(gaps))

    assert far(moved) < far(weights) if hidden else far(moved) == far(weights)


def test_networks_without_known_symmetries_are_refused():
    network = tb.networks.from_functions(lambda k, x: {"w": jnp.zeros(1)}, lambda w, x: x * w["w"])
    with pytest.raises(tb.InputError, match="symmetries of other networks are not known"):
        symmetries.canonical(network, {"w": jnp.zeros((4, 1))})
