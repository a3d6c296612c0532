"""What noise a likelihood supposes decides what is learnt: planted noise is found, outliers are withstood."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.inference.standardised import fit_standardised
from tunbridge.model.likelihoods import (
    Gaussian,
    Heteroscedastic,
    Laplace,
    MultiTask,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)

UNKNOWN = dist.Gamma(0.5, 1.0)


def curve(num, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, num)
    return rng, x[:, None], np.sin(2 * x)


def model(likelihood, hidden=(20,)):
    return tb.Model(tb.networks.MLP(hidden), tb.priors.Normal((2.0, tb.priors.fan_in(1.0))), likelihood)


@pytest.mark.slow
def test_two_tasks_find_their_noise(key):
    """Planted scales 10 and 1 on 1,500 rows: each within 15 %, as measured by MAP on rows held out."""
    rng, x, f = curve(1500)
    y = np.column_stack([30 * f + 10 * rng.normal(size=1500), -f + rng.normal(size=1500)])
    tasks = MultiTask({"large": Gaussian(UNKNOWN), "small": Gaussian(UNKNOWN)})
    posterior = fit_standardised(tb.MAP(train=tb.Train(1500)), model(tasks), x, y, key=key, progress=False)
    noise = np.exp([float(task[0]) for task in posterior.posterior.params.noise])
    found = noise * posterior.scaling.y_scale
    np.testing.assert_allclose(found, [10.0, 1.0], rtol=0.15)


@pytest.mark.slow
def test_without_its_logarithm_the_noise_scale_runs_away(key):
    """Minus |y - f|^2 / (2 s^2) alone is maximised by s to infinity: the term log s is what holds it."""
    rng, x, f = curve(300)
    data = tb.Data(x, f + 0.2 * rng.normal(size=300))
    scales = []
    for likelihood in (Heteroscedastic(), WithoutLogarithm()):
        posterior = tb.MAP(train=tb.Train(1500)).fit(model(likelihood), data, key=key, progress=False)
        scales.append(float(jnp.sqrt(jnp.mean(posterior.predict(data.x).aleatoric))))
    assert scales[0] == pytest.approx(0.2, rel=0.2)
    assert scales[1] > 10 * scales[0]


class Unnormalised(dist.Normal):
    def log_prob(self, value):
        return super().log_prob(value) + jnp.log(self.scale)


class WithoutLogarithm(tb.likelihoods.Heteroscedastic):
    def distribution(self, outputs, noise=()):
        base = super().distribution(outputs, noise).base_dist
        return Unnormalised(base.loc, base.scale).to_event(1)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2])
def test_robust_noise_withstands_outliers(share, key):
    """That share of targets replaced by noise of scale 5: the curve is nearer with heavy tails than without."""
    rng, x, f = curve(400)
    y = f + 0.1 * rng.normal(size=400)
    bad = rng.random(400) < share
    y[bad] = 5 * rng.normal(size=bad.sum())
    grid = np.linspace(-2, 2, 100)[:, None]
    error = {}
    for name, likelihood in {
        "gaussian": Gaussian(UNKNOWN),
        "studentt": StudentT(dist.Gamma(2.0, 0.1), UNKNOWN),
        "laplace": Laplace(UNKNOWN),
    }.items():
        posterior = tb.MAP(train=tb.Train(1500)).fit(model(likelihood), tb.Data(x, y), key=key, progress=False)
        found = np.asarray(posterior.predict(grid).mean)[:, 0]
        error[name] = float(np.sqrt(np.mean((found - np.sin(2 * grid[:, 0])) ** 2)))
    assert error["studentt"] < 0.5 * error["gaussian"]
    assert error["laplace"] < 0.7 * error["gaussian"]


@pytest.mark.slow
def test_loss_is_attenuated_where_labels_are_noise(key):
    """Targets right of 0 are noise of scale 3: a scale that varies keeps the fit on the left, one scale does not."""
    rng, x, f = curve(400)
    y = f + np.where(x[:, 0] > 0, 3.0, 0.05) * rng.normal(size=400)
    left = np.linspace(-2, -0.2, 60)[:, None]
    errors = []
    for likelihood in (Gaussian(UNKNOWN), Heteroscedastic()):
        posterior = tb.MAP(train=tb.Train(2000)).fit(model(likelihood), tb.Data(x, y), key=key, progress=False)
        errors.append(np.sqrt(np.mean((np.asarray(posterior.predict(left).mean) - np.sin(2 * left)) ** 2)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.slow
def test_counts_find_rates_dispersion_and_exposure(key):
    """Planted concentration 2 within 35 %, rates within 15 % on average, with x standardised and the exposure not."""
    rng, x, f = curve(1500)
    exposure = rng.uniform(5, 50, 1500)
    y = rng.poisson(exposure * np.exp(f) * rng.gamma(2.0, 0.5, 1500))
    network = tb.networks.Offset(tb.networks.MLP((20,)))
    made = tb.Model(network, tb.priors.Normal(2.0), NegativeBinomial(dist.LogNormal(1.0, 1.0)))
    method = tb.MAP(train=tb.Train(1500))
    posterior = fit_standardised(method, made, np.column_stack([x, exposure]), y, key=key, progress=False)
    assert float(jnp.exp(posterior.posterior.params.noise[0])) == pytest.approx(2.0, rel=0.35)
    grid = np.linspace(-1.9, 1.9, 50)
    rates = np.asarray(posterior.predict(np.column_stack([grid, np.full(50, 10.0)])).mean)[:, 0] / 10
    assert np.mean(np.abs(np.log(rates) - np.sin(2 * grid))) < 0.15


@pytest.mark.slow
def test_cutpoints_are_found(key):
    """Planted at -1, 0.5 and 2: probabilities of the classes on average within 0.05."""
    rng, x, f = curve(2000)
    cuts = np.array([-1.0, 0.5, 2.0])
    y = np.sum((2 * f + rng.logistic(size=2000))[:, None] > cuts[None], axis=1)
    posterior = tb.MAP(train=tb.Train(1500)).fit(model(Ordinal()), tb.Data(x, y), key=key, progress=False)
    grid = np.linspace(-1.9, 1.9, 50)
    edges = 1 / (1 + np.exp(-(cuts[None] - 2 * np.sin(2 * grid)[:, None])))
    wanted = np.diff(np.column_stack([np.zeros(50), edges, np.ones(50)]), axis=1)
    assert np.mean(np.abs(np.asarray(posterior.predict(grid[:, None]).probs) - wanted)) < 0.05


@pytest.mark.slow
def test_counts_and_several_tasks_can_be_checked_compared_and_handed_on(key):
    rng, x, f = curve(60)
    counted = tb.Data(x, rng.poisson(np.exp(f)))
    both = tb.Data(x, np.column_stack([f, rng.integers(0, 2, 60), counted.y]))
    tasks = MultiTask({"a": Gaussian(UNKNOWN), "b": tb.likelihoods.Bernoulli(), "c": Poisson()})
    run = tb.Run(chains=2, warmup=100, draws=60)
    for likelihood, data in ((Poisson(), counted), (tasks, both)):
        posterior = tb.NUTS(run=run, max_depth=5).fit(model(likelihood, (3,)), data, key=key, progress=False)
        found = posterior.check(data)
        assert found.pit.shape == (60, 1 if likelihood is not tasks else 3)
        assert found.pit.min() >= 0
        tb.plots.check(found)
        assert posterior.to_arviz(data)["posterior_predictive"]["y"].shape[:3] == (2, 60, 60)
        assert posterior.summary().rows
        table = tb.compare(
            model(likelihood, (3,)), data, data, [tb.MAP(train=tb.Train(50))], baselines=False, progress=False
        )
        assert all(np.isfinite(value) for name, value in table.rows[0].items() if name != "method")
    assert {"NLL", "RMSE of a", "accuracy of b", "CRPS of c"} <= set(table.rows[0])
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.slow
def test_sbc_passes_for_counts_and_several_tasks(key):
    """60 simulations of a linear model by NUTS: no quantity's ranks are uneven at the joint 1 % level."""
    tasks = MultiTask({"a": Gaussian(dist.LogNormal(0.0, 0.3)), "c": Poisson()})
    made = tb.Model(tb.networks.MLP((), outputs=2), tb.priors.Normal(0.7), tasks.bind(jnp.zeros((4, 2))))
    method = tb.NUTS(run=tb.Run(chains=1, warmup=150, draws=150), max_depth=5)
    x = np.linspace(-1, 1, 8)[:, None]
    assert tb.bench.sbc(method, made, x, key=key, simulations=60, progress=False).passes


@pytest.mark.slow
def test_estimators_leave_counts_as_they_are_and_exposures_in_their_units():
    rng, x, _ = curve(40)
    table, y = np.column_stack([x, rng.uniform(100, 900, 40)]), rng.poisson(3.0, 40)
    network = tb.networks.Offset(tb.networks.MLP((3,)))
    fitted = tb.BayesianRegressor(tb.MAP(train=tb.Train(5)), network, likelihood=Poisson(), random_state=0).fit(
        table, y
    )
    scaling = fitted.posterior_.scaling
    assert scaling.y_scale is None
    assert (scaling.x_shift[1], scaling.x_scale[1]) == (0.0, 1.0)
    twice = table * [1.0, 2.0]
    np.testing.assert_allclose(fitted.predict(twice), 2 * fitted.predict(table), rtol=1e-4)
    with pytest.raises(tb.InputError, match="exposures above 0"):
        fitted.predict(table - [0.0, 1000.0])
    with pytest.raises(tb.InputError, match="a likelihood of numbers or counts"):
        tb.BayesianRegressor(likelihood=Ordinal()).fit(table, y)
