"""`Run` and `Train`: what is left out of them belongs to the method."""

import dataclasses
import pickle

import jax
import pytest

import tunbridge as tb
from toys import Walk
from tunbridge.inference.base import Method


class Thinned(Walk):
    run: tb.Run = tb.Run(thin=3)


class Cold(Walk):
    run: tb.Run = dataclasses.field(default=tb.Run(temperature=0.5, batch_size=8), kw_only=True)


class Bare(Walk):
    run: tb.Run


class Required(Method):
    train: tb.Train

    def posteriors(self, model, data, key, size, options):
        return []


def numbers(run):
    return run.chains, run.warmup, run.draws, run.thin, run.temperature


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (Walk(), (2, 20, 50, 1, 1.0)),
        (Walk(run=tb.Run(draws=7)), (2, 20, 7, 1, 1.0)),
        (Walk(run=tb.Run(1, 0, 7, 2, temperature=3)), (1, 0, 7, 2, 3.0)),
        (Thinned(), (2, 20, 50, 3, 1.0)),
        (Thinned(run=tb.Run(warmup=0)), (2, 0, 50, 3, 1.0)),
        (Cold(run=tb.Run(chains=1)), (1, 20, 50, 1, 0.5)),
        (dataclasses.replace(Cold(), run=tb.Run()), (2, 20, 50, 1, 0.5)),
        (tb.NUTS(run=tb.Run(chains=1)), (1, 1000, 1000, 1, 1.0)),
    ],
)
def test_a_class_completes_the_run_it_is_given(method, expected):
    """A class of one's own too, its own defaults completed by those of its base."""
    assert numbers(method.run) == expected
    assert numbers(pickle.loads(pickle.dumps(method)).run) == expected
    assert method.run.plan().steps == expected[1] + expected[2] * expected[3]


def test_a_default_batch_size_stays_unless_another_is_given():
    assert (Cold(run=tb.Run(draws=7)).run.batch_size, Cold(run=tb.Run(batch_size=4)).run.batch_size) == (8, 4)


def test_a_run_that_leaves_things_out_has_the_leaves_of_a_whole_one():
    """So nothing is compiled for it anew."""
    assert jax.tree.structure(Walk(run=tb.Run(draws=7))) == jax.tree.structure(Walk())
    assert jax.tree.structure(tb.MAP(train=tb.Train())) == jax.tree.structure(tb.MAP(train=tb.Train(5)))


def test_a_field_without_a_default_takes_the_run_of_the_base():
    assert numbers(Bare(run=tb.Run(draws=7)).run) == (2, 20, 7, 1, 1.0)
    assert Required(tb.Train(batch_size=8)).train.steps == 2000
    with pytest.raises(TypeError, match="train"):
        Required()


def test_a_completed_run_is_bounded_like_any_other():
    with pytest.raises(tb.InputError, match="at most 2,147,483,647 steps per chain"):
        tb.SGHMC(run=tb.Run(draws=2**30))
