"""Elliptical slice sampling: exact draws stay exact, whatever is unknown, and what has no ellipse is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from toys import model, table
from tunbridge.bench import PROBLEMS
from tunbridge.core.tree import unravel


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_exact_draws_stay_exact_and_move(name, key):
    """Four steps from 4,000 draws of the truth: functions, noise and scales have the law that they had."""
    problem, method, num = PROBLEMS[name](), tb.EllipticalSlice(), 4000
    bound, rows = problem.model.bind(problem.data)
    target = tb.Target(bound, float(rows.num))
    before, other = (problem.draw(k, num) for k in jax.random.split(key))

    @jax.jit
    @jax.vmap
    def after(params, key):
        state = method.init(key, target, params, rows, jnp.zeros((), jnp.int32))
        step = lambda state, k: (method.step(k, target, state, rows)[0], None)  # noqa: E731
        return jax.lax.scan(step, state, jax.random.split(key, 4))[0].position

    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), before)
    moved = np.asarray(after(single, jax.random.split(jax.random.key(1), num)))
    like = jax.tree.map(lambda leaf: leaf[0], single)
    params = unravel(like, moved)
    for found, truth in zip(problem.outputs(params).T, problem.outputs(other).T, strict=True):
        assert stats.ks_2samp(found, truth).pvalue > 1e-4
    for found, truth in zip([*params.noise, *params.scales], [*other.noise, *other.scales], strict=True):
        assert stats.ks_2samp(found, np.asarray(truth)).pvalue > 1e-4
    assert np.abs(np.corrcoef(problem.outputs(params)[:, 1], problem.outputs(before)[:, 1])[0, 1]) < 0.9


def test_what_has_no_ellipse_is_refused():
    with pytest.raises(tb.InputError, match="normal given its scales"):
        tb.EllipticalSlice().fit(model(prior=tb.priors.Laplace(1.0)), table(), key=jax.random.key(0))
    hot = tb.EllipticalSlice(run=tb.Run(temperature=0.5))
    with pytest.raises(tb.InputError, match="temperature of 1"):
        hot.fit(model(), table(), key=jax.random.key(0))
