"""Commands interrupted and killed at any moment: what is said is true, files are whole, and the command completes.

An interrupt arrives as the signal does, at whichever line runs then: in this process, which has JAX imported and so
spends its time in the command, and in processes of their own. `fit` has tests of its own in `cli/`.
"""

import dataclasses
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import matplotlib.pyplot as plt
import pytest

from cli.commands import call, penguins, started
from tunbridge.bench.benchmark.store import Store
from tunbridge.cli import interrupts

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt may leave an iterator over a folder unclosed."""

INTERRUPTS, KILLS = 20, 4
"""Moments at which each command is interrupted, and killed, in the slow tests."""
COMMANDS = ("predict", "compare", "bench")
RESUMES = "holds the progress so far; the same command resumes from there."
LATEST = 1.2
"""The latest moment, as a multiple of the shortest time that the whole command took."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command that writes to a folder, what it leaves there, and what it may say about that when interrupted."""

    words: tuple
    result: Callable
    """The results in the folder, from their files and what the command printed; None before they are complete."""
    true: Callable
    """Whether a sentence about the folder is true."""


def _predicted(out, _):
    return out.read_bytes() if out.exists() else None


def _compared(out, said):
    """Scores without times, from the table that is printed; only whether the report is whole if none is."""
    if not (out / "report.html").exists():
        return None
    assert (out / "report.html").read_text().rstrip().endswith("</html>")
    return [re.split(r"\s*│\s*", line)[1:-2] for line in said.splitlines() if "│ map" in line][:1]


def _is_true_of_a_comparison(sentence, out):
    kept = bool(list(out.glob("checkpoint/**/state.npz")))
    whole = (out / "report.html").exists()
    return {
        "Nothing was saved yet.": not kept and not whole,
        f"{out / 'checkpoint'} {RESUMES}": kept,
        f"The results in {out} are complete.": whole and not (out / "checkpoint").exists(),
    }[sentence]


def _rows(out):
    path = out / "results.sqlite"
    with Store(path) as store:
        return [
            json.dumps({name: row[name] for name in ("split", "method", "status", "figures")}) for row in store.rows()
        ]


def _benched(out, _):
    return _rows(out) if (out / "report.html").exists() else None


def _is_true_of_a_benchmark(sentence, out):
    if sentence == "Nothing was saved yet.":
        return not (out / "results.sqlite").exists()
    holds = re.fullmatch(r"(.*) holds (\d+) rows?; the same command with --resume goes on from there\.", sentence)
    return holds[1] == str(out / "results.sqlite") and int(holds[2]) == len(_rows(out)) > 0


@pytest.fixture(autouse=True)
def plain(request, monkeypatch):
    """Without figures in reports, which take most of the time of these commands, in the tests that are not slow."""
    if request.node.get_closest_marker("slow") is None:
        for place in ("benching.page", "study.report"):
            monkeypatch.setattr(f"tunbridge.cli.{place}", lambda *arguments, **options: "</html>")


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Each command with what it leaves when nobody interrupts it, and the seconds that it takes."""
    folder = tmp_path_factory.mktemp("interrupts")
    data = penguins(folder / "data.csv")
    small = ("-t", "species", "-m", "map", "--hidden", "4", "-q")
    assert call("fit", data, *small, "--seconds", "0.1", "--out", folder / "run")[0] == 0
    toy = ["bench", "toy", "--tasks", "curve", "--methods", "map,ridge", "--no-tune", "--gradients", "2000", "-q"]
    made = {
        "predict": Command(("predict", folder / "run", data), _predicted, lambda sentence, out: False),
        "compare": Command(("compare", data, *small, "--no-baselines"), _compared, _is_true_of_a_comparison),
        "bench": Command((*toy,), _benched, _is_true_of_a_benchmark),
    }
    known = {}

    def whole(name):
        if name not in known:
            out = folder / f"whole-{name}.csv"
            began = time.perf_counter()
            code, said, error = call(*made[name].words, "--out", out)
            assert code == 0, error
            known[name] = made[name], made[name].result(out, said), time.perf_counter() - began
        return known[name]

    return whole


def _interrupted(seconds, *words):
    """`call`, interrupted after so many seconds, wherever it is."""
    armed = [True]

    def strike(*_):
        if armed:
            signal.raise_signal(signal.SIGINT)

    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call(*words)
    except KeyboardInterrupt:  # outside the command line's own main, where `python -m tunbridge` says no more
        return 130, "", "\nInterrupted.\n"
    finally:
        armed.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, heard)


def _check_words(command, code, error, out):
    """An interrupt ends with one line, and what it says about the folder is true."""
    assert code in (0, 130), error
    if code == 130:
        sentence = re.fullmatch(r"\nInterrupted\.(?: (.*))?\n", error)[1]
        assert sentence is None or command.true(sentence, out), sentence


def _check_completes(command, whole, out):
    """The same command, if it is not complete yet, completes with the result of one that nobody stopped."""
    found, said = command.result(out, ""), ""
    if found is None or (out / "checkpoint").exists():
        resumed = ("--resume",) if (out / "results.sqlite").exists() else ()
        code, said, error = call(*command.words, "--out", out, *resumed)
        assert code == 0, error
        found = command.result(out, said)
    assert found == whole or (found == [] and not said)  # a report that is complete, of a table that was not printed
    if out.is_dir():
        assert not (out / "checkpoint").exists()


@pytest.mark.parametrize("times", [1, pytest.param(INTERRUPTS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_at_any_moment_says_what_is_true_and_the_command_completes(name, times, commands, tmp_path):
    (command, whole, seconds), rng = commands(name), random.Random(f"{name} {times}")
    stopped = 0
    for number in range(times):
        out, began = tmp_path / f"{number}.csv", time.perf_counter()
        code, _, error = _interrupted(rng.uniform(0, LATEST * seconds), *command.words, "--out", out)
        if code == 0:
            seconds = min(seconds, time.perf_counter() - began)
        stopped += code == 130
        _check_words(command, code, error, out)
        _check_completes(command, whole, out)
        plt.close("all")  # those of a report that was interrupted; they end with a process
    assert stopped >= times // 3


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_process_that_is_stopped_at_any_moment_leaves_what_the_command_completes(name, end, commands, tmp_path):
    (command, whole, _), rng = commands(name), random.Random(f"{name} {end}")
    process = started(*command.words, "--out", tmp_path / "whole.csv")
    began = time.perf_counter()
    process.communicate(timeout=300)
    assert process.returncode == 0
    seconds = time.perf_counter() - began
    for number in range(KILLS):
        out = tmp_path / f"{number}.csv"
        process = started(*command.words, "--out", out)
        time.sleep(rng.uniform(0, LATEST * seconds))
        process.send_signal(end)
        _, error = process.communicate(timeout=120)
        if end is signal.SIGINT:
            _check_words(command, process.returncode, error, out)
        else:
            assert process.returncode in (0, -signal.SIGKILL)
        _check_completes(command, whole, out)


@pytest.mark.parametrize("place", ["exec('raise KeyboardInterrupt')", "__import__('struck')"])
def test_an_interrupt_in_generated_code_or_in_an_import_ends_with_code_130(place, tmp_path):
    """Python would end the process by SIGINT after the one, and an extension may crash in the other."""
    (tmp_path / "struck.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('not heard')\n")
    code = (
        "import signal, sys\nfrom tunbridge import __main__, cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.path.append({str(tmp_path)!r})\ncli.main = lambda: {place}\n__main__.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "\nInterrupted.\n")


def test_an_interrupt_that_python_ignores_is_repeated():
    """In a finaliser, or in a callback of a weak reference, of which JAX has many."""

    class Last:
        def __del__(self):
            raise KeyboardInterrupt

    def meet():
        with interrupts.heard():
            del [Last()][0]
            time.sleep(10)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    began = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            meet()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(("name", "place"), [("compare", "study.report"), ("bench", "benching.page")])
def test_an_error_that_an_interrupt_became_is_told_as_the_interrupt(name, place, commands, tmp_path, monkeypatch):
    """As matplotlib's renderer does with one that strikes while it reads a rectangle."""

    def report(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("Invalid bounding box") from None

    command, whole, _ = commands(name)
    with monkeypatch.context() as patch:
        patch.setattr(f"tunbridge.cli.{place}", report)
        code, _, error = _interrupted(1e3, *command.words, "--out", tmp_path / "out.csv")
    assert code == 130, error
    _check_words(command, code, error, tmp_path / "out.csv")
    _check_completes(command, whole, tmp_path / "out.csv")
