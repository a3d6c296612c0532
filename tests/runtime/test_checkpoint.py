import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from toys import Walk, equal, model, table
from tunbridge.core import archive, files
from tunbridge.runtime import checkpoint, members
from tunbridge.runtime.fingerprint import to_host

HERE = Path(__file__).parent
KILLS = 12


def _start(*arguments):
    cache = {"JAX_COMPILATION_CACHE_DIR": str(arguments[1].parent), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = {**os.environ, **cache, "PYTHONPATH": str(HERE.parent)}
    return subprocess.Popen([sys.executable, str(HERE / "killed.py"), *map(str, arguments)], env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, KILLS])
def test_a_process_killed_several_times_ends_with_the_uninterrupted_result(times, tmp_path):
    """kill -9 at random moments after it has saved something new; a sampler's draws and an ensemble of MAPs."""
    rng, steps, kills = random.Random(4), [0], 0
    folder, out, whole = tmp_path / "checkpoint", tmp_path / "out.npz", tmp_path / "whole.npz"
    assert _start("", whole, times).wait(300) == 0
    while not out.exists():
        process = _start(folder, out, times)
        if kills < times:
            _wait_for_progress(process, folder, steps[-1])
            time.sleep(rng.uniform(0.0, 0.3))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        assert process.wait(300) in (0, -signal.SIGKILL)
        steps.append(_steps(folder))
    assert kills >= max(1, times - 2)
    assert steps == sorted(steps)
    with np.load(out) as resumed, np.load(whole) as uninterrupted:
        assert len(resumed.files) == len(uninterrupted.files) > 8
        for name in uninterrupted.files:
            np.testing.assert_array_equal(resumed[name], uninterrupted[name])


def _steps(folder):
    """Steps in the checkpoints, as a stranger would read them."""
    total = 0
    for path in folder.glob("**/state.npz"):
        with np.load(path) as file:
            total += json.loads(file["facts.json"])["step"]
    return total


def _wait_for_progress(process, folder, before):
    deadline = time.time() + 60
    while process.poll() is None and _steps(folder) <= before and time.time() < deadline:
        time.sleep(0.02)


def _save(folder, **changes):
    method = Walk(run=tb.Run(2, 5, 30))
    arguments = {"key": jax.random.key(3), "checkpoint": folder, **changes}
    return method.fit(model(), table(), **arguments)


def test_a_finished_run_is_read_back_and_not_run_again(tmp_path):
    whole = _save(tmp_path)
    called = []
    again = _save(tmp_path, callbacks=[called.append])
    assert equal(whole.params, again.params)
    assert called == []


def test_draws_beyond_the_saved_state_are_cut_off(tmp_path):
    whole = _save(tmp_path)
    draws = tmp_path / "lane0001" / "draws.bin"
    with open(draws, "ab") as file:
        file.write(b"what a killed process had appended")
    assert equal(_save(tmp_path).params, whole.params)


def test_a_run_with_other_settings_is_refused(tmp_path):
    _save(tmp_path)
    with pytest.raises(tb.CheckpointError, match="holds another run"):
        _save(tmp_path, key=jax.random.key(4))
    with pytest.raises(tb.CheckpointError, match="holds another run"):
        Walk(step_size=0.2, run=tb.Run(2, 5, 30)).fit(model(), table(), key=jax.random.key(3), checkpoint=tmp_path)
    with pytest.raises(tb.CheckpointError, match="holds another run"):
        tb.MAP().fit(model(), table(), key=jax.random.key(3), checkpoint=tmp_path)  # a state of another shape
    with pytest.raises(tb.CheckpointError, match="holds another run"):
        Walk(run=tb.Run(2, 5, 30)).fit(model(), table(seed=9), key=jax.random.key(3), checkpoint=tmp_path)


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None])
def test_a_damaged_state_is_refused_with_the_folder_named(damage, tmp_path):
    _save(tmp_path)
    state = tmp_path / "lane0000" / "state.npz"
    state.write_bytes(state.read_bytes()[:-40] if damage is None else damage)
    with pytest.raises(tb.CheckpointError, match="is damaged"):
        _save(tmp_path)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 99)
        _save(tmp_path)
    with pytest.raises(tb.CheckpointError, match="newer Tunbridge"):
        _save(tmp_path)


@pytest.mark.parametrize("call", [5, 6, 7, 8])
def test_a_failed_save_loses_nothing(call, tmp_path, monkeypatch):
    """A write fails, of draws or of the state: the old state stands, and the next save mends the file."""
    whole = _save(None)
    real, calls = files.sync, []

    def fails(file):
        calls.append(file.name)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        real(file)

    for name in ("_SAVE_SECONDS", "_SAVE_SHARE"):
        monkeypatch.setattr(members, name, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", fails)
        with pytest.raises(OSError, match="No space left"):
            _save(tmp_path)
    assert equal(_save(tmp_path).params, whole.params)


def test_a_full_disk_loses_nothing(tmp_path):
    """A real file system of 1 MB fills up with draws; with room again, the run goes on to the same end."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    method = Walk(run=tb.Run(1, 5, 12_000))
    try:
        with pytest.raises(OSError, match="No space left"):
            method.fit(model(), table(), key=jax.random.key(3), checkpoint=disk)
        assert 0 < _steps(disk) < 12_005
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        resumed = method.fit(model(), table(), key=jax.random.key(3), checkpoint=disk)
    finally:
        subprocess.run(["umount", disk], check=True)
    assert equal(resumed.params, method.fit(model(), table(), key=jax.random.key(3)).params)


def test_a_failure_keeps_what_was_saved(tmp_path):
    with pytest.raises(tb.NumericalError, match="holds the last checkpoint saved before this step"):
        Walk(fail_at=30, run=tb.Run(1, 5, 60)).fit(model(), table(), key=jax.random.key(3), checkpoint=tmp_path)
    assert 0 < _steps(tmp_path) <= 30


def test_a_resumed_stream_goes_on_where_it_was(tmp_path):
    rng = np.random.default_rng(0)
    batches = [[(rng.normal(size=(4, 3)), rng.normal(size=4)) for _ in range(5)] for _ in range(50)]
    method = Walk(run=tb.Run(2, 10, 90))

    def stop(event):
        return event.step >= 37

    def fit(**options):
        return method.fit(
            model(), tb.Data.from_batches(lambda epoch: batches[epoch], num=20), key=jax.random.key(1), **options
        )

    fit(checkpoint=tmp_path, callbacks=[stop])
    assert equal(fit(checkpoint=tmp_path).params, fit().params)


def test_states_of_every_type_come_back_to_the_bit(tmp_path):
    state = {
        "key": jax.random.key(5),
        "half": jnp.arange(3, dtype=jnp.bfloat16) / 3,
        "count": jnp.int32(4),
        "flag": jnp.asarray(True),
        "nan": jnp.asarray([np.nan, -0.0, np.inf]),
        "empty": jnp.zeros((0, 2)),
    }
    store = checkpoint.Checkpoint(tmp_path, "me")
    store.save(state, np.zeros((0, 8), np.uint8), {"step": 3})
    back, facts = checkpoint.Checkpoint(tmp_path, "me").load(jax.eval_shape(lambda: state), {"step": 0})
    assert facts["step"] == 3
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(back), strict=True):
        assert a.dtype == b.dtype
        assert to_host(a).tobytes() == to_host(b).tobytes()


def test_a_stream_that_fails_leaves_the_place_it_had_reached(tmp_path):
    rng = np.random.default_rng(0)
    batches = [[(rng.normal(size=(4, 3)), rng.normal(size=4)) for _ in range(5)] for _ in range(50)]
    broken = [True]

    def make(epoch):
        for i, batch in enumerate(batches[epoch]):
            if broken[0] and epoch == 9 and i == 3:
                raise OSError("the cable was pulled")
            yield batch

    def fit(**options):
        stream = tb.Data.from_batches(make, num=20)
        return Walk(run=tb.Run(1, 10, 90)).fit(model(), stream, key=jax.random.key(1), **options)

    with pytest.raises(OSError, match="cable"):
        fit(checkpoint=tmp_path)
    broken[0] = False
    assert equal(fit(checkpoint=tmp_path).params, fit().params)


def test_draws_that_are_missing_are_noticed(tmp_path):
    _save(tmp_path)
    draws = tmp_path / "lane0000" / "draws.bin"
    draws.write_bytes(draws.read_bytes()[:-8])
    with pytest.raises(tb.CheckpointError, match=r"draws.bin is damaged .* bytes of"):
        _save(tmp_path)
    draws.unlink()
    with pytest.raises(tb.CheckpointError, match=r"draws.bin is damaged"):
        _save(tmp_path)


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_flipped_bit_among_the_draws_is_noticed(place, tmp_path):
    _save(tmp_path)
    draws = tmp_path / "lane0001" / "draws.bin"
    data = bytearray(draws.read_bytes())
    data[place * len(data) // 2] ^= 1 << 4
    draws.write_bytes(data)
    with pytest.raises(tb.CheckpointError, match=r"lane0001/draws.bin is damaged .* Delete the folder"):
        _save(tmp_path)


def test_draws_are_never_extended_by_zeros(tmp_path):
    """A file that someone has shortened under a running fit: the next save says so."""
    store = checkpoint.Checkpoint(tmp_path, "me")
    store.save({}, np.ones((4, 8), np.uint8), {})
    (tmp_path / "draws.bin").write_bytes(b"")
    with pytest.raises(tb.CheckpointError, match="0 bytes of 32"):
        store.save({}, np.ones((4, 8), np.uint8), {})


def test_a_folder_in_use_is_refused_with_the_process_that_uses_it(tmp_path):
    began = []

    def again(event):
        if not began:
            began.append(event)
            with pytest.raises(tb.BusyError, match=rf"{tmp_path} is in use by process {os.getpid()} on "):
                _save(tmp_path)

    whole = _save(tmp_path, callbacks=[again])
    assert began
    assert equal(whole.params, _save(None).params)


def test_a_refused_fit_leaves_no_folder(tmp_path):
    with pytest.raises(tb.InputError):
        Walk(run=tb.Run(2, 5, 30)).fit(model(), "no data", key=jax.random.key(3), checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_a_killed_save_left_goes_with_the_next_run(tmp_path):
    whole = _save(tmp_path)
    left = tmp_path / "lane0000" / ".state.npz.0123abcd.tmp"
    left.write_bytes(b"half a state")
    assert equal(_save(tmp_path).params, whole.params)
    assert not left.exists()


@pytest.mark.parametrize(
    "facts",
    [[], {}, {"format": 2}, {"format": 2, "kept": -1, "record": 8, "checksum": 0}, {"format": "2"}, {"kept": 10**30}],
)
def test_facts_that_no_save_writes_are_refused(facts, tmp_path):
    archive.write(tmp_path / "state.npz", facts, {})
    with pytest.raises(tb.CheckpointError, match=r"state.npz is damaged .* Delete the folder"):
        checkpoint.Checkpoint(tmp_path, "me").load({}, {"step": 0})
