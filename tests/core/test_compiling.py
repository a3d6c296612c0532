import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.compiling import once


@once
def _curve(x, power):
    return jnp.sum(jnp.sin(x) ** power)


def test_small_and_large_arguments_have_the_same_answer_by_two_programs():
    small, large = np.linspace(0, 1, 100, dtype=np.float32), np.linspace(0, 1, 100_000, dtype=np.float32)
    before = _curve.num_programs()
    for x in (small, large):
        np.testing.assert_allclose(_curve(x, 2.0), np.sum(np.sin(x.astype(float)) ** 2), rtol=1e-4)
    assert _curve.num_programs() == before + 2
    _curve(small + 1, 3.0)
    assert _curve.num_programs() == before + 2


def test_it_may_be_called_within_a_program_and_differentiated():
    gradient = jax.jit(jax.grad(lambda x: _curve(x, 2.0)))(jnp.ones(3))
    np.testing.assert_allclose(gradient, np.sin(2.0) * np.ones(3), rtol=1e-5)
    assert jax.eval_shape(_curve, jnp.ones(3), 2.0).shape == ()
