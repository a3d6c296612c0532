import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core import tree


def test_numbers_of_any_python_type_share_one_strong_type():
    for value in (1.0, 0.5, np.float32(2.0), jnp.float32(3.0)):
        leaf = tree.strong({"a": value})["a"]
        assert leaf.dtype == np.float32
        assert not getattr(leaf, "weak_type", False)
    assert tree.strong(3).dtype == np.int32
    assert tree.strong(True).dtype == bool


def test_a_weak_array_becomes_strong():
    weak = jnp.asarray(1.0)
    assert weak.weak_type
    assert not tree.strong(weak).weak_type


def test_paths_name_the_leaves():
    weights = {"layers": [{"weight": 0.0, "bias": 1.0}, {"weight": 2.0}]}
    assert tree.paths(weights) == ["layers/0/bias", "layers/0/weight", "layers/1/weight"]


def test_ravel_and_size_agree():
    weights = {"a": jnp.ones((2, 3)), "b": jnp.ones(4)}
    assert tree.ravel(weights).shape == (tree.size(weights),) == (10,)
    assert tree.num_bytes(weights) == 40
    assert tree.ravel(()).shape == (0,)


def test_stack_adds_a_leading_axis():
    assert jax.tree.map(jnp.shape, tree.stack([{"a": jnp.ones(2)}] * 3)) == {"a": (3, 2)}
