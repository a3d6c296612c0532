"""Rows have capacities: tables of a few lengths share a program, and rows that fill up change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from tunbridge.core.data import capacity_for
from tunbridge.inference.sgmcmc import tuning
from tunbridge.inference.sgmcmc.subsampling import Plain
from tunbridge.runtime.batches import Minibatches

UNKNOWN = dist.Gamma(0.5, 1.0)


def table(num, width=3):
    rng = np.random.default_rng(num)
    x = rng.normal(size=(num, width))
    return tb.Data(x, x[:, 0] + 0.1 * rng.normal(size=num))


def model(noise=0.3):
    return tb.Model(tb.networks.MLP((5,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(noise))


@pytest.mark.parametrize("num", [1, 15, 16, 17, 100, 442, 448, 449, 5000, 8193, 50_000])
def test_a_capacity_holds_its_rows_with_fifteen_or_a_quarter_to_spare_at_most(num):
    assert num <= capacity_for(num) <= num + max(15, num // 4)
    assert capacity_for(capacity_for(num)) == capacity_for(num)


def test_the_log_density_and_its_gradient_do_not_see_rows_that_fill_up(x64):
    data = table(21)
    bound, data = model().bind(data)
    target = tb.Target(bound, float(data.num))
    params = jax.jit(bound.sample_params)(jax.random.key(0), data.x)
    full = data.padded()
    assert full.capacity == 32
    assert full.num == 21
    for rows in (data, full):
        value, gradient = jax.jit(jax.value_and_grad(target.log_density))(params, rows)
        if rows is data:
            known = value, gradient
    np.testing.assert_allclose(value, known[0], rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), gradient, known[1])


@pytest.mark.parametrize("num", [20, 37, 64])
def test_an_epoch_of_minibatches_shows_every_row_and_none_that_fills_up(num):
    data = tb.Data(np.arange(num, dtype=float)[:, None], np.zeros(num)).padded(masked=False)
    source, key = Minibatches(data, 8), jax.random.key(0)
    orders = []
    for epoch in range(2):
        first = epoch * int(source.per_epoch)
        cursor = source.start(key, jnp.asarray(first))
        seen = [np.asarray(source.batch(cursor, jnp.asarray(first + t)).x[:, 0]) for t in range(int(source.per_epoch))]
        assert set(np.concatenate(seen)) == set(range(num))
        orders.append(np.concatenate(seen)[:num])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(num))
    assert (orders[0] != orders[1]).any()


def test_permutations_of_rows_are_even():
    data = tb.Data(np.arange(5.0)[:, None], np.zeros(5)).padded(masked=False)
    source = Minibatches(data, 1)
    key, steps = jax.random.key(0), 5 * jnp.arange(1000)
    firsts = np.asarray(jax.jit(jax.vmap(lambda step: source.start(key, step)[0, 0]))(steps)).astype(int)
    counts = np.bincount(firsts, minlength=5)
    assert counts.sum() == 1000
    assert ((counts - 200.0) ** 2 / 200.0).sum() < 23.5  # chi-squared with 4 degrees of freedom: false alarm 1e-4


@pytest.mark.parametrize("num", [pytest.param(20, marks=pytest.mark.slow), 22])
def test_the_halves_of_a_batch_that_has_room_average_to_its_gradient(num, x64):
    bound, data = model().bind(table(num))
    target, full = tb.Target(bound, float(num)), data.padded()
    position = 0.1 * jnp.arange(float(5 * 3 + 5 + 5 + 1))
    whole = jax.jit(lambda position: Plain().estimate(target, (), position, full))(position)
    halves = jax.jit(lambda position: tuning.halves(target, Plain(), (), position, full))(position)
    np.testing.assert_allclose(np.mean(halves.gradient, axis=0), whole.gradient, rtol=1e-9)


def quick(method):
    point = tb.MAP(train=tb.Train(20))
    fits = {
        "map": point,
        "ensemble": tb.Ensemble(point, 3),
        "mcdropout": tb.MCDropout(train=tb.Train(20)),
        "laplace": tb.Laplace(point=point),
        "swag": tb.SWAG(point, steps=20, snapshots=5, rank=2),
        "meanfield": tb.MeanField(train=tb.Train(20)),
        "sghmc": tb.SGHMC(run=tb.Run(chains=2, warmup=40, draws=5, thin=1, batch_size=16)),
        "hmc": tb.HMC(run=tb.Run(chains=2, warmup=10, draws=5)),
        "nuts": tb.NUTS(run=tb.Run(chains=2, warmup=10, draws=5)),
        "mclmc": tb.MCLMC(run=tb.Run(chains=2, warmup=10, draws=5, thin=1)),
    }
    return fits[method]


@pytest.mark.parametrize(
    ("method", "most"),
    [
        ("map", 3),
        ("laplace", 21),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *(("ensemble", 3), ("mcdropout", 3), ("swag", 16), ("meanfield", 14)),
                *(("hmc", 7), ("nuts", 7), ("mclmc", 7), ("sghmc", 7)),
            )
        ),
    ],
)
def test_a_first_fit_compiles_few_programs(method, most, compiled):
    """Each costs a newcomer time; the table is of a width that no other test has."""
    data, key, made, fit = table(37, width=7), jax.random.key(0), model(UNKNOWN), quick(method).fit
    compiled.clear()
    fit(made, data, key=key)
    assert len(compiled) <= most, compiled
    chunks = 2 if method == "meanfield" else 1  # its own and that of the MAP estimate that it starts from
    assert compiled.count("jit(_chunk)") <= chunks, "the chunk that was compiled ahead is not the one that is called"
