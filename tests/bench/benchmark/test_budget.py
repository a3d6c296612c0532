import numpy as np
import pytest

import tunbridge as tb
from bench_fakes import LeastSquares
from toys import Walk, model
from tunbridge.bench.benchmark.budget import Meter
from tunbridge.core.names import METHODS
from tunbridge.inference.base import Iterative
from tunbridge.inference.recorded import Recorded
from tunbridge.runtime.durations import BATCH, LEAST
from tunbridge.runtime.loop import Event

G, ROWS = 1_000_000, 500


def _planned(method):
    """The most gradients of single rows that the steps of a method take."""
    if isinstance(method, tb.Ensemble):
        return method.size * _planned(method.method)
    if isinstance(method, tb.Auto):
        return _planned(method.laplace)
    if isinstance(method, tb.Laplace):
        return _planned(method.point) * (1 + method.tune.rounds * 3 / 2)
    if isinstance(method, tb.NeuralLinear):
        return _planned(method.point)
    if isinstance(method, tb.SWAG):
        return _planned(method.point) + method.steps * BATCH
    first = _planned(method.point) if getattr(method, "point", None) is not None else 0
    duration = method.duration
    if isinstance(duration, tb.Train):
        return first + duration.steps * BATCH * getattr(method, "num_samples", 1)
    steps = duration.chains * (duration.warmup + duration.draws * duration.thin)
    return steps * (duration.batch_size or ROWS) * (2 if isinstance(method, tb.MCLMC) else 1)


UNKNOWN = {"hmc", "nuts", "adjustedmclmc", "ellipticalslice", "temperedsmc", "gibbsmetropolis", "reversiblejump"}


@pytest.mark.parametrize("name", sorted(set(METHODS) - UNKNOWN))
def test_steps_take_the_budget_and_no_more(name):
    planned = _planned(METHODS[name]().within(G, ROWS))
    assert 0.9 * G <= planned <= G


@pytest.mark.parametrize("name", ["hmc", "nuts", "adjustedmclmc"])
def test_trajectories_are_never_fewer_than_the_least_nor_more_than_by_default(name):
    short = METHODS[name]().within(1, ROWS).run
    assert short.warmup >= LEAST
    assert short.draws >= LEAST
    long, usual = METHODS[name]().within(10**12, ROWS).run, METHODS[name]().run
    assert (long.warmup, long.draws) == (usual.warmup, usual.draws)


def test_fewer_rows_than_a_batch_are_all_taken():
    method = tb.MAP().within(1000, 50)
    assert (method.train.steps, method.train.batch_size) == (20, 50)


def test_a_method_of_steps_must_say_what_one_takes():
    assert "gradients_per_step" in Iterative.__abstractmethods__
    steps = {name: METHODS[name]().gradients_per_step for name in METHODS if issubclass(METHODS[name], Iterative)}
    assert {name for name, each in steps.items() if each is None} == UNKNOWN
    assert {name for name, each in steps.items() if each == 2} == {"mclmc"}


def test_gradients_that_were_spent_are_counted_by_the_method():
    assert tb.MAP().gradients_spent(10, None, 50) == 500
    assert tb.MAP().gradients_spent(10, None, 500) == 10 * 500
    assert tb.MAP().within(G, 500).gradients_spent(10, None, 500) == 10 * BATCH
    assert np.isnan(tb.TemperedSMC().gradients_spent(10, None, 50))
    assert tb.MeanField(num_samples=3).gradients_spent(10, None, 50) == 1500
    assert np.isnan(tb.HMC().gradients_spent(10, None, 50))


def test_gradients_are_counted_where_outputs_are_kept_in_place_of_weights(key):
    outputs, inputs = np.zeros((2, 3, 4, 1), np.float32), np.zeros((4, 1), np.float32)
    posterior = Recorded(model(), key, inputs, outputs, (), {"gradients": np.full((2, 3), 7.0)})
    assert tb.HMC().gradients_spent(10, posterior, 50) == 10 * 7 * 50


def test_a_method_of_ones_own_keeps_the_budget():
    """Two chains of full-data steps: the budget in gradients of single rows, and what such a fit took."""
    short = Walk().within(G, ROWS)
    steps = short.run.chains * (short.run.warmup + short.run.draws * short.run.thin)
    assert 0.9 * G <= steps * ROWS <= G
    assert short.gradients_spent(steps, None, ROWS) == steps * ROWS


def test_other_methods_are_left_as_they_are():
    assert LeastSquares(3.0).within(G, ROWS) == LeastSquares(3.0)


def test_the_meter_counts_lanes_and_runs():
    meter = Meter()
    for lane, step in (([0], 1), ([1], 1), ([0], 8), ([1], 9), ([0], 1), ([0], 20), ([2, 3], 5)):
        meter(Event(lane, step, 100, {}))
    assert meter.steps == 8 + 9 + 20 + 2 * 5
