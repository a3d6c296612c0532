import multiprocessing
import os
import signal
import time

import pytest

from tunbridge.core import files
from tunbridge.core.errors import BusyError


def _add_one(folder, counter, times):
    """Read a number and write the next, `times` times, each under the lock."""
    done = 0
    while done < times:
        try:
            with files.locked(folder):
                number = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(number + 1))
                done += 1
        except BusyError:
            time.sleep(0.0005)


def _hold(folder, ready):
    with files.locked(folder):
        ready.set()
        time.sleep(60)


def test_processes_that_race_for_a_folder_lose_no_update(tmp_path):
    counter, spawn = tmp_path / "counter", multiprocessing.get_context("spawn")
    counter.write_text("0")
    folder = tmp_path / "folder"
    racers = [spawn.Process(target=_add_one, args=(folder, counter, 50)) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert counter.read_text() == "150"


def test_a_killed_holder_holds_nothing(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    holder = spawn.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(60)
    with pytest.raises(BusyError, match=f"in use by process {holder.pid} on "), files.locked(tmp_path):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    with files.locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".tunbridge.lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), files.locked(folder):
        pass
    assert precious.read_text() == "precious"


def test_neither_a_users_file_nor_a_link_is_written_to(tmp_path):
    path, beside, linked = tmp_path / "p.csv", tmp_path / "p.csv.tmp", tmp_path / "linked"
    linked.write_text("precious")
    beside.symlink_to(linked)
    path.symlink_to(linked)
    with files.replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()
    assert linked.read_text() == "precious"


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted():
        with files.replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
