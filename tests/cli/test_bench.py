import os
import signal
import subprocess
import sys
import time

import pytest

from cli.commands import call
from tunbridge.bench.benchmark import suites
from tunbridge.bench.benchmark.store import Store

TOY = ("bench", "toy", "--tasks", "curve,gap", "--methods", "map", "--no-tune", "--gradients", "2000", "--quiet")


def _figures(folder):
    with Store(folder / "results.sqlite") as store:
        return [(row["task"], row["split"], row["method"], row["status"], row["figures"]) for row in store.rows()]


def _started(folder):
    command = [sys.executable, "-m", "tunbridge", *TOY, "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for_a_row(folder, process):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "results.sqlite").exists() and _figures(folder):
            return
        time.sleep(0.02)
    raise AssertionError("no row came")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_run_goes_on_to_the_same_table(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = _started(killed)
    try:
        _wait_for_a_row(killed, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = _figures(killed)
    assert 1 <= len(before) < 4
    code, said, _ = call(*TOY, "--out", killed, "--resume")
    assert code == 0
    assert f"{4 - len(before)} rows, 0 failed" in said
    assert {file.name for file in killed.iterdir()} >= {"report.html", "table.md", "table.csv", "results.sqlite"}
    assert call(*TOY, "--out", whole)[0] == 0
    assert _figures(killed) == _figures(whole)
    assert [row for row in _figures(killed) if row in before] == before


def test_results_are_not_written_over(tmp_path):
    (tmp_path / "results.sqlite").touch()
    code, _, error = call(*TOY, "--out", tmp_path)
    assert code == 2
    assert "add --resume" in error


@pytest.mark.slow
def test_suites_and_their_tasks_are_listed():
    code, said, _ = call("bench", "--list")
    assert code == 0
    rows = [tuple(cell.strip() for cell in line.split("│")[1:-1]) for line in said.splitlines()[3:-1]]
    made = [(suite, task) for suite in suites.SUITES for task in suites.tasks(suite)]
    assert [row[:4] for row in rows] == [(suite, task.name, task.kind, f"{task.splits}") for suite, task in made]
    assert [(row[4], row[5]) for row in rows] == [
        (f"{task.budget.gradients:,}", f"{task.budget.seconds:g}") for _, task in made
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["imagenet"], "a suite of toy, small"),
        (["toy", "--tasks", "curves"], "tasks of curve, gap"),
        (["toy", "--methods", "nutz"], "a method of auto, map"),
        (["toy", "--splits", "a-b"], "--splits as numbers and ranges"),
        (["toy", "--splits", "4-1"], "--splits as numbers and ranges"),
        (["toy", "--splits", "0,99"], "a split of curve from 0 to"),
        (["toy", "--seconds", "0"], "--seconds above 0"),
        (["toy", "--gradients", "0"], "a budget above 0"),
        (["toy", "--jobs", "0"], "--jobs of at least 1"),
    ],
)
def test_wrong_calls_are_refused_before_anything_is_written(arguments, sentence, tmp_path):
    code, _, error = call("bench", *arguments, "--out", tmp_path / "new")
    assert (code, sentence in error) == (2, True), error
    assert not (tmp_path / "new").exists()
