import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.core.tree import ravel
from tunbridge.inference.point import swag
from tunbridge.runtime.loop import Trace


def test_a_low_rank_gaussian_has_the_covariance_it_says(key, x64):
    """20,000 draws: every entry within 5 standard errors, a false alarm in 10^5."""
    rng = np.random.default_rng(0)
    mean, variance, factors = rng.normal(size=3), rng.uniform(0.5, 1.5, size=3), rng.normal(size=(2, 3))
    bound, _ = model(()).bind(table(24, features=2))

    def tree(flat):
        return {"layers": [{"bias": flat[..., :1], "weight": flat[..., 1:, None]}]}

    params = tb.Params(tree(jnp.asarray(mean)))
    posterior = tb.LowRankGaussian(bound, key, params, tree(jnp.asarray(variance)), tree(jnp.asarray(factors)))
    draws = np.asarray(jax.vmap(ravel)(posterior.sample(key, 20_000).weights))
    wanted = np.diag(variance) + factors.T @ factors
    sd = np.sqrt(np.diag(wanted))
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * sd / np.sqrt(20_000))
    error = np.sqrt((np.outer(sd, sd) ** 2 + wanted**2) / 20_000)
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - wanted), 5 * error)


def test_snapshots_give_half_their_variance_and_their_last_deviations(x64):
    """A variance, not a standard deviation, halved; deviations from the mean at their time over sqrt(2 (K - 1))."""
    method = tb.SWAG(point=tb.MAP(train=tb.Train(4)), steps=12, snapshots=6, rank=3)
    bound, rows = model(()).bind(table(24))
    target, key = tb.Target(bound, 24.0), jax.random.key(0)
    state = method.init(key, target, method.start(key, target, rows), rows, 0)
    path = np.random.default_rng(0).normal(size=(6, 4))
    for row in path:
        weights = {"layers": [{"bias": jnp.asarray(row[:1]), "weight": jnp.asarray(row[1:, None])}]}
        state = state._replace(point=state.point._replace(params=state.point.params._replace(weights=weights)))
        state = method._gather(method._gather(state, jnp.asarray(True)), jnp.asarray(False))
    posterior = method.posterior(bound, rows, [Trace(state, (), (), 16, 0.0)], key)
    np.testing.assert_allclose(ravel(posterior.mean.weights), path.mean(0), rtol=1e-12)
    np.testing.assert_allclose(ravel(posterior.variance), path.var(0) / 2, rtol=1e-12)
    means = np.cumsum(path, axis=0) / np.arange(1, 7)[:, None]
    deviations = (path - means)[3:] / np.sqrt(2 * (3 - 1))
    np.testing.assert_allclose(jax.vmap(ravel)(posterior.factors), deviations, rtol=1e-12)


def test_the_step_is_measured_from_the_gradients_of_rows(key, x64):
    """2 n/N d/tr C of a linear model, from NumPy, where the curvature allows it."""
    data = table(200, noise=1.0)
    method = tb.SWAG(point=tb.MAP(train=tb.Train(1500)), steps=100, snapshots=50)
    kept = []
    original = swag.SWAG.posterior

    def spy(self, made, rows, traces, key_posterior):
        kept.append(traces[0].state)
        return original(self, made, rows, traces, key_posterior)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swag.SWAG, "posterior", spy)
        posterior = method.fit(model((), tb.likelihoods.Gaussian(1.0), tb.priors.Normal(10.0)), data, key=key)
    columns = np.concatenate([np.ones((200, 1)), data.x], axis=1)
    residuals = np.asarray(data.y)[:, 0] - columns @ ravel(posterior.mean.weights)
    gradients = residuals[:, None] * columns
    spreading = 2 * 50 / 200 * 4 / np.trace(np.cov(gradients.T, bias=True))
    largest = np.linalg.eigvalsh(columns.T @ columns / 200)[-1]
    np.testing.assert_allclose(kept[0].step_size, min(spreading, 1 / largest), rtol=0.25)


@pytest.mark.parametrize(("num", "most"), [(1, 1), (2, 1), (4, 2), (5, 2), (17, 8), (100, 28), (10_000, 128)])
def test_a_step_sees_at_most_half_of_the_rows(num, most):
    """Else gradients have no noise and the path no spread."""
    assert 1 <= tb.SWAG().batch_size(num) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "snapshots"), [(19, 10), (20, 7), (10, 10)])
def test_as_many_snapshots_are_taken_as_asked_for(steps, snapshots, key):
    taken = [k for k in range(steps) if (k + 1) * snapshots // steps > k * snapshots // steps]
    assert len(taken) == snapshots
    method = tb.SWAG(point=tb.MAP(train=tb.Train(2)), steps=steps, snapshots=snapshots, rank=3)
    posterior = method.fit(model((2,)), table(24), key=key)
    assert not any("snapshots" in note for note in posterior.notes)


@pytest.mark.slow
def test_it_spreads_and_agrees_with_map_in_the_middle(key):
    data, made = table(80), model((8,), tb.likelihoods.Gaussian(0.2))
    point = tb.MAP().fit(made, data, key=key).predict(data.x)
    around = tb.SWAG().fit(made, data, key=key).predict(data.x)
    assert float(jnp.sqrt(jnp.mean((point.mean - around.mean) ** 2))) < 0.1
    assert 1e-3 < float(jnp.sqrt(around.epistemic.mean())) < 0.2


@pytest.mark.slow
def test_a_run_that_ends_before_the_path_says_so(key):
    method = tb.SWAG(point=tb.MAP(train=tb.Train(2000)), steps=100, snapshots=20)
    posterior = method.fit(model(), table(24), key=key, callbacks=[lambda event: event.step > 1])
    assert "before two snapshots" in " ".join(posterior.notes)
    assert float(posterior.predict(table(24).x).epistemic.max()) < 1e-12


@pytest.mark.parametrize("settings", [{"rank": 1}, {"snapshots": 10}, {"steps": 50}, {"step_size": 0.0}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(tb.InputError):
        tb.SWAG(**settings)
