"""`plots.regret`: the mean of the runs and its interval."""

import numpy as np
import pytest
from scipy import stats

import tunbridge as tb

RUNS = np.cumsum(np.random.default_rng(0).random((4, 30)), axis=1)


def test_the_band_is_the_interval_of_the_mean():
    axes = tb.plots.regret(RUNS, label="an agent")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), RUNS.mean(axis=0))
    low, high = stats.t.interval(0.9, 3, RUNS[:, -1].mean(), stats.sem(RUNS[:, -1]))
    corners = axes.collections[0].get_paths()[0].vertices
    last = corners[corners[:, 0] == 30.0, 1]
    assert last.min() == pytest.approx(low)
    assert last.max() == pytest.approx(high)
    assert axes.get_legend().get_texts()[0].get_text() == "an agent"


def test_a_single_run_has_no_band():
    axes = tb.plots.regret(RUNS[0], steps=np.arange(30) * 10)
    assert not axes.collections
    assert axes.lines[0].get_xdata()[-1] == 290


@pytest.mark.parametrize(("runs", "steps"), [(np.zeros((0, 3)), None), ([[np.nan]], None), (RUNS, [1.0, 2.0])])
def test_what_is_no_regret_is_refused(runs, steps):
    with pytest.raises(tb.InputError):
        tb.plots.regret(runs, steps=steps)
