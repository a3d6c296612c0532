"""Games of bandits and runs of active learning, killed as processes at random moments, end as they would have."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.slow

_BOTH = """
import sys
from pathlib import Path
import jax, numpy as np, tunbridge as tb
kind, folder, result = sys.argv[1:]
key, rng = jax.random.key(3), np.random.default_rng(0)
x = rng.normal(size=(300, 3)).astype(np.float32)
y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
network, fit = tb.networks.MLP((8,)), tb.MAP(train=tb.Train(50))
print("ready", flush=True)
if kind == "play":
    model = tb.Model(tb.bandits.PerArm(3, (8,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    agent = tb.bandits.Agent(tb.NeuralLinear(fit), model, growth=1.15)
    played = tb.bandits.play(agent, tb.bandits.labelled(x, y), 2000, key=key, folder=folder)
    found = np.stack([played.arms, played.rewards])
else:
    asked = Path(folder + ".asked")
    def oracle(rows):
        with asked.open("a") as file:
            file.writelines(f"{row}\\n" for row in rows)
        return y[rows]
    model = tb.Model(network, tb.priors.Normal(1.0), tb.likelihoods.Categorical(3))
    learned = tb.acquisition.learn(
        model, tb.MCDropout(train=tb.Train(50)), x[:200], oracle, tb.acquisition.BALD(), test=(x[200:], y[200:]),
        most=120, batch=2, key=key, folder=folder)
    found = np.stack([learned.chosen, learned.labels])
np.save(result, found)
"""


def _run(kind, folder, result):
    return subprocess.Popen([sys.executable, "-c", _BOTH, kind, str(folder), str(result)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("kind", ["play", "learn"])
def test_kills_change_nothing(kind, tmp_path):
    """No label is asked for twice, but for those of the batch whose answer was on its way."""
    with _run(kind, tmp_path / "whole", tmp_path / "whole.npy") as process:
        assert process.stdout.readline() == b"ready\n"
        began = time.time()
        assert process.wait(300) == 0
    seconds, kills, rng = time.time() - began, 0, random.Random(5)
    while not (tmp_path / "killed.npy").exists():
        with _run(kind, tmp_path / "killed", tmp_path / "killed.npy") as process:
            assert process.stdout.readline() == b"ready\n"
            if kills < 6:
                time.sleep(rng.uniform(0.03, 0.2) * seconds)
                process.kill()
                kills += process.wait() != 0
            else:
                assert process.wait(300) == 0
    assert kills >= 3
    np.testing.assert_array_equal(np.load(tmp_path / "killed.npy"), np.load(tmp_path / "whole.npy"))
    if kind == "learn":
        asked = (tmp_path / "killed.asked").read_text().split()
        assert len(asked) - len(set(asked)) <= 2 * kills
