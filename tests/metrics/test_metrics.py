import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import metrics as reference

import tunbridge as tb
from tunbridge import metrics


class Numbers:
    """A predictive with normal or mixture marginals from scipy."""

    discrete = False

    def __init__(self, means, sigma):
        self.parts = [stats.norm(m, sigma) for m in np.atleast_2d(means)]  # each (points,)

    def __getattr__(self, name):
        raise AttributeError(name)

    @property
    def mean(self):
        return jnp.asarray(np.mean([p.mean() for p in self.parts], axis=0)[:, None])

    def cdf(self, y):
        return jnp.asarray(np.mean([p.cdf(np.asarray(y)[..., 0]) for p in self.parts], axis=0)[..., None])

    def log_prob(self, y):
        return jnp.asarray(np.log(np.mean([p.pdf(np.asarray(y).reshape(-1)) for p in self.parts], axis=0)))

    def quantile(self, q):
        low, high = (np.full((np.size(q), *self.mean.shape), end) for end in (-99.0, 99.0))
        for _ in range(60):
            middle = (low + high) / 2
            below = np.asarray(self.cdf(middle)) < np.reshape(q, (-1, 1, 1))
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return jnp.asarray(low if np.ndim(q) else low[0])

    def interval(self, mass):
        return tuple(self.quantile([0.5 - mass / 2, 0.5 + mass / 2]))


class Classes:
    def __init__(self, probs):
        self.probs = jnp.asarray(probs)

    @property
    def mode(self):
        return jnp.argmax(self.probs, axis=-1)

    def log_prob(self, y):
        return jnp.log(self.probs[jnp.arange(len(y)), jnp.asarray(y)])


@pytest.fixture
def labels():
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([1.0, 1.0, 1.0], size=300)
    return Classes(probs), np.array([rng.choice(3, p=p) for p in probs])


Y = np.array([-0.3, 0.9, 5.0])


def test_crps_of_a_normal_is_gneitings_closed_form(x64):
    mu, sigma = np.array([0.0, 1.0, 2.0]), 0.7
    z = (Y - mu) / sigma
    wanted = sigma * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert metrics.crps(Numbers(mu, sigma), Y) == pytest.approx(wanted.mean(), abs=1e-5)


def test_crps_of_a_mixture_is_grimits_closed_form(x64):
    """E|Y - y| - E|Y - Y'| / 2 with E|N(m, s^2)| known, for narrow components far apart."""
    means, sigma = np.array([[0.0, 1.0, 2.0], [3.0, 1.1, -4.0], [10.0, 1.2, 2.0]]), 0.2

    def absolute(m, s):
        return m * (2 * stats.norm.cdf(m / s) - 1) + 2 * s * stats.norm.pdf(m / s)

    first = np.mean([absolute(Y - m, sigma) for m in means], axis=0)
    second = np.mean([absolute(a - b, sigma * 2**0.5) for a in means for b in means], axis=0)
    assert metrics.crps(Numbers(means, sigma), Y) == pytest.approx((first - second / 2).mean(), abs=1e-4)


def test_crps_is_the_integral_far_outside_too(x64):
    for y in (-60.0, 60.0):
        one = Numbers(np.array([0.0]), 1.0)
        wanted = integrate.quad(lambda t, y=y: (stats.norm.cdf(t) - (t >= y)) ** 2, -70, 70, points=[0, y], limit=500)[
            0
        ]
        assert metrics.crps(one, [y]) == pytest.approx(wanted, abs=1e-4)


def test_rmse_log_score_and_interval_score_by_hand(x64):
    mu = np.array([0.0, 1.0, 2.0])
    one = Numbers(mu, 1.0)
    assert metrics.rmse(one, Y) == pytest.approx(reference.root_mean_squared_error(Y, mu))
    assert metrics.log_score(one, Y) == pytest.approx(stats.norm(mu, 1.0).logpdf(Y).mean())
    half = stats.norm.ppf(0.95)
    misses = np.maximum(np.abs(Y - mu) - half, 0)
    assert metrics.interval_score(one, Y, 0.9) == pytest.approx((2 * half + 20 * misses).mean(), abs=1e-6)


def test_the_interval_score_is_best_for_the_true_quantiles():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    scores = [metrics.interval_score(Numbers(np.zeros(400), s), y, 0.8) for s in (0.5, 1.0, 2.0)]
    assert scores[1] == min(scores)


def test_coverage_counts_what_lies_inside_the_central_interval(x64):
    """Of N(0, 1) at mass 0.8 the edges are at 1.2816: three of five values lie inside."""
    y = np.array([-1.29, -1.28, 0.0, 1.28, 1.29])
    assert metrics.coverage(Numbers(np.zeros(5), 1.0), y, 0.8) == pytest.approx(0.6)


def test_coverage_and_pit_of_the_truth_are_nominal_and_uniform():
    """Coverage within 4 standard errors, Kolmogorov-Smirnov at level 1e-3, fixed seed."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=1000) * 2
    truth = Numbers(np.zeros(1000), 2.0)
    assert abs(metrics.coverage(truth, y, 0.9) - 0.9) < 4 * (0.09 / 1000) ** 0.5
    levels = np.asarray(metrics.pit(truth, y))
    assert levels.shape == (1000, 1)
    assert stats.kstest(levels[:, 0], "uniform").pvalue > 1e-3
    np.testing.assert_allclose(levels[:, 0], stats.norm(0, 2).cdf(y), atol=1e-6)


def test_accuracy_brier_and_log_score_are_scikit_learns(labels):
    predictive, y = labels
    probs = np.asarray(predictive.probs, np.float64)
    probs /= probs.sum(1, keepdims=True)
    assert metrics.accuracy(predictive, y) == pytest.approx(reference.accuracy_score(y, probs.argmax(1)))
    assert metrics.log_score(predictive, y) == pytest.approx(-reference.log_loss(y, probs), rel=1e-5)
    assert metrics.brier(predictive, y) == pytest.approx(np.mean(np.sum((probs - np.eye(3)[y]) ** 2, axis=1)), rel=1e-5)
    binary = Classes(np.stack([1 - probs[:, 0], probs[:, 0]], axis=1))
    hit = (y == 0).astype(int)
    assert metrics.brier(binary, hit) == pytest.approx(2 * reference.brier_score_loss(hit, probs[:, 0]), rel=1e-5)


def test_ece_by_hand_in_both_kinds_of_bins():
    """Four points: confidences .62 .77 .91 .95, hits 1 0 1 1."""
    confidence = np.array([0.62, 0.77, 0.91, 0.95])
    predictive = Classes(np.stack([confidence, 1 - confidence], axis=1))
    y = np.array([0, 1, 0, 0])
    wide = (abs(0.62 - 1) + abs(0.77 - 0) + 2 * abs(0.93 - 1)) / 4  # bins (.6, .7], (.7, .8], (.9, 1]
    assert metrics.ece(predictive, y, bins=10) == pytest.approx(wide, abs=1e-6)
    mass = (2 * abs(0.695 - 0.5) + 2 * abs(0.93 - 1.0)) / 4
    assert metrics.ece(predictive, y, bins=2, edges=metrics.equal_mass) == pytest.approx(mass, abs=1e-6)


def test_reliability_counts_every_point_once(labels):
    predictive, y = labels
    for edges in (metrics.equal_width, metrics.equal_mass):
        table = metrics.reliability(predictive, y, 12, edges)
        assert table.number.sum() == 300
        assert np.average(table.accuracy, weights=table.number) == pytest.approx(
            metrics.accuracy(predictive, y), abs=1e-6
        )
    assert metrics.reliability(predictive, y, 10, metrics.equal_mass).number.max() <= 31


def test_honest_probabilities_have_a_small_ece_and_sharpened_ones_a_large(labels):
    predictive, y = labels
    sharp = np.asarray(predictive.probs) ** 5
    assert metrics.ece(predictive, y, 5) < 0.08
    assert metrics.ece(Classes(sharp / sharp.sum(1, keepdims=True)), y, 5) > 0.15


def test_detection_scores_are_counts_of_pairs():
    rng = np.random.default_rng(2)
    scores, positive = rng.normal(size=200), rng.uniform(size=200) < 0.3
    scores = scores + positive
    pairs = scores[positive][:, None] - scores[~positive][None]
    assert metrics.auroc(scores, positive) == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    order = np.argsort(-scores)
    precision = np.cumsum(positive[order]) / np.arange(1, 201)
    assert metrics.aupr(scores, positive) == pytest.approx(precision[positive[order]].mean())
    fpr, tpr, _ = reference.roc_curve(positive, scores, drop_intermediate=False)
    assert metrics.fpr95(scores, positive) == pytest.approx(fpr[np.argmax(tpr >= 0.95)])
    assert metrics.auroc(positive.astype(float), positive) == 1.0
    assert metrics.fpr95(positive.astype(float), positive) == 0.0


def test_wasserstein_between_normals_is_the_shift_and_the_scale():
    a, b, wide = (Numbers(np.full(2, m), s) for m, s in ((0.0, 1.0), (0.7, 1.0), (0.0, 1.5)))
    assert metrics.wasserstein(a, b) == pytest.approx(0.7, rel=1e-4)
    assert metrics.wasserstein(a, wide) == pytest.approx(0.5 * (2 / np.pi) ** 0.5, rel=1e-2)
    assert metrics.wasserstein(a, a) == 0.0


def test_targets_of_another_shape_are_refused(labels):
    with pytest.raises(tb.InputError, match=r"y of shape \(3, 1\)"):
        metrics.rmse(Numbers(np.zeros(3), 1.0), np.zeros(4))
    predictive, _ = labels
    with pytest.raises(tb.InputError, match="300 labels from 0 to 2"):
        metrics.accuracy(predictive, np.full(300, 3))
    with pytest.raises(tb.InputError, match="both positives and negatives"):
        metrics.auroc([0.1, 0.2], [True, True])
    with pytest.raises(tb.InputError, match="one score per label"):
        metrics.auroc([0.1, 0.2], [True])


def test_agreement_and_total_variation_are_counted_by_hand():
    rng = np.random.default_rng(4)
    p, q = rng.dirichlet([1.0, 1.0, 1.0], size=(2, 200))
    same = [max(range(3), key=lambda c: a[c]) == max(range(3), key=lambda c: b[c]) for a, b in zip(p, q, strict=True)]
    half = [sum(abs(a[c] - b[c]) for c in range(3)) / 2 for a, b in zip(p, q, strict=True)]
    assert metrics.agreement(Classes(p), Classes(q)) == pytest.approx(sum(same) / 200)
    assert metrics.total_variation(Classes(p), Classes(q)) == pytest.approx(sum(half) / 200, rel=1e-5)
    by_array = (p.argmax(axis=-1) == q.argmax(axis=-1)).mean(), np.abs(p - q).sum(axis=-1).mean() / 2
    assert metrics.agreement(Classes(p), Classes(q)) == pytest.approx(by_array[0])
    assert metrics.total_variation(Classes(p), Classes(q)) == pytest.approx(by_array[1], rel=1e-5)
    assert metrics.agreement(Classes(p), Classes(p)) == 1.0
    assert metrics.total_variation(Classes(p), Classes(p)) == 0.0
    with pytest.raises(tb.InputError, match="the same points and classes"):
        metrics.agreement(Classes(p), Classes(q[:9]))


def test_the_sliced_distance_is_the_mean_over_directions(key):
    rng = np.random.default_rng(5)
    f, g = rng.normal(size=(60, 4, 2)), 0.5 + rng.normal(size=(45, 4, 2))
    found = metrics.sliced_wasserstein(f, g, key, slices=20)
    u = np.asarray(jax.random.normal(key, (8, 20)), np.float64)
    u /= np.sqrt((u**2).sum(axis=0))[None]
    flat = f.reshape(60, 8), g.reshape(45, 8)
    by_hand = [stats.wasserstein_distance(flat[0] @ d, flat[1] @ d) for d in u.T]
    assert found == pytest.approx(np.mean(by_hand), rel=1e-9)
    assert metrics.sliced_wasserstein(f, f, key) == 0.0
    assert metrics.sliced_wasserstein(f, np.repeat(f, 3, axis=0), key) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(tb.InputError, match="at the same points"):
        metrics.sliced_wasserstein(f, g[:, :3], key)


def test_the_sliced_distance_sees_what_marginals_do_not(key):
    """Two points with equal marginals, together or against each other."""
    z = np.random.default_rng(6).normal(size=(2000, 1))
    together, against = np.hstack([z, z]), np.hstack([z, -z])
    assert metrics.sliced_wasserstein(together, against, key) > 0.3
