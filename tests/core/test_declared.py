"""What annotations allow, and what is said where they do not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import pytest

import tunbridge as tb
from tunbridge.core.declared import Count, Positive, checked


@checked
def call(
    count: Count = 1,
    rate: Positive = 1.0,
    share: float = 0.5,
    choice: Literal["a", "b"] = "a",
    several: Sequence[int] = (),
    named: Mapping[str, float] | None = None,
    pair: tuple[str, int] = ("a", 1),
    function: Callable[[Any], Any] = abs,
    prior: tb.priors.Normal = tb.priors.Normal(1.0),
    key: jax.Array = jax.random.key(0),
    whatever: Any = None,
):
    return count


RIGHT = [
    {"count": np.int64(3)},
    {"rate": np.float32(0.1)},
    {"rate": 2},
    {"share": jax.numpy.float32(1.0)},
    {"choice": "b"},
    {"several": [1, 2]},
    {"several": np.arange(3)},
    {"named": {"a": 1.0}},
    {"pair": ("x", 2)},
    {"whatever": object()},
]
WRONG = [
    ({"count": 0}, r"count= as a whole number from 1 to 2,147,483,647, for call; got 0\. Change count="),
    ({"count": 2**31}, "got 2147483648"),
    ({"count": True}, "got True"),
    ({"count": 1.0}, "got 1.0"),
    ({"rate": 0.0}, "rate= as a real number above 0"),
    ({"rate": float("nan")}, "got nan"),
    ({"share": "0.5"}, "share= as a real number, for call; got '0.5'"),
    ({"share": np.ones(2)}, r"got an array of float64, shape \(2,\)"),
    ({"choice": "c"}, "choice= as one of 'a', 'b'"),
    ({"several": [1, 2.5]}, "several= as a list, each a whole number"),
    ({"several": "12"}, "several="),
    ({"named": {"a": "b"}}, "a dictionary, each value a real number or None"),
    ({"pair": ("a",)}, "pair= as a tuple of text and a whole number"),
    ({"function": 3}, "function= as a function"),
    ({"prior": tb.priors.Normal}, r"got the class Normal\. Write Normal\(\.\.\.\)"),
    ({"key": 0}, r"key= as a key, such as jax\.random\.key\(0\)"),
]


@pytest.mark.parametrize("arguments", RIGHT)
def test_what_an_annotation_allows_passes(arguments):
    assert call(**arguments) >= 1


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_what_it_does_not_is_refused_with_what_came(arguments, said):
    with pytest.raises(tb.InputError, match=said):
        call(**arguments)


def test_positions_are_checked_too():
    with pytest.raises(tb.InputError, match="steps= as a whole number"):
        tb.Train("many")


def test_what_a_part_lacks_is_named():
    with pytest.raises(tb.InputError, match=r"got 3 without init, apply, layout, with_outputs"):
        tb.Model(3, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(1.0))


def test_fields_of_a_users_own_class_are_their_own_affair():
    class Mine(tb.MAP):
        more: int = eqx.field(default=1, static=True)

    assert Mine(more="anything").more == "anything"
    with pytest.raises(tb.InputError, match="step_size="):
        Mine(step_size="anything")


def test_traced_numbers_pass():
    assert jax.jit(lambda rate: tb.MAP(step_size=0.1) and call(rate=rate))(0.5) == 1
