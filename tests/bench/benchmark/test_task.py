import cloudpickle
import numpy as np
import pytest

import tunbridge as tb
from bench_fakes import line
from tunbridge.bench.benchmark.budget import Budget


def test_a_task_holds_no_rows_and_travels():
    task = line()
    text = cloudpickle.dumps(task)
    assert len(text) < 10_000
    again = cloudpickle.loads(text)
    np.testing.assert_array_equal(again.train(1).x, task.train(1).x)
    np.testing.assert_array_equal(again.held(1).test.y, task.held(1).test.y)
    assert again.kind == "numbers"


def test_another_budget_changes_only_what_is_given():
    task = line().with_budget(5, None)
    assert (task.budget.gradients, task.budget.seconds) == (5, 60.0)
    with pytest.raises(tb.InputError, match="a budget above 0"):
        line().with_budget(0, None)
    with pytest.raises(tb.InputError, match="a budget above 0"):
        Budget(1, 0.0)


def test_splits_that_are_not_there_are_refused():
    line().check(1)
    with pytest.raises(tb.InputError, match="from 0 to 1"):
        line().check(2)
