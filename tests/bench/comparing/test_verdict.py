"""Verdicts on predictives made by hand, whose errors, coverage and confidence are known."""

import numpy as np
import pytest
from scipy import stats

import tunbridge as tb
from tunbridge.bench.baselines.base import around, of_classes
from tunbridge.bench.comparing.verdict import Guess, _tails, verdict


def numbers(key, inside, num=100, off=1.0, targets=("price",)):
    """N(0, 1) at all points, `inside` of which lie within its 90 % interval and the others far outside."""
    truth = np.where(np.arange(num) < inside, off, 4.0)[:, None] * np.where(np.arange(num) % 2, 1, -1)[:, None]
    return verdict("map", around(np.zeros((num, 1)), np.ones(1), key), truth, Guess(mean=np.array([3.0])), targets)


def test_the_error_stands_beside_that_of_guessing_the_mean(key):
    truth = np.array([[1.0], [3.0], [5.0], [7.0]] * 10)
    said = verdict("map", around(truth + 0.5, np.ones(1), key), truth, Guess(mean=np.array([4.0])), ["price"])
    assert said.startswith("map predicts price to within 0.5 (RMSE); guessing the mean gives 2.24. ")


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (78, "covered 78% of the 100 test rows: too narrow (overconfident)."),
        (83, "covered 83% of the 100 test rows: perhaps too narrow (overconfident); chance alone does this in"),
        (88, "covered 88% of the 100 test rows: within the 84% to 95% expected by chance."),
        (93, "covered 93% of the 100 test rows: within the 84% to 95% expected by chance."),
        (100, "covered 100% of the 100 test rows: wider than needed (underconfident)."),
    ],
)
def test_coverage_is_judged_by_what_chance_allows(key, inside, words):
    assert words in numbers(key, inside)


def test_few_rows_excuse_what_many_do_not(key):
    assert "expected by chance" in numbers(key, 8, num=10)
    assert "too narrow (overconfident)." in numbers(key, 800, num=1000)


def test_intervals_that_are_right_are_faulted_as_seldom_as_promised():
    """Of 2,000 counts from the law itself: at most 1 % faulted; 38 is four standard deviations above."""
    from tunbridge.bench.comparing.verdict import _coverage

    counts = np.random.default_rng(0).binomial(89, 0.9, 2000)
    said = {count: _coverage(count / 89, 89) for count in set(counts)}
    assert sum("perhaps" not in said[count] and "confident" in said[count] for count in counts) <= 38


def test_a_fit_that_is_no_better_than_guessing_is_said_to_be(key):
    truth = np.random.default_rng(0).normal(size=(40, 1))
    guess = Guess(mean=np.zeros(1))
    assert ", so the model does no better." in verdict(
        "map", around(np.full((40, 1), 0.5), np.ones(1), key), truth, guess
    )
    lucky = around(np.full((40, 1), truth.mean()), np.ones(1), key)
    assert "but 40 test rows are too few to tell the two apart" in verdict("map", lucky, truth, guess)


def labelled(confidence, right, num=200):
    """Two classes in turn, named right in the first rows, always with one confidence."""
    truth = np.arange(num) % 2
    named = np.where(np.arange(num) < right, truth, 1 - truth)
    probs = np.full((num, 2), 1 - confidence)
    probs[np.arange(num), named] = confidence
    guess = Guess.of_classes(np.array([0, 0, 0, 1]), np.ones(4), 2)
    return verdict("map", of_classes(np.log(probs), np.zeros((num, 1))), truth, guess, ["pet"], ["cat", "dog"])


@pytest.mark.parametrize(
    ("confidence", "right", "words"),
    [
        (0.9, 180, "Its mean confidence was 90% and its accuracy 90%: the two agree to within chance."),
        (0.99, 180, "Its mean confidence was 99% and its accuracy 90%: too sure (overconfident)."),
        (0.7, 180, "Its mean confidence was 70% and its accuracy 90%: less sure than it could be (underconfident)."),
    ],
)
def test_confidence_is_held_against_how_often_it_was_right(confidence, right, words):
    said = labelled(confidence, right)
    assert said.startswith(
        "map predicts the right pet for 90% of 200 test rows; guessing 'cat' each time gives 50%. NLL "
    )
    assert "class frequencies alone give 0.837." in said
    assert said.endswith(words)


def test_the_number_of_right_answers_has_its_law():
    p = np.full(30, 0.8)
    law = stats.binom(30, 0.8)
    np.testing.assert_allclose(_tails(p, 21), (law.cdf(21), law.sf(20)), rtol=1e-9)
    many = _tails(np.full(4000, 0.8), 3150)
    assert many[0] == pytest.approx(stats.binom(4000, 0.8).cdf(3150), abs=0.01)


@pytest.mark.slow
def test_a_comparison_judges_its_recommended_method(key):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    data = tb.Data(x, 5.0 * x[:, 0] + rng.normal(size=80))
    model = tb.Model(tb.networks.MLP(()), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(1.0))
    train, test = tb.datasets.split(data, key)
    table = tb.compare(model, train, test, {"map": tb.MAP(train=tb.Train(500))}, baselines=False)
    assert table.verdict().startswith("map predicts y to within ")
    rmse = np.sqrt(np.mean((np.asarray(test.y) - np.asarray(train.y).mean()) ** 2))
    assert f"guessing the mean gives {rmse:.3g}. " in table.verdict("map", ["cost"])


def test_guesses_of_classes_do_not_depend_on_the_unit_of_weights():
    y = np.array([0] * 2 + [1] * 18)
    one, small = (Guess.of_classes(y, np.full(20, weight), 3).shares for weight in (1.0, 0.05))
    np.testing.assert_allclose(one, [2 / 21, 18 / 21, 1 / 21])
    np.testing.assert_allclose(small, one)
