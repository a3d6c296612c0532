"""What is known to be weak about a method's defaults is said where they are used."""

import json
from pathlib import Path

import numpy as np
import pytest

import tunbridge as tb
from fits import fit
from toys import table
from tunbridge.inference.promises import caution

STAGES = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "defaults.json").read_text())
RESULTS = STAGES["after"]
KINDS = {"numbers": ("yacht", "energy", "concrete", "diabetes"), "classes": ("breast_cancer", "growers", "mushroom")}


def _ratio(name, table):
    """Mean epistemic sd over the splits, relative to that of the reference; None without a fit."""
    found = {
        method: [row["sd"] for label, row in RESULTS[table].items() if label.split()[0] == method and "sd" in row]
        for method in (name, "reference")
    }
    return np.mean(found[name]) / np.mean(found["reference"]) if found[name] else None


@pytest.mark.parametrize("name", [name for name in tb.METHODS if f"{name} 0" in RESULTS["yacht"] and name != "map"])
def test_declared_spreads_are_those_of_the_benchmark(name):
    """MAP has none by design. A method that is far from the reference must declare it."""
    declared = getattr(tb.METHODS[name], "spreads", {})
    for kind, tables in KINDS.items():
        ratios = [ratio for each in tables if (ratio := _ratio(name, each)) is not None]
        if kind in declared:
            np.testing.assert_allclose(declared[kind], (min(ratios), max(ratios)), atol=0.0501)
        elif ratios:
            assert min(ratios) > 0.5
            assert max(ratios) < 2.0


def _mean(name, table, score):
    return np.mean([row[score] for label, row in RESULTS[table].items() if label.split()[0] == name])


@pytest.mark.parametrize("table", [each for tables in KINDS.values() for each in tables])
@pytest.mark.parametrize("name", ["meanfield", "bayesbybackprop"])
def test_independent_weights_predict_as_well_as_their_mode(name, table):
    assert _mean(name, table, "NLL") < _mean("map", table, "NLL") + 0.1


@pytest.mark.parametrize("table", KINDS["numbers"])
def test_intervals_of_the_default_hold_what_they_claim(table):
    """90 % intervals of Laplace over the twenty splits of each small table."""
    found = [row["coverage"] for label, row in STAGES["coverage"][table].items() if label.split()[0] == "laplace"]
    assert len(found) == 20
    assert 0.85 < np.mean(found) < 0.95
    assert min(found) > 0.8


def test_defaults_are_cautioned_about_and_settings_of_ones_own_are_not(key):
    told = [note for note in fit("ensemble", "linear_unknown").notes if "reference posterior" in note]
    assert len(told) == 1
    assert "0.1 to 1.1 times" in told[0]
    assert "reference posterior" not in " ".join(fit("map", "linear_unknown").notes)
    model, data = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.2)), table(24)
    own = tb.Ensemble(tb.MAP(train=tb.Train(5)), 2).fit(model, data, key=key)
    assert "reference posterior" not in " ".join(own.notes)


@pytest.mark.parametrize(
    ("likelihood", "rows", "said"),
    [
        (tb.likelihoods.Gaussian(0.1), 100, "numbers"),
        (tb.likelihoods.Categorical(3), 100, ""),
        (tb.likelihoods.Poisson(), 100, ""),
        (tb.likelihoods.Gaussian(0.1), 10_000, ""),
    ],
)
def test_it_depends_on_the_kind_of_y_and_on_the_rows(likelihood, rows, said):
    sentence = caution({"numbers": (0.1, 1.0), "classes": (0.9, 1.1)}, likelihood, rows)
    assert said in sentence
    assert bool(said) == bool(sentence)
