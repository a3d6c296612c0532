import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import nnx

import tunbridge as tb
from model.networks.programs.test_reading import Convolutional
from toys import labelled, table
from tunbridge.inference.point import masks

QUICK = tb.MCDropout(rate=0.3, train=tb.Train(2), groups=2)


class Recurrent(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.RNN(linen.OptimizedLSTMCell(6))(x)[:, -1])


class Block(nnx.Module):
    """A transformer block: attention and a perceptron, each added to what came in."""

    def __init__(self, rngs):
        self.attend = nnx.MultiHeadAttention(2, 4, qkv_features=4, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(4, rngs=rngs) for _ in range(2)])
        self.wide, self.narrow = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        x = x + self.attend(self.norms[0](x))
        x = x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))
        return self.head(x.mean(axis=1))


def _case(kind):
    rng, key = np.random.default_rng(0), jax.random.key(0)
    if kind == "perceptron":
        return eqx.nn.MLP(3, 1, 8, 2, key=key), table(12)
    if kind == "convolutional":
        return Convolutional(key), tb.Data(rng.normal(size=(6, 2, 6, 6)), np.arange(6) % 5)
    if kind == "recurrent":
        return Recurrent(), tb.Data(rng.normal(size=(6, 5, 2)), rng.normal(size=6))
    return Block(nnx.Rngs(0)), tb.Data(rng.normal(size=(6, 5, 4)), np.arange(6) % 3)


@pytest.mark.parametrize(
    "kind",
    ["perceptron", *(pytest.param(k, marks=pytest.mark.slow) for k in ("convolutional", "recurrent", "transformer"))],
)
def test_a_network_of_any_kind_becomes_bayesian_in_one_call(kind, key):
    module, data = _case(kind)
    posterior = tb.to_bayesian(module, data, QUICK, key=key)
    assert isinstance(posterior, tb.Dropout)
    assert any(rate is not None for rate in posterior.rates)
    predictive = posterior.predict(data.x)
    assert float(predictive.epistemic.max()) > 0
    assert predictive.log_prob(data.y).shape == (data.num,)


@pytest.mark.slow
def test_it_starts_from_the_weights_that_it_has(key):
    module, data = _case("perceptron")
    still = tb.MAP(step_size=1e-12, train=tb.Train(1))
    for prior in (None, tb.priors.Normal(tb.priors.fan_in(dist.LogNormal(0.0, 0.5)))):
        posterior = tb.to_bayesian(module, data, still, key=key, prior=prior, likelihood=tb.likelihoods.Gaussian(0.1))
        np.testing.assert_allclose(posterior.predict(data.x).mean, jax.vmap(module)(data.x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_noise_is_not_measured_on_rows_that_the_weights_have_seen(key):
    """A module that interpolates 40 rows of noise 0.5, in units of 1,000: the noise found is of that size."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x[:, 0] + 0.5 * rng.normal(size=40)
    interpolating = tb.Model(tb.networks.MLP((60,)), tb.priors.Normal(10.0), tb.likelihoods.Gaussian(0.01))
    weights = tb.MAP().fit(interpolating, tb.Data(x, y), key=key).params.weights
    unit, last = 1000.0, weights["layers"][-1]
    layers = [*weights["layers"][:-1], jax.tree.map(lambda leaf: unit * leaf, last)]
    network = tb.networks.from_functions(lambda k, _: _drawn(k, layers), _perceptron, [LAYER, LAYER])
    noise = tb.likelihoods.Gaussian(dist.Gamma(0.5, 1 / unit))
    made, start = tb.Model(network, tb.priors.Normal(unit), noise), tb.Params(layers)
    posterior = tb.MAP().fit(made, tb.Data(x, unit * y), key=key, init=start)
    assert 0.3 * unit < float(posterior.model.likelihood.sigma(posterior.params.noise)) < 1.2 * unit


LAYER = {"bias": tb.networks.Leaf("bias", (), (0,)), "weight": tb.networks.Leaf("weight", (0,), (1,))}


def _drawn(key, layers):
    keys = jax.random.split(key, len(layers))
    return [
        {"bias": jnp.zeros_like(w["bias"]), "weight": jax.random.normal(k, w["weight"].shape) / len(w["weight"]) ** 0.5}
        for k, w in zip(keys, layers, strict=True)
    ]


def _perceptron(layers, x):
    first, last = layers
    return jnp.tanh(x @ first["weight"] + first["bias"][None]) @ last["weight"] + last["bias"][None]


@pytest.mark.slow
def test_dropout_starts_where_its_mean_is_the_given_network(key):
    module, data = _case("perceptron")
    still = tb.MCDropout(rate=0.3, step_size=1e-12, train=tb.Train(1))
    posterior = tb.to_bayesian(module, data, still, key=key, likelihood=tb.likelihoods.Gaussian(0.1))
    middle = masks.mean(posterior.model, posterior.params, posterior.rates)
    np.testing.assert_allclose(posterior.model.outputs(middle, data.x), jax.vmap(module)(data.x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_labels_and_one_logit_are_two_classes(key):
    module = eqx.nn.MLP(3, 1, 8, 1, key=key)
    posterior = tb.to_bayesian(module, labelled(12, classes=2), QUICK, key=key)
    assert isinstance(posterior.model.likelihood, tb.likelihoods.Bernoulli)


@pytest.mark.slow
def test_an_ensemble_starts_afresh(key):
    module, data = _case("perceptron")
    posterior = tb.to_bayesian(module, data, tb.Ensemble(tb.MAP(train=tb.Train(2)), 2), key=key)
    assert float(posterior.predict(data.x).epistemic.max()) > 0


def test_what_is_no_network_is_refused(key):
    with pytest.raises(tb.InputError, match="a module of Equinox, Flax, Keras or PyTorch"):
        tb.to_bayesian(jnp.tanh, table(12), key=key)


@pytest.mark.slow
def test_a_torch_network_is_recognised(key):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    assert isinstance(tb.to_bayesian(module, table(12), QUICK, key=key), tb.Dropout)
