import jax
import numpy as np
import pytest

from tunbridge.core import keys, random


def words(key):
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize("num", [1, 2, 7, 100])
def test_keys_split_on_the_host_are_those_of_jax(num):
    key = jax.random.key(num)
    np.testing.assert_array_equal(words(keys.split(key, num)), words(jax.random.split(key, num)))
    each = jax.vmap(lambda one: jax.random.split(one, 4))(jax.random.split(key, num))
    np.testing.assert_array_equal(words(keys.split(keys.split(key, num), 4)), words(each))
    np.testing.assert_array_equal(words(keys.one(keys.split(key, num), num - 1)), words(jax.random.split(key, num)[-1]))


@pytest.mark.parametrize("number", [0, 1, 12345, 2**32 - 1])
def test_keys_folded_on_the_host_are_those_of_jax(number):
    key = jax.random.key(3)
    np.testing.assert_array_equal(words(keys.fold_in(key, number)), words(jax.random.fold_in(key, number)))


def test_keys_of_another_kind_are_left_to_jax():
    key = jax.random.key(0, impl="rbg")
    np.testing.assert_array_equal(words(keys.split(key, 3)), words(jax.random.split(key, 3)))
    assert words(random.split(key, 3)).shape == words(jax.random.split(key, 3)).shape


def test_keys_of_steps_differ_and_their_bits_are_even():
    key = jax.random.key(0)
    found = words(jax.vmap(lambda t: random.fold_in(key, t))(np.arange(20_000)))
    assert len(np.unique(found, axis=0)) == 20_000
    ones = np.unpackbits(found.view(np.uint8), axis=1).mean(axis=0)
    assert abs(ones - 0.5).max() < 5 * 0.5 / 20_000**0.5  # false alarm of 64 bits: 4e-5
    pairs = np.corrcoef(found.astype(float).T)[0, 1], np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1]
    assert max(map(abs, pairs)) < 5 / 20_000**0.5


def test_keys_keep_their_kind_whatever_the_default():
    key = jax.random.key(0, impl="threefry2x32")
    with jax.default_prng_impl("rbg"):
        np.testing.assert_array_equal(words(keys.split(key, 3)), words(jax.random.split(key, 3)))
