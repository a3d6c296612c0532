"""Gibbs sampling of shallow networks: its joint law, its predictions beside NUTS, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from inference.shallow import joint
from tunbridge import likelihoods, networks, priors
from tunbridge.core.tree import ravel, unravel
from tunbridge.inference.sampler import shapes
from tunbridge.inference.shallow.sweep import ShallowState

ROOT = priors.RootInverseGamma(3.0, 2.0)
CONJUGATE = priors.Exchangeable(
    dist.Normal(0.3, 0.7),
    dist.InverseGamma(3.0, 2.0),
    dist.Normal(0.0, 0.8),
    dist.Wishart(5.0, 0.2 * jnp.eye(2)),
    dist.InverseGamma(3.0, 2.0),
)
SLICED = priors.Exchangeable(0.5, dist.HalfNormal(1.0), dist.Logistic(0.0, 0.5), dist.Gamma(3.0, 2.0), 0.7)
MODELS = {
    "conjugate": tb.Model(networks.Shallow(3), CONJUGATE, likelihoods.Gaussian(ROOT)),
    "sliced, without a linear part": tb.Model(
        networks.Shallow(2, "relu", linear=False), SLICED, likelihoods.Gaussian(dist.HalfNormal(1.0))
    ),
    "known": tb.Model(networks.Shallow(3), priors.Exchangeable(), likelihoods.Gaussian(0.4)),
}
X = np.linspace(-1.5, 1.5, 5)[:, None]


def table(rows=40):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (rows, 1))
    return x, np.sin(2.0 * x[:, 0]) + 0.2 * rng.normal(size=rows)


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("integrated", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_gewekes_joint_test(name, integrated, key):
    """About 16 statistics per case at 8e-5 each: 1 % false alarms over all six."""
    worst = joint.compare(MODELS[name], X, key, 20_000, integrated=integrated)
    assert max(worst.values()) < joint.FALSE_ALARM, worst


@pytest.mark.slow
@pytest.mark.optimised
def test_a_coefficient_drawn_with_the_wrong_variance_fails_gewekes_test(key, monkeypatch):
    from tunbridge.inference.shallow import conditionals

    right = conditionals.coefficients

    def wrong(gram, products):
        law = right(gram, products)
        return law._replace(precision=law.precision / 1.5)

    monkeypatch.setattr(conditionals, "coefficients", wrong)
    worst = joint.compare(MODELS["conjugate"], X, key, 20_000)
    assert max(worst.values()) > joint.FALSE_ALARM


@pytest.mark.slow
@pytest.mark.optimised
def test_predictions_agree_with_nuts_and_hmc():
    """E10. Means and sds of the function at 9 inputs within 2 Monte Carlo standard errors of each other, on average.

    The mean of |z| over 18 comparisons of one method with another is 0.8 if both are right. Values at near inputs are
    dependent: with six independent ones it exceeds 1.6 with probability 8e-4, and one of 18 exceeds 4.5 with 1e-4.
    """
    model = MODELS["known"]
    x, y = table()
    inputs = np.linspace(-2.0, 2.0, 9)[:, None]
    run = tb.Run(4, 1000, 2000, 2)
    methods = [tb.GibbsMetropolis(run=run), tb.GibbsMetropolis(integrated=False, run=tb.Run(4, 2000, 4000, 20))]
    methods += [tb.NUTS(run=run), tb.HMC(run=run)]
    moments = []
    for method in methods:
        posterior = method.fit(model, (x, y), key=jax.random.key(1), progress=False)
        f = posterior.functions(inputs)[..., 0]
        moments.append([_moment(f), _moment((f - f.mean(axis=(0, 1))) ** 2)])
    for first, second in [(0, 1), (0, 2), (0, 3)]:
        z = [
            np.abs(a - b) / np.hypot(error_a, error_b)
            for (a, error_a), (b, error_b) in zip(moments[first], moments[second], strict=True)
        ]
        assert np.mean(z) < 1.6, (first, second, z)
        assert np.max(z) < 4.5, (first, second, z)


def _moment(values):
    """Mean over chains and draws, and its standard error from 20 batches per chain."""
    batches = values.reshape(values.shape[0] * 20, -1, values.shape[-1]).mean(axis=1)
    return values.mean(axis=(0, 1)), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))


@pytest.mark.slow
def test_a_row_of_weight_two_counts_twice():
    """Same key, same rows: the sums are the same up to rounding, and so are the first draws of all unknowns."""
    x, y = table(12)
    model, run = MODELS["conjugate"], tb.Run(1, 0, 5, 1)
    weight = np.ones(len(y))
    weight[3] = 2.0
    fits = [
        tb.GibbsMetropolis(run=run).fit(model, data, key=jax.random.key(0), progress=False)
        for data in (tb.Data(x, y, weight), tb.Data(np.concatenate([x, x[3:4]]), np.append(y, y[3])))
    ]
    for one, two in zip(*(jax.tree.leaves(fit.params) for fit in fits), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-3)


@pytest.mark.slow
@pytest.mark.optimised
def test_units_that_move_without_their_prior_fail_gewekes_test(key, monkeypatch):
    """A random walk needs the ratio of prior densities in its acceptance; the lecture's formula leaves it out."""
    from tunbridge.inference.shallow import sweep

    monkeypatch.setattr(sweep, "_log_prior", lambda raw: jnp.zeros(raw.shape[1], raw.dtype))
    worst = joint.compare(MODELS["conjugate"], X, key, 20_000)
    assert not all(value < joint.FALSE_ALARM for value in worst.values())  # NaN if they walk off to infinity


@pytest.mark.slow
def test_draws_of_alpha_near_one_do_not_end_a_fit():
    """Where nearly all of Beta's mass is at 1, single precision rounds draws to 1, whose logit is infinite."""
    prior = priors.Exchangeable(alpha=dist.Beta(20.0, 0.05))
    model = tb.Model(networks.Shallow(2), prior, likelihoods.Gaussian(0.3))
    posterior = tb.ReversibleJump(run=tb.Run(1, 0, 50, 1)).fit(model, table(), key=jax.random.key(0), progress=False)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(posterior.params))


@pytest.mark.slow
def test_steps_are_not_tuned_by_sweeps_without_a_unit(key):
    """Two steps, with two units and with none: the second leaves the size of steps as it was."""
    prior = priors.Exchangeable(alpha=1e-6)
    model, rows = tb.Model(networks.Shallow(2), prior, likelihoods.Gaussian(10.0)).bind(tb.Data(*table()))
    target, like = tb.Target(model, float(rows.num)), shapes(model)
    start = ShallowState.begin(model.sample_params(key, rows.x), jnp.asarray(100))
    step = jax.jit(lambda state: state.next(key, target, rows, 0.3, 5, True))
    without, info = step(start)
    assert float(unravel(like, start.position).scales[-1]) == 0.0
    assert float(without.log_scale) == float(start.log_scale)
    assert float(info.acceptance) == 1.0
    params = unravel(like, start.position)
    used = start._replace(position=ravel(params._replace(scales=(*params.scales[:-1], jnp.asarray(2.0)))))
    assert float(step(used)[0].log_scale) != float(start.log_scale)


REFUSED = {
    "a network of another form": (tb.Model(networks.MLP((3,)), priors.Normal(1.0), likelihoods.Gaussian(0.1)), "MLP"),
    "another prior": (tb.Model(networks.Shallow(3), priors.Normal(1.0), likelihoods.Gaussian(0.1)), "Normal"),
    "another likelihood": (
        tb.Model(networks.Shallow(3), priors.Exchangeable(), likelihoods.StudentT(4.0, 0.1)),
        "StudentT",
    ),
    "more units than rows": (
        tb.Model(networks.Shallow(41), priors.Exchangeable(), likelihoods.Gaussian(0.1)),
        "at most as many units",
    ),
    "unknown number of units": (
        tb.Model(networks.Shallow(3), priors.Exchangeable(alpha=0.5), likelihoods.Gaussian(0.1)),
        "ReversibleJump",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_integrated_is_refused(case):
    model, words = REFUSED[case]
    with pytest.raises(tb.InputError, match=words):
        tb.GibbsMetropolis().fit(model, table(), key=jax.random.key(0), progress=False)


WRONG = {
    "a precision that may be negative": (
        lambda: _bound(hidden_precision=dist.Normal(0.0, 1.0)),
        "positive values only",
    ),
    "a mean that is no number": (lambda: priors.Exchangeable(output_mean=np.nan), "a finite output_mean"),
    "an infinite variance": (lambda: priors.Exchangeable(output_variance=np.inf), "a finite output_variance"),
    "an improper prior": (
        lambda: tb.TemperedSMC().fit(_improper(), table(), key=jax.random.key(0)),
        "Give a wide one, dist.Normal",
    ),
    "an acceptance above 1": (lambda: tb.GibbsMetropolis(acceptance=2.0), "between 0 and 1"),
}


def _bound(**numbers):
    model = tb.Model(networks.Shallow(3), priors.Exchangeable(**numbers), likelihoods.Gaussian(0.3))
    return model.bind(tb.Data(*table()))


def _improper():
    prior = priors.Exchangeable(output_mean=dist.ImproperUniform(dist.constraints.real, (), ()))
    return tb.Model(networks.Shallow(3), prior, likelihoods.Gaussian(0.3))


@pytest.mark.parametrize("case", WRONG)
def test_numbers_that_are_none_are_refused(case):
    make, words = WRONG[case]
    with pytest.raises(tb.InputError, match=words):
        make()


def test_temperatures_and_two_outputs_are_refused():
    model = MODELS["known"]
    with pytest.raises(tb.InputError, match="temperature of 1"):
        tb.GibbsMetropolis(run=tb.Run(temperature=0.5)).fit(model, table(), key=jax.random.key(0))
    x, y = table()
    with pytest.raises(tb.InputError, match="one column"):
        tb.GibbsMetropolis().fit(model, (x, np.stack([y, y], axis=1)), key=jax.random.key(0))


@pytest.mark.slow
@pytest.mark.optimised
def test_gewekes_joint_test_where_hidden_units_take_some_inputs(key):
    """16 statistics at 8e-5 each."""
    x = np.random.default_rng(2).normal(size=(6, 3))
    prior = priors.Exchangeable(
        output_variance=dist.InverseGamma(3.0, 2.0), linear_variance=dist.InverseGamma(3.0, 2.0)
    )
    model = tb.Model(networks.Shallow(3, nonlinear=(2, 0)), prior, likelihoods.Gaussian(ROOT))
    worst = joint.compare(model, x, key, 20_000)
    assert max(worst.values()) < joint.FALSE_ALARM, worst
