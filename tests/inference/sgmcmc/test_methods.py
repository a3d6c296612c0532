"""SGLD, SGHMC, SGNHT as their users meet them: SGD without noise, resumed, interrupted, refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.core.tree import ravel, strong, unravel
from tunbridge.inference.sampler import shapes
from tunbridge.runtime.batches import Minibatches
from tunbridge.runtime.chunk import member_keys

MODEL = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
DATA = table(24)
STEP = 2.0**-10
"""Powers of two make products exact: a compiler that fuses them with sums rounds like one that does not."""
RUN = tb.Run(chains=1, warmup=0, draws=10, thin=3, batch_size=8)


@jax.jit
def by_optax(target, data, key, step_size, momentum, steps):
    """The position after some steps of SGD on the batches that a sampler's first chain sees."""
    source, like = Minibatches(data, 8), shapes(target.model)
    optimiser = optax.sgd(step_size, momentum=momentum)
    key_start, _, key_batches, _ = member_keys(jax.random.split(jax.random.split(key)[0], 1)[0])

    def step(t, carry):
        position, memory, cursor = carry
        cursor = source.follow(key_batches, cursor, t)
        gradient = jax.grad(target.log_density)(unravel(like, position), source.batch(cursor, t))
        updates, memory = optimiser.update(-ravel(gradient), memory)
        return optax.apply_updates(position, updates), memory, cursor

    cursor = source.start(key_batches, jnp.zeros((), jnp.int32))
    first = ravel(tb.SGLD(1e-3).start(key_start, target, source.batch(cursor, jnp.zeros((), jnp.int32))))
    return jax.lax.fori_loop(0, steps, step, (first, optimiser.init(first), cursor))[0]


@pytest.mark.parametrize(
    ("method", "momentum"),
    [
        pytest.param(tb.SGLD(STEP, noise=0.0, run=RUN), None, marks=pytest.mark.slow),
        (tb.SGHMC(STEP, friction=0.5, noise=0.0, run=RUN), np.float32(0.5)),
    ],
    ids=["sgld", "sghmc"],
)
def test_without_noise_it_is_sgd_to_the_bit(method, momentum):
    key = jax.random.key(3)
    with pytest.warns(tb.ConvergenceWarning):
        posterior = method.fit(MODEL, DATA, key=key)
    last = ravel(jax.tree.map(lambda leaf: leaf[0, -1], posterior.params))
    model, data = MODEL.bind(DATA)
    target = strong(tb.Target(model, float(data.num)))
    expected = by_optax(target, data, key, np.float32(STEP), momentum, 30)
    np.testing.assert_array_equal(np.asarray(last), np.asarray(expected))


def fit(method, data=DATA, key=3, **options):
    """A run too short to converge."""
    with pytest.warns(tb.ConvergenceWarning):
        return method.fit(MODEL, data, key=jax.random.key(key), **options)


SHORT = tb.SGHMC(1e-3, run=RUN)


def test_a_run_taken_up_again_draws_what_an_uninterrupted_one_draws(tmp_path):
    whole = fit(SHORT)
    with pytest.raises(KeyboardInterrupt):
        SHORT.fit(MODEL, DATA, key=jax.random.key(3), checkpoint=tmp_path, callbacks=[interrupt_at(9)])
    resumed = fit(SHORT, checkpoint=tmp_path)
    assert equal(whole.params, resumed.params)


def interrupt_at(step):
    """A callback that interrupts the run once that step is done."""

    def callback(event):
        if event.step >= step:
            raise KeyboardInterrupt

    return callback


def test_a_chain_that_goes_on_under_the_same_key_uses_no_noise_twice():
    first = fit(SHORT)
    second = fit(SHORT, init=first)
    steps = [
        np.diff(np.asarray(posterior.params.weights["layers"][1]["bias"])[0, :, 0]) for posterior in (first, second)
    ]
    assert abs(np.corrcoef(*steps)[0, 1]) < 0.9


def test_batches_from_the_host_are_as_good_as_rows_on_the_device():
    x, y = np.asarray(DATA.x), np.asarray(DATA.y)

    def make(epoch):
        rows = np.random.default_rng(epoch).permutation(24)
        return [(x[part], y[part]) for part in rows.reshape(3, 8)]

    posterior = fit(SHORT, tb.Data.from_batches(make, num=24))
    assert np.isfinite(np.asarray(posterior.predict(x).mean)).all()


def test_batches_of_a_torch_loader_are_taken():
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.tensor(np.asarray(DATA.x)), torch.tensor(np.asarray(DATA.y)))
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    posterior = fit(SHORT, tb.Data.from_batches(lambda epoch: loader, num=24))
    assert np.isfinite(np.asarray(posterior.predict(DATA.x).mean)).all()


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        (lambda x, y: [(x[:8], y[:8]), (x[:9], y[:9])], "one shape"),
        (lambda x, y: [(x[:8], y[:8]), (np.full_like(x[:8], np.nan), y[:8])], "NaN"),
        (lambda x, y: iter([(x[:8], y[:8]), (x[8:16], y[8:16])]), "epoch 1"),
    ],
    ids=["changes its shape", "yields NaN", "ends"],
)
def test_a_stream_that_goes_wrong_ends_with_a_sentence(batches, said):
    x, y = np.asarray(DATA.x), np.asarray(DATA.y)
    stream = tb.Data.from_batches(batches(x, y), num=24)
    with pytest.raises(tb.InputError, match=said):
        SHORT.fit(MODEL, stream, key=jax.random.key(0))


def test_a_diverging_step_ends_with_its_number_and_the_last_checkpoint(tmp_path):
    with pytest.raises(tb.NumericalError, match=r"step \d+ .* smaller step size") as caught:
        tb.SGHMC(10.0, run=RUN).fit(MODEL, DATA, key=jax.random.key(0), checkpoint=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.schedules.Decaying(gamma=0.5), "sum to infinity"),
        (lambda: tb.schedules.Decaying(gamma=1.1), "sum to infinity"),
        (lambda: tb.schedules.Cyclical(exploration=1.0), "exploration"),
        (lambda: tb.schedules.Annealed(0), "at least 1 step"),
        (lambda: tb.schedules.Annealed(10, lowest=0.0), "lowest factor above 0"),
        (lambda: tb.schedules.Annealed(10, lowest=1.0), "lowest factor above 0"),
        (lambda: tb.schedules.Annealed(10, exploration=-0.1), "together at most 1"),
        (lambda: tb.schedules.Annealed(10, exploration=0.6, sampling=0.5), "together at most 1"),
        (lambda: tb.SGLD(-1.0), "above 0"),
        (lambda: tb.SGLD(schedule=tb.schedules.Cosine()), "schedule="),
        (lambda: tb.SGHMC(friction=0.0), "friction"),
        (lambda: tb.SGHMC(integrator=tb.splittings.BADODAB()), "BAOAB"),
        (lambda: tb.SGNHT(correction=tb.corrections.Metropolis()), "thermostat"),
        (lambda: tb.SGHMC(correction=tb.corrections.Metropolis(), gradient=tb.subsampling.SVRG()), "anchor"),
        (lambda: tb.preconditioners.RMSprop(decay=1.0), "decay"),
        (lambda: tb.corrections.MinibatchMetropolis(0), "num"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


@pytest.mark.parametrize(
    ("method", "data", "said"),
    [
        (tb.SGHMC(1e-3, gradient=tb.subsampling.SVRG(), run=RUN), None, "a stream"),
        (tb.SGHMC(1e-3, correction=tb.corrections.Metropolis(), run=RUN), None, "a stream"),
        (tb.SGHMC(1e-3, preconditioner=tb.preconditioners.Groups({"weights/head": 0.1}), run=RUN), DATA, "head"),
        (tb.SGHMC(noise_estimate=None, run=tb.Run(batch_size=7)), DATA, "even"),
    ],
)
def test_what_does_not_fit_model_or_data_is_refused_before_anything_runs(method, data, said):
    if data is None:
        data = tb.Data.from_batches(lambda epoch: [(np.asarray(DATA.x), np.asarray(DATA.y))], num=24)
    with pytest.raises(tb.InputError, match=said):
        method.fit(MODEL, data, key=jax.random.key(0))


def test_temperatures_are_in_the_bar_in_the_statistics_and_in_the_summary():
    heard = []
    posterior = fit(SHORT, callbacks=[heard.append])
    assert heard[-1].facts["coldest"] <= heard[-1].facts["hottest"]
    warmth = posterior.stats["temperature/weights/layers/0/weight"]
    assert warmth.shape == (1, 10)
    summary = posterior.summary()
    named = {row["unknown"]: row["temperature"] for row in summary.rows}
    assert named["weights/layers/0/weight"] == pytest.approx(float(np.mean(warmth)))
    assert any("not asymptotically exact" in sentence for sentence in summary.sentences)
    assert tb.schedules.Decaying.asymptotically_exact


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(tb.schedules.Cyclical(length=10, exploration=0.5), marks=pytest.mark.slow),
        tb.schedules.Annealed(10, exploration=0.2, sampling=0.5),
    ],
    ids=["Cyclical", "Annealed"],
)
def test_draws_of_an_exploration_are_not_kept(schedule):
    run = tb.Run(chains=1, warmup=0, draws=40, thin=1, batch_size=8)
    posterior = fit(tb.SGHMC(1e-3, schedule=schedule, run=run))
    assert posterior.shape == (1, 20)


def test_a_cycle_ends_where_a_draw_is_kept():
    paces = tb.schedules.Cyclical().settled(50)
    assert float(paces.at(49).step) < 1e-3 < 0.99 < float(paces.at(50).step)


def test_an_annealed_cycle_has_large_steps_then_falling_ones_then_small_ones():
    cycle, steps = tb.schedules.Annealed(20, lowest=0.01, exploration=0.25, sampling=0.25), np.arange(40)
    pace = cycle.at(steps)
    factors = np.asarray(pace.step).reshape(2, 20)
    np.testing.assert_array_equal(factors[0], factors[1])
    np.testing.assert_array_equal(factors[0, :6], 1.0)
    np.testing.assert_allclose(factors[0, 6:16] / factors[0, 5:15], 0.01**0.1, rtol=1e-5)
    np.testing.assert_allclose(factors[0, 15:], 0.01, rtol=1e-6)
    np.testing.assert_array_equal(pace.noise, 1.0)
    np.testing.assert_array_equal(cycle.samples(steps), np.tile(np.arange(20) >= 15, 2))


def test_an_annealed_cycle_may_fall_at_once():
    cycle = tb.schedules.Annealed(4, lowest=0.5, exploration=0.5, sampling=0.5)
    np.testing.assert_allclose(cycle.at(np.array([0, 1, 3])).step, [1.0, 1.0, 0.5])
