import os

import numpy as np
import pytest

import tunbridge as tb
from toys import quick
from tunbridge.bench.benchmark import shifts, suites

HAS_UCI = os.path.isdir(os.path.join(os.environ.get("TUNBRIDGE_DATA", ""), "uci"))


@pytest.mark.parametrize("suite", quick(("toy", "small", "reference"), ("small",)))
def test_parts_of_a_split_share_no_rows_and_come_again_the_same(suite):
    for task in suites.tasks(suite):
        train, held = task.train(0), task.held(0)
        rows = {row.tobytes() for row in np.ascontiguousarray(train.x)}
        if task.name != "wine":  # has the same wine twice
            assert not rows & {row.tobytes() for row in np.ascontiguousarray(held.test.x)}
        np.testing.assert_array_equal(task.train(0).y, train.y)
        assert np.isfinite(train.x).all()
        assert len(train.x) == len(train.y)
        if task.splits > 1:
            assert not np.array_equal(task.train(1).y, train.y)


@pytest.mark.slow
def test_probes_lie_where_they_should():
    gap = next(task for task in suites.tasks("toy") if task.name == "gap")
    x, between = gap.train(0).x[:, 0], gap.held(0).between[:, 0]
    assert not ((x > between.min()) & (x < between.max())).any()
    moons = next(task for task in suites.tasks("toy") if task.name == "moons")
    ring = moons.held(0).outside["ring"]
    nearest = np.min(np.linalg.norm(ring[:, None] - moons.train(0).x[None], axis=2))
    assert nearest > 2.0


@pytest.mark.skipif(not HAS_UCI, reason="TUNBRIDGE_DATA has no uci")
def test_public_tables_have_the_public_splits():
    for task in suites.tasks("uci"):
        x, y, held = suites.table(task.name)
        assert held.shape == (task.splits, len(x))
        assert abs(held.mean() - 0.1) < 0.01
        assert len(task.train(0).x) + len(task.held(0).test.x) == len(x) == len(y)
    for task in suites.tasks("gap", ["yacht", "boston"]):
        train, test = task.train(2), task.held(2).test
        assert task.splits == train.x.shape[1]
        low, high = test.x[:, 2].min(), test.x[:, 2].max()
        assert not ((train.x[:, 2] > low) & (train.x[:, 2] < high)).any()


def test_a_table_that_is_not_there_is_said(monkeypatch):
    monkeypatch.delenv("TUNBRIDGE_DATA", raising=False)
    (task,) = suites.tasks("uci", ["boston"])
    with pytest.raises(tb.InputError, match=r"uci/boston\.npz in the folder that TUNBRIDGE_DATA names"):
        task.train(0)


def test_unknown_names_are_refused():
    with pytest.raises(tb.InputError, match="a suite of toy, small"):
        suites.tasks("imagenet")
    with pytest.raises(tb.InputError, match="tasks of curve, gap"):
        suites.tasks("toy", ["curves"])


@pytest.mark.parametrize("name", shifts.CHANGES)
def test_a_severer_change_changes_more(name):
    images = np.zeros((3, 28, 28))
    images[:, 6:22, 12:16] = np.array([0.5, 0.8, 1.0])[:, None, None]
    moved = [np.abs(shifts.CHANGES[name](images, severity) - images).mean() for severity in shifts.SEVERITIES]
    assert np.all(np.diff(moved) > 0)
