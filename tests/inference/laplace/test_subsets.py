"""The evidence with a subset of weights random: what priors that are not normal contribute."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import quick, table
from tunbridge.core.tree import unravel
from tunbridge.inference.laplace import fitting
from tunbridge.inference.laplace.evidence import values
from tunbridge.inference.laplace.local import Local

DATA = table(30)
NETWORK = tb.networks.MLP((4,))
CHOSEN = np.random.default_rng(0).random(21) < 0.4
SUBSETS = {
    "all": tb.subsets.All(),
    "last layer": tb.subsets.LastLayer(),
    "paths": tb.subsets.Paths("layers/0/*"),
    "mask": tb.subsets.Mask(numbers=np.flatnonzero(CHOSEN), size=21),
}
LOGNORMAL = dist.LogNormal(-0.3, 0.5)
PRIORS = {
    "student-t": tb.priors.StudentT(4.0, 0.7),
    "student-t unknown": tb.priors.StudentT(4.0, (LOGNORMAL, tb.priors.fan_in(LOGNORMAL))),
    "laplace": tb.priors.Laplace(0.5),
    "logistic": tb.priors.Logistic(tb.priors.fan_in(1.0)),
    "two normals": tb.priors.TwoNormals(0.4, 1.0, 0.3),
    "spike and slab": tb.priors.SpikeAndSlab(dist.Beta(2.0, 5.0), 1.0, 0.3),
    "hierarchical": tb.priors.Hierarchical(tb.priors.TwoNormals(0.4, 1.0, 0.3), LOGNORMAL),
    "ard": tb.priors.ARD(LOGNORMAL, rest=tb.priors.StudentT(4.0, 0.7)),
    "by path": tb.priors.ByPath({"layers/1/*": tb.priors.Logistic(0.4), "layers/0/bias": tb.priors.Laplace(0.5)}),
}


def local_of(prior, subset):
    model, _ = tb.Model(NETWORK, prior, tb.likelihoods.Gaussian(0.3)).bind(DATA)
    like = jax.eval_shape(model.network.init, jax.random.key(0), DATA.x)
    weights = unravel(like, 0.7 * np.random.default_rng(3).normal(size=21))
    layout = model.network.layout(weights)
    scales = model.prior.median_scales(weights, layout)
    return Local.at(model, tb.Params(model.prior.raw(weights, scales, layout), scales, ()), subset)


def fitted_of(local):
    data = tb.Data(DATA.x, local.model.likelihood.check(DATA.y))
    return fitting.fit(local, tb.structures.Full(), tb.curvatures.GGN(), data, 0.0, jax.random.key(0))


def log_evidence_of(local):
    return float(values(fitted_of(local).evidence, local.params.scales, ())[0])


@pytest.mark.parametrize("subset", quick(SUBSETS, ("last layer", "mask")))
def test_a_student_t_of_many_degrees_of_freedom_has_the_evidence_of_a_normal(subset, x64):
    normal, student = (
        log_evidence_of(local_of(prior, SUBSETS[subset]))
        for prior in (tb.priors.Normal(0.8), tb.priors.StudentT(1e6, 0.8))
    )
    assert student == pytest.approx(normal, abs=1e-4)


@pytest.mark.parametrize("prior", quick(PRIORS, ("by path",)))
@pytest.mark.parametrize("subset", quick(SUBSETS, ("mask",)))
def test_the_evidence_is_laplaces_formula_for_the_random_weights(prior, subset, x64):
    r"""log p(y | w) + sum over the d random weights of log p(w_i) + d/2 log 2 pi - 1/2 log det (H + V^{-1})."""
    local = local_of(PRIORS[prior], SUBSETS[subset])
    model, scales = local.model, local.params.scales
    flat, back = ravel_pytree(local.weights)
    layout, chosen = model.network.layout(local.weights), np.flatnonzero(local.chosen(local.sites))

    def outputs(w):
        return model.network.apply(back(w), jnp.asarray(DATA.x))[:, 0]

    def log_prior(w):
        """Of the weights in their own coordinates: the log density of the raw ones less the log Jacobian."""
        raw, scale = jax.jvp(lambda v: ravel_pytree(model.prior.raw(back(v), scales, layout))[0], (w,), (0 * w + 1,))
        return model.prior.log_prob(back(raw), scales, layout) + jnp.sum(jnp.log(jnp.abs(scale)))

    def of_one(i):
        """Log density of one weight, by integrating the joint density over it."""
        u = jnp.linspace(-12.0, 12.0, 6001)
        density = jnp.exp(jax.vmap(lambda w_i: log_prior(flat.at[i].set(w_i)))(jnp.sinh(u)) - log_prior(flat))
        return -jnp.log(jnp.trapezoid(density * jnp.cosh(u), u))

    log_probs = jax.jit(lambda index: jax.lax.map(of_one, index))(jnp.asarray(chosen))
    jacobian = np.asarray(jax.jacobian(outputs)(flat))[:, chosen]
    variances = np.asarray(-flat / jax.grad(log_prior)(flat))[chosen]
    precision = jacobian.T @ jacobian / 0.3**2 + np.diag(1.0 / variances)
    residuals = np.ravel(DATA.y) - np.asarray(outputs(flat))
    log_likelihood = float(np.sum(-0.5 * (residuals / 0.3) ** 2 - np.log(0.3) - 0.5 * np.log(2 * np.pi)))
    expected = log_likelihood + float(jnp.sum(log_probs)) + 0.5 * len(chosen) * np.log(2 * np.pi)
    expected -= 0.5 * np.linalg.slogdet(precision)[1]
    assert log_evidence_of(local) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("prior", quick(PRIORS, ("student-t unknown",)))
def test_a_mask_of_all_weights_is_all_of_them(prior, x64):
    everything = tb.subsets.Mask(numbers=np.arange(21), size=21)
    first, second = (log_evidence_of(local_of(PRIORS[prior], subset)) for subset in (tb.subsets.All(), everything))
    assert first == pytest.approx(second, rel=1e-12)
