"""Every writer of the package is killed, starved of disk and raced against itself: what is there is always whole."""

import ast
import multiprocessing
import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

import tunbridge
from faults.writers import WRITERS, write_on
from tunbridge.core.errors import BusyError, TunbridgeError

PACKAGE = Path(tunbridge.__file__).parent
_WRITES = {
    *("replacing", "write_text", "write_bytes", "mkdtemp", "connect", "truncate", "copyfileobj", "rmtree"),
    *("savez", "savez_compressed", "savetxt", "tofile", "savefig", "write_csv", "write_table"),
}
_MODULES_WRITES = {"os.replace", "os.rename", "archive.write", "np.save"}
_MODE = re.compile(r"(?=.*[wax+])[rwaxbt+]{1,4}")


def _writes(tree):
    """Whether code calls something that changes a disk."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        opened = name == "open" and any(isinstance(m, ast.Constant) and _MODE.fullmatch(str(m.value)) for m in modes)
        if name in _WRITES or opened or ast.unparse(node.func) in _MODULES_WRITES:
            return True
    return False


@pytest.mark.parametrize(
    "code",
    [
        *("open(path, 'w')", "open(path, mode='ab')", "path.open('w')", "path.open(mode='x')", "open(path, 'r+b')"),
        *("figure.savefig(path)", "np.save(path, array)", "csv.write_csv(table, path)", "parquet.write_table(t, path)"),
    ],
)
def test_the_search_finds_a_writer(code):
    assert _writes(ast.parse(code))


@pytest.mark.parametrize("code", ["open(path)", "path.open('rb')", "path.open(mode='r')", "m.save(path)"])
def test_the_search_leaves_readers(code):
    assert not _writes(ast.parse(code))


def test_every_file_of_the_package_that_writes_has_its_row():
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if _writes(ast.parse(path.read_text()))}
    by_others = {"inference/store.py", "bench/truth/reference.py"}  # by archive.write, tested with their files
    in_memory = {"bench/comparing/report/page.py"}  # figures within a page
    assert found - by_others - in_memory == set(WRITERS)


@pytest.fixture(scope="module")
def processes():
    """Processes forked from a server that has imported the writers, and nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["faults.writers"])
    return context


KILLS, RACES = 20, 4
"""Kills of each writer, and versions that each of two racing processes writes, in the slow tests."""
QUICK = ("core/files.py", "runtime/checkpoint.py", "cli/rundir.py")
SOME = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WRITERS]


@pytest.mark.parametrize("kills", [2, pytest.param(KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOME)
def test_a_kill_at_any_moment_leaves_a_whole_version(name, kills, processes, tmp_path):
    rng, folder, last = random.Random(7), tmp_path / "folder", 0
    folder.mkdir()
    for _ in range(kills):
        written = processes.Value("i", 0, lock=False)
        process = processes.Process(target=write_on, args=(name, folder, last + 1, written))
        process.start()
        deadline = time.time() + 60
        while not written.value and time.time() < deadline:
            time.sleep(0.002)
        assert written.value, "nothing was written in a minute"
        time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.join(60)
        found = WRITERS[name].read(folder)
        assert found is not None or WRITERS[name].several
        last = found or last


@pytest.mark.parametrize("name", SOME)
def test_a_full_disk_is_an_error_and_the_old_version_stays(name, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    folder, writer = disk / "folder", WRITERS[name]
    folder.mkdir()
    try:
        writer.write(folder, 1)
        before = writer.read(folder)
        (disk / "filler").write_bytes(b"x" * _free(disk))
        with pytest.raises((OSError, TunbridgeError), match="No space left"):
            writer.write(folder, 2)
        (disk / "filler").unlink()  # SQLite reads nothing on a full disk
        assert writer.read(folder) == before
        writer.write(folder, 3)
        assert writer.read(folder) is not None
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # a thread of Arrow may still hold a file


def _free(disk):
    told = os.statvfs(disk)
    return told.f_bavail * told.f_frsize


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_two_at_once_leave_a_whole_version_or_one_is_refused(name, processes, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    racers = [processes.Process(target=_race, args=(name, folder, first)) for first in (1, 1 + RACES)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    assert WRITERS[name].read(folder) is not None


def _race(name, folder, first):
    """A few versions, one after another; a folder in use is tried again."""
    for n in range(first, first + RACES):
        while True:
            try:
                WRITERS[name].write(folder, n)
                break
            except BusyError:
                time.sleep(0.002)
