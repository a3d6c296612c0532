import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import nnx

import tunbridge as tb
from model.test_reading import Convolutional
from toys import labelled, table

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
    ["convolutional", *(pytest.param(k, marks=pytest.mark.slow) for k in ("perceptron", "recurrent", "transformer"))],
)
def test_a_network_of_any_kind_becomes_bayesian_in_one_call(kind, key):
    module, data = _case(kind)
    posterior = tb.to_bayesian(module, data, QUICK, key=key)
    assert isinstance(posterior, tb.Dropout)
    assert any(rate is not None for rate in posterior.rates)
    predictive = posterior.predict(data.x)
    assert float(predictive.epistemic.max()) > 0
    assert predictive.log_prob(data.y).shape == (data.num,)


def test_it_starts_from_the_weights_that_it_has(key):
    module, data = _case("perceptron")
    still = tb.MAP(step_size=1e-12, train=tb.Train(1))
    for prior in (None, tb.priors.Normal(tb.priors.fan_in(dist.LogNormal(0.0, 0.5)))):
        posterior = tb.to_bayesian(module, data, still, key=key, prior=prior)
        np.testing.assert_allclose(posterior.predict(data.x).mean, jax.vmap(module)(data.x), rtol=1e-4, atol=1e-5)


def test_labels_and_one_logit_are_two_classes(key):
    module = eqx.nn.MLP(3, 1, 8, 1, key=key)
    posterior = tb.to_bayesian(module, labelled(12, classes=2), QUICK, key=key)
    assert isinstance(posterior.model.likelihood, tb.likelihoods.Bernoulli)


def test_an_ensemble_starts_afresh(key):
    module, data = _case("perceptron")
    posterior = tb.to_bayesian(module, data, tb.Ensemble(tb.MAP(train=tb.Train(2)), 2), key=key)
    assert float(posterior.predict(data.x).epistemic.max()) > 0


def test_what_is_no_network_is_refused(key):
    with pytest.raises(tb.InputError, match="a module of Equinox, Flax, Keras or PyTorch"):
        tb.to_bayesian(jnp.tanh, table(12), key=key)


def test_a_torch_network_is_recognised(key):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    assert isinstance(tb.to_bayesian(module, table(12), QUICK, key=key), tb.Dropout)
