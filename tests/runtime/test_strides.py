"""Steps that go by several at a time, as on an accelerator, are those that go by one at a time."""

import jax
import numpy as np
import pytest

import tunbridge as tb
from toys import Walk, equal, model, table
from tunbridge.runtime import loop, members

WALK = Walk(run=tb.Run(2, warmup=10, draws=8, thin=5, batch_size=6))  # epochs of 7 steps: strides cross their ends
MOVES = (tb.moves.Rescaling(every=10),)
SAMPLER = tb.SGHMC(1e-4, moves=MOVES, run=tb.Run(1, warmup=10, draws=6, thin=5, batch_size=6))
MODEL = tb.Model(tb.networks.MLP((3,), "relu"), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.3))


@pytest.fixture
def strides(monkeypatch):
    """A function that sets how many steps go by at a time."""
    return lambda number: monkeypatch.setattr(members, "_stride", lambda *_: number)


def sampled(method=SAMPLER, **options):
    """A run too short to converge."""
    with pytest.warns(tb.ConvergenceWarning):
        return method.fit(MODEL, table(), key=jax.random.key(3), **options).params


def assert_near(one, other):
    """Up to how two programs round: some compilers fuse a product with a sum in one of them."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def interrupted(folder):
    """A run that ends with its first chunk: a step, or a stride."""

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SAMPLER.fit(MODEL, table(), key=jax.random.key(3), checkpoint=folder, callbacks=[interrupt])


@pytest.mark.parametrize("together", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "vmapped"])
def test_strides_change_no_bit_of_what_is_kept(together, key, strides, monkeypatch):
    if together:
        monkeypatch.setattr(loop, "spread", lambda num: [(list(range(num)), None)])
    single = WALK.fit(model(), table(), key=key).params
    strides(5)
    assert equal(WALK.fit(model(), table(), key=key).params, single)


@pytest.mark.slow
def test_a_sampler_that_moves_goes_the_same_way_in_strides_resumed_or_not(strides, tmp_path):
    single = sampled()
    strides(5)
    strided = sampled()
    assert_near(strided, single)
    interrupted(tmp_path)
    assert equal(sampled(checkpoint=tmp_path), strided)


@pytest.mark.slow
def test_a_run_begun_in_single_steps_goes_on_in_strides_that_meet_it(strides, tmp_path):
    """It once went on from the last step that a stride ends at."""
    interrupted(tmp_path)
    strides(5)
    assert_near(sampled(checkpoint=tmp_path), sampled())


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 5])
def test_moves_are_made_when_it_is_their_turn_and_before_a_draw_is_kept(number, strides):
    """Steps so small that moves alone change anything; draws are kept after 15, 20, ..., 40 steps."""
    strides(number)
    still = tb.SGHMC(1e-16, moves=MOVES, noise=0.0, run=SAMPLER.run)
    first = np.asarray(sampled(still).weights["layers"][0]["weight"])[0, :, 0, 0]
    np.testing.assert_array_equal(np.diff(first) != 0.0, [True, False, True, False, True])


@pytest.mark.parametrize(
    ("whole", "rows", "batch_size", "stride"),
    [
        ((600, 100, 50, 20), 1000, 10, 10),
        ((3000, 0, 1000), 1000, 10, 50),  # of its divisors the largest that is not too long
        ((600, 120, 60), 80, 10, 6),  # epochs of 8 steps
        ((600, 120, 60), 80, None, 60),
        ((107, 100, 7), 1000, 10, 1),
        ((670, 0, 67), 1000, 10, 1),
    ],
)
def test_a_stride_on_an_accelerator_divides_all_that_is_counted_in_steps(whole, rows, batch_size, stride, monkeypatch):
    assert members._stride(table(rows), batch_size, whole) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert members._stride(table(rows), batch_size, whole) == stride
