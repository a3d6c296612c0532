"""What all samplers share: starts, meetings of chains, what is kept, and what happens when things go wrong."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, table
from tunbridge.core.tree import ravel, unravel
from tunbridge.inference import scales
from tunbridge.inference.mcmc import tuning
from tunbridge.runtime import members

DATA = table(24)
MODEL = tb.Model(
    tb.networks.MLP((4,)), tb.priors.Normal(tb.priors.fan_in(1.0)), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))
)
RUN = tb.Run(chains=2, warmup=20, draws=10)


def test_full_data_samplers_refuse_batches():
    with pytest.raises(tb.InputError, match="all rows at every step"):
        tb.NUTS(run=tb.Run(batch_size=8)).fit(MODEL, DATA, key=jax.random.key(0))


def draws(posterior):
    return posterior.params


def test_a_vector_is_unravelled_into_what_was_ravelled():
    params = tb.Params({"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(2)}, (), (jnp.asarray(4.0),))
    vector = ravel(params)
    assert equal(unravel(params, vector), params)
    assert unravel(params, jnp.stack([vector] * 5)).weights["a"].shape == (5, 2, 3)


@pytest.mark.parametrize("warmup", [1, 7, 20, 1000])
def test_meetings_are_in_order_and_the_last_ends_warm_up(warmup):
    found = tuning.meetings(warmup)
    assert len(found) == tuning.NUM_MEETINGS
    assert list(found) == sorted(found)
    assert found[-1] == warmup


@pytest.mark.slow
def test_chains_of_one_posterior_share_one_step_size_and_mass_matrix():
    kept = []

    class Spy(tb.HMC):
        def posterior(self, model, data, traces, key):
            kept.append([trace.state.tuning for trace in traces])
            return super().posterior(model, data, traces, key)

    Spy(run=RUN).fit(MODEL, DATA, key=jax.random.key(0), progress=False)
    one, two = kept[0]
    assert one.step_size == two.step_size
    np.testing.assert_array_equal(one.inverse_mass, two.inverse_mass)
    assert int(one.left) == 0


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_first_step_size_follows_the_units_of_the_data(size):
    """Curvature of a linear model's log density by differences, against its eigenvalue, whatever the units of x."""
    x = np.asarray(table(60).x) * size
    hessian = x.T @ x / 0.1**2 + np.eye(3)
    gradient = lambda w: -jnp.asarray(hessian, jnp.float32) @ w  # noqa: E731
    found = scales.curvature(jax.random.key(0), gradient, jnp.ones(3), jnp.ones(3))
    np.testing.assert_allclose(found, np.linalg.eigvalsh(hessian).max(), rtol=0.05)


@pytest.mark.slow
def test_only_predictions_may_be_kept():
    inputs = np.linspace(-1, 1, 9).reshape(3, 3)
    whole, few = (
        tb.HMC(run=tb.Run(chains=2, warmup=20, draws=10, keep=keep)).fit(
            MODEL, DATA, key=jax.random.key(1), progress=False
        )
        for keep in (None, inputs)
    )
    assert isinstance(few, tb.Recorded)
    assert few.outputs.shape == (2, 10, 3, 1)
    one, two = whole.predict(inputs), few.predict(inputs)
    np.testing.assert_allclose(two.mean, one.mean, rtol=1e-5)
    np.testing.assert_allclose(two.std, one.std, rtol=1e-5)
    np.testing.assert_allclose(few.predict(inputs[1:2]).mean, one.mean[1:2], rtol=1e-5)
    assert "function" in str(few.summary())
    with pytest.raises(tb.InputError, match="among the inputs that were kept"):
        few.predict(inputs + 1.0)
    with pytest.raises(tb.InputError, match="kept weights"):
        few.sample(jax.random.key(0), 3)
    with pytest.raises(tb.InputError, match="x of shape"):
        tb.HMC(run=tb.Run(keep=np.zeros((2, 5)))).fit(MODEL, DATA, key=jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [None, np.linspace(-1, 1, 9).reshape(3, 3)])
def test_what_was_kept_is_saved_and_loaded_to_the_bit(keep, tmp_path):
    run = tb.Run(chains=2, warmup=20, draws=10, keep=keep)
    posterior = tb.HMC(run=run).fit(MODEL, DATA, key=jax.random.key(1), progress=False)
    posterior.save(tmp_path)
    assert equal(tb.load(tmp_path), posterior)


@pytest.mark.slow
def test_chains_start_from_members_of_an_ensemble_with_noise_from_its_prior():
    model, _ = MODEL.bind(DATA)
    points = [
        tb.Point(
            model,
            jax.random.key(i),
            jax.jit(model.sample_params)(jax.random.key(i), DATA.x)._replace(noise=(-9.0 + 0 * i,)),
        )
        for i in range(2)
    ]
    starts = tb.Mixture(model, jax.random.key(0), tuple(points)).starts(jax.random.key(5), 4)
    for i in range(4):
        assert equal(jax.tree.map(lambda leaf, i=i: leaf[i], starts.weights), points[i % 2].params.weights)
    assert (np.asarray(starts.noise[0]) > -9.0).all()
    assert len(np.unique(starts.noise[0])) == 4


@pytest.mark.slow
def test_a_posterior_of_chains_is_taken_up_where_it_ended():
    first = tb.HMC(run=RUN).fit(MODEL, DATA, key=jax.random.key(2), progress=False)
    still = tb.HMC(step_size=1e-7, steps=1, run=tb.Run(chains=2, warmup=0, draws=1))
    second = still.fit(MODEL, DATA, key=jax.random.key(3), init=first, progress=False)
    for one, two in zip(jax.tree.leaves(draws(first)), jax.tree.leaves(draws(second)), strict=True):
        np.testing.assert_allclose(two[:, 0], one[:, -1], atol=1e-4)


def test_chains_that_have_not_converged_are_said_to_have_not():
    with pytest.warns(tb.ConvergenceWarning, match="bulk ESS of a prediction is .* Draw about"):
        tb.HMC(run=RUN).fit(MODEL, DATA, key=jax.random.key(0), progress=False)


@pytest.mark.slow
def test_a_step_size_that_explodes_ends_in_a_warning_with_its_number():
    with pytest.warns(tb.ConvergenceWarning, match="diverged: regions of high curvature"):
        tb.HMC(step_size=1e3, run=RUN).fit(MODEL, DATA, key=jax.random.key(0), progress=False)


def test_a_start_of_no_finite_density_is_refused_with_a_sentence():
    model, rows = MODEL.bind(DATA)
    params = jax.jit(model.sample_params)(jax.random.key(0), rows.x)._replace(noise=(jnp.asarray(-200.0),))
    with pytest.raises(tb.NumericalError, match="NaN or infinite at its start or at its current position"):
        tb.HMC(run=RUN).fit(MODEL, DATA, key=jax.random.key(0), init=params, progress=False)


def test_a_run_stopped_in_warm_up_has_nothing_to_show_and_one_stopped_later_says_so():
    stop = [lambda event: event.step >= 3]
    with pytest.raises(tb.InputError, match="reaches its first draw"):
        tb.HMC(run=RUN).fit(MODEL, DATA, key=jax.random.key(0), progress=False, callbacks=stop)
    stop = [lambda event: event.step >= 26]
    posterior = tb.HMC(run=RUN).fit(MODEL, DATA, key=jax.random.key(0), progress=False, callbacks=stop)
    assert 1 <= posterior.shape[1] <= 10


@pytest.mark.slow
def test_what_was_kept_before_an_interrupt_is_read_without_a_step_more(tmp_path):
    def interrupt(event):
        if event.step >= 28:
            raise KeyboardInterrupt

    method = tb.HMC(run=RUN)
    with pytest.raises(KeyboardInterrupt):
        method.fit(MODEL, DATA, key=jax.random.key(0), progress=False, checkpoint=tmp_path, callbacks=[interrupt])
    seen = []
    part = method.fit(
        MODEL, DATA, key=jax.random.key(0), progress=False, checkpoint=tmp_path, max_seconds=0, callbacks=[seen.append]
    )
    assert seen == []
    whole = method.fit(MODEL, DATA, key=jax.random.key(0), progress=False)
    num = part.shape[1]
    assert num >= 1
    assert equal(draws(part), jax.tree.map(lambda leaf: leaf[:, :num], draws(whole)))


@pytest.mark.slow
def test_a_kill_between_the_saves_of_a_meeting_changes_nothing(tmp_path, monkeypatch):
    """One chain saved after a meeting, the other before it: the latter hears once more what the former said."""
    method = tb.HMC(run=RUN)
    whole = method.fit(MODEL, DATA, key=jax.random.key(0), progress=False)
    meet = members.Lane.meet

    def dies(self, heard, chains):
        meet(self, heard, chains)
        self.save()
        if self.met == 3:
            monkeypatch.setattr(members.Lane, "save", lambda self: None)  # nothing is saved on the way out
            raise KeyboardInterrupt

    monkeypatch.setattr(members.Lane, "meet", dies)
    with pytest.raises(KeyboardInterrupt):
        method.fit(MODEL, DATA, key=jax.random.key(0), progress=False, checkpoint=tmp_path)
    monkeypatch.undo()
    resumed = method.fit(MODEL, DATA, key=jax.random.key(0), progress=False, checkpoint=tmp_path)
    assert equal(draws(resumed), draws(whole))


@pytest.mark.slow
def test_chains_are_spread_over_several_devices_with_equal_draws():
    """Two devices with two vmapped chains each, against a thread per chain: the same draws to rounding.

    Short steps amplify none.
    """
    script = textwrap.dedent("""
        import warnings; warnings.simplefilter("ignore")
        import jax, numpy as np, tunbridge as tb
        from tunbridge.runtime import loop, members
        from test_samplers import MODEL, DATA, draws
        method = tb.HMC(step_size=1e-3, steps=2, run=tb.Run(chains=4, warmup=4, draws=3))
        one = method.fit(MODEL, DATA, key=jax.random.key(0), progress=False)
        spread = members.spread
        jax.default_backend = lambda: "gpu"
        assert [part[0] for part in spread(4)] == [[0, 1], [2, 3]]
        two = method.fit(MODEL, DATA, key=jax.random.key(0), progress=False)
        for a, b in zip(jax.tree.leaves(draws(one)), jax.tree.leaves(draws(two))):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-5)
    """)
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "PYTHONPATH": os.pathsep.join(sys.path)}
    folder = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env={**os.environ, **flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_chains_in_one_program_draw_what_chains_in_threads_draw(monkeypatch):
    """Two posteriors of two chains, vmapped in one lane: each pair meets by itself. Short steps amplify no rounding."""
    method = tb.Ensemble(tb.HMC(step_size=1e-3, steps=2, run=tb.Run(chains=2, warmup=6, draws=3)), 2)
    one = method.fit(MODEL, DATA, key=jax.random.key(4), progress=False)
    monkeypatch.setattr("tunbridge.runtime.loop.spread", lambda num: [(list(range(num)), None)])
    two = method.fit(MODEL, DATA, key=jax.random.key(4), progress=False)
    pairs = ([member.params for member in posterior.members] for posterior in (one, two))
    for a, b in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-5)
