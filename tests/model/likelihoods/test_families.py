"""Each family of likelihoods against scipy, its own samples, and the sum or integral of its density."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import tunbridge as tb
from tunbridge.model.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Heteroscedastic,
    Laplace,
    MultiTask,
    NegativeBinomial,
    NoisyCategorical,
    Ordinal,
    Poisson,
    StudentT,
)

NUM = 100_000
NUMBERS = {
    "gaussian": (Gaussian(0.3), [0.7]),
    "heteroscedastic": (Heteroscedastic(), [0.7, 0.5]),
    "studentt": (StudentT(8.0, 0.5), [0.7]),
    "laplace": (Laplace(0.5), [0.7]),
}
COUNTS = {"poisson": (Poisson(), [1.2]), "negativebinomial": (NegativeBinomial(2.5), [1.2])}
CLASSES = {
    "bernoulli": (Bernoulli(), [0.7], 2),
    "categorical": (Categorical(3, 0.5), [0.1, -0.4, 0.3], 3),
    "noisycategorical": (NoisyCategorical(3), [1.0, -0.4, 0.3, 0.5, 1.5, -1.0], 3),
    "ordinal": (Ordinal(cutpoints=jnp.array([-1.0, 0.2, 1.5])), [0.4], 4),
}


def made(case, num=1):
    return case[0].distribution(jnp.tile(jnp.asarray([case[1]]), (num, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NUMBERS, *COUNTS])
def test_mean_and_variance_agree_with_samples(name, key):
    """Within four standard errors, that of the variance from the fourth moment; false alarms of 12: 0.08 %."""
    one = made({**NUMBERS, **COUNTS}[name], NUM)
    draws = np.asarray(one.sample(key), np.float64)[:, 0]
    off = draws - float(one.mean[0, 0])
    assert abs(off.mean()) < 4 * draws.std() / NUM**0.5
    assert abs(np.mean(off**2) - float(one.variance[0, 0])) < 4 * np.std(off**2) / NUM**0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_labels_come_as_often_as_their_probabilities(name, key):
    """Within four standard errors; probabilities are those of log_prob, and add up to 1."""
    likelihood, outputs, num = CLASSES[name]
    one, f = made(CLASSES[name]), jnp.asarray([outputs])
    probs = np.exp([float(one.log_prob(jnp.array([label]))[0]) for label in range(num)])
    np.testing.assert_allclose(probs.sum(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(likelihood.log_probs(f))[0], probs, rtol=1e-5)
    share = np.bincount(np.asarray(made(CLASSES[name], NUM).sample(key)), minlength=num) / NUM
    assert (np.abs(share - probs) < 4 * np.sqrt(probs * (1 - probs) / NUM)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_densities_of_numbers_integrate_to_one(name, x64):
    y = jnp.linspace(-60.0, 60.0, 40_001)
    found = made(NUMBERS[name], len(y)).log_prob(y[:, None])
    np.testing.assert_allclose(integrate.simpson(np.exp(found), y), 1.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_masses_of_counts_add_up_to_one(name, x64):
    found = made(COUNTS[name], 400).log_prob(jnp.arange(400.0)[:, None])
    np.testing.assert_allclose(np.exp(found).sum(), 1.0, atol=1e-10)


def test_robust_densities_are_scipys(key, x64):
    f, y = jax.random.normal(key, (2, 7, 2))
    wanted = stats.t(np.array([3.0, 5.0]), np.asarray(f), 0.4).logpdf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(StudentT(jnp.array([3.0, 5.0]), 0.4).distribution(f).log_prob(y), wanted, atol=1e-10)
    wanted = stats.laplace(np.asarray(f), [0.4, 2.0]).logpdf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(Laplace(jnp.array([0.4, 2.0])).distribution(f).log_prob(y), wanted, atol=1e-10)


def test_masses_of_counts_are_scipys(key, x64):
    f, y = jax.random.normal(key, (7, 2)), jnp.arange(14.0).reshape(7, 2)
    mu = np.exp(np.asarray(f))
    wanted = stats.poisson(mu).logpmf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(Poisson().distribution(f).log_prob(y), wanted, rtol=1e-9)
    alpha = np.array([0.5, 3.0])
    wanted = stats.nbinom(alpha, alpha / (alpha + mu)).logpmf(np.asarray(y)).sum(1)
    np.testing.assert_allclose(NegativeBinomial(jnp.asarray(alpha)).distribution(f).log_prob(y), wanted, rtol=1e-9)
    far = NegativeBinomial(2.0).distribution(jnp.array([[-200.0], [200.0]])).log_prob(jnp.array([[3.0], [3.0]]))
    assert np.isfinite(far).all()


def test_ordered_classes_are_numpyros_and_far_outputs_stay_finite(x64):
    cuts, f = jnp.array([-1.0, 0.2, 1.5]), jnp.linspace(-3.0, 3.0, 9)[:, None]
    wanted = dist.OrderedLogistic(f[:, 0], cuts).probs
    np.testing.assert_allclose(jnp.exp(Ordinal(cutpoints=cuts).log_probs(f)), wanted, rtol=1e-9)
    assert np.isfinite(Ordinal(cutpoints=cuts).log_probs(jnp.array([[-900.0], [900.0]]))).all()


def test_two_ordered_classes_are_a_logistic_regression_with_one_unknown_cutpoint(key):
    f = jnp.linspace(-2.0, 2.0, 5)[:, None]
    for likelihood in (Ordinal(2), Ordinal(cutpoints=(dist.Normal(0.0, 2.0), dist.LogNormal(jnp.zeros(0), 1.0)))):
        noise = likelihood.sample_noise(key)
        assert [leaf.shape for leaf in noise] == [()]
        assert float(likelihood.log_noise(noise)) == pytest.approx(float(dist.Normal(0.0, 2.0).log_prob(noise[0])))
        wanted = jax.nn.sigmoid(f[:, 0] - likelihood.cuts(noise)[0])
        np.testing.assert_allclose(jnp.exp(likelihood.log_probs(f, noise))[:, 1], wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_default_cutpoints_give_equal_classes_at_their_medians(classes, x64, key):
    likelihood = Ordinal(classes)
    probs = jnp.exp(likelihood.log_probs(jnp.zeros((1, 1)), likelihood.median_noise()))
    np.testing.assert_allclose(probs, 1 / classes, rtol=1e-6)
    drawn = likelihood.cuts(likelihood.sample_noise(key))
    assert drawn.shape == (classes - 1,)
    assert (jnp.diff(drawn) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5, 10])
def test_fixed_nodes_are_within_what_the_docstring_says_of_the_average(classes, key):
    """Against 20,000 normal draws, whose own error is 0.003."""
    for sd, limit in ((1.0, 0.025), (3.0, 0.045)):
        logits = 2.0 * jax.random.normal(jax.random.key(0), (20, classes))
        s = jnp.full((20, classes), jnp.log(jnp.expm1(sd)))
        found = jnp.exp(NoisyCategorical(classes).log_probs(jnp.concatenate([logits, s], axis=1)))
        noise = sd * np.asarray(jax.random.normal(key, (20_000, 1, classes)))
        wanted = jax.nn.softmax(logits[None] + noise, axis=-1).mean(0)
        assert float(jnp.abs(found - wanted).max()) < limit
    assert float(jnp.abs(found.sum(1) - 1).max()) < 1e-5


def test_without_noise_noisy_logits_are_plain_ones():
    f = jnp.array([[1.0, -0.5, 0.2]])
    found = NoisyCategorical(3).log_probs(jnp.concatenate([f, jnp.full((1, 3), -40.0)], axis=1))
    np.testing.assert_allclose(found, Categorical(3).log_probs(f), atol=1e-5)


def test_in_d_dimensions_the_density_has_d_log_sigma():
    """|y - f|^2 / (2 s^2) + D log s + a constant: with one log s, noise is wrong in two dimensions and more."""
    y, sigma = jnp.ones((1, 3)), jnp.array([0.5, 2.0])
    at = [float(Gaussian(float(s)).distribution(jnp.zeros((1, 3))).log_prob(y)[0]) for s in sigma]
    quadratic = [float(-jnp.sum(y**2) / (2 * s**2)) for s in sigma]
    np.testing.assert_allclose((at[0] - quadratic[0]) - (at[1] - quadratic[1]), 3 * np.log(4.0), rtol=1e-5)


def test_several_outputs_have_a_scale_each(key):
    likelihood = Gaussian(dist.Gamma(jnp.full(2, 2.0), 1.0))
    noise = (jnp.log(jnp.array([0.1, 10.0])),)
    assert likelihood.num_outputs(jnp.zeros((4, 2))) == 2
    draws = likelihood.distribution(jnp.zeros((20_000, 2)), noise).sample(key)
    np.testing.assert_allclose(np.std(draws, axis=0), [0.1, 10.0], rtol=0.05)


BOTH = MultiTask({"size": Gaussian(dist.Gamma(0.5, 1.0)), "kind": Categorical(3), "rate": Poisson()}, (2, 1, 1))
Y = jnp.array([[0.5, -1.0, 2.0, 4.0], [0.1, 0.2, 0.0, 0.0]])


def test_several_tasks_add_their_log_densities(x64):
    likelihood, f = BOTH.bind(Y), jnp.linspace(-1.0, 1.0, 12).reshape(2, 6)
    noise = ((jnp.log(jnp.asarray(0.5)),), (), ())
    assert likelihood.num_outputs(Y) == 6

    @jax.jit
    def each(f):
        total = Gaussian(0.5).distribution(f[:, :2]).log_prob(Y[:, :2])
        total += Categorical(3).distribution(f[:, 2:5]).log_prob(Y[:, 2].astype(int))
        return total + Poisson().distribution(f[:, 5:]).log_prob(Y[:, 3:])

    found = likelihood.distribution(f, noise)
    np.testing.assert_allclose(jax.jit(lambda f: likelihood.distribution(f, noise).log_prob(Y))(f), each(f), rtol=1e-12)
    assert (found.batch_shape, found.event_shape) == ((2,), (4,))
    assert found.sample(jax.random.key(0)).shape == (2, 4)
    assert likelihood.measured(Y).tolist() == [True, True, False, False]
    assert BOTH.median_noise()[1:] == ((), ())
    assert MultiTask([Poisson(), Bernoulli()]).median_noise() == ()


def test_tasks_keep_their_order_through_a_transformation():
    """Dictionaries of JAX sort their names; columns must not follow."""
    tasks = MultiTask({"z": Gaussian(1.0), "a": Poisson()}).bind(jnp.ones((3, 2)))
    back = jax.jit(lambda likelihood: likelihood)(tasks)
    assert back.names == ("z", "a")
    assert isinstance(back.tasks[0], Gaussian)


@pytest.mark.parametrize(
    ("likelihood", "y", "said"),
    [
        (Poisson(), [1.0, 2.0, -1.0], "whole numbers from 0 on as y of Poisson; got -1"),
        (NegativeBinomial(1.0), [1.0, 2.5, 0.0], "whole numbers from 0 on as y of NegativeBinomial; got 2.5"),
        (Ordinal(3), [0, 1, 3], "labels from 0 to 2 for Ordinal; got labels from 0 to 3"),
        (NoisyCategorical(2), [0, 1, 2], "labels from 0 to 1 for NoisyCategorical"),
        (StudentT(4.0, jnp.ones(2)), [0.0, 1.0, 2.0], r"a scale of shape \(\) or \(1,\)"),
        (MultiTask([Gaussian(1.0), Bernoulli()]), [0.0, 1.0, 2.0], r"y of shape \(points, 2\) for the tasks 0, 1"),
        (MultiTask([Gaussian(1.0), Bernoulli()]), [[0.0, 1], [1.0, 0], [2.0, 2]], "labels from 0 to 1 for Bernoulli"),
    ],
)
def test_targets_that_do_not_fit_are_refused_at_the_door(likelihood, y, said, key):
    model = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), likelihood)
    with pytest.raises(tb.InputError, match=said):
        tb.MAP().fit(model, tb.Data(np.zeros((3, 2)), y), key=key)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: StudentT(-1.0, 1.0), "df above 0"),
        (lambda: Laplace(dist.Normal(0.0, 1.0)), "allows positive values only"),
        (lambda: NegativeBinomial(0.0), "concentration above 0"),
        (lambda: NoisyCategorical(3, 7), "an even number"),
        (lambda: Ordinal(cutpoints=[1.0, 0.0]), "an increasing array"),
        (lambda: Ordinal(cutpoints=dist.Normal(0.0, 1.0)), "an increasing array"),
        (lambda: Ordinal(4, [0.0, 1.0]), "3 cutpoints for 4 classes; got 2"),
        (lambda: Ordinal(cutpoints=(dist.Normal(0.0, 1.0), dist.HalfNormal(1.0))), "gaps \\(classes - 2,\\)"),
        (lambda: Ordinal().sample_noise(jax.random.key(0)), "a number of classes"),
        (lambda: MultiTask([Gaussian(1.0)], (1, 2)), "a number of columns of y for each"),
        (lambda: MultiTask([Bernoulli()], (2,)), "one column of labels"),
        (lambda: MultiTask(["gaussian"]), "tasks= as .* a likelihood with the methods"),
        (lambda: BOTH.distribution(jnp.zeros((2, 6))), "a MultiTask that is bound to data"),
    ],
)
def test_bad_parts_are_refused(make, said):
    with pytest.raises(tb.InputError, match=said):
        make()


@pytest.mark.slow
def test_rates_are_proportional_to_the_exposure_and_it_must_be_positive(key):
    network = tb.networks.Offset(tb.networks.MLP((3,)), 0)
    made = tb.Model(network, tb.priors.Normal(1.0), Poisson())
    x = np.column_stack([[1.0, 2.0, 4.0], np.ones(3)])
    posterior = tb.MAP(train=tb.Train(3)).fit(made, tb.Data(x, [1, 2, 3]), key=key)
    rates = np.asarray(posterior.predict(x).mean)[:, 0]
    np.testing.assert_allclose(rates, rates[0] * np.array([1.0, 2.0, 4.0]), rtol=1e-5)
    for ask in (lambda: posterior.predict(x - 1.0), lambda: made.bind(tb.Data(x - 1.0, [1, 2, 3]))):
        with pytest.raises(tb.InputError, match="exposures above 0; got 0 in column 0 of x"):
            ask()
    with pytest.raises(tb.InputError, match="an exposure in column 0 and others besides"):
        made.bind(tb.Data(x[:, :1], [1, 2, 3]))
