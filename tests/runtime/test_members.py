"""How long chunks become."""

import pytest

from tunbridge.runtime.members import next_length


def settled(price, step):
    """The length of chunks that cost `price` and `step` a step."""
    length, least = 1, float("inf")
    for _ in range(30):
        elapsed = price + length * step
        least = min(least, elapsed)
        length = next_length(length, length, elapsed, least)
    return length


@pytest.mark.parametrize("step", [1e-4, 1e-3, 1e-2])
def test_chunks_of_quick_steps_take_a_quarter_of_a_second(step):
    assert settled(0.0, step) == pytest.approx(0.25 / step, rel=0.05)


@pytest.mark.parametrize("price", [0.12, 0.3, 2.0])
def test_what_a_chunk_costs_by_itself_does_not_keep_chunks_short(price):
    """It once did: a price above a quarter of a second left one step a chunk."""
    steps = settled(price, 1e-4) * 1e-4
    assert price < 0.35 * (price + steps)


def test_chunks_of_slow_steps_stay_short():
    assert settled(0.0, 1.0) <= 4
