"""The scripts that judge methods by references and by how their uncertainties behave."""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.runtime.loop import Event

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """A function that imports a script."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.mark.slow
def test_gradients_are_steps_times_rows_of_all_members(script):
    judged = script("judged")
    problem = judged.Problem("wine")
    row = judged.judge(tb.Ensemble(tb.MAP(train=tb.Train(40)), 3), problem, jax.random.key(0))
    assert row["example_gradients"] == 3 * 40 * 142
    assert {"accuracy", "NLL", "agreement", "total_variation", "sliced_wasserstein", "seconds"} <= set(row)
    assert row["sliced_wasserstein"] > row["between_halves"]


def test_steps_are_counted_once_though_members_meet_again(script):
    """Two members of 10 steps each in two chunks; then a second fit of 5 steps of the first."""
    counter = script("judged").Counter()
    for members, step in (([0], 4), ([1], 6), ([0], 10), ([1], 10), ([0], 5)):
        counter(Event(members, step, 10, {}))
    assert counter.steps == 25


def test_a_method_that_refuses_is_a_row_with_its_error(script):
    class Refuses:
        def fit(self, *given, **options):
            raise tb.InputError("numbers", "classes", "Use another.")

    row = script("truth").row(Refuses(), script("judged").Problem("wine"))
    assert row == {"error": "InputError: Expected numbers; got classes. Use another."}


def test_a_gap_is_the_middle_third_of_the_input_that_tells_most(script):
    evidence = script("evidence")
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=300), rng.integers(0, 9, 300), rng.normal(size=300)], axis=1)
    column, between = evidence.gap(x, x[:, 2] ** 3 + 0.1 * rng.normal(size=300))
    assert column == 2
    assert between.sum() == 100
    assert x[between, 2].max() < x[~between & (x[:, 2] > 0), 2].min()


def test_images_are_turned_about_their_middle(script):
    turned = script("evidence").turned
    image = np.zeros((1, 28, 28), np.float32)
    image[0, 4, 10] = 1.0
    np.testing.assert_allclose(turned(image.reshape(1, -1), 0), image.reshape(1, -1), atol=1e-6)
    quarter = turned(image.reshape(1, -1), 90).reshape(28, 28)
    np.testing.assert_allclose(quarter, np.rot90(image[0]), atol=1e-6)


def test_strangers_are_told_by_a_larger_entropy(script):
    def uncertain(low, high):
        values = np.linspace(low, high, 50)
        return type("Uncertain", (), {"entropy": values, "epistemic": values[::-1] * 0})()

    found = script("evidence").strangeness(uncertain(0.0, 1.0), uncertain(1.1, 2.0))
    assert found == {"AUROC of entropy": 1.0, "AUROC of epistemic": 0.5}
