"""Bandits: rewards and regret by hand, Thompson's frequencies, growing tables, and runs that are stopped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge import bandits
from tunbridge.applications.bandits.runner import _chosen, _inputs
from tunbridge.core.data import room_for

RNG = np.random.default_rng(0)
CONTEXTS = RNG.normal(size=(50, 2))
LINEAR = tb.Model(tb.networks.MLP(()), tb.priors.Normal(2.0), tb.likelihoods.Gaussian(0.5))
EXACT = tb.NeuralLinear(tb.MAP(train=tb.Train(1)))


def two_arms(noise=0.5):
    """Arm 1 is better where the first entry of the context is positive."""
    values = np.stack([np.zeros(50), CONTEXTS[:, 0]], axis=1)
    return bandits.Environment(CONTEXTS, values[..., None], np.ones((50, 2, 1)), noise)


def agent(policy=None, **settings):
    # products of arm and context: without them a linear model cannot tell the arms' slopes apart
    network = tb.networks.from_functions(
        lambda key, x: {"a": jnp.zeros((6, 1)), "b": jnp.zeros(1)},
        lambda w, x: (
            jnp.concatenate([x[:, 2:], x[:, :2] * x[:, 2:3], x[:, :2] * x[:, 3:4]], axis=1) @ w["a"] + w["b"][None]
        ),
        {"a": tb.networks.Leaf("weight", inputs=(0,), outputs=(1,)), "b": tb.networks.Leaf("bias", outputs=(0,))},
    )
    model = tb.Model(network, tb.priors.Normal(2.0), tb.likelihoods.Gaussian(0.5))
    return bandits.Agent(EXACT, model, bandits.Thompson() if policy is None else policy, **{"block": 10, **settings})


def test_rewards_have_their_chances_and_means(key):
    """20,000 rewards of one row and arm have two values alike: false alarm 1e-3; means are those of the table."""
    edible = np.array([1, 0])
    environment = bandits.mushrooms(np.eye(2), edible)
    np.testing.assert_allclose(environment.means, [[0.0, 5.0], [0.0, -15.0]])
    rows, arms = np.full(20_000, 1), np.ones(20_000, int)
    drawn = environment.reward(key, 0, rows, arms)
    assert set(drawn.tolist()) == {-35.0, 5.0}
    assert stats.binomtest(int((drawn == 5.0).sum()), 20_000, 0.5).pvalue > 1e-3
    np.testing.assert_array_equal(environment.reward(key, 7, rows[:5], 0 * arms[:5]), 0.0)
    assert np.all(environment.reward(key, 0, 0 * rows[:9], arms[:9]) == 5.0)


def test_a_table_of_classes_pays_for_the_right_guess(key):
    environment = bandits.labelled(CONTEXTS, np.arange(50) % 3)
    assert environment.arms == 3
    np.testing.assert_allclose(environment.means.sum(axis=1), 1.0)
    np.testing.assert_array_equal(environment.reward(key, 0, np.arange(50), np.arange(50) % 3), 1.0)


def test_payoffs_say_what_an_action_brings_in_a_class(key):
    environment = bandits.labelled(CONTEXTS, np.arange(50) % 3, [[1.0, 0.0], [-5.0, 2.0], [0.0, 0.5]])
    assert environment.arms == 2
    np.testing.assert_array_equal(environment.means[:3], [[1.0, 0.0], [-5.0, 2.0], [0.0, 0.5]])
    np.testing.assert_array_equal(environment.reward(key, 0, np.array([1, 2]), np.array([0, 1])), [-5.0, 0.5])


def test_a_linear_bandit_is_linear_in_its_contexts(key):
    """Least squares leave nothing, and every arm's coefficients have norm 1."""
    environment = bandits.linear(key, 200, 4, 3, noise=0.0)
    found, left, *_ = np.linalg.lstsq(np.asarray(environment.contexts), environment.means, rcond=None)
    np.testing.assert_allclose(left, 0.0, atol=1e-20)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0)


def test_the_wheel_pays_in_the_quadrant_beyond_its_radius(key):
    wheel = bandits.wheel(key, 2000, 0.8)
    radius = np.linalg.norm(wheel.contexts, axis=1)
    assert np.all((wheel.means.max(axis=1) == 50.0) == (radius > 0.8))
    far = radius > 0.8
    signs = {1: (1, 1), 2: (-1, 1), 3: (-1, -1), 4: (1, -1)}
    best = wheel.means[far].argmax(axis=1)
    np.testing.assert_array_equal(np.sign(wheel.contexts[far]), [signs[arm] for arm in best])
    assert far.mean() == pytest.approx(1 - 0.8**2, abs=0.04)


def test_every_row_comes_once_before_any_comes_again(key):
    order = two_arms().order(key, 120)
    for start in (0, 50):
        assert sorted(order[start : start + 50].tolist()) == list(range(50))


@pytest.mark.slow
def test_thompson_tries_arms_as_often_as_they_are_best(key):
    """Two arms: the exact probability is a normal integral; 20,000 draws, false alarm 1e-3 per context."""
    x = _inputs(CONTEXTS[:30].astype(np.float32), np.arange(30) % 2, 2)
    posterior = EXACT.fit(LINEAR, (x, CONTEXTS[:30, 0] * (np.arange(30) % 2)), key=key, progress=False)
    for row in (0, 1, 2):
        both = _inputs(np.repeat(CONTEXTS[[row]].astype(np.float32), 2, axis=0), np.arange(2), 2)
        phi = posterior.features(both)
        mean, root = np.asarray(posterior.solved.mean)[:, 0], np.asarray(posterior.solved.roots)[0]
        gap = phi[1] - phi[0]
        deviation = np.sqrt(posterior.noise[0]) * np.linalg.norm(gap @ root)
        wanted = stats.norm.cdf(gap @ mean / deviation)
        scores = bandits.Thompson().scores(jax.random.key(row), posterior, np.repeat(both[None], 20_000, axis=0))
        tried = int((scores[:, 1] > scores[:, 0]).sum())
        assert 0.01 < wanted < 0.99
        assert stats.binomtest(tried, 20_000, wanted).pvalue > 1e-3


def test_policies_score_by_means_bounds_and_chance(key):
    x = _inputs(CONTEXTS[:20].astype(np.float32), np.arange(20) % 2, 2)
    posterior = EXACT.fit(LINEAR, (x, CONTEXTS[:20, 0]), key=key, progress=False)
    steps = x[:18].reshape(9, 2, -1)
    predictive = posterior.predict(x[:18])
    mean = np.asarray(predictive.mean)[:, 0].reshape(9, 2)
    np.testing.assert_allclose(bandits.Greedy().scores(key, posterior, steps), mean, rtol=1e-5)
    bound = mean + 2.0 * np.sqrt(np.asarray(predictive.epistemic)[:, 0].reshape(9, 2))
    np.testing.assert_allclose(bandits.UCB(2.0).scores(key, posterior, steps), bound, rtol=1e-5)
    np.testing.assert_allclose(bandits.EpsilonGreedy(0.0).scores(key, posterior, steps), mean, rtol=1e-5)
    chance = bandits.EpsilonGreedy(1.0).scores(key, posterior, steps)
    assert np.all((chance >= 0.0) & (chance < 1.0))


def test_equal_scores_are_decided_by_chance(key):
    class Same(bandits.Policy):
        def scores(self, key, posterior, x):
            return np.zeros(x.shape[:2])

    arms = _chosen(agent(Same(), block=200), "a posterior", CONTEXTS[np.zeros(200, int)], 2, key)
    assert stats.binomtest(int(arms.sum()), 200, 0.5).pvalue > 1e-3


def test_an_agent_learns_and_its_regret_is_that_of_the_means(key):
    environment = two_arms()
    played = bandits.play(agent(), environment, 400, key=key)
    best = environment.means[played.contexts].max(axis=1)
    np.testing.assert_allclose(played.regret, best - environment.means[played.contexts, played.arms])
    assert played.simple < 0.1 * float(np.mean(played.regret[:10]))
    assert played.rows[-1]["regret"] == pytest.approx(played.cumulative[-1])
    assert played.fits < 30
    assert "regret" in str(bandits.regrets([played, played]))


def test_between_fits_an_exact_last_layer_learns_from_every_block(key):
    """After all steps its moments count every one of them, although the last fit was long before."""
    played = bandits.play(agent(growth=50.0), two_arms(), 100, key=key)
    assert played.fits == 1
    assert float(played.posterior.moments.num) == 100.0


@pytest.mark.slow
def test_nothing_compiles_for_tables_that_grow(key, compiled):
    """From the tenth block on, within one size of the table."""
    environment, sizes = two_arms(), []

    def note(steps, _):
        if steps == 100:
            compiled.clear()
        sizes.append((steps, list(compiled)))

    bandits.play(agent(growth=1.3), environment, 240, key=key, progress=note)
    assert dict(sizes)[240] == []
    assert [room_for(num) for num in (1, 64, 65, 256, 257, 50_000)] == [64, 64, 256, 256, 1024, 65_536]


def test_a_run_that_is_stopped_ends_as_it_would_have(key, tmp_path):
    environment = two_arms()
    whole = bandits.play(agent(), environment, 120, key=key)

    class Stop(Exception):
        pass

    def stopping(after):
        def progress(steps, _):
            if steps >= after:
                raise Stop

        return progress

    for after in (10, 40, 90):
        with pytest.raises(Stop):
            bandits.play(agent(), environment, 120, key=key, folder=tmp_path, progress=stopping(after))
    done = bandits.play(agent(), environment, 120, key=key, folder=tmp_path)
    np.testing.assert_array_equal(done.arms, whole.arms)
    np.testing.assert_array_equal(done.rewards, whole.rewards)
    with pytest.raises(tb.CheckpointError, match="another run"):
        bandits.play(agent(), environment, 121, key=key, folder=tmp_path)
    (tmp_path / "steps.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(tb.LoadError, match="start anew"):
        bandits.play(agent(), environment, 120, key=key, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ensemble", "laplace", "mcdropout", "sghmc"])
def test_any_method_plays(name, key):
    """Less than half of what chance loses, over 300 steps with a small network."""
    model = tb.Model(tb.networks.MLP((20,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    player = bandits.Agent(tb.METHODS[name](), model, block=20, growth=1.9)
    environment = two_arms(0.1)
    lost = bandits.play(player, environment, 300, key=key).regret.mean()
    assert lost < 0.5 * np.mean(environment.means.max(axis=1) - environment.means.mean(axis=1))


REFUSED = {
    "one arm": (lambda: bandits.Environment(CONTEXTS, np.ones((50, 1, 1)), np.ones((50, 1, 1))), "two arms or more"),
    "chances that are none": (
        lambda: bandits.Environment(CONTEXTS, np.ones((50, 2, 1)), np.zeros((50, 2, 1))),
        "sum to 1",
    ),
    "one class": (lambda: bandits.labelled(CONTEXTS, np.zeros(50)), "two classes or more"),
    "payoffs of fewer classes": (lambda: bandits.labelled(CONTEXTS, np.arange(50) % 3, np.eye(2)), "3 classes"),
    "a wheel without a rim": (lambda: bandits.wheel(jax.random.key(0), 10, 1.0), "delta below 1"),
    "an epsilon above 1": (lambda: bandits.EpsilonGreedy(1.5), "epsilon from 0 to 1"),
    "no growth": (lambda: agent(growth=1.0), "growth above 1"),
    "no runs": (lambda: bandits.regrets([]), "as returned by play"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_bandit_is_refused(case):
    make, words = REFUSED[case]
    with pytest.raises(tb.InputError, match=words):
        make()
