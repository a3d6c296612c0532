"""A process that fits for ever stays bounded, and a fork of it is refused before it hangs."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.runtime import programs

FITS = """
import sys, jax, numpy as np, tunbridge as tb
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
print(largest)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list memory maps")
@pytest.mark.slow
@pytest.mark.parametrize(("most", "fits"), [(1600, 25), (16_000, 400)])
def test_fits_of_ever_new_shapes_hold_a_bounded_number_of_memory_maps(most, fits, tmp_path):
    """At most the bound and what one more fit adds; without it 400 fits hold some 40,000."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NPROC": "2"}
    words = [sys.executable, "-c", FITS, str(most), str(fits)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert most < int(done.stdout) < most + 600


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_a_process_that_has_fitted_is_told_to_spawn(monkeypatch):
    """What the child is told; the fork itself is played, since JAX has threads in this process."""
    for name in ("_used", "_forked"):
        monkeypatch.setattr(programs, name, False)
    method, key = tb.MAP(train=tb.Train(2)), jax.random.key(0)
    programs._note_fork()
    method.fit(model(), table(), key=key, progress=False)  # forked before anything was fitted
    programs._note_fork()
    with pytest.raises(tb.InputError, match="spawn"):
        method.fit(model(), table(), key=key, progress=False)
