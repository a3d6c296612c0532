"""Effects of inputs, and the evidence for them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.bench import drop_inputs, num_units, partial_effects, partial_function
from tunbridge.inference.standardised import fit_standardised

X = np.random.default_rng(0).normal(size=(30, 2)) * [1.0, 50.0]


def _linear(coefficients):
    """Draws of a linear network with these weights (draws, 2)."""
    model, _ = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1)).bind(
        tb.Data(X, X[:, 0])
    )
    weights = {"layers": [{"weight": jnp.asarray(coefficients)[..., None], "bias": jnp.zeros((len(coefficients), 1))}]}
    return tb.Draws(model, jax.random.key(0), tb.Params(weights))


def test_effects_of_linear_networks_are_their_weights():
    wanted = np.array([[1.0, 0.02], [2.0, -0.01], [-0.5, 0.03], [3.0, 0.04]])
    found = partial_effects(_linear(wanted), X, names=["a", "b"])
    np.testing.assert_allclose(found.draws, wanted, rtol=2e-3, atol=1e-5)
    assert [row["P(> 0)"] for row in found.rows] == [0.75, 0.75]
    assert found.rows[0]["mean"] == pytest.approx(1.375, rel=1e-3)
    assert "P(> 0)" in str(found)


def test_partial_functions_of_linear_networks_are_lines_and_residuals_what_the_other_input_leaves():
    """g is w (v - mean x); y = 2 a + 3 b and a mean weight of 1 leave partial residuals 2 a - mean a."""
    weights = np.array([[0.5, 3.0], [1.5, 3.0]])
    y = X @ [2.0, 3.0]
    found = partial_function(_linear(weights), (X, y), 0, name="a")
    centred = found.at - X[:, 0].mean()
    assert found.at[[0, -1]] == pytest.approx([X[:, 0].min(), X[:, 0].max()])
    np.testing.assert_allclose(found.draws, weights[:, :1] * centred, atol=1e-3)
    np.testing.assert_allclose(found.residuals, 2.0 * X[:, 0] - X[:, 0].mean(), atol=1e-3)
    axes = tb.plots.partial_function(found)
    assert axes.get_xlabel() == "a"
    np.testing.assert_allclose(axes.lines[0].get_ydata(), found.residuals)


def test_partial_functions_are_in_the_units_of_the_data(key):
    """Least squares finds the line to rounding: a slope of 2 in the first input, and residuals on it."""
    x, y = X * [100.0, 1.0] + 7.0, 100.0 + X @ [200.0, 0.0]
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(0.1))
    posterior = fit_standardised(tb.NeuralLinear(tb.MAP(train=tb.Train(1))), model, x, y, key=key, progress=False)
    found = partial_function(posterior, (x, y), 0)
    slopes = np.diff(found.draws.mean(axis=0)) / np.diff(found.at)
    np.testing.assert_allclose(slopes, 2.0, rtol=1e-2)
    np.testing.assert_allclose(found.residuals, 2.0 * (x[:, 0] - x[:, 0].mean()), atol=1.0)


def test_partial_functions_of_classes_and_unknown_inputs_are_refused(key):
    posterior = _linear(np.ones((2, 2)))
    labels = (X[:, 0] > 0).astype(int)
    classes = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Bernoulli())
    ranked = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Ordinal(2))
    for model, words in ((classes, "which has a mean"), (ranked, "one of ordered classes")):
        fitted = tb.MAP(train=tb.Train(1)).fit(model, (X, labels), key=key, progress=False)
        with pytest.raises(tb.InputError, match=words):
            partial_function(fitted, (X, labels), 0)
    with pytest.raises(tb.InputError, match="feature from 0 to 1"):
        partial_function(posterior, (X, X[:, 0]), 2)
    with pytest.raises(tb.InputError, match="output below 1"):
        partial_function(posterior, (X, X[:, 0]), 0, output=1)
    with pytest.raises(tb.InputError, match="constant: x1"):
        partial_function(posterior, (X * [1.0, 0.0], X[:, 0]), 1)


def test_wrong_names_constant_inputs_and_outputs_are_refused():
    posterior = _linear(np.ones((2, 2)))
    with pytest.raises(tb.InputError, match="2 names"):
        partial_effects(posterior, X, names=["a"])
    with pytest.raises(tb.InputError, match="constant: x1"):
        partial_effects(posterior, X * [1.0, 0.0])
    with pytest.raises(tb.InputError, match="output below 1"):
        partial_effects(posterior, X, output=1)


@pytest.mark.slow
def test_needed_inputs_are_told_from_others_as_by_the_evidence_in_closed_form(key):
    """A linear model of three inputs, one of which is not in y: log Bayes factors within 0.3, about 4 errors."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    y = x @ [1.0, 0.5, 0.0] + 0.3 * rng.normal(size=40)
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    found = drop_inputs(model, (x, y), key=key, names=["a", "b", "c"], method=tb.TemperedSMC(particles=1000))
    scaled, centred = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()

    def evidence(columns):
        z = np.column_stack([columns, np.ones(40)])
        covariance = (0.3 / y.std()) ** 2 * np.eye(40) + z @ z.T
        return -0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * centred @ np.linalg.solve(covariance, centred)

    wanted = [evidence(scaled) - evidence(np.delete(scaled, index, axis=1)) for index in range(3)]
    assert [row["input"] for row in found.rows] == ["a", "b", "c"]
    np.testing.assert_allclose([row["log Bayes factor"] for row in found.rows], wanted, atol=0.3)
    assert found.rows[-1]["needed"] < 0.5 < found.rows[1]["needed"]


@pytest.mark.slow
@pytest.mark.parametrize("nonlinear", [None, (1,), (2, 1)])
def test_inputs_are_dropped_by_their_meaning_not_by_their_place(nonlinear, key):
    """y is a sine of the second of three inputs: only that one is needed, whichever inputs the units take."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.sin(2.0 * x[:, 1]) + 0.2 * rng.normal(size=80)
    network = tb.networks.Shallow(3, nonlinear=nonlinear)
    model = tb.Model(network, tb.priors.Exchangeable(), tb.likelihoods.Gaussian(0.2))
    inputs = [0, 1, 2] if nonlinear is None else [0, 2]
    method = tb.TemperedSMC(particles=500)
    found = drop_inputs(model, (x, y), key=key, inputs=inputs, method=method, repeats=2)
    factors = {row["input"]: row["log Bayes factor"] for row in found.rows}
    assert max(factors["x0"], factors["x2"]) < 0.0
    assert factors.get("x1", 50.0) > 20.0
    assert all(0.0 < row["its error"] < 3.0 for row in found.rows)


def test_the_only_input_of_the_units_and_an_exposure_are_not_dropped(key):
    x, y = np.abs(X) + 1.0, np.arange(30)
    shallow = tb.Model(tb.networks.Shallow(2, nonlinear=(1,)), tb.priors.Exchangeable(), tb.likelihoods.Gaussian(0.3))
    counts = tb.Model(tb.networks.Offset(tb.networks.MLP(())), tb.priors.Normal(1.0), tb.likelihoods.Poisson())
    for model, targets, words in ((shallow, X[:, 0], "only x1"), (counts, y, "other than the exposure")):
        with pytest.raises(tb.InputError, match=words):
            drop_inputs(model, (x, targets), key=key, inputs=[1])


def test_methods_without_evidence_and_unknown_inputs_are_refused(key):
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    with pytest.raises(tb.InputError, match="estimates the evidence"):
        drop_inputs(model, (X, X[:, 0]), key=key, method=tb.MAP())
    with pytest.raises(tb.InputError, match="inputs from 0 to 1"):
        drop_inputs(model, (X, X[:, 0]), key=key, inputs=[2])
    with pytest.raises(tb.InputError, match="two features"):
        drop_inputs(model, (X[:, :1], X[:, 0]), key=key)


def _counted(counts, alpha):
    """Draws whose numbers of units are given, (chains, draws)."""
    prior = tb.priors.Exchangeable(alpha=alpha)
    model, data = tb.Model(tb.networks.Shallow(3), prior, tb.likelihoods.Gaussian(0.3)).bind(tb.Data(X, X[:, 0]))
    one = model.sample_params(jax.random.key(0), data.x)
    params = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*counts.shape, *leaf.shape)), one)
    params = params._replace(scales=(*params.scales[:-1], jnp.asarray(counts, jnp.float32)))
    return tb.Chains(model, jax.random.key(0), params, {}, data.x)


def test_numbers_of_units_have_their_prior_and_their_shares_of_draws():
    counts = np.tile([1, 2, 2, 1, 2, 1, 1, 1], (2, 4))
    found = num_units(_counted(counts, 0.5))
    assert [row["posterior"] for row in found.rows] == [0.0, 0.625, 0.375, 0.0]
    np.testing.assert_allclose([row["prior"] for row in found.rows], [0.5, 0.25, 0.125, 0.125], atol=1e-6)
    assert found.best == 1
    assert found.rows[1]["error"] > 0.0
    assert found.rows[0]["error"] == 1 / counts.size
    assert found.sentences == ()


def test_the_prior_of_the_number_is_averaged_over_alpha():
    """E[alpha^m (1 - alpha)] = B(3 + m, 2) / B(3, 1): 0.25, 0.15, 0.1; within 5 standard errors of 20,000 draws."""
    found = num_units(_counted(np.full((1, 8), 3), dist.Beta(3.0, 1.0)))
    np.testing.assert_allclose([row["prior"] for row in found.rows], [0.25, 0.15, 0.1, 0.5], atol=0.01)
    assert "give the network more units" in found.sentences[0]


def test_a_known_number_is_refused():
    with pytest.raises(tb.InputError, match="unknown number of units"):
        num_units(_linear(np.ones((2, 2))))
