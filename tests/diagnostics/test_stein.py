import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from densities import sampled
from tunbridge import diagnostics
from tunbridge.diagnostics import stein


def by_automatic_differentiation(x, s, scale, power):
    """The definition, with the kernel's derivatives taken by JAX."""

    def kernel(a, b):
        return (scale**2 + jnp.sum((a - b) ** 2)) ** power

    def term(a, score_a, b, score_b):
        mixed = jnp.trace(jax.jacfwd(jax.grad(kernel, argnums=1))(a, b))
        by_a, by_b = jax.grad(kernel, argnums=(0, 1))(a, b)
        return score_a @ score_b * kernel(a, b) + score_a @ by_b + score_b @ by_a + mixed

    rows = jax.vmap(jax.vmap(term, (None, None, 0, 0)), (0, 0, None, None))(x, s, x, s)
    return np.sqrt(rows.mean())


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_it_is_the_definition_in_blocks_of_any_size(monkeypatch):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(2, 23, 4))
    wanted = by_automatic_differentiation(jnp.asarray(x), jnp.asarray(s), 1.3, -0.4)
    for numbers in (2**22, 23 * 5, 1):
        monkeypatch.setattr(stein, "_BLOCK_NUMBERS", numbers)
        assert diagnostics.stein_discrepancy(x, s, scale=1.3, power=-0.4) == pytest.approx(wanted, rel=1e-9)


def test_it_vanishes_for_draws_of_the_density_and_not_for_others():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    exact, few = diagnostics.stein_discrepancy(x, -x), diagnostics.stein_discrepancy(x[:100], -x[:100])
    assert exact < 0.4 * few
    assert diagnostics.stein_discrepancy(x + 0.3, -(x + 0.3)) > 3 * exact
    assert diagnostics.stein_discrepancy(1.4 * x, -1.4 * x) > 3 * exact


def _normal(w):
    return -0.5 * jnp.sum(w**2)


@pytest.mark.slow
def test_it_sees_the_bias_of_a_sampler_that_rejects_nothing(key):
    """N(0, 1) in two dimensions: ULA with a step of 1.5 draws variances of 1 / (1 - 1.5^2 / 4) = 2.3."""
    found = {}
    for method in (tb.MALA, tb.ULA):
        run = tb.Run(chains=2, warmup=0, draws=1000, thin=5)
        draws = sampled(method(step_size=1.5, run=run), _normal, 2, key)[0].reshape(-1, 2)
        found[method] = diagnostics.stein_discrepancy(draws, -draws)
    assert found[tb.ULA] > 2 * found[tb.MALA]


def test_shapes_and_kernels_that_do_not_fit_are_refused():
    with pytest.raises(tb.InputError, match="of one shape"):
        diagnostics.stein_discrepancy(np.zeros((3, 2)), np.zeros((3, 1)))
    with pytest.raises(tb.InputError, match="a power from -1 to 0"):
        diagnostics.stein_discrepancy(np.zeros((3, 2)), np.zeros((3, 2)), power=1.0)
