"""Every method against the four exact problems, with its defaults: what bench/promises.py says holds."""

import jax
import pytest

import tunbridge as tb
from tunbridge.bench import PROBLEMS, PROMISES, deviation

CASES = [(method, problem) for method in tb.METHODS for problem in PROBLEMS]


def test_the_table_has_a_promise_for_every_method_and_problem():
    assert {(method, problem) for method, row in PROMISES.items() for problem in row} == set(CASES)


POINT = ("map", "ensemble", "mcdropout", "swag")
SLOW = [
    *((method, problem) for method, problem in CASES if method not in (*POINT, "neurallinear")),
    ("neurallinear", "linear_unknown"),
    *((method, problem) for method in ("ensemble", "mcdropout") for problem in ("logistic", "tanh_unit")),
    ("swag", "linear_unknown"),
    ("swag", "tanh_unit"),
    ("swag", "logistic"),
    ("ensemble", "linear_unknown"),
    ("mcdropout", "linear_unknown"),
]


@pytest.mark.parametrize(
    ("method", "problem"), [pytest.param(*case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES]
)
def test_the_promise_is_kept(method, problem):
    promise, exact = PROMISES[method][problem], PROBLEMS[problem]()
    if promise.kind == "refused":
        with pytest.raises(tb.InputError):
            tb.METHODS[method]().fit(exact.model, exact.data, key=jax.random.key(0))
        return
    for seed in range(3):
        posterior = tb.METHODS[method]().fit(exact.model, exact.data, key=jax.random.key(seed))
        off = deviation(exact, posterior, promise.kind, jax.random.key(0))
        assert off <= promise.tolerance, f"{off:.2g} posterior sd with key {seed}"
