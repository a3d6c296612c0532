import pytest

import tunbridge as tb
from bench_fakes import LeastSquares
from tunbridge.bench.budget import BATCH, LEAST, Budget, Meter, within
from tunbridge.core.names import METHODS
from tunbridge.runtime.loop import Event

G, ROWS = 1_000_000, 500
BUDGET = Budget(G, 60.0)


def _planned(method):
    """The most gradients of single rows that the steps of a method take."""
    if isinstance(method, tb.Ensemble):
        return method.size * _planned(method.method)
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


UNKNOWN = {"hmc", "nuts", "adjustedmclmc", "ellipticalslice", "temperedsmc"}


@pytest.mark.parametrize("name", sorted(set(METHODS) - UNKNOWN))
def test_steps_take_the_budget_and_no_more(name):
    planned = _planned(within(METHODS[name](), BUDGET, ROWS))
    assert 0.9 * G <= planned <= G


@pytest.mark.parametrize("name", ["hmc", "nuts", "adjustedmclmc"])
def test_trajectories_are_never_fewer_than_the_least_nor_more_than_by_default(name):
    short = within(METHODS[name](), Budget(1, 1.0), ROWS).run
    assert short.warmup >= LEAST
    assert short.draws >= LEAST
    long, usual = within(METHODS[name](), Budget(10**12, 1.0), ROWS).run, METHODS[name]().run
    assert (long.warmup, long.draws) == (usual.warmup, usual.draws)


def test_fewer_rows_than_a_batch_are_all_taken():
    method = within(tb.MAP(), Budget(1000, 1.0), 50)
    assert (method.train.steps, method.train.batch_size) == (20, 50)


def test_other_methods_are_left_as_they_are():
    assert within(LeastSquares(3.0), BUDGET, ROWS) == LeastSquares(3.0)


def test_the_meter_counts_lanes_and_runs():
    meter = Meter()
    for lane, step in (([0], 1), ([1], 1), ([0], 8), ([1], 9), ([0], 1), ([0], 20), ([2, 3], 5)):
        meter(Event(lane, step, 100, {}))
    assert meter.steps == 8 + 9 + 20 + 2 * 5
