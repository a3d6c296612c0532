"""Scores of rows and of batches against enumeration and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb
from tunbridge import acquisition
from tunbridge.applications.acquisition.joint import _drawn, _joint_entropies, _of_classes

NETWORKS, ROWS, CLASSES = 7, 9, 3
POOL = np.linspace(-2.0, 2.0, ROWS)[:, None]


def classifier(classes=CLASSES, seed=0):
    """Linear networks with random weights as draws."""
    rng = np.random.default_rng(seed)
    likelihood = tb.likelihoods.Categorical(classes)
    model, _ = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), likelihood).bind(
        tb.Data(POOL, np.arange(ROWS) % classes)
    )
    weight, bias = rng.normal(size=(NETWORKS, 1, classes)), rng.normal(size=(NETWORKS, classes))
    weights = {"layers": [{"weight": jnp.asarray(2.0 * weight), "bias": jnp.asarray(bias)}]}
    return tb.Draws(model, jax.random.key(0), tb.Params(weights))


def line(points=12, sigma=0.5):
    x = np.linspace(-1.0, 1.0, points)[:, None]
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(sigma))
    method = tb.NeuralLinear(tb.MAP(train=tb.Train(1)))
    return method.fit(model, (x, x[:, 0]), key=jax.random.key(0), progress=False)


def entropy(p):
    p = np.asarray(p, np.float64).ravel()
    return -np.sum(p * np.log(np.maximum(p, 1e-300)))


def joint_information(each, rows):
    """I(labels of the rows; network) by enumeration of all combinations."""
    together = 0.0
    for labels in itertools.product(range(each.shape[2]), repeat=len(rows)):
        p = np.mean(np.prod([each[:, row, label] for row, label in zip(rows, labels, strict=True)], axis=0))
        together -= p * np.log(p)
    return together - sum(np.mean([entropy(network[row]) for network in each]) for row in rows)


def test_bald_is_mutual_information_by_enumeration():
    posterior = classifier()
    predictive = posterior.predict(POOL)
    each = np.asarray(predictive.functions, np.float64)
    wanted = [joint_information(each, [row]) for row in range(ROWS)]
    np.testing.assert_allclose(acquisition.BALD().scores(predictive), wanted, atol=1e-5)
    picked = acquisition.BALD().select(posterior, POOL, 3, key=jax.random.key(1))
    np.testing.assert_array_equal(picked, np.argsort(wanted)[::-1][:3])


def test_bald_of_a_linear_model_is_the_gain_in_information():
    r"""The entropy of the weights falls by :math:`\frac12 \log` of the ratio of determinants, by one row exactly."""
    posterior = line()
    gains = []
    for row in POOL:
        after = posterior.update((row[None], [0.3]))
        gains.append(
            np.sum(
                np.log(np.abs(np.linalg.det(posterior.solved.roots[0])) / np.abs(np.linalg.det(after.solved.roots[0])))
            )
        )
    np.testing.assert_allclose(acquisition.BALD().scores(posterior.predict(POOL)), gains, rtol=2e-4)


def test_entropy_and_variation_ratios():
    predictive = classifier().predict(POOL)
    probs = np.asarray(predictive.probs)
    np.testing.assert_allclose(acquisition.Entropy().scores(predictive), [entropy(p) for p in probs], atol=1e-5)
    np.testing.assert_allclose(acquisition.VariationRatios().scores(predictive), 1.0 - probs.max(axis=1), atol=1e-6)
    numbers = line().predict(POOL)
    np.testing.assert_allclose(acquisition.Entropy().scores(numbers), np.asarray(numbers.variance)[:, 0], rtol=1e-6)
    with pytest.raises(tb.InputError, match="a posterior of classes"):
        acquisition.VariationRatios().scores(numbers)


def test_batchbald_is_greedy_over_enumerated_information():
    """Three of nine rows: each step takes the row of largest joint information, in all four seeds."""
    for seed in range(4):
        posterior = classifier(seed=seed)
        each = np.asarray(posterior.predict(POOL).functions, np.float64)
        taken: list[int] = []
        for _ in range(3):
            left = [row for row in range(ROWS) if row not in taken]
            taken.append(max(left, key=lambda row, taken=taken, each=each: joint_information(each, [*taken, row])))
        found = acquisition.BatchBALD().select(posterior, POOL, 3, key=jax.random.key(0))
        np.testing.assert_array_equal(found, taken)


def test_drawn_combinations_estimate_the_joint_entropy():
    """200,000 combinations of three rows: the entropies with each fourth row within 0.01 nats."""
    each = np.asarray(classifier().predict(POOL).functions, np.float64)
    exact = np.ones((1, NETWORKS))
    for row in (1, 4, 7):
        exact = (exact[:, None] * each[:, row].T[None]).reshape(-1, NETWORKS)
    joint, weights = _drawn(each[:, [1, 4, 7]], 200_000, np.random.default_rng(0))
    wanted = _joint_entropies(exact, np.ones(len(exact)), each)
    np.testing.assert_allclose(_joint_entropies(joint, weights, each), wanted, atol=0.01)


def test_a_row_that_repeats_another_waits_in_batchbald_and_not_in_bald():
    """The most informative row twice: BALD takes both, BatchBALD takes another one between."""
    posterior = classifier()
    each = np.asarray(posterior.predict(POOL).functions, np.float64)
    best = int(np.argmax([joint_information(each, [row]) for row in range(ROWS)]))
    pool = np.concatenate([POOL, np.repeat(POOL[[best]], 3, axis=0)])
    copies = {best, ROWS, ROWS + 1, ROWS + 2}
    single = acquisition.BALD().select(posterior, pool, 4, key=jax.random.key(0))
    assert set(single.tolist()) == copies
    for configurations in (10_000, 20):  # enumerated, and drawn
        rule = acquisition.BatchBALD(configurations)
        assert len(copies & set(rule.select(posterior, pool, 3, key=jax.random.key(0)).tolist())) < 3


def test_batches_of_numbers_maximise_the_log_determinant():
    """Greedy with the covariance of the functions conditioned row by row, against determinants of whole batches."""
    posterior = line()
    predictive = posterior.predict(POOL)
    functions = np.asarray(predictive.functions, np.float64)[..., 0]
    covariance, noise = np.cov(functions.T, bias=True), 0.25
    taken: list[int] = []
    for _ in range(3):

        def information(row, taken=taken):
            rows = [*taken, row]
            return np.linalg.slogdet(np.eye(len(rows)) + covariance[np.ix_(rows, rows)] / noise)[1]

        taken.append(max((row for row in range(ROWS) if row not in taken), key=information))
    np.testing.assert_array_equal(acquisition.BatchBALD().select(posterior, POOL, 3, key=jax.random.key(0)), taken)


def test_core_sets_cover_the_pool():
    """Rows of two clusters and one far away: three selections take one of each, two those without a label."""
    posterior = line()
    pool = np.array([[0.0], [0.01], [0.02], [3.0], [3.01], [9.0]])
    rule, key = acquisition.CoreSet(), jax.random.key(0)
    assert {0 if row < 3 else 1 if row < 5 else 2 for row in rule.select(posterior, pool, 3, key=key)} == {0, 1, 2}
    assert set(rule.select(posterior, pool, 2, key=key, known=[[9.1]]).tolist()) <= {0, 1, 2, 3, 4}
    assert rule.select(posterior, pool, 1, key=key, known=[[9.1], [0.0]]).tolist() in ([3], [4])
    with pytest.raises(tb.InputError, match="known rows"):
        rule.select(posterior, pool, 1, key=key, known=[[1.0, 2.0]])


def test_costs_divide_scores():
    posterior = classifier()
    scores = acquisition.BALD().scores(posterior.predict(POOL))
    costs = np.where(np.arange(ROWS) == scores.argmax(), 1e6, 1.0)
    for rule in (acquisition.BALD(), acquisition.BatchBALD(), acquisition.Entropy()):
        assert scores.argmax() not in rule.select(posterior, POOL, 4, key=jax.random.key(0), costs=costs)


def test_candidates_are_the_rows_of_largest_bald():
    posterior = classifier()
    scores = acquisition.BALD().scores(posterior.predict(POOL))
    rule = acquisition.BatchBALD(candidates=4)
    taken = rule.select(posterior, POOL, 3, key=jax.random.key(0))
    assert set(taken.tolist()) <= set(np.argsort(scores)[::-1][:4].tolist())


def test_random_rows_are_those_of_the_key():
    posterior = classifier()
    first, again, other = (
        acquisition.Random().select(posterior, POOL, 5, key=jax.random.key(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()
    assert len(set(first.tolist())) == 5


@pytest.mark.parametrize("wrong", [{"num": 10}, {"costs": np.zeros(ROWS)}, {"costs": np.ones(2)}, {"num": 0}])
def test_wrong_numbers_and_costs_are_refused(wrong):
    with pytest.raises(tb.InputError):
        acquisition.BALD().select(classifier(), POOL, **{"num": 2, "key": jax.random.key(0), **wrong})


def test_equal_probabilities_are_no_information():
    each = np.full((NETWORKS, 4, 2), 0.5)
    assert len(_of_classes(each, np.ones(4), 3, 100, np.random.default_rng(0))) == 3
