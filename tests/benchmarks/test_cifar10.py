"""The script of the CIFAR-10 table, on made-up images."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from tunbridge.runtime.loop import Event

ROOT = Path(__file__).parents[2]
NAMES = ("map", "ensemble", "dropout", "swag", "meanfield", "lastlayer", "kronecker", "sgld", "sghmc", "clr", "clrprec")
NAMES += ("best", "gentle cycles", "gentle cycles, SVRG", "linear", "mlp", "vgg")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("cifar10")


@pytest.fixture
def run(script, tmp_path):
    """A function that runs a row and gives its entry in the file."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "reference.npz", index=rng.permutation(100)[:60], probs=rng.dirichlet(np.ones(10), 60))

    def run(name, *more):
        flags = ("--reference", tmp_path / "reference.npz", "--work", tmp_path, "--out", tmp_path / "cifar10.json")
        script.main([name, "--small", *map(str, flags), *more])
        file = json.loads((tmp_path / "cifar10.json").read_text())
        return file[script.ROWS[name].table][name]["0"]

    return run


def saved(folder, name):
    return np.load(folder / f"{name}-key0.npz")


def assert_sound(row):
    assert all(0 <= row[score] <= 1 for score in ("accuracy", "ECE", "agreement", "total_variation"))
    assert 0 < row["NLL"] < 20
    assert row["seconds"] > 0


@pytest.mark.slow
def test_a_row_is_judged_once_and_keeps_its_probabilities_and_its_curve(script, run, tmp_path, monkeypatch, capsys):
    rows, cheap = script.ROWS, script.ROWS["linear"]
    monkeypatch.setitem(rows, "map", cheap._replace(method=rows["map"].method, table="rows"))
    monkeypatch.setitem(rows, "clr", cheap._replace(method=rows["clr"].method))
    chain = run("clr")
    assert_sound(chain)
    assert_sound(run("map"))
    curve = chain["curve"]
    assert curve["agreement"][-1] == chain["agreement"]
    assert curve["epochs"][-1] == chain["epochs"]
    assert np.all(np.diff(curve["seconds"]) >= 0)
    assert curve["seconds"][-1] <= chain["seconds"]
    assert np.shape(chain["examples"]["high"]) == (12, 10)
    capsys.readouterr()
    assert run("clr") == chain
    assert "has it" in capsys.readouterr().out
    assert run("clr", "--again")["seconds"] == chain["seconds"]

    np.savez(tmp_path / "reference.npz", index=np.arange(100), probs=saved(tmp_path, "clr")["probs"])
    itself = run("clr", "--again")
    assert itself["agreement"] == 1
    assert itself["total_variation"] < 1e-3


def test_a_resumed_clock_goes_on_and_one_that_ended_stands_still(script, tmp_path):
    for step in (10, 20):
        clock = script.Clock(tmp_path / "row" / "clock.txt")
        assert clock.seconds >= clock.before
        clock(Event([0, 1], step, 20, {}))
    assert len(clock.course) == 2
    assert clock.before <= clock.when(11) == clock.course[1][0]
    clock.end()
    assert script.Clock(clock.path).seconds == script.Clock(clock.path).seconds == clock.seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_row_ends(name, run):
    assert_sound(run(name))
