"""Coverage and risk against counts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.metrics import coverage_risk

LOGITS = np.array([[-3.0], [2.0], [0.5], [-0.1]])


def classes():
    """A logistic regression whose logits are its inputs."""
    model, _ = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Bernoulli()).bind(
        tb.Data(LOGITS, np.array([0, 1, 0, 1]))
    )
    weights = {"layers": [{"weight": jnp.ones((1, 1, 1)), "bias": jnp.zeros((1, 1))}]}
    return tb.Draws(model, jax.random.key(0), tb.Params(weights)).predict(LOGITS)


def test_rows_are_answered_in_the_order_of_their_entropy():
    curve = coverage_risk(classes(), np.array([0, 0, 0, 0]))  # wrong at logits 2 and 0.5
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(curve.risk, [0.0, 0.5, 2 / 3, 0.5])
    np.testing.assert_allclose(curve.best, [0.0, 0.0, 1 / 3, 0.5])
    assert curve.area == pytest.approx(np.mean([0.0, 0.5, 2 / 3, 0.5]))
    assert curve.excess == pytest.approx(curve.area - np.mean([0.0, 0.0, 1 / 3, 0.5]))


def test_losses_of_ones_own_and_plots():
    curve = coverage_risk(classes(), np.zeros(4), losses=[4.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(curve.risk, [4.0, 3.5, 3.0, 2.5])
    axes = tb.plots.coverage_risk(curve, label="entropy")
    axes = tb.plots.coverage_risk(curve, axes=axes)
    assert [line.get_label() for line in axes.lines][:2] == ["best ranking", "entropy"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), curve.risk)


def test_numbers_are_ranked_by_either_part(key):
    x = np.linspace(-1.0, 1.0, 12)[:, None]
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    posterior = tb.NeuralLinear(tb.MAP(train=tb.Train(1))).fit(model, (x, x[:, 0]), key=key, progress=False)
    at = np.array([[3.0], [0.0], [1.0]])
    curve = coverage_risk(posterior.predict(at), [9.0, 0.0, 1.0], by="epistemic")
    missed = (np.asarray(posterior.predict(at).mean)[:, 0] - [9.0, 0.0, 1.0]) ** 2
    np.testing.assert_allclose(curve.risk[0], missed[1], rtol=1e-5)
    np.testing.assert_allclose(curve.risk[-1], missed.mean(), rtol=1e-5)


def test_wrong_losses_and_parts_are_refused():
    with pytest.raises(tb.InputError, match="finite losses of shape"):
        coverage_risk(classes(), np.zeros(4), losses=[1.0])
    with pytest.raises(tb.InputError, match="by="):
        coverage_risk(classes(), np.zeros(4), by="all")
