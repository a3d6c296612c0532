"""Models of a spike-and-slab regression: enumeration against direct densities, Gibbs sampling against enumeration."""

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import tunbridge as tb
from tunbridge.inference.shallow.selection import enumerated, sampled

KNOWN = {"sigma": 0.7, "slab": 1.5, "probability": 0.3}


def _problem(columns, points=30):
    """Columns that resemble each other; every third has a coefficient."""
    rng = np.random.default_rng(columns)
    z = rng.normal(size=(points, columns)) + 0.7 * rng.normal(size=(points, 1))
    return z, z[:, ::3].sum(axis=1) * 0.5 + 0.7 * rng.normal(size=points)


@pytest.mark.parametrize("spike", [0.0, 0.2])
def test_enumeration_is_bayes_theorem_with_the_normal_density_of_y(spike):
    z, y = _problem(4)
    found = enumerated(z, y, spike=spike, **KNOWN)
    wanted = {}
    for model in itertools.product([False, True], repeat=4):
        variances = np.where(model, KNOWN["slab"], spike) ** 2
        density = multivariate_normal(np.zeros(30), 0.7**2 * np.eye(30) + (z * variances) @ z.T).logpdf(y)
        wanted[model] = density + np.where(model, np.log(0.3), np.log(0.7)).sum()
    total = np.logaddexp.reduce(list(wanted.values()))
    for model, probability in zip(found.models, found.probabilities, strict=True):
        assert probability == pytest.approx(np.exp(wanted[tuple(model.tolist())] - total), abs=1e-10)


def test_a_y_far_from_zero_does_not_drown_the_columns(key):
    """An offset of 1e5: single precision would have errors of 100 in squares of 1e10. Too wide a slab is refused."""
    z, y = _problem(3)
    z, y = np.column_stack([np.ones(30), z]), y + 1e5
    known = {"sigma": 0.7, "slab": 1000.0, "probability": 0.3}
    drawn = sampled(z, y, **known, key=key, num=2000)
    np.testing.assert_allclose(drawn.inclusion, enumerated(z, y, **known).inclusion, atol=0.05)
    with pytest.raises(tb.InputError, match="rounding would decide"):
        sampled(z, y, sigma=0.7, slab=1e6, probability=0.3, key=key)


@pytest.mark.parametrize("spike", [0.0, 0.2])
@pytest.mark.parametrize("columns", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_gibbs_sampling_is_enumeration(columns, spike, key):
    """B23: models within 0.01; 60,000 draws have an error of at most 0.002 if independent."""
    z, y = _problem(columns)
    exact = enumerated(z, y, spike=spike, **KNOWN)
    draws = sampled(z, y, spike=spike, **KNOWN, key=key, num=60_000)
    codes = draws.models @ (1 << np.arange(columns))
    shares = np.bincount(codes, minlength=2**columns) / len(codes)
    assert np.ptp(exact.probabilities) > 0.02
    np.testing.assert_allclose(shares, exact.probabilities, atol=0.01)
    np.testing.assert_allclose(draws.inclusion, exact.inclusion, atol=0.01)
    assert len(draws.rows) == columns


@pytest.mark.slow
@pytest.mark.parametrize("units", [3, 11])
def test_units_of_a_last_layer_are_chosen_as_by_enumeration(units, key):
    """B23: the units and the constant of a trained layer, whose models Gibbs sampling gives within 0.01."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=60)
    model = tb.Model(tb.networks.MLP((units,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))
    trained = tb.NeuralLinear(tb.MAP(train=tb.Train(200))).fit(model, (x, y), key=key, progress=False)
    columns = trained.features(x)
    exact = enumerated(columns, y, sigma=0.3)
    draws = sampled(columns, y, sigma=0.3, key=key, num=60_000)
    codes = draws.models @ (1 << np.arange(units + 1))
    shares = np.bincount(codes, minlength=2 ** (units + 1)) / len(codes)
    assert exact.models.shape[1] == units + 1
    np.testing.assert_allclose(shares, exact.probabilities, atol=0.01)


REFUSED = {
    "columns": {"columns": np.ones(3)},
    "at most 20 columns": {"columns": np.ones((3, 21))},
    "finite": {"y": np.array([1.0, np.nan, 0.0])},
    "spike": {"spike": 2.0},
    "probability": {"probability": 1.0},
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_refused(words):
    right = {"columns": np.ones((3, 2)), "y": np.ones(3), "sigma": 1.0}
    with pytest.raises(tb.InputError, match=words):
        enumerated(**right | REFUSED[words])
