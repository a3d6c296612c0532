"""A chain that runs away without becoming infinite is noticed, and is no place to return to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import table
from tunbridge.core.errors import Result
from tunbridge.inference.sgmcmc import guard
from tunbridge.runtime.loop import Options, Trace

WARMUP = 100


def followed(values, watch=None, start=0):
    watch = guard.begin(jnp.zeros(1)) if watch is None else watch
    for number, value in enumerate(values):
        watch = guard.follow(watch, jnp.asarray(value), jnp.asarray(start + number))
    return watch


def test_the_running_mean_and_variance_are_those_of_the_batches():
    values = np.random.default_rng(0).normal(-500.0, 20.0, size=400)
    watch = followed(values)
    assert abs(float(watch.mean) + 500.0) < 5 * 20 * np.sqrt(0.05 / 1.95)
    assert 8 < float(jnp.sqrt(watch.variance)) < 36
    assert float(followed(values[:1]).mean) == pytest.approx(values[0])
    assert float(followed(values[:1]).variance) == 0


def test_equilibrium_below_the_maximum_is_no_loss():
    """Half a nat per unknown below, and batches that differ; 100,000 values of a chi-squared law, none of them lost."""
    rng = np.random.default_rng(1)
    for unknowns in (1, 5, 1000):
        watch = guard.raised(followed(np.zeros(50)), unknowns)
        lowest = -0.5 * rng.chisquare(unknowns, size=100_000).max()
        assert float(watch.floor) < lowest


def test_a_floor_never_falls_and_a_runaway_is_lost():
    watch = guard.raised(followed(np.full(50, -100.0)), 10)
    low = followed(np.full(200, -130.0), watch, 50)
    here = jnp.zeros(10)
    assert not guard.lost(low, jnp.asarray(-130.0), here)
    assert float(guard.raised(low, 10).floor) == float(watch.floor)
    assert guard.lost(followed(np.full(200, -200.0), watch, 50), jnp.asarray(-200.0), here)
    assert guard.lost(followed([-1e30], watch, 50), jnp.asarray(-1e30), here)
    assert guard.lost(followed([np.nan], watch, 50), jnp.asarray(np.nan), here)


@pytest.fixture(scope="module")
def sampling():
    """A sampler, its target and batch, and a chain's state after the last meeting of warm-up."""
    method = tb.SGHMC(run=tb.Run(chains=1, warmup=WARMUP, draws=4, thin=1))
    model, data = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3)).bind(table(24))
    method, _ = method.settle(model, data, jax.random.key(0), 1, Options())
    target, key = tb.Target(model, float(data.num)), jax.random.key(0)
    state = method.init(key, target, method.start(key, target, data), data, jnp.asarray(WARMUP))
    step, meet = jax.jit(lambda *given: method.step(*given)), jax.jit(lambda *given: method.meet(*given))
    for number in range(WARMUP + 10):
        if number in method.meetings(WARMUP):
            reports = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], method.report(state))
            state = meet(key, target, state, data, reports)
        state, _ = step(jax.random.fold_in(key, number), target, state, data)
    return method, target, data, step, state


def moved(state, by):
    motion = state.motion._replace(position=state.position + by, momentum=jnp.zeros_like(state.position))
    return state._replace(motion=motion)


def test_a_chain_far_out_returns_to_its_refuge_with_a_quarter_of_the_step(sampling, key):
    _, target, data, step, state = sampling
    tuned = state.tuning
    after, info = step(key, target, moved(state, 100.0), data)
    np.testing.assert_array_equal(after.position, tuned.refuge.position)
    assert float(after.tuning.step_size) == pytest.approx(float(tuned.step_size) / 4)
    assert int(after.tuning.late) == int(tuned.late) + 1
    assert float(info.log_density) > float(tuned.guard.floor)
    near, _ = step(key, target, state, data)
    assert float(near.tuning.step_size) == float(tuned.step_size)
    assert int(near.tuning.late) == 0


def test_a_chain_that_is_lost_again_and_again_is_an_error(sampling, key):
    _, target, data, step, state = sampling
    results = []
    for _ in range(11):
        state, info = step(key, target, moved(state, 100.0), data)
        results.append(int(info.result))
    assert results == [Result.SUCCESSFUL] * 10 + [Result.DIVERGED]


def test_losses_after_warm_up_are_warned_of_with_number_and_next_step(sampling, key):
    method, target, data, step, state = sampling
    kept, infos = [], []
    for number in range(4):
        state, info = step(key, target, moved(state, 100.0) if number == 2 else state, data)
        kept.append(method.keep(target, state))
        infos.append(info)
    kept, infos = (jax.tree.map(lambda *leaves: np.stack(leaves), *parts) for parts in (kept, infos))
    trace = Trace(state, kept, infos, WARMUP + 4, 0.0)
    with pytest.warns(tb.ConvergenceWarning, match=r"Chains 0 diverged 1 times after warm-up.*warmup=200") as record:
        posterior = method.posterior(target.model, data, [trace], key)
    assert any("diverged" in str(warning.message) for warning in record)
    assert "smaller steps" in " ".join(posterior.notes)


@pytest.mark.parametrize(("caution", "stiffer"), [(1.0, 100.0), (1 / 16, 100.0), (1 / 256, 256.0)])
def test_chains_agree_on_the_stiffest_place_that_any_has_seen(caution, stiffer, sampling):
    """At the last meeting: a chain may yet come to where another one has been. A loss counts as more curvature."""
    method, target, data, _, state = sampling
    state = state._replace(tuning=state.tuning._replace(left=jnp.asarray(1, jnp.int32)))
    report = method.report(state)
    stiff = report._replace(measured=report.measured._replace(curvature=100.0 * report.measured.curvature))
    lost = report._replace(caution=jnp.asarray(caution))
    reports = jax.tree.map(lambda *leaves: jnp.stack(leaves), lost, stiff)
    after = method.meet(jax.random.key(1), target, state, data, reports)
    assert float(after.tuning.measured.curvature) == pytest.approx(stiffer * float(report.measured.curvature))
    expected = after.tuning.measured.step_size(method.damping, 1.0, method.cancellation)
    assert float(after.tuning.step_size) == pytest.approx(float(expected))
