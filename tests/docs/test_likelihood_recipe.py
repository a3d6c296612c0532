"""Likelihoods written as docs/likelihoods.md says: its classes, run as a reader would run them."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import quick
from tunbridge.model.likelihoods.base import OfNumbers

PAGE = Path(__file__).parents[2] / "docs" / "likelihoods.md"
DATA = tb.datasets.curve(jax.random.key(0), 40)
TRAIN, RUN = tb.Train(30), tb.Run(chains=2, warmup=20, draws=10, thin=1)
METHODS = {
    "map": tb.MAP(train=TRAIN),
    "laplace": tb.Laplace(point=tb.MAP(train=TRAIN), tune=tb.tuning.Evidence(1, 5)),
    "meanfield": tb.MeanField(train=TRAIN),
    "sghmc": tb.SGHMC(run=RUN),
    "nuts": tb.NUTS(max_depth=3, run=RUN),
}


def _recipe():
    """The imports and classes of the page, in its order."""
    scope = {"__name__": "recipe"}
    for cell in re.findall(r"```\{code-cell\}\n(.*?)```", PAGE.read_text(), re.S):
        kept = [node for node in ast.parse(cell).body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
        exec(compile(ast.Module(kept, []), str(PAGE), "exec"), scope)
    return scope


SCOPE = _recipe()
LIKELIHOODS = {
    "logistic": SCOPE["Logistic"](0.1),
    "logistic, unknown": SCOPE["Logistic"](dist.Gamma(0.5, 1.0)),
    "skewed": SCOPE["Skewed"](0.1, 1.5),
    "skewed, unknown": SCOPE["Skewed"](dist.Gamma(0.5, 1.0), dist.LogNormal(0.0, 0.5)),
}


def model(name):
    return tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), LIKELIHOODS[name])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=() if (name, method) == ("skewed, unknown", "map") else pytest.mark.slow)
        for name in ("logistic, unknown", "skewed, unknown")
        for method in METHODS
    ],
)
def test_the_recipe_goes_through_every_family_of_methods_and_comes_back_from_a_file(name, method, tmp_path):
    posterior = METHODS[method].fit(model(name), DATA, key=jax.random.key(1), progress=False)
    predictive = posterior.predict(DATA.x)
    for figure in (predictive.mean, predictive.total, predictive.interval(0.9), predictive.log_prob(DATA.y)):
        assert np.isfinite(np.asarray(figure)).all()
    assert predictive.sample(jax.random.key(2), 3).shape == (3, 40, 1)
    posterior.save(tmp_path)
    again = tb.load(tmp_path, model=model(name))
    np.testing.assert_array_equal(again.predict(DATA.x).mean, predictive.mean)


@pytest.mark.parametrize("name", quick(LIKELIHOODS, ("skewed, unknown",)))
def test_the_recipe_is_in_the_units_of_the_data_behind_the_doors(name):
    """Known noise is given in the units of y: for 128 y, which loses no digit, spreads are 128 times as large."""
    x, y = np.asarray(DATA.x), np.asarray(DATA.y)
    other = LIKELIHOODS[name].in_units(jnp.asarray([1 / 128]))
    one, two = (
        tb.BayesianRegressor(METHODS["map"], (4,), tb.priors.Normal(1.0), likelihood, random_state=0).fit(x, z)
        for likelihood, z in ((LIKELIHOODS[name], y), (other, 128 * y))
    )
    np.testing.assert_allclose(two.predict(x, True), 128 * np.asarray(one.predict(x, True)), rtol=1e-5)


@pytest.mark.parametrize("name", ["logistic", "skewed"])
def test_the_information_of_the_recipe_is_that_of_its_distribution(name):
    """The mean square of the score over 200,000 draws, whose relative error is below 0.5 %, within 2 %."""
    likelihood, outputs = LIKELIHOODS[name], jnp.full((200_000, 1), 0.3)

    @jax.jit
    def ask(outputs):
        y = likelihood.distribution(outputs).sample(jax.random.key(3))
        scores = jax.grad(lambda f: jnp.sum(likelihood.distribution(f).log_prob(y)))(outputs)
        return jnp.mean(scores**2), likelihood.fisher_root(outputs)[0, 0, 0]

    information, root = ask(outputs)
    np.testing.assert_allclose(information, root**2, rtol=0.02)


def test_what_a_recipe_lacks_is_named():
    class Bare(OfNumbers):
        def distribution(self, outputs, noise=()):
            return dist.Logistic(outputs, 0.1).to_event(1)

        def fisher_root(self, outputs, noise=()):
            return jnp.ones((*outputs.shape, 1))

    with pytest.raises(TypeError, match="in_units"):
        Bare()

    class Scaled(Bare):
        def in_units(self, scale):
            return self

    with pytest.raises(tb.InputError, match=r"Scaled\(\) \(Scaled\) without sample_noise, log_noise, median_noise"):
        tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), Scaled())
