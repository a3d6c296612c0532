import dataclasses

import jax
import numpy as np
import pytest

import tunbridge as tb
from bench_fakes import HELD, LeastSquares, line, train
from tunbridge.bench.benchmark import runner, tuning
from tunbridge.bench.benchmark.budget import Budget, Meter
from tunbridge.core.names import METHODS


def _fit(method, model, rows, key):
    return method.fit(model, tb.Data(*rows), key=key)


@pytest.fixture
def grid(monkeypatch):
    factors = tuple({"factor": factor} for factor in (0.1, 1.0, 3.0, 10.0))
    monkeypatch.setitem(tuning.GRIDS, "squares", factors)
    return factors


def test_the_lowest_nll_on_validation_rows_is_chosen(key, grid):
    seen = []

    def fit(method, model, rows, key_fit):
        seen.append(rows.y)
        return _fit(method, model, rows, key_fit)

    found = tuning.choose("squares", LeastSquares(), line().model, train(None, 0), key, fit)
    assert found.settings == {"factor": 1.0}
    assert np.argmin(found.scores) == 1
    assert all(len(y) == 32 for y in seen)
    assert all(np.array_equal(y, seen[0]) for y in seen)


def test_every_grid_has_four_candidates_that_the_method_takes():
    model = line().model
    for name, candidates in tuning.GRIDS.items():
        assert len(candidates) == 4, name
        made = [tuning.applied(METHODS[name](), model, settings) for settings in candidates]
        assert len({str(jax.tree.leaves(one)) for one in made}) == 4, name


def test_without_a_grid_nothing_is_tuned(key):
    assert tuning.choose("nuts", None, line().model, train(None, 0), key, None) == tuning.Choice({})


def test_a_candidate_that_fails_is_out_and_if_all_do_it_is_said(key, grid):
    def fit(method, model, rows, key_fit):
        if method.factor < 3.0 or rows is None:
            raise ArithmeticError("too small")
        return _fit(method, model, rows, key_fit)

    found = tuning.choose("squares", LeastSquares(), line().model, train(None, 0), key, fit)
    assert found.settings == {"factor": 3.0}
    assert np.isnan(found.scores[:2]).all()

    def fail(*_):
        raise ArithmeticError("never")

    with pytest.raises(ArithmeticError, match="never"):
        tuning.choose("squares", LeastSquares(), line().model, train(None, 0), key, fail)


@pytest.mark.parametrize("poison", [np.nan, 1e30])
def test_rows_held_out_reach_neither_the_choice_nor_the_posterior(poison):
    """Whatever stands in their place, the choice, its scores and the posterior are equal to the bit."""
    found = []
    for task in (line(budget=Budget(800, 60.0)), line(budget=Budget(800, 60.0), poison=poison)):
        job, row = runner.Job("lines", task, 0, "map", tb.MAP(), 0, True), {"provenance": {}}
        posterior = runner._learn(job, task.train(0), row)
        found.append((row["settings"], row["provenance"]["validation NLL"], posterior))
    assert np.isfinite(task.held(0).test.y).all() == np.isfinite(poison)
    assert (task.held(0).test.y != line().held(0).test.y).all()
    assert len(task.held(0).test.y) == HELD
    clean, dirty = found
    assert clean[:2] == dirty[:2]
    for a, b in zip(jax.tree.leaves(clean[2]), jax.tree.leaves(dirty[2]), strict=True):
        if not jax.dtypes.issubdtype(getattr(a, "dtype", float), jax.dtypes.prng_key):
            np.testing.assert_array_equal(a, b)


def test_a_prior_scale_is_the_models_and_other_settings_the_methods():
    method, model = tuning.applied(tb.MCDropout(), line().model, {"rate": 0.05, "prior scale": 3.0})
    assert method.rate == 0.05
    assert model.prior == tb.priors.Normal(tb.priors.fan_in(3.0)) or dataclasses.is_dataclass(model.prior)
    assert model.likelihood is line().model.likelihood


@pytest.mark.slow
def test_a_budget_is_the_same_for_candidates_and_for_the_fit():
    task, meter = line(budget=Budget(800, 60.0)), Meter()
    runner.learn(task, tb.MAP(), task.model, task.train(0), jax.random.key(0), meter)
    assert meter.steps == 20
