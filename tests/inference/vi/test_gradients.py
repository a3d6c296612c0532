"""Every estimator has the gradient of the bound for its expectation; noise of rows has the right distribution."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.model.networks.programs import perturbed, sites

SAMPLED = tb.divergences.KL(closed=False)
ESTIMATORS = {
    "reparameterised": tb.MeanField(gradient=tb.gradients.Reparameterised()),
    "reparameterised, sampled": tb.MeanField(gradient=tb.gradients.Reparameterised(), divergence=SAMPLED),
    "local": tb.MeanField(),
    "flipout": tb.MeanField(gradient=tb.gradients.Flipout()),
    "stick the landing": tb.MeanField(gradient=tb.gradients.StickTheLanding(), divergence=SAMPLED),
    "score": tb.MeanField(gradient=tb.gradients.ScoreFunction(), num_samples=10),
    "backprop": tb.BayesByBackprop(),
    "low rank": tb.LowRank(2),
    "low rank, flipout": tb.LowRank(2, gradient=tb.gradients.Flipout()),
}
NUM = 2000


def _setting():
    problem = tb.bench.truth.exact.linear()
    model, data = problem.model.bind(problem.data)
    params = tb.Params({"layers": [{"weight": jnp.array([[0.8], [-0.3]]), "bias": jnp.array([0.1])}]})
    sds = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.2), params)
    return model, data, params, sds


def _estimates(method, model, data, q):
    method, target = method.bind(model), tb.Target(model, float(data.num))
    keys = jax.random.split(jax.random.key(4), NUM)
    share = jnp.ones(())
    gradients = jax.jit(jax.vmap(lambda key: method.loss_and_gradient(key, target, q, data, share)[1]))(keys)
    return np.concatenate([np.reshape(leaf, (NUM, -1)) for leaf in jax.tree.leaves(gradients)], axis=1)


def _exact(model, data, q):
    """The gradient of the bound of a linear model with normal noise 0.5 and prior 1.5, from its closed form."""
    phi = np.column_stack([data.x, np.ones(data.num, np.float32)])
    y = np.asarray(data.y)[:, 0]

    def loss(q):
        def joined(params):
            layer = params.weights["layers"][0]
            return jnp.concatenate([layer["weight"][:, 0], layer["bias"]])

        mean, variance = joined(q.mean), joined(q.variance())
        roots = [joined(jax.tree.map(jnp.subtract, q.place(one), q.mean)) for one in _units(q)]
        covariance = sum(jnp.outer(root, root) for root in roots)
        residual = jnp.sum((y - phi @ mean) ** 2) + jnp.trace(phi @ covariance @ phi.T)
        prior = -0.5 * jnp.sum(mean**2 + variance) / 1.5**2
        return -(-0.5 * residual / 0.5**2 + prior + q.entropy()) / data.num

    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(q))])


def _units(q):
    """The unit vectors of the noise."""
    flat, back = jax.flatten_util.ravel_pytree(q.noise(jax.random.key(0)))
    return [back(e) for e in jnp.eye(flat.size)]


QUICK = ("local", "stick the landing", "backprop")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in ESTIMATORS])
def test_the_mean_of_gradients_is_the_gradient_of_the_bound(name):
    """2,000 estimates within 5 standard errors in each number: a false alarm once in 100,000."""
    model, data, params, sds = _setting()
    method = ESTIMATORS[name]
    q = method.form.around(jax.random.key(1), params, sds, model.network.layout(params.weights))
    found, exact = _estimates(method, model, data, q), _exact(model, data, q)
    error = found.std(axis=0, ddof=1) / NUM**0.5
    assert (np.abs(found.mean(axis=0) - exact) < 5 * error + 1e-4 * np.abs(exact)).all()


@pytest.mark.slow
def test_scores_vary_more_than_ten_times_as_much_as_reparameterised_gradients():
    model, data, params, sds = _setting()
    q = tb.families.Diagonal().around(jax.random.key(1), params, sds, model.network.layout(params.weights))
    alone = dataclasses.replace(ESTIMATORS["reparameterised"], num_samples=10)
    ratio = _estimates(ESTIMATORS["score"], model, data, q).var(0) / _estimates(alone, model, data, q).var(0)
    assert np.median(ratio) > 10


def test_sticking_to_the_landing_has_no_variance_at_the_posterior(x64):
    problem = tb.bench.truth.exact.linear()
    model, data = problem.model.bind(problem.data)
    phi = np.column_stack([np.ones(data.num), problem.data.x])  # the bias comes first
    covariance = np.linalg.inv(phi.T @ phi / 0.5**2 + np.eye(3) / 1.5**2)
    mean = covariance @ phi.T @ np.ravel(data.y) / 0.5**2
    root = np.linalg.cholesky(covariance)
    params = tb.Params({"layers": [{"weight": jnp.asarray(mean[1:, None]), "bias": jnp.asarray(mean[:1])}]})
    q = tb.families.Full().around(jax.random.key(0), params, params, model.network.layout(params.weights))
    spread = type(q.spreads[0])(
        jnp.asarray(np.log(np.expm1(np.diag(root)))), jnp.asarray(np.sqrt(3.0) * root / np.diag(root)[:, None])
    )
    q = type(q)(params, (spread,), q.groups)
    gradients = _estimates(tb.FullRank(), model, data, q)
    assert np.abs(gradients).max() < 1e-10


IMAGES = np.random.default_rng(0).normal(size=(3, 4, 4, 1)).astype(np.float32)


def _convolution(weights, x):
    kernel = jax.lax.conv_general_dilated(
        x, weights["kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.tanh(kernel).reshape(len(x), -1) @ weights["dense"] + weights["bias"][None]


WEIGHTS = {"kernel": jnp.full((2, 2, 1, 2), 0.3), "dense": jnp.full((18, 2), 0.2), "bias": jnp.array([0.1, -0.1])}


def test_noise_of_rows_is_for_weights_that_meet_one_position():
    found = sites.find(_convolution, WEIGHTS, IMAGES[0])
    names = sorted(WEIGHTS)
    once = dict(zip(names, perturbed.eligible(found, WEIGHTS, once=True), strict=True))
    assert once == {"bias": True, "dense": True, "kernel": False}
    assert all(perturbed.eligible(found, WEIGHTS, once=False))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [perturbed.Local, perturbed.Flipped])
def test_noise_of_rows_gives_outputs_the_distribution_that_drawn_weights_give(kind):
    """Means, variances and the covariance of two outputs over 8,000 draws, within 5 standard errors of a variance."""
    found = sites.find(_convolution, WEIGHTS, IMAGES[0])
    sds = jax.tree.map(lambda leaf: 0.2 + 0.0 * leaf, WEIGHTS)
    leaves, structure = jax.tree.flatten(WEIGHTS)
    chosen = perturbed.eligible(found, WEIGHTS, once=kind is perturbed.Local)

    def drawn(key):
        keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))
        return jax.tree.map(lambda k, w, s: w + s * jax.random.normal(k, w.shape), keys, WEIGHTS, sds)

    def plain(key):
        return _convolution(drawn(key), jnp.asarray(IMAGES[:1]))[0]

    def noisy(key):
        weights, key_row = drawn(key), jax.random.fold_in(key, 1)
        deviation = jax.tree.map(jnp.subtract, weights, WEIGHTS)
        beside = jax.tree.map(jnp.square, sds) if kind is perturbed.Local else deviation
        mixed = [w if own else d for own, w, d in zip(chosen, leaves, jax.tree.leaves(weights), strict=True)]
        besides = [b if own else None for own, b in zip(chosen, jax.tree.leaves(beside), strict=True)]
        return kind(found.program, key_row).outputs(
            jax.tree.unflatten(structure, mixed), besides, jnp.asarray(IMAGES[:1])
        )

    num = 8000
    one, two = (jax.jit(jax.vmap(f))(jax.random.split(jax.random.key(3), num)) for f in (plain, noisy))
    for a, b in ((one.mean(0), two.mean(0)), (jnp.cov(one.T), jnp.cov(two.T))):
        scale = float(jnp.max(jnp.cov(one.T)))
        np.testing.assert_allclose(a, b, atol=5 * (2 / num) ** 0.5 * 1.5 * max(scale, scale**0.5))


def test_estimators_refuse_what_they_cannot_serve():
    with pytest.raises(tb.InputError, match="independent part"):
        tb.FullRank(gradient=tb.gradients.LocalReparameterised())
    with pytest.raises(tb.InputError, match="at least 2"):
        tb.MeanField(gradient=tb.gradients.ScoreFunction())
    with pytest.raises(tb.InputError, match="gradient= as a Gradient, such as"):
        tb.MeanField(gradient="local")
    with pytest.raises(tb.InputError, match="family= as a Family, such as Diagonal"):
        tb.ADVI("full")
