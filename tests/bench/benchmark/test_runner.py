import os

import joblib
import numpy as np
import pytest

import tunbridge as tb
from bench_fakes import HELD, Broken, LeastSquares, line, table
from tunbridge.bench.benchmark import runner
from tunbridge.bench.benchmark.budget import Budget
from tunbridge.bench.benchmark.store import Store
from tunbridge.runtime.members import cores

METHODS = {"squares": LeastSquares(), "wide": LeastSquares(3.0), "broken": Broken()}


def _rows(path, methods=METHODS, tasks=(line(), line("other", splits=1)), **options):
    with Store(path, {}) as store:
        tally = runner.run(runner.plan("lines", tasks, methods, **options), store)
        return store.rows(), tally


def _figures(rows):
    return {tuple(row[name] for name in ("task", "split", "method")): row["figures"] for row in rows}


def test_there_is_a_row_for_each_task_split_and_method(tmp_path):
    rows, tally = _rows(tmp_path / "a.sqlite")
    assert [(row["task"], row["split"], row["method"]) for row in rows] == [
        (task, split, method) for task, split in (("line", 0), ("line", 1), ("other", 0)) for method in sorted(METHODS)
    ]
    assert (tally.rows, tally.failed) == (9, 3)
    row = rows[1]
    assert (row["train_rows"], row["test_rows"], row["kind"]) == (40, 20, "numbers")
    x, y = table(0)
    weights = np.linalg.lstsq(x[:-HELD], y[:-HELD], rcond=None)[0]
    assert row["figures"]["RMSE"] == pytest.approx(np.sqrt(np.mean((y - x @ weights)[-HELD:] ** 2)), rel=1e-4)
    assert {"seconds", "tuning seconds", "gradients", "networks", "ms a row", "MB"} <= set(row["cost"])
    assert row["curves"]["calibration"]["x"][0] == 0.1
    assert {"versions", "device", "date"} <= set(row["provenance"])


def test_a_method_that_fails_is_a_row_with_its_error(tmp_path):
    rows, _ = _rows(tmp_path / "a.sqlite", splits=[0])
    broken = [row for row in rows if row["method"] == "broken"]
    assert all((row["status"], row["error"]) == ("failed", "ValueError: It is broken.") for row in broken)
    assert all(row["figures"] == {} for row in broken)


def test_what_is_there_is_not_done_again(tmp_path, monkeypatch):
    first, _ = _rows(tmp_path / "a.sqlite", splits=[0])
    worked = []
    real = runner.work
    monkeypatch.setattr(runner, "work", lambda job: worked.append(job.identity) or real(job))
    second, tally = _rows(tmp_path / "a.sqlite")
    assert {identity[2] for identity in worked} == {1}
    assert tally.rows == len(worked) == 3
    assert [row for row in second if row["split"] == 0] == first


@pytest.mark.slow
def test_the_same_key_gives_the_same_figures_in_any_order_and_number_of_processes(tmp_path):
    method = {"map": tb.MAP()}
    tasks = (line(), line("other", splits=1))
    one, _ = _rows(tmp_path / "a.sqlite", method, tasks, tune=False)
    two, _ = _rows(tmp_path / "b.sqlite", method, tasks[::-1], tune=False)
    assert _figures(one) == _figures(two)
    other, _ = _rows(tmp_path / "c.sqlite", method, tasks, tune=False, key=1)
    assert _figures(one) != _figures(other)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_processes_give_the_table_of_one(tmp_path, backend):
    methods = {name: METHODS[name] for name in ("squares", "wide")} | {"map": tb.MAP()}
    one, _ = _rows(tmp_path / "a.sqlite", methods, tune=False)
    if backend == "dask":
        distributed = pytest.importorskip("dask.distributed")
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with (
            distributed.LocalCluster(**options) as cluster,
            distributed.Client(cluster),
            joblib.parallel_config(backend="dask"),
        ):
            many, _ = _rows(tmp_path / "b.sqlite", methods, tune=False)
    else:
        with joblib.parallel_config(backend="loky", n_jobs=2):
            many, _ = _rows(tmp_path / "b.sqlite", methods, tune=False)
    assert _figures(many) == _figures(one)


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.delenv("NPROC", raising=False)
    with runner._threads(10**6):
        assert os.environ["NPROC"] == "1"
        assert cores() == 1
    assert "NPROC" not in os.environ
    with runner._threads(1):
        assert "NPROC" not in os.environ


def test_gradients_are_counted(tmp_path):
    tasks = (line(budget=Budget(4000, 60.0), splits=1),)
    (row,), _ = _rows(tmp_path / "a.sqlite", {"map": tb.MAP()}, tasks, tune=False)
    assert row["cost"]["gradients"] == 4000
    assert row["cost"]["networks"] == 1


def test_what_is_neither_fitting_nor_judging_nor_keeping_is_the_harness_own():
    tally = runner.Tally()
    tally.add(runner.Done({"status": "done"}, 10.0, 1.0, 11.05), 0.01)
    tally.add(runner.Done({"status": "failed"}, 5.0, 0.0, 5.5), 0.02)
    assert (tally.rows, tally.failed, tally.fitting, tally.judging) == (2, 1, 15.0, 1.0)
    assert tally.harness == pytest.approx(0.05 + 0.01 + 0.5 + 0.02)
    assert "0.58 s of the harness itself (3.9 % of the fits)" in str(tally)
