"""What theory says of stochastic gradients: variances that steps leave, means of batches, exactness of corrections.

Keys are fixed. A figure has to lie within 4 of its standard errors where nothing else is said, which chance breaks in
one of 16,000; there are some 20 such figures, so that a false alarm over other keys has a rate of about 1 in 800.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.bench.truth.noisy import known
from tunbridge.core.tree import ravel
from tunbridge.runtime.batches import Minibatches
from tunbridge.runtime.loop import Options

COPIES = 50
pytestmark = pytest.mark.filterwarnings("ignore::tunbridge.ConvergenceWarning")


def drawn(method, problem, key, **options):
    posterior = method.fit(*problem, key=key, progress=False, **options)
    return np.asarray(posterior.params.weights["w"], np.float64), posterior


def errors_off(values, truth):
    """How many standard errors the mean square of independent copies (chains, draws, copies) is from the truth."""
    each = (values**2).mean(1)
    return (each.mean() - truth) / (each.std(ddof=1) / np.sqrt(each.size))


@pytest.fixture(scope="module")
def normals():
    return known(lambda w: -0.5 * jnp.sum(w**2), COPIES)


RUN = tb.Run(chains=2, warmup=100, draws=2000, thin=1)


def test_sgld_leaves_the_variance_of_its_recursion(normals, key):
    r"""1 / (1 - eta / 2), and not the 1 / (2 - eta) of noise :math:`\sqrt\eta`, which `noise` gives."""
    values, _ = drawn(tb.SGLD(0.5, run=RUN), normals, key)
    assert abs(errors_off(values, 1 / 0.75)) < 4
    assert abs(errors_off(values, 1.0)) > 20
    literal, _ = drawn(tb.SGLD(0.5, noise=0.5**0.5, run=RUN), normals, key)
    assert abs(errors_off(literal, 1 / 1.5)) < 4


def test_baoab_leaves_the_variance_of_a_normal_as_it_is(normals, key):
    baoab = tb.SGHMC(0.5, friction=0.3, integrator=tb.splittings.BAOAB(), run=RUN)
    assert abs(errors_off(drawn(baoab, normals, key)[0], 1.0)) < 4


def test_a_corrected_path_leaves_a_normal_as_it_is(normals, key):
    """With the work of the path taken by the wrong sign it is 17 standard errors off."""
    corrected = tb.SGHMC(0.2, friction=0.3, correction=tb.corrections.Metropolis(3), run=RUN)
    assert abs(errors_off(drawn(corrected, normals, key)[0], 1.0)) < 4


class Problem:
    """Logistic regression of 60 rows, and estimators that know its rows."""

    def __init__(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 3))
        data = tb.Data(x, (x @ [1.0, -1.0, 0.5] + rng.logistic(size=60) > 0).astype(int))
        network = tb.networks.from_functions(
            lambda key, x: {"w": jnp.zeros(3)}, lambda weights, x: (x @ weights["w"])[:, None]
        )
        model = tb.Model(network, tb.priors.Normal(2.0), tb.likelihoods.Bernoulli())
        self.model, self.data = model.bind(data)
        self.target = tb.Target(self.model, 60.0)
        self.mode = tb.MAP(train=tb.Train(500)).fit(model, data, key=jax.random.key(0), progress=False).params

    def gradient_of(self, estimator):
        """Gradients at w of batches, one after another, from an estimator whose anchor is the mode."""
        options = Options(init=self.mode, progress=False)
        settled = estimator.settled(self.model, self.data, 6, jax.random.key(1), options)
        memory = settled.begin(self.target, ravel(self.mode))
        return jax.jit(jax.vmap(lambda w, batch: settled.estimate(self.target, memory, w, batch).gradient, (None, 0)))

    def full(self, w):
        return jax.jit(jax.grad(lambda w: self.target.log_density(tb.Params({"w": w}), self.data)))(w)

    def batches(self, size, count):
        return _batches(Minibatches(self.data, size), jnp.arange(count))


@jax.jit
def _batches(source, steps):
    """One after another."""
    key = jax.random.key(5)

    def turn(cursor, step):
        cursor = source.follow(key, cursor, step)
        return cursor, source.batch(cursor, step)

    return jax.lax.scan(turn, source.start(key, steps[0]), steps)[1]


@pytest.fixture(scope="module")
def problem():
    return Problem()


ESTIMATORS = [tb.subsampling.Plain(), tb.subsampling.ControlVariate(), tb.subsampling.SVRG(every=10**6)]
NAMES = ["Plain", "ControlVariate", "SVRG"]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_gradients_of_an_epoch_average_to_that_of_all_rows(estimator, problem):
    """To rounding where batches share the rows out evenly; wherever the last wraps, within 4 errors over epochs."""
    w = ravel(problem.mode) + jnp.array([0.3, -0.2, 0.1])
    gradient, full = problem.gradient_of(estimator), problem.full(w)
    np.testing.assert_allclose(gradient(w, problem.batches(10, 6)).mean(0), full, rtol=0, atol=2e-5 * 60)
    gradients = gradient(w, problem.batches(7, 9 * 200)).reshape(200, 9, 3).mean(1)
    error = gradients.std(0) / np.sqrt(200)
    assert np.abs((gradients.mean(0) - full) / error).max() < 4
    assert np.abs(gradient(w, problem.batches(10, 6)) - full[None]).max() > 0.1


def test_control_variates_have_less_noise_near_the_mode_and_none_at_it(problem):
    batches = problem.batches(10, 60)
    plain, anchored = (problem.gradient_of(estimator) for estimator in ESTIMATORS[:2])
    near = ravel(problem.mode) + 0.1
    assert anchored(near, batches).var(0).sum() < 0.1 * plain(near, batches).var(0).sum()
    assert anchored(ravel(problem.mode), batches).std(0).max() < 1e-4


@pytest.mark.parametrize(
    ("correction", "passes"),
    [
        (tb.corrections.Metropolis(2), 2 * 10 / 60 + 2),
        (tb.corrections.MinibatchMetropolis(6, length=2), (2 * 10 + 2 * 6) / 60),
    ],
    ids=["all rows", "some rows"],
)
@pytest.mark.slow
def test_a_corrected_step_tells_how_many_rows_it_has_seen(correction, passes, problem, key):
    """In passes over all rows, those that decide counted at both ends."""
    run = tb.Run(chains=1, warmup=5, draws=20, thin=1, batch_size=10)
    stats_of = drawn(tb.SGLD(1e-3, correction=correction, run=run), (problem.model, problem.data), key)[1].stats
    np.testing.assert_allclose(stats_of["gradients"], passes, rtol=1e-5)


@pytest.mark.slow
def test_momentum_by_euler_leaves_the_variance_of_its_recursion(normals, key):
    """Of the linear recursion in (w, r) the covariance solves C = M C M' + N."""
    eta, alpha = 0.5, 0.3
    moves = np.array([[1 - eta, eta * (1 - alpha)], [-1.0, 1 - alpha]])
    push = np.array([eta, 1.0]) * np.sqrt(2 * alpha / eta)
    kept = np.linalg.solve(np.eye(4) - np.kron(moves, moves), np.outer(push, push).ravel())[0]
    values, _ = drawn(tb.SGHMC(eta, friction=alpha, run=RUN), normals, key)
    assert abs(errors_off(values, kept)) < 4
    assert kept > 1.1


@pytest.mark.slow
def test_decaying_steps_lose_their_bias(normals, key):
    """The first draws are too wide by far, the later ones not."""
    pacing = tb.schedules.Decaying(b=50.0, gamma=0.8)
    values, _ = drawn(tb.SGLD(1.0, schedule=pacing, run=dataclasses.replace(RUN, draws=8000)), normals, key)
    assert errors_off(values[:, 5:30], 1.3) > 4
    assert abs(errors_off(values[:, 2000:], 1.0)) < 4


@pytest.mark.slow
def test_friction_answers_the_noise_of_the_gradient(key):
    """The double well -2 x^2 + x^4 of Chen et al., noise of variance 4: E x^2 as by quadrature.

    With a fifteenth of the friction, and the noise not taken into account, the chain is hot.
    """
    x = np.linspace(-4, 4, 4001)
    truth = np.average(x**2, weights=np.exp(2 * x**2 - x**4))
    problem = known(lambda w: jnp.sum(2 * w**2 - w**4), COPIES, 4.0, 2000)
    run = tb.Run(chains=2, warmup=1000, draws=2000, thin=10, batch_size=1)
    right, _ = drawn(tb.SGHMC(0.01, friction=0.3, noise_estimate=4.0, run=run), problem, key)
    assert abs(errors_off(right, truth)) < 4
    hot, _ = drawn(tb.SGHMC(0.01, friction=0.02, run=run), problem, key)
    assert errors_off(hot, truth) > 10


@pytest.mark.slow
def test_a_preconditioner_makes_a_ravine_round(key):
    """Variances 1e-4 and 1, ten times: by default within 6 % of both (errors are 1 %); SGLD that is stable is slow."""
    widths = jnp.tile(jnp.array([1e-4, 1.0]), 10)
    ravine = known(lambda w: -0.5 * jnp.sum(w**2 / widths), 20)
    run = tb.Run(chains=2, warmup=3000, draws=1000, thin=50)
    scaled = drawn(tb.SGHMC(run=run), ravine, key)[0] / np.sqrt(np.asarray(widths))
    for part in (scaled[..., ::2], scaled[..., 1::2]):
        assert abs((part**2).mean() - 1) < 0.06
    narrow = drawn(tb.SGLD(1e-4, run=run), ravine, key)[0][..., ::2]
    assert abs((narrow**2).mean() / 1e-4 - 2) < 0.1


@pytest.fixture(scope="module")
def regression():
    """Linear regression of 200 rows and its exact posterior."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 4))
    y = x @ rng.normal(size=4) + 0.5 * rng.normal(size=200)
    network = tb.networks.from_functions(
        lambda key, x: {"w": jnp.zeros(4)}, lambda weights, x: (x @ weights["w"])[:, None]
    )
    covariance = np.linalg.inv(x.T @ x / 0.25 + np.eye(4))
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.5))
    return (model, tb.Data(x, y)), covariance @ (x.T @ y) / 0.25, np.linalg.cholesky(covariance)


def whitened(method, regression, key):
    """Draws from the mean on, in coordinates in which the truth is N(0, 1)."""
    problem, mean, factor = regression
    values, _ = drawn(method, problem, key, init=tb.Params({"w": jnp.asarray(mean, jnp.float32)}))
    return (values - mean) @ np.linalg.inv(factor).T


@pytest.mark.slow
def test_metropolis_steps_by_all_rows_undo_the_heat_of_noisy_gradients(regression, key):
    """Batches of 5 of 200 rows at a step where SGHMC is too wide by a fifth and more; both ways of correcting it."""
    run = tb.Run(chains=8, warmup=500, draws=4000, thin=1, batch_size=5)
    heated = whitened(tb.SGHMC(2e-5, friction=0.1, run=run), regression, key)
    assert errors_off(heated, 1.2) > 4
    amortised = tb.SGHMC(2e-5, friction=0.1, correction=tb.corrections.Metropolis(10), run=run)
    single = tb.SGLD(1e-4, correction=tb.corrections.Metropolis(1), run=run)
    for method in (amortised, single):
        assert abs(errors_off(whitened(method, regression, key), 1.0)) < 4


@pytest.mark.slow
def test_a_batch_that_decides_alone_is_no_correction(regression, key):
    """5 of 200 rows: the ratio is noisy, and the posterior found too wide."""
    run = tb.Run(chains=8, warmup=500, draws=4000, thin=1, batch_size=5)
    some = tb.SGLD(1e-4, correction=tb.corrections.MinibatchMetropolis(5), run=run)
    assert errors_off(whitened(some, regression, key), 1.0) > 4


@pytest.mark.slow
def test_draws_of_a_corrected_chain_are_normal(regression, key):
    """Kolmogorov and Smirnov's p-value of one coordinate of thinned draws above 1e-4."""
    run = tb.Run(chains=4, warmup=500, draws=500, thin=20, batch_size=20)
    method = tb.SGHMC(2e-5, friction=0.1, correction=tb.corrections.Metropolis(5), run=run)
    assert stats.kstest(whitened(method, regression, key)[..., 0].ravel(), "norm").pvalue > 1e-4
