"""Metropolis-Hastings: the rule, what it costs to leave a part of it out, and moments."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.random_walk import RWState

import tunbridge as tb
from densities import alarm, density, sampled
from tunbridge.inference.mcmc.metropolis import metropolis

P = np.array([0.1, 0.3, 0.6])
"""A target on three states."""
Q = np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.7, 0.2, 0.1]])
"""Where a state proposes to go: far from symmetric."""


class Jumps(eqx.Module):
    """States 0, 1, 2 as vectors of one number."""

    def sample(self, key, position):
        return jax.random.choice(key, 3, p=jnp.asarray(Q)[position[0].astype(int)]).astype(float)[None]

    def log_density(self, new, old):
        return jnp.log(jnp.asarray(Q))[old[0].astype(int), new[0].astype(int)]


def _log_p(position):
    return jnp.log(jnp.asarray(P))[position[0].astype(int)]


def test_the_rule_is_in_detailed_balance_on_three_states(key):
    """Where each state goes, over many keys, against Q min(1, p q / p q); flows to and fro are equal."""
    num = 200_000

    @jax.jit
    @jax.vmap
    def ends(key, state):
        chain = RWState(state, _log_p(state))
        moved, acceptance = metropolis(key, _log_p, chain, Jumps())
        return moved.position[0], acceptance

    keys = jax.random.split(key, 3 * num)
    starts = np.repeat(np.arange(3.0), num)[:, None]
    reached, acceptance = (np.asarray(part).reshape(3, num) for part in ends(keys, jnp.asarray(starts, jnp.float32)))
    went = np.stack([np.mean(reached == state, axis=1) for state in range(3)], axis=1)
    flow = P[:, None] * Q
    wanted = np.minimum(flow, flow.T) / P[:, None]
    np.fill_diagonal(wanted, 0.0)
    np.fill_diagonal(wanted, 1.0 - wanted.sum(axis=1))
    assert np.abs(went - wanted).max() < 4.5 * 0.5 / np.sqrt(num)  # nine frequencies, each off by as much once in 1e5
    np.testing.assert_allclose(P[:, None] * wanted, (P[:, None] * wanted).T, atol=1e-12)
    assert acceptance.max() <= 1.0  # never the larger of the ratio and 1
    ratios = np.unique(np.minimum(1.0, flow.T / flow).round(5))
    assert set(np.unique(acceptance.round(5))) == set(ratios.astype(np.float32))


def _log_gamma(position):
    """Gamma(3, 1)."""
    w = position[0]
    return jnp.where(w > 0, 2.0 * jnp.log(jnp.where(w > 0, w, 1.0)) - w, -jnp.inf)


class Stretch(eqx.Module):
    """w' = w e^z, z ~ N(0, 1/4): q(w' | w) has a factor 1/w'."""

    def sample(self, key, position):
        return position * jnp.exp(0.5 * jax.random.normal(key, position.shape))

    def log_density(self, new, old):
        return -jnp.log(new[0]) - 2.0 * jnp.log(new[0] / old[0]) ** 2


class Careless(Stretch):
    """The same, said to be symmetric."""

    def log_density(self, new, old):
        return None


def _gamma_draws(proposal):
    """(chains, draws) by the rule alone: 16 chains of 2,000 draws, one of five steps kept."""

    def step(chain, key):
        return metropolis(key, _log_gamma, chain, proposal)[0], chain.position[0]

    def draws(key):
        start = jnp.full(1, 2.5)
        return jax.lax.scan(step, RWState(start, _log_gamma(start)), jax.random.split(key, 11_000))[1][1000::5]

    return np.asarray(jax.jit(jax.vmap(draws))(jax.random.split(jax.random.key(3), 16)), np.float64)


@pytest.mark.slow
def test_an_asymmetric_proposal_needs_the_term_of_hastings():
    """Gamma(3, 1) by a multiplicative walk. Without the term the draws are of pi(w) / w: Gamma(2, 1)."""
    right, wrong = _gamma_draws(Stretch()), _gamma_draws(Careless())
    assert alarm(np.stack([right, right**2], axis=-1), np.array([3.0, 12.0])) < 1
    assert alarm(wrong, 3.0) > 2
    assert alarm(wrong, 2.0) < 1


@pytest.mark.slow
def test_a_proposal_of_ones_own_runs_in_the_loop():
    method = tb.RandomWalk(proposal=Stretch(), run=tb.Run(chains=16, warmup=100, draws=1000, thin=5))
    start = tb.Params({"w": jnp.ones(1)})
    posterior = method.fit(*density(_log_gamma, 1, 3.0), key=jax.random.key(3), init=start, progress=False)
    assert alarm(np.asarray(posterior.params.weights["w"], np.float64), 3.0) < 1
    assert posterior.notes == ("Proposals of Stretch.",)


def _log_normal_1(w):
    return -0.5 * jnp.sum((w - 1.0) ** 2) / 0.04


_COV = np.array([[1.0, 0.9], [0.9, 2.0]])
_PRECISION = np.linalg.inv(_COV)


def _log_normal_2(w):
    return -0.5 * w @ jnp.asarray(_PRECISION, w.dtype) @ w


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log_density", "num", "mass", "acceptance"),
    [
        (_log_normal_1, 1, tb.mass.Diagonal(), 0.44),
        (_log_normal_2, 2, tb.mass.Dense(), 0.234),
        (_log_normal_2, 2, tb.mass.Diagonal(), 0.234),
    ],
)
def test_a_random_walk_gives_the_moments_at_the_acceptance_it_is_tuned_to(log_density, num, mass, acceptance, key):
    method = tb.RandomWalk(mass=mass, run=tb.Run(chains=16, warmup=1000, draws=500, thin=10))
    draws, posterior = sampled(method, log_density, num, key)
    mean, cov = (np.ones(1), np.array([[0.04]])) if num == 1 else (np.zeros(2), _COV)
    squares = np.einsum("cdi,cdj->cdij", draws - mean, draws - mean)
    assert alarm(draws, mean) < 1
    assert alarm(squares, cov) < 1
    assert abs(float(posterior.stats["acceptance"].mean()) - acceptance) < 0.1  # the last tenth of warm-up sets it
    assert float(posterior.stats["gradients"].max()) == 1.0


def test_what_is_no_proposal_is_refused():
    class Plain:
        def sample(self, key, position):
            return position

        def log_density(self, new, old):
            return None

    with pytest.raises(tb.InputError, match=r"sample\(key, position\)"):
        tb.RandomWalk(proposal=3.0)
    with pytest.raises(tb.InputError, match=r"eqx\.Module"):
        tb.RandomWalk(proposal=Plain())
    with pytest.raises(tb.InputError, match="hold its own step"):
        tb.RandomWalk(proposal=Stretch(), step_size=0.1)
    with pytest.raises(tb.InputError, match="needs gradients"):
        tb.RandomWalk(mass=tb.mass.LowRank())
