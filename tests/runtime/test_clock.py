"""A time limit counts training, not compilation, over all loops of a fit; time is a counter that chunks advance."""

import itertools

import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.core.provenance import Cut
from tunbridge.runtime import clock
from tunbridge.runtime.members import Lane

COMPILING = 100.0
"""Seconds of the first chunk of a loop; all others take one."""


@pytest.fixture
def chunks(monkeypatch):
    """The seconds of each chunk so far, on a clock that nothing else moves."""
    taken = []
    advance = Lane.advance

    def timed(lane):
        taken.append(COMPILING if lane.step == 0 else 1.0)
        advance(lane)
        lane._length = 10

    monkeypatch.setattr(Lane, "advance", timed)
    monkeypatch.setattr(clock, "perf_counter", lambda: sum(taken))
    return taken


def model(noise=0.1):
    return tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(noise))


def curve(key):
    return tb.datasets.curve(key, 20)


def test_compilation_is_not_counted(key, chunks):
    posterior = tb.MAP(train=tb.Train(2000)).fit(model(), curve(key), key=key, max_seconds=3.0)
    assert chunks == [COMPILING, 1.0, 1.0, 1.0]
    assert posterior.cut == Cut(31, 2000, 3.0)


def test_a_fit_that_runs_to_its_end_is_not_cut(key, chunks):
    assert tb.MAP(train=tb.Train(25)).fit(model(), curve(key), key=key, max_seconds=50.0).cut is None
    assert tb.MAP(train=tb.Train(2000, patience=1)).fit(model(), curve(key), key=key).cut is None


@pytest.mark.slow
def test_the_loops_of_a_fit_share_one_limit(key, chunks):
    """A point estimate of 41 steps takes 4 counted seconds, and leaves 2 for the normal around it."""
    method = tb.MeanField(point=tb.MAP(train=tb.Train(41)), train=tb.Train(500))
    posterior = method.fit(model(), curve(key), key=key, max_seconds=6.0)
    assert posterior.cut == Cut(41 + 21, 41 + 500, 6.0)


@pytest.mark.slow
def test_a_loop_that_comes_after_the_limit_takes_no_step(key, chunks):
    method = tb.Laplace(point=tb.MAP(train=tb.Train(2000)))
    unknown = model(dist.Gamma(0.5, 1.0))  # whose tuning would look for the mode again
    posterior = method.fit(unknown, curve(key), key=key, max_seconds=2.0)
    assert posterior.cut == Cut(21, 2000, 2.0)
    assert chunks.count(COMPILING) == 1


@pytest.mark.slow
def test_a_baseline_of_two_networks_has_half_of_the_limit_for_each(key, chunks):
    method = tb.bench.CalibratedMAP(tb.MAP(train=tb.Train(2000)))
    posterior = method.fit(model(), curve(key), key=key, max_seconds=6.0)
    assert chunks == [COMPILING, 1.0, 1.0, 1.0] * 2
    assert posterior.cut == Cut(31, 2000, 6.0)


def test_a_callback_that_ends_a_fit_is_named(key):
    posterior = tb.MAP(train=tb.Train(2000)).fit(model(), curve(key), key=key, callbacks=[lambda event: True])
    assert posterior.cut == Cut(1, 2000, None)
    assert str(posterior.cut) == "stopped after 1 of 2,000 steps by a callback: not run to convergence"


def test_a_cut_is_saved_with_the_posterior(key, tmp_path, chunks):
    posterior = tb.MAP(train=tb.Train(2000)).fit(model(), curve(key), key=key, max_seconds=1.0)
    posterior.save(tmp_path)
    assert tb.load(tmp_path).cut == Cut(11, 2000, 1.0)


def test_with_no_seconds_a_checkpoint_is_read_and_no_step_taken(key, tmp_path, chunks):
    method = tb.MAP(train=tb.Train(2000))
    method.fit(model(), curve(key), key=key, checkpoint=tmp_path, max_seconds=1.0)
    taken = len(chunks)
    posterior = method.fit(model(), curve(key), key=key, checkpoint=tmp_path, max_seconds=0)
    assert (len(chunks), posterior.cut) == (taken, Cut(11, 2000, 0.0))


def test_a_share_of_the_limit_is_for_what_is_inside(monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(clock, "perf_counter", lambda: next(seconds))
    one = clock.Clock(4.0)
    one.start()
    with one.up_to(0.25):
        assert one.over
    assert not one.over
