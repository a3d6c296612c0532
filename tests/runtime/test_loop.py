import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import Walk, equal, model, table
from tunbridge.core import memory
from tunbridge.core.errors import Result
from tunbridge.runtime import chunk, loop, members


def _counting():
    """A network that counts how often it is traced."""
    count = [0]

    def apply(weights, x):
        count[0] += 1
        return x @ weights["w"]

    network = tb.networks.from_functions(lambda k, x: {"w": 0.1 * jax.random.normal(k, (x.shape[1], 1))}, apply)
    return network, count


def test_new_numbers_compile_nothing(key):
    network, count = _counting()

    def fit(step_size, scale, noise, steps, data, seed):
        made = tb.Model(network, tb.priors.Normal(scale), tb.likelihoods.Gaussian(noise))
        method = tb.MAP(step_size=step_size, train=tb.Train(steps))
        return method.fit(made, data, key=jax.random.key(seed))

    fit(0.01, 1.0, 0.1, 30, table(), 0)
    compiled, begun, traced = chunk.chunk._cache_size(), chunk.begin.num_programs(), count[0]
    shapes_only = _shape_traces(lambda: fit(0.01, 1.0, 0.1, 30, table(), 0), count)
    for change in (
        (0.02, 1.0, 0.1, 30, table(), 0),
        (1, 1.0, 0.1, 30, table(), 0),
        (0.01, 2, 0.1, 30, table(), 0),
        (0.01, 1.0, 1, 30, table(), 0),
        (0.01, 1.0, 0.1, 777, table(), 0),
        (0.01, 1.0, 0.1, 30, table(seed=5), 1),
    ):
        again = _shape_traces(lambda change=change: fit(*change), count)
        assert again == shapes_only, change
    assert (chunk.chunk._cache_size(), chunk.begin.num_programs()) == (compiled, begun)
    assert traced > 0


def _shape_traces(call, count):
    """How often the network is traced, if only to check shapes at the door."""
    before = count[0]
    call()
    return count[0] - before


def test_another_number_of_draws_chains_and_thinning_compiles_nothing(key):
    bound = model()
    Walk().fit(bound, table(), key=key)
    before = chunk.chunk._cache_size(), chunk.begin.num_programs()
    for run in (tb.Run(2, 20, 80), tb.Run(3, 0, 50), tb.Run(2, 7, 11, thin=3)):
        Walk(run=run).fit(bound, table(), key=key)
    Walk(step_size=1, run=tb.Run(2, 20, 50)).fit(bound, table(), key=key)
    assert (chunk.chunk._cache_size(), chunk.begin.num_programs()) == before


@pytest.mark.parametrize(("warmup", "draws", "thin"), [(0, 10, 1), (7, 5, 3), (4, 6, 2), (0, 1, 9)])
def test_every_thin_th_step_after_warmup_is_kept(warmup, draws, thin, key):
    bound, rows = model().bind(table())
    run = tb.Run(1, warmup, draws, thin)
    (trace,) = loop.run(Walk(run=run), tb.Target(bound, 40.0), rows, run, jax.random.split(key, 1), loop.Options())
    wanted = [warmup + (i + 1) * thin for i in range(draws)]
    np.testing.assert_array_equal(trace.kept[1], wanted)
    assert trace.info.accepted.shape == (draws,)


def _cut(monkeypatch, lengths):
    """Force the lengths of the chunks."""
    iterator = iter(lengths)
    real = members.Lane._stop
    monkeypatch.setattr(
        members.Lane,
        "_stop",
        lambda self: min(real(self) if (n := next(iterator, None)) is None else self.step + n, self.plan.steps),
    )


@pytest.mark.parametrize("batch_size", [pytest.param(None, marks=pytest.mark.slow), 8])
def test_results_do_not_depend_on_where_chunks_end(batch_size, key, monkeypatch):
    method = Walk(run=tb.Run(1, 10, 40, thin=2, batch_size=batch_size))
    whole = method.fit(model(), table(), key=key)
    _cut(monkeypatch, [3, 1, 1, 17, 2, 9, 40])
    assert equal(method.fit(model(), table(), key=key).params, whole.params)


@pytest.mark.slow
def test_kept_entries_beyond_one_buffer_are_all_there(key, monkeypatch):
    method = Walk(run=tb.Run(1, 5, 60))
    whole = method.fit(model(), table(), key=key)
    monkeypatch.setattr(chunk, "_MOST_KEPT", 7)
    jax.clear_caches()
    small = method.fit(model(), table(), key=key)
    jax.clear_caches()
    assert equal(small.params, whole.params)


def test_the_same_key_gives_the_same_result_and_another_key_another(key):
    one, two, other = (Walk().fit(model(), table(), key=k) for k in (key, key, jax.random.key(1)))
    assert equal(one.params, two.params)
    assert not equal(one.params, other.params)


@pytest.mark.slow
def test_members_as_threads_and_vmapped_are_equal_to_rounding(key, monkeypatch):
    method = tb.Ensemble(tb.MAP(train=tb.Train(50)), 3)
    threads = method.fit(model(), table(), key=key)
    walk = Walk(run=tb.Run(3, 5, 20, thin=2)).fit(model(), table(), key=key)
    monkeypatch.setattr(loop, "spread", lambda num: [(list(range(num)), None)])
    vmapped = method.fit(model(), table(), key=key)
    for a, b in zip(threads.members, vmapped.members, strict=True):
        np.testing.assert_allclose(a.predict(table().x).mean, b.predict(table().x).mean, atol=1e-3)
        np.testing.assert_allclose(a.curve["loss"], b.curve["loss"], rtol=1e-3)
    together = Walk(run=tb.Run(3, 5, 20, thin=2)).fit(model(), table(), key=key)
    np.testing.assert_allclose(
        together.params.weights["layers"][0]["bias"], walk.params.weights["layers"][0]["bias"], atol=1e-4
    )


def test_more_members_than_cores_all_finish_and_differ(key):
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(40)), 5).fit(model(), table(), key=key)
    means = np.stack([np.asarray(member.predict(table().x).mean) for member in posterior.members])
    assert len(np.unique(means[:, 0, 0])) == 5


def test_a_failure_stops_with_a_sentence_and_names_the_step(key):
    with pytest.raises(tb.NumericalError, match=r"Stopped at step 13 of member [01]: The state became NaN") as caught:
        Walk(fail_at=13).fit(model(), table(), key=key)
    assert caught.value.result == Result.NONFINITE_STATE
    assert "pass checkpoint=" in str(caught.value)


def test_a_diverging_optimiser_stops_with_a_sentence(key):
    import optax

    method = tb.MAP(step_size=1e30, optimiser=optax.sgd, decay=tb.schedules.Constant(), train=tb.Train(100))
    with pytest.raises(tb.NumericalError, match=r"The log density was NaN or infinite\. Try a smaller step size"):
        method.fit(model(), table(), key=key)


@pytest.mark.slow
def test_a_failure_in_a_vmapped_lane_names_the_member(key, monkeypatch):
    monkeypatch.setattr(loop, "spread", lambda num: [(list(range(num)), None)])
    with pytest.raises(tb.NumericalError, match="step 13 of member 0"):
        Walk(fail_at=13).fit(model(), table(), key=key)


def test_max_seconds_ends_between_chunks(key):
    method = tb.MAP(train=tb.Train(10**8))
    posterior = method.fit(model(), table(), key=key, max_seconds=0.5)
    assert any(note.startswith("Stopped after") for note in posterior.notes)


def test_callbacks_hear_of_every_chunk_and_can_end_the_run(key):
    heard = []

    def callback(event):
        heard.append(event)
        return event.step >= 9

    posterior = tb.MAP(train=tb.Train(10**7)).fit(model(), table(), key=key, callbacks=[callback])
    steps = [event.step for event in heard]  # how many a chunk takes depends on the clock
    assert steps[0] == 1
    assert all(step < 9 for step in steps[:-1])
    assert 9 <= steps[-1] <= 8 + 64
    assert steps == sorted(set(steps))
    assert np.isfinite(heard[-1].facts["loss"])
    assert f"Stopped after {steps[-1]} of 10000000 steps." in posterior.notes


def test_a_method_may_say_that_it_is_done(key):
    bound, rows = model().bind(table())
    method = Walk(run=tb.Run(1, 0, 100_000), stop_at=50)
    (trace,) = loop.run(method, tb.Target(bound, 40.0), rows, method.run, jax.random.split(key, 1), loop.Options())
    assert 50 <= trace.step < 100_000


def test_an_interrupt_passes_through_and_leaves_a_checkpoint(key, tmp_path):
    def callback(event):
        if event.step >= 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tb.MAP(train=tb.Train(500)).fit(model(), table(), key=key, callbacks=[callback], checkpoint=tmp_path)
    resumed = tb.MAP(train=tb.Train(500)).fit(model(), table(), key=key, checkpoint=tmp_path)
    assert equal(resumed.params, tb.MAP(train=tb.Train(500)).fit(model(), table(), key=key).params)


def test_memory_does_not_grow_with_steps_that_are_not_kept(key):
    """The live bytes of all arrays after a long and a short run are the same, but for 200 points of the curve."""

    def live(steps):
        posterior = tb.MAP(train=tb.Train(steps)).fit(model(), table(), key=key)
        jax.block_until_ready(posterior.params)
        held = sum(array.nbytes for array in jax.live_arrays())
        return held, posterior.curve["loss"].size

    live(200)
    (short, points), (long, more) = live(400), live(40_000)
    assert points == more == 200
    assert long <= short + 4096


def test_what_does_not_fit_in_memory_is_refused_with_the_bytes(key, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    with pytest.raises(tb.InputError, match="100 members that need"):
        tb.Ensemble(tb.MAP(), 100).fit(model(), table(), key=key)


def test_worker_threads_see_the_precision_of_the_caller(key, x64):
    posterior = tb.Ensemble(tb.MAP(train=tb.Train(5)), 2).fit(model(), table(), key=key)
    assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(posterior.members[1].params))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.Run(chains=0), "chains= as a whole number"),
        (lambda: tb.Run(draws=0), "draws= as a whole number"),
        (lambda: tb.Run(thin=0), "thin= as a whole number"),
        (lambda: tb.Run(warmup=-1), "warmup of at least 0"),
        (lambda: tb.Run(temperature=0.0), "temperature= as a real number above 0"),
        (lambda: tb.Train(steps=0), "steps= as a whole number"),
        (lambda: tb.Train(steps=1.5), "steps= as a whole number"),
        (lambda: tb.Train(steps=2**31), "steps= as a whole number from 1 to 2,147,483,647"),
        (lambda: tb.Run(draws=2**30, thin=4), "at most 2,147,483,647 steps per chain"),
        (lambda: tb.Train(batch_size=0), "batch_size= as a whole number"),
        (lambda: tb.Train(patience=0), "patience= as a whole number"),
    ],
)
def test_bad_durations_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()
