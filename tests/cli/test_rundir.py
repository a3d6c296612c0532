"""What a folder of results keeps and loses when a run is interrupted, fails, or meets another."""

import contextlib
import json
import os
import re
import shutil
import signal
import time
import types

import pytest

import tunbridge as tb
from cli.commands import call, penguins, started
from tunbridge.bench.benchmark import runner
from tunbridge.cli.rundir import RunDir
from tunbridge.cli.study import Rows
from tunbridge.core import files

_SLOW = pytest.mark.slow
QUICK = ("-m", "map", "--hidden", "4", "--seconds", "0.1", "-q")


def _fit(tmp_path, *options):
    data = penguins(tmp_path / "data.csv")
    return call("fit", data, "-t", "species", "--out", tmp_path / "run", *QUICK, *options)


def _interrupt(tmp_path, monkeypatch, *options):
    """A fit that is interrupted when all of its steps are done and nothing is written."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "report", interrupted)
        assert _fit(tmp_path, *options)[0] == 130


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_a_users_own_folder_is_neither_used_nor_removed(command, tmp_path):
    own = tmp_path / "proj" / "checkpoint" / "precious.txt"
    own.parent.mkdir(parents=True)
    own.write_text("precious")
    data = penguins(tmp_path / "data.csv")
    code, _, error = call(command, data, "-t", "species", "--out", tmp_path / "proj")
    assert code == 2
    assert "Name another --out" in error
    assert own.read_text() == "precious"
    assert _names(tmp_path / "proj") == ["checkpoint"]


@pytest.mark.parametrize(
    "fault",
    [
        OSError(28, "No space left on device"),
        pytest.param(KeyboardInterrupt(), marks=_SLOW),
        pytest.param(ZeroDivisionError(), marks=_SLOW),
    ],
)
def test_a_fault_at_the_report_loses_no_steps_and_the_same_command_goes_on(fault, tmp_path, monkeypatch):
    def fails(*arguments):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "report", fails)
        code, _, error = _fit(tmp_path)
    assert code == (130 if isinstance(fault, KeyboardInterrupt) else 1)
    assert "the same command resumes from there" in error
    assert _names(tmp_path / "run") == ["checkpoint"]
    assert _fit(tmp_path)[0] == 0
    assert _names(tmp_path / "run") == ["posterior.npz", "report.html", "run.json"]


@_SLOW
@pytest.mark.parametrize("number", range(6))
def test_a_kill_while_results_take_their_places_is_mended_by_the_same_command(number, tmp_path, monkeypatch):
    """Without --overwrite: what was written belongs to the run that was killed."""
    real, calls = os.replace, []

    def dies(old, new):
        if str(tmp_path / "run") in str(new):
            calls.append(new)
            if len(calls) > number and ".tunbridge" not in str(new).removesuffix(".tunbridge.json"):
                raise SystemExit(9)
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        patch.setattr("tunbridge.cli.rundir.RunDir._discard", lambda folder: None)
        patch.setattr("shutil.rmtree", lambda *arguments, **options: None)
        assert _fit(tmp_path)[0] == 9
    assert not (tmp_path / "run" / "posterior.npz").exists()
    assert _fit(tmp_path)[0] == 0
    assert _names(tmp_path / "run") == ["posterior.npz", "report.html", "run.json"]


@pytest.mark.slow
def test_a_run_of_another_command_is_kept_unless_it_may_be_dropped(tmp_path, monkeypatch):
    _interrupt(tmp_path, monkeypatch)
    kept = (tmp_path / "run" / "checkpoint" / ".tunbridge.json").read_text()
    code, _, error = _fit(tmp_path, "--seed", "1")
    assert code == 2
    assert '"seed": 0' in error
    assert (tmp_path / "run" / "checkpoint" / ".tunbridge.json").read_text() == kept
    assert _fit(tmp_path, "--seed", "1", "--overwrite")[0] == 0
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seed"] == 1


@_SLOW
def test_results_that_an_interrupted_run_was_to_replace_stay_protected(tmp_path, monkeypatch):
    assert _fit(tmp_path)[0] == 0
    _interrupt(tmp_path, monkeypatch, "--overwrite")
    assert _fit(tmp_path)[0] == 2
    assert tb.load(tmp_path / "run") is not None
    assert _fit(tmp_path, "--overwrite")[0] == 0


@pytest.mark.parametrize("command", ["fit {data} -t species", "compare {data} -t species", "demo", "bench toy"])
def test_a_folder_in_use_is_refused_and_left_as_it_is(command, tmp_path):
    words = command.format(data=penguins(tmp_path / "data.csv")).split()
    with files.locked(tmp_path / "run"):
        code, _, error = call(*words, "--out", tmp_path / "run", "-q")
        assert code == 1
        assert f"is in use by process {os.getpid()}" in error
        assert _names(tmp_path / "run") == [".tunbridge.lock"]


def _folder(path, command="fit", overwrite=False):
    """The folder of a command, which was checked at the command's start."""
    folder = RunDir(path, types.SimpleNamespace(params={"seed": 0}, info_name=command))
    folder.check(overwrite)
    return folder


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_another_command_wrote_after_the_check_is_kept_unless_it_may_be_replaced(ended, overwrite, tmp_path):
    folder, other = _folder(tmp_path, "fit", overwrite), _folder(tmp_path, "compare")
    with contextlib.suppress(ZeroDivisionError), other.writing(False):
        (tmp_path / "checkpoint" / "state.npz").touch()
        if not ended:
            raise ZeroDivisionError
        other.finish("theirs")
    before = _names(tmp_path)
    assert before == (["report.html"] if ended else ["checkpoint"])
    with contextlib.ExitStack() as stack:
        if not overwrite:
            stack.enter_context(pytest.raises(tb.InputError, match="without results" if ended else "was not finished"))
        with folder.writing(overwrite):
            assert _names(tmp_path / "checkpoint") == [".tunbridge.json"]
            folder.finish("ours")
    assert _names(tmp_path) == (["report.html"] if overwrite else before)


@pytest.mark.parametrize("finished", [True, False])
def test_an_interrupt_while_folders_are_removed_tells_the_truth_and_leaves_nothing_strange(
    finished, tmp_path, monkeypatch
):
    """Once the results have taken their places, and once when the run's checkpoint is being removed."""
    real, struck = shutil.rmtree, []

    def strikes(path, **options):
        if not struck:
            struck.append(path)
            raise KeyboardInterrupt
        real(path, **options)

    def write():
        folder = _folder(tmp_path)
        with folder.writing(False):
            if finished:
                monkeypatch.setattr(shutil, "rmtree", strikes)
            folder.finish("ours")
            monkeypatch.setattr(shutil, "rmtree", strikes)

    with pytest.raises(KeyboardInterrupt) as error:
        write()
    assert str(error.value) == (f"The results in {tmp_path} are complete." if finished else "")
    assert not (tmp_path / "checkpoint").exists()
    with _folder(tmp_path, overwrite=True).writing(True):
        pass
    assert _names(tmp_path) == ["report.html"]


def test_rows_that_another_benchmark_wrote_after_the_check_are_kept(tmp_path, monkeypatch):
    plan = runner.plan

    def planned(*arguments, **options):
        (tmp_path / "results.sqlite").write_text("theirs")
        return plan(*arguments, **options)

    monkeypatch.setattr(runner, "plan", planned)
    code, _, error = call("bench", "toy", "--out", tmp_path)
    assert code == 2
    assert "add --resume" in error
    assert (tmp_path / "results.sqlite").read_text() == "theirs"
    assert _names(tmp_path) == ["results.sqlite"]


def test_predictions_replace_no_other_file_of_a_similar_name(tmp_path):
    assert _fit(tmp_path)[0] == 0
    precious, beside = tmp_path / "precious", tmp_path / "p.csv.tmp"
    precious.write_text("precious")
    beside.symlink_to(precious)
    words = ("predict", tmp_path / "run", tmp_path / "data.csv", "--out", tmp_path / "p.csv")
    assert [call(*words)[0], call(*words)[0], call(*words, "--overwrite")[0]] == [0, 2, 0]
    assert precious.read_text() == "precious"
    assert beside.is_symlink()
    assert (tmp_path / "p.csv").read_text().count("\n") == 61


def test_a_benchmark_replaces_no_file_that_it_did_not_write(tmp_path):
    (tmp_path / "table.csv").write_text("precious")
    code, _, error = call("bench", "gap", "--out", tmp_path)
    assert code == 2
    assert "table.csv" in error
    assert _names(tmp_path) == ["table.csv"]


@pytest.mark.parametrize("seconds", [0.3, pytest.param(0.9, marks=_SLOW), pytest.param(2.0, marks=_SLOW)])
def test_an_interrupt_during_imports_is_one_line(seconds, tmp_path):
    """A real process and a real signal, before anything is fitted: JAX takes some seconds to be imported."""
    data = penguins(tmp_path / "data.csv")
    process = started("fit", data, "-t", "species", "--out", tmp_path / "run", "-q")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("\nInterrupted.")
    assert error.count("\n") == 2


@_SLOW
def test_more_seconds_go_on_with_the_same_run(tmp_path, monkeypatch):
    _interrupt(tmp_path, monkeypatch)
    code, _, error = _fit(tmp_path, "--seconds", "0.3")
    assert code == 0, error


@_SLOW
def test_a_sampler_that_has_no_time_for_a_draw_says_so_and_more_time_goes_on_with_it(tmp_path):
    data = penguins(tmp_path / "data.csv")
    words = ("fit", data, "-t", "species", "-m", "nuts", "--hidden", "4", "--out", tmp_path / "run", "-q", "--seconds")
    code, said, error = call(*words, "0.1")
    assert (code, said) == (2, "")
    kept, sentence = error.splitlines()
    assert kept.endswith("holds the progress so far; the same command resumes from there.")
    assert re.fullmatch(
        r"Error: Expected a run that reaches its first draw; got one that was stopped after \d+ steps of warm-up\. "
        r"Give it more time, or resume it from its checkpoint\.",
        sentence,
    )
    assert _names(tmp_path / "run") == ["checkpoint"]
    code, _, error = call(*words, "25")
    assert code == 0, error
    assert _names(tmp_path / "run") == ["posterior.npz", "report.html", "run.json"]
