"""A process that fits for ever stays bounded, and a fork of it is refused before it hangs."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.core import names
from tunbridge.runtime import programs

MOST_FITS = 250
FITS = """
import sys, jax, numpy as np, tunbridge as tb
from pathlib import Path
from tunbridge.runtime import programs
most, fits = int(sys.argv[1]), int(sys.argv[2])
programs._MOST_MAPS, largest = most, 0
rng = np.random.default_rng(0)
for i in range(fits):
    x = rng.normal(size=(20 + i, 1 + i % 40))
    model = tb.Model(tb.networks.MLP((3 + i % 7,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    posterior = tb.MAP(train=tb.Train(2)).fit(model, (x, x[:, 0]), key=jax.random.key(i), progress=False)
    posterior.predict(x[:3])
    largest = max(largest, programs._num_maps())
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(largest, peak.split()[1])  # ru_maxrss would be that of the process that started this one, if larger
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list memory maps")
@pytest.mark.slow
@pytest.mark.parametrize(("most", "fits"), [(1600, 25), (12_000, MOST_FITS)])
def test_fits_of_ever_new_shapes_hold_a_bounded_number_of_memory_maps_and_bytes(most, fits, tmp_path):
    """At most the bound and what one more fit adds, and 2 GB; without it 250 fits hold some 25,000 maps and 4 GB."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NPROC": "2"}
    words = [sys.executable, "-c", FITS, str(most), str(fits)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    maps, kilobytes = map(int, done.stdout.split())
    assert most < maps < most + 600
    assert kilobytes < 2e6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_a_process_that_has_fitted_or_predicted_is_told_to_spawn(monkeypatch, tmp_path):
    """What the child is told; the fork itself is played, since JAX has threads in this process."""
    method, key = tb.MAP(train=tb.Train(2)), jax.random.key(0)
    posterior = method.fit(model(), table(), key=key, progress=False)
    posterior.save(tmp_path)
    doors = (
        lambda: method.fit(model(), table(), key=key, progress=False),
        lambda: posterior.predict(table().x[:2]),
        lambda: posterior.sample(key, 2),
        lambda: tb.load(tmp_path),
    )
    for door in doors:
        for name in ("_used", "_forked"):
            monkeypatch.setattr(programs, name, False)
        programs._note_fork()
        door()  # forked before anything was computed
        programs._note_fork()
        for other in doors:
            with pytest.raises(tb.InputError, match="spawn"):
                other()


@pytest.mark.parametrize("name", names.POSTERIORS.places)
def test_every_posterior_refuses_to_compute_in_a_fork(name, monkeypatch):
    kind, key = getattr(tb, name), jax.random.key(0)
    monkeypatch.setattr(programs, "_forked", True)
    for door in (lambda: kind.predict(None, np.zeros((1, 1))), lambda: kind.sample(None, key, 1)):
        with pytest.raises(tb.InputError, match="spawn"):
            door()


FORKS = """
import os, signal, sys, warnings, numpy as np, tunbridge as tb

warnings.simplefilter("ignore")  # JAX's own, at every fork
x = np.random.default_rng(0).normal(size=(3000, 3))
posterior = tb.load(sys.argv[1])
posterior.predict(x).mean
if os.fork() == 0:
    signal.alarm(20)  # ends it if it hangs
    try:
        posterior.predict(x[:-1]).mean
    except tb.InputError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.slow
def test_a_real_fork_after_a_prediction_ends_in_a_sentence(tmp_path):
    tb.MAP(train=tb.Train(2)).fit(model(), table(), key=jax.random.key(0), progress=False).save(tmp_path)
    words = [sys.executable, "-c", FORKS, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "spawn" in done.stdout
