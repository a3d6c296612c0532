"""The evidence: its gradients, its maximum, and what tuning by it does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import tunbridge as tb
from toys import table
from tunbridge.bench.truth.exact import linear_unknown
from tunbridge.inference.laplace import fitting
from tunbridge.inference.laplace.local import Local
from tunbridge.inference.standardised import fit_standardised

STRUCTURES = {
    "full": tb.structures.Full(),
    "blocks": tb.structures.BlockDiagonal(),
    "kronecker": tb.structures.Kronecker(),
    "corrected": tb.structures.Kronecker(corrected=True),
    "diagonal": tb.structures.Diagonal(),
}
SCALES = {
    "scalar": tb.priors.Normal(tb.priors.fan_in(dist.LogNormal(0.0, 0.5))),
    "a layer": tb.priors.Normal((dist.LogNormal(0.0, 0.5), tb.priors.fan_in(dist.LogNormal(0.0, 0.5)))),
    "an input": tb.priors.ARD(dist.HalfCauchy(1.0), rest=tb.priors.Normal(1.0)),
    "student": tb.priors.StudentT(4.0, dist.LogNormal(0.0, 0.5)),
}
NOISE = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))


X = np.concatenate([table(30).x, np.sin(3 * table(30).x)], axis=1)
ROWS = tb.Data(X, table(30).y)


def local_of(prior):
    model, _ = tb.Model(tb.networks.MLP((4,)), prior, NOISE).bind(ROWS)
    weights = jax.jit(model.network.init)(jax.random.key(3), jnp.asarray(X))
    layout = model.network.layout(weights)
    scales = model.prior.median_scales(weights, layout)
    raw = model.prior.raw(weights, scales, layout)
    return Local.at(model, tb.Params(raw, scales, model.likelihood.median_noise()), tb.subsets.All())


def evidence_of(local, structure):
    data = tb.Data(X, local.model.likelihood.check(ROWS.y))
    return fitting.fit(local, structure, tb.curvatures.GGN(), data, 0.0, jax.random.key(0)).evidence


def moved(local, scales, noise):
    """The same weights with other unknowns."""
    return Local(local.model, tb.Params(local.weights, scales, noise), local.subset)


CASES = [(structure, scales) for structure in STRUCTURES for scales in SCALES]
IMPOSSIBLE = {("corrected", "an input"), ("corrected", "student")}


@pytest.mark.parametrize(
    ("structure", "scales"),
    [
        pytest.param(*case, marks=() if case == ("diagonal", "scalar") else pytest.mark.slow)
        for case in CASES
        if case not in IMPOSSIBLE
    ],
)
def test_gradients_are_those_of_the_evidence_measured_afresh(structure, scales, x64):
    """Finite differences of an approximation whose curvature is taken anew with other scales and noise."""
    local, kept = local_of(SCALES[scales]), STRUCTURES[structure]
    flat, back = ravel_pytree((local.params.scales, local.params.noise))
    evidence = evidence_of(local, kept)
    gradient = jax.jit(jax.grad(lambda u: evidence(*back(u))))(flat)
    step = 1e-4
    for i in range(len(flat)):
        plus, minus = (back(flat.at[i].add(sign * step)) for sign in (1, -1))
        values = [float(evidence_of(moved(local, *at), kept)(*at)) for at in (plus, minus)]
        np.testing.assert_allclose(gradient[i], (values[0] - values[1]) / (2 * step), rtol=2e-5, atol=1e-5)


@pytest.mark.slow
def test_gradients_of_low_rank_are_those_of_its_own_evidence(x64):
    local = local_of(SCALES["a layer"])
    flat, back = ravel_pytree((local.params.scales, local.params.noise))
    found = evidence_of(local, tb.structures.LowRank(4))
    gradient, step = jax.grad(lambda u: found(*back(u)))(flat), 1e-5
    for i in range(len(flat)):
        plus, minus = (float(found(*back(flat.at[i].add(sign * step)))) for sign in (1, -1))
        np.testing.assert_allclose(gradient[i], (plus - minus) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_tuning_finds_the_top_of_evidence_and_priors_of_the_conjugate_problem(key, x64):
    """Against a grid over noise and scale with the closed-form evidence: within 1 %."""
    exact = linear_unknown()
    posterior = tb.Laplace().fit(exact.model, exact.data, key=key)
    noise, scale = (
        np.exp(np.asarray(one[0])) for one in (posterior.gaussian.params.noise, posterior.gaussian.params.scales)
    )
    x, y = (np.asarray(part, np.float64) for part in (exact.data.x, exact.data.y))
    phi = np.concatenate([x, np.ones((len(x), 1))], axis=1)

    def objective(sigma, tau):
        marginal = sigma**2 * np.eye(len(y)) + tau**2 * phi @ phi.T
        log_evidence = -0.5 * (np.linalg.slogdet(2 * np.pi * marginal)[1] + (y.T @ np.linalg.solve(marginal, y)).item())
        return log_evidence + np.log(sigma) - 2 * sigma - tau**2 / 8  # Gamma(2, 2), HalfNormal(2)

    grid = np.exp(np.linspace(-0.02, 0.02, 5))
    values = np.array([[objective(noise * a, scale * b) for b in grid] for a in grid])
    assert np.unravel_index(values.argmax(), values.shape) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_tuning_does_not_depend_on_the_units_of_x_and_y(size, key):
    data = table(60)
    model = tb.Model(tb.networks.MLP(()), SCALES["scalar"], NOISE)  # one mode: rounding decides nothing
    posterior = _fit(model, np.asarray(data.x) * size, np.asarray(data.y) * size, key)
    predictive = posterior.predict(np.asarray(data.x)[:20] * size)
    first = _fit(model, np.asarray(data.x), np.asarray(data.y), key).predict(np.asarray(data.x)[:20])
    np.testing.assert_allclose(predictive.std / size, first.std, rtol=1e-2)  # tuning ends at a gain below 0.05


def _fit(model, x, y, key):
    return fit_standardised(tb.Laplace(), model, x, y, key=key)


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["evidence", "online"])
def test_tuned_evidence_is_the_largest_of_those_met(tune, key):
    posterior = tb.Laplace(tune=tune).fit(tb.Model(tb.networks.MLP((10,)), SCALES["scalar"], NOISE), table(60), key=key)
    curve = np.asarray(posterior.gaussian.curve["log_evidence"])
    assert len(curve) > 2
    assert posterior.log_evidence >= curve[:-1].max() - 1.0  # the priors of the unknowns have a say
    assert posterior.log_evidence > curve[0]
