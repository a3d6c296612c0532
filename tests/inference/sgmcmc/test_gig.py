"""Generalised inverse Gaussian numbers have their law, however extreme it is."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tunbridge.inference.sgmcmc import gig

NUM = 1000
ROWS = np.array(
    list(itertools.product((-500.0, -20.0, -1.5, 0.0, 0.5, 3.0, 500.0), *2 * [(1e-8, 1e-3, 1.0, 1e3, 1e8)]))
)
FALSE_ALARMS = 1e-3
"""Of a whole table, keys being fixed: each row has its share."""
draw = jax.jit(gig.sample)


def numbers(rows, dtype=jnp.float32, power=0.0):
    """Draws (rows, NUM) of p (shifted by `power`), psi, chi; of one shape, so that one program serves all."""
    p, psi, chi = (jnp.asarray(np.repeat(column[:, None], NUM, axis=1), dtype) for column in rows.T)
    return np.asarray(draw(jax.random.key(0), p + power, psi, chi), float)


def cdf(u, p, psi, chi):
    """By the trapezium rule in log u, from where the density is e^-60 of its top."""
    root = np.hypot(p, np.sqrt(psi * chi))
    mode = np.log((p + root) / psi if p >= 0 else chi / (root - p))

    def log_density(x):
        return p * x - 0.5 * (psi * np.exp(mode) * np.expm1(x) + chi * np.exp(-mode) * np.expm1(-x))

    reach = 1e-6 * 1.1 ** np.arange(400)
    with np.errstate(over="ignore"):
        left, right = (reach[np.argmax(log_density(sign * reach) < -60.0)] for sign in (-1, 1))
    x = np.linspace(-left, right, 20001)
    density = np.exp(log_density(x))
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return np.interp(np.log(u) - mode, x, mass / mass[-1])


def pvalues(found, rows):
    return np.array(
        [stats.kstest(u, lambda u, row=row: cdf(u, *row)).pvalue for u, row in zip(found, rows, strict=True)]
    )


def test_numbers_have_the_law_that_quadrature_gives():
    assert pvalues(numbers(ROWS), ROWS).min() > FALSE_ALARMS / len(ROWS)


@pytest.mark.slow
def test_numbers_of_double_precision_have_it_too(x64):
    assert pvalues(numbers(ROWS, jnp.float64), ROWS).min() > FALSE_ALARMS / len(ROWS)


def test_numbers_have_scipys_law():
    """Where SciPy has it: at the extremes its own integrals fail."""
    mild = (np.abs(ROWS[:, 0]) <= 3.0) & (ROWS[:, 1] * ROWS[:, 2] == 1.0)
    for (p, psi, chi), u in zip(ROWS[mild], numbers(ROWS)[mild], strict=True):
        law = stats.geninvgauss(p, np.sqrt(psi * chi), scale=np.sqrt(chi / psi))
        assert stats.kstest(u[:300], law.cdf).pvalue > FALSE_ALARMS / mild.sum()


def test_another_power_is_noticed():
    mild = (np.abs(ROWS[:, 0]) <= 3.0) & (ROWS[:, 1] * ROWS[:, 2] <= 1.0)
    assert pvalues(numbers(ROWS, power=0.5)[mild], ROWS[mild]).max() < 1e-6


def test_what_has_no_law_is_not_a_number_and_ends():
    rows = np.copy(ROWS)
    rows[:3, 1] = 0.0, np.nan, np.inf
    assert np.isfinite(numbers(rows)).all(axis=1).tolist() == 3 * [False] + (len(rows) - 3) * [True]
