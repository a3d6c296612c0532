import inspect
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import equal, model, table
from tunbridge.core.errors import LoadError
from tunbridge.model import spec

ARRAYS = {
    "nan": np.asarray([np.nan, -0.0, np.inf], np.float32),
    "double": np.asarray([1 / 3]),
    "half": jnp.arange(3, dtype=jnp.bfloat16) / 3,
    "small": jnp.asarray([1.5], jnp.float16),
    "count": jnp.int32(4),
    "byte": np.asarray([[1, 255]], np.uint8),
    "flag": jnp.asarray(True),
    "empty": jnp.zeros((0, 2)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "complex": jnp.asarray([1 + 2j]),
    "scalar": np.float32(0.1),
    "threefry": jax.random.key(5),
    "rbg": jax.random.split(jax.random.key(5, impl="rbg"), 3),
}
PLAIN = [None, True, 0, -(10**30), 1.5, 5e-324, float("inf"), "é\n", [], (1, [2, {}]), {"b": 1, 0: (None,)}]
PARTS = [
    tb.networks.MLP(),
    tb.networks.MLP((), "relu", 3),
    tb.networks.Leaf("weight", (0,), (1,), (2, 3)),
    tb.priors.Normal(2.0),
    tb.priors.Normal((1.0, tb.priors.fan_in(dist.HalfNormal(1.0)))),
    tb.priors.Normal(jnp.float32(0.1)),
    tb.likelihoods.Gaussian(np.array([0.1, 0.2])),
    tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0).expand([2])),
    tb.likelihoods.Gaussian(dist.HalfNormal(jnp.ones(2)).to_event(1)),
    tb.likelihoods.Heteroscedastic(0.1),
    tb.likelihoods.Bernoulli(),
    tb.likelihoods.Categorical(),
    tb.likelihoods.Categorical(4),
    tb.likelihoods.Categorical(temperature=dist.LogNormal(0.0, 1.0)),
    tb.likelihoods.StudentT(dist.Gamma(2.0, 0.1), 0.5),
    tb.likelihoods.Laplace(dist.HalfNormal(1.0)),
    tb.likelihoods.NoisyCategorical(3, 32),
    tb.likelihoods.Poisson(),
    tb.likelihoods.NegativeBinomial(dist.LogNormal(0.0, 1.0)),
    tb.likelihoods.Ordinal(),
    tb.likelihoods.Ordinal(5),
    tb.likelihoods.Ordinal(cutpoints=np.array([-1.0, 0.5])),
    tb.likelihoods.MultiTask(
        {"b": tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), "a": tb.likelihoods.Ordinal(3)}, (2, 1)
    ).bind(jnp.zeros((4, 3))),
    tb.networks.Offset(tb.networks.MLP((3,)), 0),
    tb.networks.LeNet5("relu", 3),
    tb.networks.ResNet20(8, 2),
    tb.networks.VGG(11, 0.5),
    tb.networks.CNNLSTM(100, 4, outputs=2),
    tb.networks.Cast(tb.networks.ResNet20()),
    tb.Params({"w": jnp.ones(2)}, (), (jnp.zeros(()),)),
    model(),
    model(likelihood=tb.likelihoods.Gaussian(dist.TruncatedNormal(0.0, 1.0, low=0.1))).bind(table())[0],
]
DISTRIBUTIONS = [
    *(dist.Beta(1.0, 2.0), dist.Cauchy(0.0, 1.0), dist.Chi2(3.0), dist.Exponential(2.0), dist.Gamma(0.5, 1.0)),
    *(dist.Gumbel(0.0, 1.0), dist.HalfCauchy(1.0), dist.HalfNormal(2), dist.InverseGamma(2.0, 1.0)),
    *(dist.Kumaraswamy(1.0, 2.0), dist.Laplace(0.0, 1.0), dist.LogNormal(0.0, 1.0), dist.LogUniform(0.1, 1.0)),
    *(dist.Logistic(0.0, 1.0), dist.Normal(0.0, 1.0), dist.Pareto(0.1, 2.0), dist.SoftLaplace(0.0, 1.0)),
    *(dist.StudentT(3.0, 0.0, 1.0), dist.Uniform(0.0, 1.0), dist.Weibull(1.0, 2.0)),
    *(dist.HalfNormal(jnp.ones((1, 3))).expand([2, 3]), dist.Gamma(jnp.ones(3), 1.0).to_event(1)),
    *(dist.TruncatedNormal(0.0, 1.0, low=0.1), dist.TruncatedNormal(0.0, 1.0, high=0.9)),
    dist.TruncatedDistribution(dist.Cauchy(0.0, 1.0), low=0.1, high=0.9),
    *(dist.Wishart(5.0, scale_tril=0.4 * jnp.eye(2)), tb.priors.RootInverseGamma(3.0, 2.0)),
]


def round_trip(thing):
    encoder = spec.Encoder()
    text = json.dumps(encoder.encode(thing), allow_nan=False)
    return spec.Decoder(encoder.arrays).decode(json.loads(text))


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_to_the_bit(name):
    thing = ARRAYS[name]
    back = round_trip({"x": thing})["x"]
    assert isinstance(back, jax.Array) == isinstance(thing, jax.Array)
    assert (back.dtype, back.shape) == (thing.dtype, thing.shape)
    if jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        thing, back = jax.random.key_data(thing), jax.random.key_data(back)
    assert np.asarray(back).tobytes() == np.asarray(thing).tobytes()


@pytest.mark.parametrize("thing", PLAIN, ids=str)
def test_containers_and_numbers_come_back_as_they_were(thing):
    back = round_trip(thing)
    assert repr(back) == repr(thing)


@pytest.mark.parametrize("thing", PARTS, ids=lambda part: type(part).__name__)
def test_parts_of_models_come_back_as_they_were(thing):
    back = round_trip(thing)
    assert type(back) is type(thing)
    assert jax.tree.structure(back) == jax.tree.structure(thing)
    assert equal(back, thing)


@pytest.mark.parametrize("thing", DISTRIBUTIONS, ids=lambda part: type(part).__name__)
def test_distributions_come_back_as_they_were(thing):
    back = round_trip(thing)
    assert type(back) is type(thing)
    assert (back.batch_shape, back.event_shape) == (thing.batch_shape, thing.event_shape)
    assert jax.tree.structure(back) == jax.tree.structure(thing)
    assert len(jax.tree.leaves(back)) > 0
    assert equal(back, thing)


def test_every_distribution_of_the_table_is_tried():
    assert {type(thing).__name__ for thing in DISTRIBUTIONS} == set(spec.DISTRIBUTIONS)


def test_every_public_part_is_in_the_table():
    for room in (tb.networks, tb.priors, tb.likelihoods):
        classes = [thing for name in room.__all__ if inspect.isclass(thing := getattr(room, name))]
        final = {f"{cls.__module__}:{cls.__name__}" for cls in classes if not inspect.isabstract(cls)}
        assert final <= set(spec.classes().values())
    for place in spec.classes().values():
        assert place.startswith("tunbridge.")


class Gamma(dist.Gamma):
    """A distribution of the user's own with a name of the table."""


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (tb.networks.from_functions(lambda k, x: x, lambda w, x: x), r"adapters\.functions\.Functions"),
        (eqx.nn.Linear(2, 1, key=jax.random.key(0)), "Linear"),
        (jnp.tanh, "tanh"),
        (Gamma(1.0, 1.0), r"Gamma"),
        (dist.Dirichlet(jnp.ones(2)), "Dirichlet"),
        ({1.5: 2}, "dict"),
        (object(), r"builtins\.object"),
    ],
)
def test_what_no_table_has_is_refused_by_name(thing, named):
    with pytest.raises(tb.InputError, match=named):
        spec.Encoder().encode([thing])


ONE = {"array": "0", "dtype": "float32", "shape": [2], "kind": "jax"}


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ([1], "no save writes"),
        ({}, "no save writes"),
        ({"list": 1}, "no save writes"),
        ({"list": [], "tuple": []}, "no save writes"),
        ({"dict": [[1.5, 2]]}, "no save writes"),
        ({"dict": [1]}, "no save writes"),
        ({"set": []}, "no save writes"),
        ({"float": "1e5"}, "no save writes"),
        ({"class": "os:system", "fields": {}}, "'os:system', which is not in the table"),
        ({"class": "tunbridge.core.names:Table", "fields": {}}, "not in the table"),
        ({"class": ["MLP"], "fields": {}}, "not in the table"),
        ({"class": "MLP", "fields": {"__class__": 1}}, "a field '__class__'"),
        ({"class": "MLP", "fields": {"__init__": 1}}, "a field '__init__'"),
        ({"class": "MLP", "fields": []}, "no save writes"),
        ({"class": "MLP"}, "no save writes"),
        ({"class": "MLP", "fields": {"activation": "eval"}}, "MLP cannot be built"),
        ({"class": "MLP", "fields": {"hidden": {"tuple": [-3]}}}, "MLP cannot be built"),
        ({"class": "Params", "fields": {}}, "Params cannot be built"),
        ({"distribution": "Unit", "args": {}}, "'Unit', which is not in the table"),
        ({"distribution": "os", "args": {}}, "not in the table"),
        ({"distribution": "Gamma", "args": {"validate_args": True}}, "a field 'validate_args'"),
        ({"distribution": "Independent", "args": {"base_dist": 1}}, "no save writes"),
        (
            {
                "distribution": "ExpandedDistribution",
                "args": {"base_dist": {"distribution": "Normal", "args": {}}, "batch_shape": {"tuple": [10**12]}},
            },
            "names a size of",
        ),
        ({**ONE, "array": "1"}, "its array '1' is missing"),
        ({"list": [ONE, ONE]}, "missing, or used twice"),
        ({**ONE, "dtype": "float64"}, "is float32"),
        ({**ONE, "dtype": "object"}, "no save writes"),
        ({**ONE, "shape": [1, 2]}, "not float32"),
        ({**ONE, "shape": [-1]}, "no save writes"),
        ({**ONE, "shape": [2.0]}, "no save writes"),
        ({**ONE, "kind": "pickle"}, "no save writes"),
        ({"struct": [[1], "object"]}, "no save writes"),
    ],
)
def test_json_that_no_encoder_writes_is_refused(hostile, said):
    with pytest.raises(LoadError, match=said):
        spec.Decoder({"0": np.zeros(2, np.float32)}).decode(hostile)


def test_numbers_of_64_bits_are_not_cut_to_32():
    encoder = spec.Encoder()
    with jax.enable_x64(True):
        written = encoder.encode(jnp.asarray([1 / 3]))
        assert float(spec.Decoder(encoder.arrays).decode(written)[0]) == 1 / 3
    with pytest.raises(LoadError, match=r'jax.config.update\("jax_enable_x64", True\)'):
        spec.Decoder(encoder.arrays).decode(written)
