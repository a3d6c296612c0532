"""Public classes and methods called with anything: what is wrong is Tunbridge's own error, and nothing hangs."""

import inspect
import math
import random
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.core.errors import TunbridgeError

GOOD = [0, 1, 2, 5, 0.1, 1.0, 0.9, True, None, (5,), (3, 3), "tanh", dist.Gamma(1.0, 1.0), tb.networks.MLP((3,))]
GOOD += [tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1), tb.MAP(), tb.Train(5), tb.Run(1, 1, 1)]
BAD = [-1, -0.5, math.nan, math.inf, -math.inf, 10**30, 2**31, 1e308, "", "x", "1", b"x", [], (), {}, {"a": 1}, [1, 2]]
BAD += [(1, "a"), (None,), (-1,), (0,), (2.5,), np.zeros(3), np.zeros(0), np.array("a"), np.array([None]), jnp.ones(2)]
BAD += [object(), int, str, tb.MAP, 1j, jax.random.key(0), np.float32(3), np.int64(2), set(), range(3), Path(), ...]
BAD += [slice(1), NotImplemented, ValueError("x"), [[1.0], [2.0, 3.0]], np.zeros((0, 3)), np.full((4, 3), np.nan)]
ROOMS = [tb] + [thing for name in tb.__all__ if inspect.ismodule(thing := getattr(tb, name))]


def _is_built_by_users(thing):
    ours = inspect.isclass(thing) and thing.__module__.startswith("tunbridge")
    return ours and not (
        inspect.isabstract(thing) or issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)
    )


def _names(room):
    own = [name for name, thing in vars(room).items() if getattr(thing, "__module__", None) == room.__name__]
    return getattr(room, "__all__", [name for name in own if name[0] != "_"])


def _there(room):
    return [thing for name in _names(room) if _is_built_by_users(thing := getattr(room, name))]


CLASSES = list(dict.fromkeys(thing for room in ROOMS for thing in _there(room)))


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


def _outcome(call, *args, **kwargs):
    """ "done", "refused", or what was raised that is not Tunbridge's own."""
    try:
        with _within(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*args, **kwargs)
    except TunbridgeError as error:
        return "refused" if str(error) else "refused without a word"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]} of {getattr(call, '__qualname__', call)}{args} {kwargs}"
    return "done"


@pytest.mark.parametrize("times", [12, pytest.param(600, marks=pytest.mark.slow)])
def test_constructors_raise_nothing_but_their_own_errors(times):
    rng, found = random.Random(1), []
    for cls in CLASSES:
        names = [p for p in inspect.signature(cls).parameters.values() if p.kind in (1, 3)]
        for _ in range(times):
            chosen = [p.name for p in names if p.default is inspect.Parameter.empty or rng.random() < 0.3]
            kwargs = {name: rng.choice(BAD if rng.random() < 0.6 else GOOD) for name in chosen}
            found.append(_outcome(cls, **kwargs))
    assert len(CLASSES) > 120
    assert [one for one in found if one not in ("done", "refused")] == []
    assert found.count("refused") > len(found) // 4


def _posteriors(all_kinds):
    data, key = table(), jax.random.key(0)
    short = {"train": tb.Train(3)}
    methods = [tb.MAP(**short), tb.Laplace(point=tb.MAP(**short)), tb.HMC(run=tb.Run(1, 3, 3))]
    methods += [tb.Ensemble(tb.MAP(**short), 2), tb.MeanField(**short), tb.MCDropout(**short)][: 3 if all_kinds else 0]
    return [method.fit(model(), data, key=key, progress=False) for method in methods]


@pytest.mark.parametrize("times", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_posteriors_raise_nothing_but_their_own_errors(times):
    rng, found = random.Random(2), []
    good = {"x": table().x[:3], "key": jax.random.key(1), "num": 2}
    for posterior in _posteriors(times > 8):
        for _ in range(times):
            wrong = {name: rng.choice(BAD) if rng.random() < 0.5 else value for name, value in good.items()}
            found.append(_outcome(posterior.sample, wrong["key"], wrong["num"]))
            found.append(_outcome(posterior.predict, wrong["x"], key=wrong["key"], num=wrong["num"]))
    assert [one for one in found if one not in ("done", "refused")] == []
    assert found.count("refused") > len(found) // 4


@pytest.mark.parametrize("times", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_fits_raise_nothing_but_their_own_errors(times, tmp_path):
    rng, found, method = random.Random(3), [], tb.MAP(train=tb.Train(2))
    good = {"model": model(), "data": table(), "key": jax.random.key(1), "init": None, "progress": False}
    good |= {"checkpoint": None, "max_seconds": None, "callbacks": ()}
    for number in range(times):
        wrong = {name: rng.choice(BAD) if rng.random() < 0.2 else value for name, value in good.items()}
        if isinstance(wrong["checkpoint"], str | Path):
            wrong["checkpoint"] = tmp_path / str(number)
        found.append(_outcome(method.fit, wrong.pop("model"), wrong.pop("data"), **wrong))
    assert [one for one in found if one not in ("done", "refused")] == []
    assert found.count("refused") > len(found) // 4


@pytest.mark.parametrize("times", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_data_raises_nothing_but_its_own_errors(times):
    rng = random.Random(4)
    pool = [*BAD, *GOOD, np.ones((4, 2)), np.arange(4), [1.0, 2.0, 3.0, 4.0], [["a"]] * 4, np.ones((4, 2), complex)]
    found = [_outcome(tb.Data, *(rng.choice(pool) for _ in range(rng.choice([2, 3])))) for _ in range(times)]
    assert [one for one in found if one not in ("done", "refused")] == []
