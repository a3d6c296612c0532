"""`tunbridge bandit`: a table is played, the report tells it, and a game that was stopped goes on."""

import re

import numpy as np
import pyarrow as pa
import pytest

from cli.commands import call
from tunbridge.applications import bandits
from tunbridge.cli.playing import Arena
from tunbridge.datasets import table as tables

QUICK = ("--steps", "60", "--runs", "2", "--hidden", "5", "-m", "neurallinear", "-q")


def _table(path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    tables.write(pa.table({"x": 100.0 * x, "kind": np.where(x > 0.5, "c", np.where(x > -0.5, "b", "a"))}), path)
    return path


@pytest.mark.slow
def test_a_table_is_played_and_a_stopped_game_goes_on(tmp_path, monkeypatch):
    data = _table(tmp_path / "data.csv")
    code, said, error = call("bandit", data, "-t", "kind", "--out", tmp_path / "whole", *QUICK)
    assert code == 0, error
    assert "Least regret: " in said
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "150 rows, 3 actions" in page
    assert page.count("data:image/png") == 1
    games, play = [], bandits.play

    def stopped(*arguments, **options):
        games.append(options["folder"])
        if len(games) == 3:
            raise KeyboardInterrupt
        return play(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(bandits, "play", stopped)
        code, _, error = call("bandit", data, "-t", "kind", "--out", tmp_path / "stopped", *QUICK)
    assert (code, "resumes from there" in error) == (130, True)
    code, again, error = call("bandit", data, "-t", "kind", "--out", tmp_path / "stopped", *QUICK)
    assert code == 0, error
    assert _regrets(again) == _regrets(said)
    assert not (tmp_path / "stopped" / "checkpoint").exists()


def _regrets(said):
    """Policies and regrets of the printed table."""
    return re.findall(r"(thompson|greedy|at random) +│ +\d+ │ +([\d.]+)", said)


def test_payoffs_are_matched_to_classes_by_name(tmp_path):
    payoffs = tmp_path / "payoffs.csv"
    payoffs.write_text("class,treat,wait\nc,10,0\na,-20,0\nb,1,0\n")
    arena = Arena.read(_table(tmp_path / "data.csv"), "kind", payoffs)
    assert arena.actions == ["treat", "wait"]
    y = arena.rows.encoding.y(arena.rows.table)
    np.testing.assert_allclose(arena.unit * arena.environment.means[:, 0], np.array([-20.0, 1.0, 10.0])[y])
    assert arena.unit == pytest.approx(np.array([[-20.0, 0], [1, 0], [10, 0]])[y].std())
    assert np.asarray(arena.environment.contexts).std() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policies", ","), "policies of thompson, ucb, greedy, epsilon"),
        (("--policies", "bold"), "policies of thompson, ucb, greedy, epsilon"),
        (("--runs", "0"), "--runs of at least 1"),
        (("--steps", "0"), "--steps of at least 1"),
        (("--method", "nothing"), "a method of"),
        (("--payoffs", "short.csv"), "a row of payoffs for each of"),
        (("--payoffs", "same.csv"), "payoffs that differ"),
        (("--payoffs", "words.csv"), "two columns of numbers"),
    ],
)
def test_wrong_options_are_told_before_anything_is_written(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("class,x,y\na,1,2\n")
    (tmp_path / "same.csv").write_text("class,x,y\na,1,1\nb,1,1\nc,1,1\n")
    (tmp_path / "words.csv").write_text("class,x,y\na,1,p\nb,1,q\nc,1,r\n")
    code, _, error = call("bandit", _table(tmp_path / "data.csv"), "-t", "kind", "--out", tmp_path / "out", *options)
    assert (code, words in error) == (2, True), error
    assert not (tmp_path / "out").exists()
