"""Methods that cheat, or are wrong, come out of a table as what they are."""

import dataclasses
import sys
from types import FrameType, FunctionType, ModuleType

import jax
import numpy as np
import pytest

import tunbridge as tb
from bench_fakes import LeastSquares, line
from tunbridge.bench.benchmark import runner
from tunbridge.bench.benchmark.store import Store
from tunbridge.inference.base import Method


class PriorOnly(Method):
    """Draws from the prior: it learns nothing."""

    def posteriors(self, model, data, key, size, options):
        bound, rows = model.bind(data)
        draw = jax.vmap(lambda k: bound.sample_params(k, rows.x))
        return [tb.Draws(bound, key, draw(jax.random.split(key, 50)))]


def arrays(start, depth=8):
    """Every array that can be reached from things by attributes, items, closures and the frames that called."""
    seen, found, ahead = set(), [], [(thing, 0) for thing in start]
    while ahead:
        thing, level = ahead.pop()
        if id(thing) in seen or level > depth or isinstance(thing, ModuleType | type):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray | jax.Array):
            if not jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key):
                found.append(np.asarray(thing))
            continue
        parts = []
        if isinstance(thing, dict):
            parts = list(thing.values())
        elif isinstance(thing, list | tuple | set):
            parts = list(thing)
        elif isinstance(thing, FrameType):
            parts = [*thing.f_locals.values(), thing.f_back]
            level -= 1  # all the way up
        elif hasattr(thing, "__dict__"):
            parts = list(vars(thing).values())
        for cell in (thing.__closure__ or ()) if isinstance(thing, FunctionType) else ():
            parts.append(cell.cell_contents)
        ahead += [(part, level + 1) for part in parts]
    return found


def labels_in(found, wanted):
    """Whether the labels stand in one of the arrays."""
    return any(
        array.size >= wanted.size and np.isin(np.float32(wanted), np.float32(array)).all()
        for array in found
        if np.issubdtype(array.dtype, np.number)
    )


FOUND = []


class Peeking(LeastSquares):
    """Looks through all it is given, and everything that called it, for labels."""

    def posteriors(self, model, data, key, size, options):
        FOUND[:] = arrays([self, model, data, options, sys._getframe()])
        return super().posteriors(model, data, key, size, options)


def _table(path, methods, tasks):
    with Store(path, {}) as store:
        runner.run(runner.plan("lines", tasks, methods, tune=False), store)
        return {row["method"]: row for row in store.rows() if row["split"] == 0}


@pytest.mark.slow
def test_the_prior_is_the_worst_and_overconfidence_shows(tmp_path):
    methods = {"squares": LeastSquares(), "overconfident": LeastSquares(0.1), "prior": PriorOnly()}
    rows = _table(tmp_path / "r.sqlite", methods, [line(splits=1)])
    assert all(row["status"] == "done" for row in rows.values()), rows
    figures = {name: row["figures"] for name, row in rows.items()}
    assert figures["prior"]["RMSE"] > 2 * figures["squares"]["RMSE"]
    assert figures["prior"]["NLL"] > figures["squares"]["NLL"] + 0.5
    assert figures["overconfident"]["RMSE"] == figures["squares"]["RMSE"]
    assert figures["overconfident"]["NLL"] > figures["squares"]["NLL"] + 5
    assert figures["overconfident"]["90 % coverage"] < 0.4 < 0.7 < figures["squares"]["90 % coverage"]
    curve = rows["overconfident"]["curves"]["calibration"]
    assert curve["y"][-1] < curve["x"][-1] - 0.4


@pytest.mark.slow
def test_there_is_nothing_to_peek_at(tmp_path):
    """The labels held out are not in memory that a method can walk to: they are loaded after it has learnt."""
    rows = _table(tmp_path / "r.sqlite", {"peeking": Peeking()}, [line(splits=1)])
    assert rows["peeking"]["status"] == "done"
    wanted, known = line().held(0).test.y, line().train(0).y
    assert labels_in(FOUND, known)
    assert not labels_in(FOUND, wanted)


def test_the_search_finds_what_is_there():
    @dataclasses.dataclass
    class Careless:
        split: object

    held = line().held(0)
    assert labels_in(arrays([{"options": [Careless(held)]}]), held.test.y)
    assert labels_in(arrays([lambda: held]), held.test.y)

    def fit():
        return arrays([sys._getframe()])

    assert labels_in(fit(), held.test.y)
