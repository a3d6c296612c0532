"""What every method keeps to: each entry of METHODS, in a tiny profile, on every likelihood."""

import contextlib
import pickle

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
import zoo
from toys import equal, labelled, table
from tunbridge.inference.base import Iterative

RUN = tb.Run(chains=2, warmup=20, draws=10)
TINY = {
    "map": tb.MAP(train=tb.Train(30)),
    "ensemble": tb.Ensemble(tb.MAP(train=tb.Train(30)), 2),
    "mcdropout": tb.MCDropout(train=tb.Train(30)),
    "swag": tb.SWAG(point=tb.MAP(train=tb.Train(20)), steps=10, snapshots=5, rank=3),
    "laplace": tb.Laplace(point=tb.MAP(train=tb.Train(30)), tune=tb.tuning.Evidence(1, 5)),
    "neurallinear": tb.NeuralLinear(tb.MAP(train=tb.Train(30))),
    "vbll": tb.VBLL(train=tb.Train(30)),
    "bayesbybackprop": tb.BayesByBackprop(train=tb.Train(30)),
    "meanfield": tb.MeanField(train=tb.Train(30)),
    "lowrank": tb.LowRank(3, train=tb.Train(30)),
    "matrixnormalvi": tb.MatrixNormalVI(train=tb.Train(30)),
    "fullrank": tb.FullRank(train=tb.Train(30)),
    "advi": tb.ADVI(tb.families.Layers(), train=tb.Train(30)),
    "ivon": tb.IVON(train=tb.Train(30)),
    "randomwalk": tb.RandomWalk(run=RUN),
    "mala": tb.MALA(run=RUN),
    "ula": tb.ULA(run=RUN),
    "hmc": tb.HMC(max_steps=20, run=RUN),
    "nuts": tb.NUTS(max_depth=4, run=RUN),
    "mclmc": tb.MCLMC(run=RUN),
    "adjustedmclmc": tb.AdjustedMCLMC(max_steps=20, run=RUN),
    "ellipticalslice": tb.EllipticalSlice(run=RUN),
    "sgld": tb.SGLD(run=RUN),
    "sghmc": tb.SGHMC(run=RUN),
    "sgnht": tb.SGNHT(run=RUN),
    "temperedsmc": tb.TemperedSMC(particles=40, mutations=3, ess=0.3),
}
POINT = ("map", "ensemble", "mcdropout", "swag", "laplace")
"""Methods that hold noise and scales at one value; all others sample them."""
NORMAL = {
    "neurallinear": tb.likelihoods.Gaussian,
    "vbll": tb.likelihoods.Gaussian | tb.likelihoods.Bernoulli | tb.likelihoods.Categorical,
}
"""Methods for normal independent weights and these likelihoods alone: their own tests see them refuse the rest."""
CORRELATED = ("full", "matrix", "low rank", "joint")
NUMBERS = table(24)
COUNTED = tb.Data(NUMBERS.x, np.maximum(np.round(2.0 + 2.0 * np.asarray(NUMBERS.y)), 0.0))
TASKS = tb.likelihoods.MultiTask(
    {
        "size": tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)),
        "kind": tb.likelihoods.Categorical(temperature=dist.LogNormal(0.0, 1.0)),
    }
)
LIKELIHOODS = {
    "gaussian": (tb.likelihoods.Gaussian(0.2), NUMBERS),
    "unknown noise": (tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)), NUMBERS),
    "heteroscedastic": (tb.likelihoods.Heteroscedastic(), NUMBERS),
    "bernoulli": (tb.likelihoods.Bernoulli(), labelled(24, classes=2)),
    "categorical": (tb.likelihoods.Categorical(), labelled(24)),
    "studentt": (tb.likelihoods.StudentT(dist.Gamma(2.0, 0.1), dist.Gamma(0.5, 1.0)), NUMBERS),
    "laplace": (tb.likelihoods.Laplace(dist.Gamma(0.5, 1.0)), NUMBERS),
    "noisycategorical": (tb.likelihoods.NoisyCategorical(samples=8), labelled(24)),
    "poisson": (tb.likelihoods.Poisson(), COUNTED),
    "negativebinomial": (tb.likelihoods.NegativeBinomial(dist.LogNormal(1.0, 1.0)), COUNTED),
    "ordinal": (tb.likelihoods.Ordinal(), labelled(24)),
    "multitask": (TASKS, tb.Data(NUMBERS.x, np.column_stack([NUMBERS.y, labelled(24).y]))),
}
HEAVY = ("studentt", "laplace", "noisycategorical", "negativebinomial", "ordinal", "multitask")
"""Likelihoods whose programs take long to compile: for the slow tests, whatever the method."""
PRIORS = {
    "normal": tb.priors.Normal(1.0),
    "fan-in": tb.priors.Normal(tb.priors.fan_in(1.0)),
    "per layer": tb.priors.Normal((1.0, 0.5)),
    "unknown": tb.priors.Normal(tb.priors.fan_in(dist.HalfNormal(1.0))),
}


SLOW = pytest.mark.slow


NAMES = [pytest.param(name, marks=() if name in ("map", "ensemble") else SLOW) for name in TINY]


def _cases(others, always):
    """Every method with every other; with all but MAP, what is not in `always` is for the slow tests.

    So are all samplers: their programs take seconds to compile, and their own tests run the loop.
    """

    def marks(name, other):
        quick = (name == "map" and other not in HEAVY) or (name in POINT and other in always.get(name, always["rest"]))
        return () if quick else SLOW

    def fits(name, other):
        return name not in NORMAL or isinstance(LIKELIHOODS[other][0], NORMAL[name])

    pairs = [(name, other) for name in TINY for other in others if fits(name, other)]
    return [pytest.param(*pair, marks=marks(*pair)) for pair in pairs]


def test_every_method_has_a_profile_and_sound_defaults():
    assert set(TINY) == set(tb.METHODS)
    for name, cls in tb.METHODS.items():
        assert isinstance(TINY[name], cls)
        cls()


def fit(name, likelihood="gaussian", prior="normal", **options):
    made, data = LIKELIHOODS[likelihood]
    model = tb.Model(tb.networks.MLP((4,)), PRIORS[prior], made)
    return TINY[name].fit(model, data, key=jax.random.key(5), **options), data


@pytest.mark.parametrize(
    ("name", "likelihood"),
    _cases(LIKELIHOODS, {"rest": ("categorical",), "ensemble": ("unknown noise",), "swag": ()}),
)
def test_predictions_have_the_shapes_of_semantics(name, likelihood, key):
    posterior, data = fit(name, likelihood)
    predictive = posterior.predict(data.x[:7])
    assert predictive.log_prob(data.y[:7]).shape == (7,)
    assert predictive.sample(key, 3).shape == (3, *data.y[:7].shape)
    tasks = predictive.tasks if likelihood == "multitask" else {"": predictive}
    for task in tasks.values():
        _check_shapes(task, LIKELIHOODS[likelihood][0], numbers=data.y.ndim == 2 and task is not tasks.get("kind"))


def _check_shapes(predictive, likelihood, numbers):
    np.testing.assert_array_equal(predictive.total, predictive.aleatoric + predictive.epistemic)
    assert float(predictive.epistemic.min()) >= 0.0
    if numbers:
        for part in (predictive.mean, predictive.std, predictive.quantile(0.3), predictive.total, predictive.mode):
            assert part.shape == (7, 1)
        lower, upper = predictive.interval(0.8)
        assert (lower <= upper if predictive.discrete else lower < upper).all()
    else:
        assert predictive.probs.shape == (7, 2 if isinstance(likelihood, tb.likelihoods.Bernoulli) else 3)
        np.testing.assert_allclose(predictive.probs.sum(1), 1.0, rtol=1e-5)
        assert predictive.total.shape == predictive.mode.shape == (7,)


CLOSED = ("inverse-gamma variance", "exponential variance")
"""Priors whose local scales have a closed marginal, which point methods use."""
PAIR = tb.Data(np.tile(NUMBERS.x, (1, 3))[:, :3] + np.eye(24)[:, :3], np.tile(NUMBERS.y, (1, 2)))
"""Rows for the zoo of priors: three inputs, two outputs."""


def _prior_cases():
    """Every method with every prior: fast are the quick priors with MAP, and one with the other point methods."""

    def marks(name, prior):
        quick = ("laplace", "inverse-gamma variance")
        fast = prior in quick if name == "map" else (name, prior) == ("ensemble", "normal unknown")
        return () if fast else SLOW

    return [pytest.param(name, prior, marks=marks(name, prior)) for name in TINY for prior in zoo.PRIORS]


@pytest.mark.parametrize(("name", "prior"), _prior_cases())
def test_unknowns_are_treated_as_the_table_of_semantics_says(name, prior):
    """Point methods: noise from held-out residuals; scales integrated out, or held at their medians and said so.

    Laplace: both by the evidence. Samplers: both drawn with the weights. Elliptical slices are for priors that are
    normal given their scales. An exact last layer: noise from held-out residuals, scales by the evidence. A variational
    one: a distribution of noise from held-out residuals, scales at their medians.
    """
    model = tb.Model(tb.networks.MLP((4,)), zoo.PRIORS[prior], tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))
    like = tb.networks.MLP((4,), outputs=2).init(jax.random.key(0), PAIR.x)
    layout = tb.networks.MLP((4,), outputs=2).layout(like)
    if name == "ellipticalslice" and not model.prior.gaussian:
        with pytest.raises(tb.InputError, match="normal given its scales"):
            TINY[name].fit(model, PAIR, key=jax.random.key(5))
        return
    if name == "laplace" and prior in CORRELATED:
        with pytest.raises(tb.InputError, match="independent weights"):
            TINY[name].fit(model, PAIR, key=jax.random.key(5))
        return
    if name in NORMAL and (prior in CORRELATED or not model.prior.marginal().gaussian):
        with pytest.raises(tb.InputError, match="independent normal weights"):
            TINY[name].fit(model, PAIR, key=jax.random.key(5))
        return
    posterior = TINY[name].fit(model, PAIR, key=jax.random.key(5), progress=False)
    params, said = posterior.sample(jax.random.key(0), 4), " ".join(posterior.notes)
    assert len(params.noise) == 1
    if name == "laplace":
        assert "Unknown noise and prior scales maximise the evidence" in said
        assert (bool(params.scales) and prior not in CLOSED) == bool(model.prior.marginal().median_scales(like, layout))
        return
    if name == "vbll":
        assert "held-out rows" in said
        assert ("held at the medians" in said) == bool(params.scales)
        assert np.std(np.asarray(params.noise[0]), axis=0).min() > 0.0
        return
    if name in NORMAL:
        assert "held-out rows" in said
        assert ("maximise the exact evidence" in said) == (bool(params.scales) and prior != "ard")  # of inputs alone
        return
    if name not in POINT:
        wanted = model.prior.median_scales(like, layout)
        assert jax.tree.structure(params.scales) == jax.tree.structure(wanted)
        rest = posterior.components(posterior.key, None)._replace(weights=())
        assert min(np.std(np.asarray(leaf), axis=0).min() for leaf in jax.tree.leaves(rest)) > 0.0
        return
    wanted = model.prior.marginal().median_scales(like, layout)
    assert "held-out rows" in said
    assert ("held at the medians" in said) == bool(wanted)
    assert (prior in CLOSED) == (type(posterior.model.prior) is not type(model.prior))
    found = jax.tree.map(lambda leaf: leaf[0], params.scales)
    for leaf, median in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(leaf, median, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_key_gives_the_same_posterior_to_the_bit(name):
    one, two = (fit(name, "unknown noise")[0] for _ in range(2))
    assert equal(one.sample(jax.random.key(0), 3), two.sample(jax.random.key(0), 3))


@pytest.mark.parametrize("name", NAMES)
def test_fitting_changes_neither_model_nor_data(name):
    made, data = LIKELIHOODS["gaussian"]
    before = pickle.dumps((made, np.asarray(data.x), np.asarray(data.y)))
    fit(name)
    assert pickle.dumps((made, np.asarray(data.x), np.asarray(data.y))) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in TINY.items() if isinstance(method, Iterative)])
def test_steps_are_pure_and_compiled_code_agrees_with_the_rest(name):
    """One step with and without jit, to rounding."""
    method = TINY[name]
    made, data = LIKELIHOODS["unknown noise"]
    bound, rows = tb.Model(tb.networks.MLP((4,)), PRIORS["normal"], made).bind(data)
    target, key = tb.Target(bound, float(rows.num)), jax.random.key(0)
    params = method.start(key, target, rows)
    state = method.init(key, target, params, rows, 0)
    (plain, info), (compiled, fast) = (f(key, target, state, rows) for f in (method.step, jax.jit(method.step)))
    one, two = (jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)) for state in ((plain, info), (compiled, fast)))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    again, _ = method.step(key, target, state, rows)
    assert equal(again, plain)


@pytest.mark.parametrize("name", NAMES)
def test_a_posterior_survives_pickling(name):
    posterior, data = fit(name, "unknown noise")
    back = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(back.predict(data.x).mean, posterior.predict(data.x).mean)


@pytest.mark.parametrize(
    ("name", "likelihood"),
    _cases(("unknown noise", "categorical"), {"rest": (), "mcdropout": ("unknown noise",)}),
)
def test_a_saved_posterior_comes_back_to_the_bit(name, likelihood, tmp_path, key):
    posterior, data = fit(name, likelihood)
    posterior.save(tmp_path)
    back = tb.load(tmp_path)
    assert type(back) is type(posterior)
    assert jax.tree.structure(back) == jax.tree.structure(posterior)  # model, notes and provenance among it
    assert back.notes == posterior.notes
    assert back.provenance == posterior.provenance
    assert back.provenance.method.startswith(type(TINY[name]).__name__)
    assert equal(back, posterior)
    assert equal(back.sample(key, 3), posterior.sample(key, 3))
    one, two = (made.predict(data.x[:7]) for made in (posterior, back))
    assert equal(*((p.mean if data.y.ndim == 2 else p.probs) for p in (one, two)))


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_fit_is_the_uninterrupted_one_to_the_bit(name, tmp_path):
    whole, _ = fit(name, "unknown noise")
    with contextlib.suppress(tb.InputError):  # a sampler without a draw has no posterior
        fit(name, "unknown noise", checkpoint=tmp_path, callbacks=[lambda event: event.step >= 9])
    resumed, _ = fit(name, "unknown noise", checkpoint=tmp_path)
    assert equal(resumed.sample(jax.random.key(0), 3), whole.sample(jax.random.key(0), 3))


@pytest.mark.parametrize("name", TINY)
def test_a_method_without_a_key_is_a_type_error(name):
    made, data = LIKELIHOODS["gaussian"]
    with pytest.raises(TypeError, match="key"):
        TINY[name].fit(tb.Model(tb.networks.MLP((4,)), PRIORS["normal"], made), data)
