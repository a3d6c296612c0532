"""Refinement of the normal at a mode: the best normal of a linear model, and predictions of separated classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import labelled
from tunbridge.bench import PROBLEMS
from tunbridge.inference.posteriors import Point
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model import defaults

SHORT = tb.MAP(train=tb.Train(100))
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def _best(x, y, variances):
    """Mean and covariance of the normal with the largest bound of a logistic regression, by quadrature."""
    mean, covariance, share = np.zeros(x.shape[1]), np.diag(variances), WEIGHTS / WEIGHTS.sum()
    for _ in range(300):
        sd = np.sqrt(np.einsum("ni,ij,nj->n", x, covariance, x))
        p = 1.0 / (1.0 + np.exp(-((x @ mean)[:, None] + sd[:, None] * NODES)))
        curvature = x.T @ (x * ((p * (1.0 - p)) @ share)[:, None])
        covariance = 0.5 * covariance + 0.5 * np.linalg.inv(np.diag(1.0 / variances) + curvature)
        mean = mean + 0.5 * covariance @ (x.T @ (y - p @ share) - mean / variances)
    return mean, covariance


def test_the_refined_normal_of_a_logistic_regression_is_the_best_one(key):
    """The normal at the mode is 0.25 standard deviations away, rounds end where they gain less than 0.01 nats."""
    problem = PROBLEMS["logistic"]()
    posterior = tb.Laplace().fit(problem.model, problem.data, key=key)
    local = posterior.gaussian.local
    flat, unravel = ravel_pytree(local.weights)
    columns = jax.jacobian(lambda w: local.model.network.apply(unravel(w), problem.data.x)[:, 0])(jnp.zeros_like(flat))
    variances = np.asarray(local.variances(local.params.scales), float)
    mean, covariance = _best(np.asarray(columns, float), np.asarray(problem.data.y, float).ravel(), variances)
    found = np.asarray(jax.vmap(posterior.gaussian.covariance.product)(jnp.eye(len(flat))))
    np.testing.assert_allclose((flat - mean) / np.sqrt(np.diag(covariance)), 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(found)), np.sqrt(np.diag(covariance)), rtol=0.03)


@pytest.mark.parametrize(
    "structure",
    [tb.structures.Kronecker(), pytest.param(tb.structures.Full(), marks=pytest.mark.slow)],
    ids=["kronecker", "full"],
)
def test_separated_classes_are_predicted_with_more_confidence_and_a_larger_bound(structure, key):
    """Three groups far apart, under a wide prior."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    data = tb.Data(4.0 * np.eye(3)[y] + rng.normal(size=(60, 3)), y)
    model = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(5.0), tb.likelihoods.Categorical(3))
    plain = tb.Laplace(structure=structure, refine=False).fit(model, data, key=key)
    posterior = tb.Laplace(structure=structure).fit(model, data, key=key)
    bounds = np.asarray(posterior.gaussian.curve["bound"])
    assert (np.diff(bounds) > 0.0).all()
    assert bounds[-1] - bounds[0] > 5.0
    assert "bound" not in plain.gaussian.curve
    nll, before = (-float(jnp.mean(each.predict(data.x).log_prob(data.y))) for each in (posterior, plain))
    assert nll < 0.5 * before
    assert "refined" in posterior.notes[-1]


@pytest.mark.parametrize(
    ("method", "prior"),
    [
        (tb.Laplace(point=SHORT, refine=False), tb.priors.Normal(1.0)),
        (tb.Laplace(point=SHORT, subset=tb.subsets.LastLayer()), tb.priors.Normal(1.0)),
        (tb.Laplace(point=SHORT, curvature=tb.curvatures.EmpiricalFisher()), tb.priors.Normal(1.0)),
        (tb.Laplace(point=SHORT), tb.priors.StudentT(3.0)),
    ],
    ids=["off", "last layer", "curvature", "prior"],
)
def test_what_is_not_refined_keeps_the_mode(method, prior, key):
    model = tb.Model(tb.networks.MLP((4,)), prior, tb.likelihoods.Categorical(3))
    posterior = method.fit(model, labelled(30), key=key)
    assert "bound" not in posterior.gaussian.curve
    assert not any("refined" in note for note in posterior.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
def test_real_classes_are_predicted_no_worse_than_by_the_normal_at_the_mode(name):
    """Nor by more than two standard errors of the paired difference than by the network at the mean; key and split are
    fixed.
    """
    rows = getattr(tb.datasets, name)()
    x, y = np.asarray(rows.x), np.asarray(rows.y).ravel().astype(int)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
    model = tb.Model(defaults.network(), defaults.prior(), defaults.of_classes(int(y.max()) + 1))

    def scores(refine):
        posterior = fit_standardised(tb.Laplace(refine=refine), model, x[train], y[train], key=jax.random.key(0))
        gaussian = posterior.posterior.gaussian
        point = Point(gaussian.model, gaussian.key, gaussian.params).predict(posterior.scaling.inputs(x[test]))
        return -np.asarray(posterior.predict(x[test]).log_prob(y[test])), -np.asarray(point.log_prob(y[test]))

    nll, at_mean = scores(True)
    worse = nll - at_mean
    assert worse.mean() <= 2.0 * worse.std() / np.sqrt(len(test))
    assert nll.mean() <= scores(False)[0].mean()
