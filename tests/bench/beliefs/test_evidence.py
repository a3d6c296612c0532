"""Models are ranked by an evidence that is right where it is known."""

import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import tunbridge as tb
from tunbridge.bench.truth import exact

SIGMA, TAU = 0.5, 1.5
SUBSETS = {"one": [0], "two": [0, 1], "three": [0, 1, 2]}
LAPLACE = tb.Laplace(point=tb.MAP(train=tb.Train(steps=1000)))


def on_columns(columns):
    """A line over some of the columns."""
    line, chosen = tb.networks.MLP((), outputs=1), jnp.asarray(columns, int)
    weights = jax.eval_shape(line.init, jax.random.key(0), jnp.zeros((1, len(columns))))
    return tb.networks.from_functions(
        lambda key, x: line.init(key, x[:, chosen]),
        lambda weights, x: line.apply(weights, x[:, chosen]),
        line.layout(weights),
    )


def log_evidence(x, y, columns):
    """Of standardised rows, in the units of y: a multivariate normal."""
    phi = np.column_stack([((x - x.mean(0)) / x.std(0))[:, columns], np.ones(len(y))])
    covariance = TAU**2 * phi @ phi.T + (SIGMA / y.std()) ** 2 * np.eye(len(y))
    law = stats.multivariate_normal(np.zeros(len(y)), covariance)
    return law.logpdf((y - y.mean()) / y.std()) - len(y) * np.log(y.std())


@pytest.fixture(scope="module")
def rows():
    """Two columns that matter and one that does not."""
    data = exact.linear().data
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)[:, 0]
    return np.column_stack([x, np.random.default_rng(2).normal(size=len(y))]), y


@pytest.fixture(scope="module")
def ranking(rows):
    likelihood = tb.likelihoods.Gaussian(SIGMA)
    models = {
        name: tb.Model(on_columns(columns), tb.priors.Normal(TAU), likelihood) for name, columns in SUBSETS.items()
    }
    with jax.enable_x64(True):
        return tb.bench.rank_models(models, rows, rows, method=LAPLACE, key=jax.random.key(0))


@pytest.mark.slow
def test_evidences_of_nested_lines_are_their_closed_forms_and_rank_them(ranking, rows):
    wanted = {name: log_evidence(*rows, columns) for name, columns in SUBSETS.items()}
    found = {row["model"]: row["log evidence"] for row in ranking.rows}
    assert list(found) == sorted(wanted, key=lambda name: -wanted[name])
    assert ranking.best == "two"
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-4)
    assert {row["model"]: row["weights"] for row in ranking.rows} == {"one": 2, "two": 3, "three": 4}


@pytest.mark.slow
def test_probabilities_are_ratios_of_evidences(ranking):
    probability = np.array([row["probability"] for row in ranking.rows])
    value = np.array([row["log evidence"] for row in ranking.rows])
    assert probability.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.log(probability[0] / probability[1:]), value[0] - value[1:], rtol=1e-6)


@pytest.mark.slow
def test_a_ranking_says_its_units_and_its_rank_correlation(ranking, rows):
    assert f"n log sd(y) = {20 * np.log(rows[1].std()):,.2f}" in " ".join(str(ranking).split())
    nll = {row["model"]: row["NLL"] for row in ranking.rows}
    assert nll["three"] < nll["two"] < nll["one"]  # the test rows are those of training: the largest model wins
    assert ranking.rank_correlation == pytest.approx(0.5)
    assert "log score: 0.50 over 3 models" in " ".join(str(ranking).split())


@pytest.mark.slow
def test_evidence_is_drawn_against_the_test_nll(ranking):
    axes = tb.plots.evidence(ranking)
    assert {text.get_text() for text in axes.texts} == set(SUBSETS)
    assert axes.get_title().endswith("rank correlation 0.50")
    plt.close("all")
    without = dataclasses.replace(ranking, rows=[{"model": "two", "log evidence": 0.0}])
    with pytest.raises(tb.InputError, match="with test rows"):
        tb.plots.evidence(without)


def test_a_method_without_evidence_is_refused(rows, key):
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    for arguments, said in (
        ({"method": tb.MAP()}, "estimates the evidence"),
        ({"starts": 0}, "starts= as a whole number from 1"),
    ):
        with pytest.raises(tb.InputError, match=said):
            tb.bench.rank_models({"line": model}, rows, key=key, **arguments)
    with pytest.raises(tb.InputError, match="models= as a dictionary, each value a Model"):
        tb.bench.rank_models({"line": tb.networks.MLP(())}, rows, key=key)


@pytest.mark.slow
def test_laplace_finds_the_evidence_of_the_exact_line(key, x64):
    problem = exact.linear()
    found = LAPLACE.fit(problem.model, problem.data, key=key, progress=False)
    assert float(found.log_evidence) == pytest.approx(problem.log_evidence, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "linear_unknown", "logistic", "tanh_unit"])
def test_tempered_particles_find_the_evidence_of_the_exact_problems(name, key):
    """Within 0.1 and three standard errors of the mean of four runs."""
    problem = exact.PROBLEMS[name]()
    runs = [
        tb.TemperedSMC(particles=1000).fit(problem.model, problem.data, key=one, progress=False)
        for one in jax.random.split(key, 4)
    ]
    values = np.array([float(run.log_evidence) for run in runs])
    assert abs(values.mean() - problem.log_evidence) < 0.1 + 3 * values.std(ddof=1) / 2


@pytest.mark.slow
def test_quadrature_of_the_evidence_over_noise_and_scale_is_that_of_the_whole_model(x64, key):
    """Laplace's evidence at each node, with priors of noise and scale, sums to the exact evidence of both unknown."""
    problem = exact.linear_unknown()
    x, y = np.asarray(problem.data.x), np.asarray(problem.data.y)[:, 0]
    log_sigma, log_tau = np.linspace(-1.6, 0.5, 12), np.linspace(-2.0, 2.0, 11)
    method = tb.Laplace(point=None)
    line = tb.networks.MLP((), outputs=1)
    phi = np.column_stack([x, np.ones(len(y))])

    def node(s, t):
        sigma, tau = np.exp(s), np.exp(t)
        w = np.linalg.solve(phi.T @ phi / sigma**2 + np.eye(3) / tau**2, phi.T @ y / sigma**2)
        model = tb.Model(line, tb.priors.Normal(tau), tb.likelihoods.Gaussian(sigma))
        weights = {"layers": [{"weight": jnp.asarray(w[:2, None]), "bias": jnp.asarray(w[2:])}]}
        fitted = method.fit(model, problem.data, init=weights, key=key, progress=False)
        hyper = stats.gamma(2, scale=0.5).logpdf(sigma) + stats.halfnorm(scale=2).logpdf(tau)
        return float(fitted.log_evidence) + hyper + s + t

    values = np.array([[node(s, t) for t in log_tau] for s in log_sigma])
    cell = (log_sigma[1] - log_sigma[0]) * (log_tau[1] - log_tau[0])
    total = np.log(np.exp(values - values.max()).sum() * cell) + values.max()
    assert total == pytest.approx(problem.log_evidence, abs=0.01)


@pytest.mark.slow
def test_tuning_ends_where_the_evidence_of_the_exact_line_is_largest(x64, key):
    """Noise and prior scale of the largest evidence times their priors, found without a gradient, to 1 %."""
    problem = exact.linear_unknown()
    x, y = np.asarray(problem.data.x), np.asarray(problem.data.y)[:, 0]
    phi = np.column_stack([x, np.ones(len(y))])

    def minus(logs):
        sigma, tau = np.exp(logs)
        covariance = sigma**2 * np.eye(len(y)) + tau**2 * phi @ phi.T
        evidence = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
        return -evidence - stats.gamma(2, scale=0.5).logpdf(sigma) - stats.halfnorm(scale=2).logpdf(tau)

    grid = np.stack(np.meshgrid(np.linspace(-2, 1, 61), np.linspace(-3, 2, 61), indexing="ij"), -1).reshape(-1, 2)
    start = grid[int(np.argmin([minus(node) for node in grid]))]
    sigma, tau = np.exp(minimize(minus, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x)
    found = tb.Laplace(tune=tb.tuning.Evidence(rounds=10)).fit(problem.model, problem.data, key=key, progress=False)
    params = found.gaussian.params
    (scale,), (noise,) = (jax.tree.leaves(tree) for tree in (params.scales, params.noise))
    assert float(jnp.exp(noise)) == pytest.approx(sigma, rel=0.01)
    assert float(jnp.exp(scale)) == pytest.approx(tau, rel=0.01)
