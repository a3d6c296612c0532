"""Values that are right or wrong as arguments, and what comes out of a call with them."""

import dataclasses
import importlib.util
import inspect
import math
import signal
import warnings
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import tunbridge as tb
from tunbridge.core.errors import TunbridgeError

GOOD = [0, 1, 2, 5, 0.1, 1.0, 0.9, True, None, (5,), (3, 3), "tanh", dist.Gamma(1.0, 1.0), tb.networks.MLP((3,))]
GOOD += [tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1), tb.MAP(), tb.Train(5), tb.Run(1, 1, 1)]
BAD = [-1, -0.5, math.nan, math.inf, -math.inf, 10**30, 2**31, 1e308, "", "x", "1", b"x", [], (), {}, {"a": 1}, [1, 2]]
BAD += [(1, "a"), (None,), (-1,), (0,), (2.5,), np.zeros(3), np.zeros(0), np.array("a"), np.array([None]), jnp.ones(2)]
BAD += [object(), int, str, tb.MAP, 1j, jax.random.key(0), np.float32(3), np.int64(2), set(), range(3), Path(), ...]
BAD += [slice(1), NotImplemented, ValueError("x"), [[1.0], [2.0, 3.0]], np.zeros((0, 3)), np.full((4, 3), np.nan)]
UNLIKE = [value for value in BAD if not callable(value)]
"""For functions that take functions: those of users may raise what they like."""
ROOMS = [tb] + [thing for name in tb.__all__ if inspect.ismodule(thing := getattr(tb, name))]
ROOMS += [tb.applications.compression, tb.applications.series]


def names(room):
    """The public names of a module."""
    own = [name for name, thing in vars(room).items() if getattr(thing, "__module__", None) == room.__name__]
    return getattr(room, "__all__", [name for name in own if name[0] != "_"])


def is_built_by_users(thing):
    """Whether a thing is a class of the package of which users make objects."""
    ours = inspect.isclass(thing) and thing.__module__.startswith("tunbridge")
    return ours and not (
        inspect.isabstract(thing) or issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)
    )


def functions(*rooms):
    """The public functions of modules that take arguments, each once."""
    things = [getattr(room, name) for room in rooms for name in names(room)]
    ours = [thing for thing in things if inspect.isfunction(thing) and thing.__module__.startswith("tunbridge")]
    return list(dict.fromkeys(thing for thing in ours if inspect.signature(thing).parameters))


def taken(call):
    """The arguments that a call may name, and whether each may be left out."""
    parameters = inspect.signature(call).parameters.values()
    return {p.name: p.default is not inspect.Parameter.empty for p in parameters if p.kind in (1, 3)}


def installed(package):
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


@contextmanager
def _within(seconds):
    """A call that hangs is a failure."""

    def hang(*_):
        raise TimeoutError(f"a call took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _holds(test, value):
    """Whether a real number among the leaves of a value passes the test."""
    leaves = jax.tree.leaves(vars(value) if dataclasses.is_dataclass(value) else value)
    numbers = [leaf for leaf in leaves if isinstance(leaf, float | np.ndarray | np.generic | jax.Array)]
    real = [number for number in numbers if jnp.issubdtype(getattr(number, "dtype", float), jnp.floating)]
    return any(bool(np.any(test(np.asarray(number)))) for number in real)


def outcome(call, *args, **kwargs):
    """ "done", "refused", or what is wrong: an error that is not Tunbridge's own, or a silent and unexplained NaN."""
    name = f"{getattr(call, '__qualname__', call)}{args} {kwargs}"
    try:
        with _within(20), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = call(*args, **kwargs)
        if isinstance(result, AbstractContextManager):  # a store of results that was opened
            result.__exit__(None, None, None)
    except TunbridgeError as error:
        return "refused" if str(error) else "refused without a word"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]} of {name}"
    finite = not any(_holds(lambda number: ~np.isfinite(number), value) for value in (*args, *kwargs.values()))
    if finite and not told and "NaN" not in (inspect.getdoc(call) or "") and _holds(np.isnan, result):
        return f"NaN of {name}"
    return "done"


def errors(found):
    """Outcomes that no call may have."""
    return [one for one in found if one not in ("done", "refused")]
