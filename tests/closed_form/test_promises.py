"""Every method against the exact problems, with its defaults: what PROMISES says holds.

Those of the line with unknown noise are kept in the fast tests by contracts/test_methods.py, which has the fits.
"""

import jax
import pytest

import tunbridge as tb
from fits import assert_kept, fit
from tunbridge.bench import PROBLEMS, PROMISES

CASES = [(method, problem) for method in tb.METHODS for problem in PROBLEMS]
REFUSED = [case for case in CASES if PROMISES[case[0]][case[1]].kind == "refused"]
KEPT = [case for case in CASES if PROMISES[case[0]][case[1]].kind not in ("refused", "none")]


def test_the_table_has_a_promise_for_every_method_and_problem():
    assert {(method, problem) for method, row in PROMISES.items() for problem in row} == set(CASES)


@pytest.mark.parametrize(("method", "problem"), REFUSED)
def test_what_a_method_is_not_for_is_refused(method, problem):
    exact = PROBLEMS[problem]()
    with pytest.raises(tb.InputError):
        tb.METHODS[method]().fit(exact.model, exact.data, key=jax.random.key(0))


def _marks(method, problem):
    """In the fast tests each method keeps one promise: here those that promise nothing where noise is unknown."""
    alone = PROMISES[method]["linear_unknown"].kind == "none"
    return () if alone and problem == "linear" else pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("method", "problem"), [pytest.param(*case, marks=_marks(*case)) for case in KEPT])
def test_the_promise_is_kept(method, problem, seed):
    assert_kept(fit(method, problem, seed), method, problem)
