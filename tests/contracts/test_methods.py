"""What every method keeps to.

Each entry of METHODS with its defaults, fitted once, on the line with unknown noise and prior scale (`fits`). Then all
likelihoods and priors: by MAP in turns, and by every method, in a tiny profile, in the slow tests.
"""

import contextlib
import dataclasses
import datetime
import itertools
import operator
import os
import pickle

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
import zoo
from fits import SHALLOW, assert_kept, fit
from memory import bound_memory
from toys import equal, labelled, quick, table
from tunbridge.bench import PROBLEMS, PROMISES
from tunbridge.inference.base import Iterative

WEEK = datetime.date.today().isocalendar().week
RUN = tb.Run(chains=2, warmup=20, draws=10, thin=1)
SMALLER = {
    "ensemble": tb.Ensemble(tb.MAP(train=tb.Train(30)), 2),
    "swag": tb.SWAG(point=tb.MAP(train=tb.Train(20)), steps=10, snapshots=5, rank=3),
    "laplace": tb.Laplace(point=tb.MAP(train=tb.Train(30)), tune=tb.tuning.Evidence(1, 5)),
    "auto": tb.Auto(tb.Laplace(point=tb.MAP(train=tb.Train(30)), tune=tb.tuning.Evidence(1, 5))),
    "neurallinear": tb.NeuralLinear(tb.MAP(train=tb.Train(30))),
    "lowrank": tb.LowRank(3, train=tb.Train(30)),
    "advi": tb.ADVI(tb.families.Layers(), train=tb.Train(30)),
    "hmc": tb.HMC(max_steps=20, run=RUN),
    "nuts": tb.NUTS(max_depth=4, run=RUN),
    "adjustedmclmc": tb.AdjustedMCLMC(max_steps=20, run=RUN),
    "temperedsmc": tb.TemperedSMC(particles=40, mutations=3, ess=0.3),
}
"""Profiles of methods that a shorter run alone does not make quick."""


def tiny(name):
    """A method in a profile of few steps: its own in `SMALLER`, or its defaults with a short run."""
    if name in SMALLER:
        return SMALLER[name]
    method = tb.METHODS[name]()
    short = {"run": RUN} if isinstance(method.duration, tb.Run) else {"train": tb.Train(30)}
    return dataclasses.replace(method, **short)


TINY = {name: tiny(name) for name in tb.METHODS}
POINT = ("map", "ensemble", "mcdropout", "swag")
"""Methods that hold noise and scales at one value."""
NORMAL = {
    "neurallinear": tb.likelihoods.Gaussian,
    "vbll": tb.likelihoods.Gaussian | tb.likelihoods.Bernoulli | tb.likelihoods.Categorical,
}
"""Methods for normal independent weights and these likelihoods alone: their own tests see them refuse the rest."""
CLOSED_ANSWERS = ("map", "ensemble", "laplace", "auto", *NORMAL)
"""Methods whose predictions take no number of draws."""
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
PAIR = tb.Data(np.tile(NUMBERS.x, (1, 3))[:, :3] + np.eye(24)[:, :3], np.tile(NUMBERS.y, (1, 2)))
"""Rows for the zoo of priors: three inputs, two outputs."""
CLOSED = ("inverse-gamma variance", "exponential variance")
"""Priors whose local scales have a closed marginal, which point methods use."""
TREATMENT = (
    {name: "drawn" for name in TINY} | dict.fromkeys(POINT, "held") | {name: name for name in NORMAL}
) | dict.fromkeys(("laplace", "auto"), "laplace")
"""Of unknown noise and prior scales."""
LINE = PROBLEMS["linear_unknown"]()


def test_every_method_has_sound_defaults():
    for name, cls in tb.METHODS.items():
        assert isinstance(TINY[name], cls)
        cls()


DURATIONS = {
    "run": tb.Run(chains=3, warmup=5, draws=7, thin=2, batch_size=6, temperature=2.0, keep=np.ones((1, 2))),
    "train": tb.Train(steps=7, batch_size=6, patience=5),
}


@pytest.mark.parametrize("field", DURATIONS)
def test_what_a_run_leaves_out_is_the_methods_own(field):
    """One field is given; the method keeps its own values of all others, and nothing is left unset."""
    whole = DURATIONS[field]
    methods = {name: cls for name, cls in tb.METHODS.items() if hasattr(cls, field)}
    assert len(methods) > 5
    for cls in methods.values():
        own = getattr(cls(), field)
        unset = {part.name for part in dataclasses.fields(own) if getattr(own, part.name) is None}
        assert unset <= {"batch_size", "keep", "patience"}
        for part in dataclasses.fields(whole):
            given = {part.name: getattr(whole, part.name)}
            assert equal(getattr(cls(**{field: type(whole)(**given)}), field), dataclasses.replace(own, **given))
        assert equal(getattr(cls(**{field: type(whole)()}), field), own)
        assert equal(getattr(cls(**{field: whole}), field), whole)


OWN = [name for name in TINY if name not in ("auto", *SHALLOW)]
"""Methods that the fast tests fit; `inference/test_auto.py` shows that the fits of "auto" are those of "laplace"."""
GENERAL = {name: method for name, method in TINY.items() if name not in SHALLOW}
"""Methods for more than one form of network and prior."""


@pytest.fixture(scope="module", params=quick(TINY, OWN))
def name(request):
    """A method; pytest runs all tests of one before the next, so that a fit and its programs serve them all."""
    bound_memory(1.2e9)
    return request.param


@pytest.fixture(scope="module")
def posterior(name):
    return fit(name, "linear_unknown")


def again(name, **options):
    return fit(name, "linear_unknown", **options)


def draws(posterior):
    return posterior.sample(jax.random.key(0), 3)


@pytest.mark.parametrize(
    "name",
    quick([name for name in TINY if PROMISES[name]["linear_unknown"].kind not in ("none", "refused")], OWN),
    indirect=True,
    scope="module",
)
def test_the_promise_of_a_line_with_unknown_noise_is_kept(posterior, name):
    assert_kept(posterior, name, "linear_unknown")


def test_predictions_have_the_shapes_of_semantics(posterior, name, key):
    num = None if name in CLOSED_ANSWERS else 10
    _check_predictive(posterior.predict(LINE.x, num=num), LINE.data.y[:4], LINE.model.likelihood, key)


def _in_turns(first):
    """Every fourth method in the fast tests, others each week; all in the slow ones."""
    chosen = OWN[(first + WEEK) % 4 :: 4]
    return pytest.mark.parametrize("name", quick(TINY, chosen), indirect=True, scope="module")


@_in_turns(0)
def test_a_table_of_another_length_and_another_key_compile_nothing(posterior, name, compiled):
    """After a fit of 20 rows, one of 18: rows are filled up to the same capacity."""
    draws(posterior)
    figures = operator.attrgetter("mean", "std")
    figures(posterior.predict(LINE.x))
    compiled.clear()
    other = again(name, rows=18, seed=6)
    figures(other.predict(LINE.x))
    assert not equal(draws(other), draws(posterior))
    assert compiled == []


def test_a_posterior_survives_pickling(posterior):
    back = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(back.predict(LINE.x).mean, posterior.predict(LINE.x).mean)


def test_a_saved_posterior_comes_back_to_the_bit(posterior, name, tmp_path, key):
    _check_saved(posterior, LINE.x, tmp_path, key)
    assert posterior.provenance.method.startswith(type(TINY[name]).__name__)


@_in_turns(1)
def test_a_resumed_fit_is_the_uninterrupted_one_to_the_bit_and_changes_neither_model_nor_data(
    posterior, name, tmp_path
):
    """The same key therefore gives the same posterior."""
    before = pickle.dumps((LINE.model, np.asarray(LINE.data.x), np.asarray(LINE.data.y)))
    with contextlib.suppress(tb.InputError):  # a sampler without a draw has no posterior
        again(name, checkpoint=tmp_path, callbacks=[lambda event: event.step >= 9])
    assert equal(draws(again(name, checkpoint=tmp_path)), draws(posterior))
    assert pickle.dumps((LINE.model, np.asarray(LINE.data.x), np.asarray(LINE.data.y))) == before


def test_a_method_without_a_key_is_a_type_error(name):
    with pytest.raises(TypeError, match="key"):
        tb.METHODS[name]().fit(LINE.model, LINE.data)


def test_noise_and_scales_are_treated_as_the_table_of_semantics_says(posterior, name):
    CHECKS[TREATMENT[name]](posterior, posterior.model if name in SHALLOW else LINE.model, LINE.data)


NETWORKS = (
    tb.networks.MLP((4,)),
    tb.networks.MLP((3, 3)),
    tb.networks.MLP((4,), activation="relu"),
    tb.networks.Cast(tb.networks.MLP((4,))),
)
TURNS = [
    pytest.param(
        likelihood,
        zoo.FREE[(turn + WEEK) % len(zoo.FREE)],
        NETWORKS[(turn + turn // len(LIKELIHOODS) + WEEK) % len(NETWORKS)],
        marks=() if turn < len(LIKELIHOODS) and turn % 6 == WEEK % 6 else pytest.mark.slow,
    )
    for turn, likelihood in zip(range(len(zoo.FREE)), itertools.cycle(LIKELIHOODS), strict=False)
]
"""Each prior once, with likelihoods and networks in turns: other combinations each week, two in the fast tests."""


@pytest.mark.parametrize(("likelihood", "prior", "network"), TURNS)
def test_any_likelihood_prior_and_network_go_together(likelihood, prior, network, tmp_path, key):
    made, data = LIKELIHOODS[likelihood]
    model = tb.Model(network, zoo.PRIORS[prior], made)
    posterior = TINY["map"].fit(model, data, key=jax.random.key(5), progress=False)
    _check_predictive(posterior.predict(data.x[:7]), data.y[:7], made, key)
    _check_saved(posterior, data.x[:7], tmp_path, key)


def _pairs(others, fits):
    return [
        pytest.param(name, other, marks=pytest.mark.slow) for name in GENERAL for other in others if fits(name, other)
    ]


def _this_week(pairs):
    """A twelfth of the pairs, another one each week; all where TUNBRIDGE_PAIRS is "all"."""
    if os.environ.get("TUNBRIDGE_PAIRS") == "all":
        return pairs
    return pairs[WEEK % 12 :: 12]


def _takes(name, likelihood):
    return name not in NORMAL or isinstance(LIKELIHOODS[likelihood][0], NORMAL[name])


@pytest.mark.parametrize(("method", "likelihood"), _this_week(_pairs(LIKELIHOODS, _takes)))
def test_every_method_takes_every_likelihood(method, likelihood, tmp_path, key):
    made, data = LIKELIHOODS[likelihood]
    model = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), made)
    posterior = TINY[method].fit(model, data, key=jax.random.key(5), progress=False)
    _check_predictive(posterior.predict(data.x[:7]), data.y[:7], made, key)
    _check_saved(posterior, data.x[:7], tmp_path, key)


def _refused(name, prior):
    """What a method says of a prior that it is not for; "" if it takes it."""
    made = zoo.PRIORS[prior]
    if name == "ellipticalslice" and not made.gaussian:
        return "normal given its scales"
    if name == "laplace" and prior in zoo.CORRELATED:
        return "independent weights"
    if name in NORMAL and (prior in zoo.CORRELATED or not made.marginal().gaussian):
        return "independent normal weights"
    return ""


def _with_prior(prior):
    return tb.Model(tb.networks.MLP((4,)), zoo.PRIORS[prior], tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0)))


@pytest.mark.parametrize(("method", "prior"), _pairs(zoo.PRIORS, _refused))
def test_a_prior_that_a_method_is_not_for_is_refused(method, prior):
    with pytest.raises(tb.InputError, match=_refused(method, prior)):
        TINY[method].fit(_with_prior(prior), PAIR, key=jax.random.key(5))


@pytest.mark.parametrize(("method", "prior"), _this_week(_pairs(zoo.PRIORS, lambda *case: not _refused(*case))))
def test_noise_and_scales_of_every_prior_are_treated_as_those_of_the_line(method, prior):
    model = _with_prior(prior)
    posterior = TINY[method].fit(model, PAIR, key=jax.random.key(5), progress=False)
    CHECKS[TREATMENT[method]](posterior, model, PAIR)
    if TREATMENT[method] == "held":
        assert (prior in CLOSED) == (type(posterior.model.prior) is not type(model.prior))
    if TREATMENT[method] == "laplace":
        wanted, found = _medians(model.prior.marginal(), PAIR), draws(posterior).scales
        assert jax.tree.structure(found) == jax.tree.structure(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in GENERAL.values() if isinstance(method, Iterative)], ids=repr)
def test_steps_are_pure_and_compiled_code_agrees_with_the_rest(method):
    """One step with and without jit, to rounding."""
    made, data = LIKELIHOODS["unknown noise"]
    bound, rows = tb.Model(tb.networks.MLP((4,)), tb.priors.Normal(1.0), made).bind(data)
    target, key = tb.Target(bound, float(rows.num)), jax.random.key(0)
    params = method.start(key, target, rows)
    state = method.init(key, target, params, rows, 0)
    (plain, info), (compiled, fast) = (f(key, target, state, rows) for f in (method.step, jax.jit(method.step)))
    one, two = (jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)) for state in ((plain, info), (compiled, fast)))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    again, _ = method.step(key, target, state, rows)
    assert equal(again, plain)


def _check_predictive(predictive, y, likelihood, key):
    rows = len(y)
    assert predictive.log_prob(y).shape == (rows,)
    assert predictive.sample(key, 3).shape == (3, *y.shape)
    tasks = predictive.tasks if isinstance(likelihood, tb.likelihoods.MultiTask) else {"": predictive}
    for task in tasks.values():
        _check_shapes(task, likelihood, rows, numbers=y.ndim == 2 and task is not tasks.get("kind"))


def _check_shapes(predictive, likelihood, rows, numbers):
    np.testing.assert_array_equal(predictive.total, predictive.aleatoric + predictive.epistemic)
    assert float(predictive.epistemic.min()) >= 0.0
    if numbers:
        for part in (predictive.mean, predictive.std, predictive.quantile(0.3), predictive.total, predictive.mode):
            assert part.shape == (rows, 1)
        lower, upper = predictive.interval(0.8)
        assert (lower <= upper if predictive.discrete else lower < upper).all()
    else:
        assert predictive.probs.shape == (rows, 2 if isinstance(likelihood, tb.likelihoods.Bernoulli) else 3)
        np.testing.assert_allclose(predictive.probs.sum(1), 1.0, rtol=1e-5)
        assert predictive.total.shape == predictive.mode.shape == (rows,)


def _check_saved(posterior, x, folder, key):
    posterior.save(folder)
    back = tb.load(folder)
    assert type(back) is type(posterior)
    assert jax.tree.structure(back) == jax.tree.structure(posterior)  # model, notes and provenance among it
    assert back.notes == posterior.notes
    assert back.provenance == posterior.provenance
    assert equal(back, posterior)
    assert equal(back.sample(key, 3), posterior.sample(key, 3))
    one, two = (made.predict(x).functions for made in (posterior, back))
    assert equal(one, two)


def _medians(prior, data):
    network = tb.networks.MLP((4,) if data is PAIR else (), outputs=data.y.shape[1])
    like = jax.jit(network.init)(jax.random.key(0), data.x)
    return prior.median_scales(like, network.layout(like))


def _check_held(posterior, model, data):
    """Point methods: noise from held-out residuals; scales integrated out, or held at their medians and said so."""
    params, said = draws(posterior), " ".join(posterior.notes)
    wanted = _medians(model.prior.marginal(), data)
    assert len(params.noise) == 1
    assert "held-out rows" in said
    assert ("held at the medians" in said) == bool(wanted)
    found = jax.tree.map(lambda leaf: leaf[0], params.scales)
    for leaf, median in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(leaf, median, rtol=1e-4, atol=1e-5)


def _check_laplace(posterior, model, data):
    """Both at one value, which maximises the evidence."""
    params = draws(posterior)
    assert "Unknown noise and prior scales maximise the evidence" in " ".join(posterior.notes)
    assert len(params.noise) == 1
    assert all(np.ptp(np.asarray(leaf), axis=0).max() == 0.0 for leaf in jax.tree.leaves(params._replace(weights=())))


def _check_drawn(posterior, model, data):
    """Samplers and variational methods: both drawn with the weights."""
    rest = posterior.components(posterior.key, None)._replace(weights=())
    assert jax.tree.structure(rest.scales) == jax.tree.structure(_medians(model.prior, data))
    assert len(rest.noise) == 1
    assert min(np.std(np.asarray(leaf), axis=0).min() for leaf in jax.tree.leaves(rest)) > 0.0


def _check_exact_layer(posterior, model, data):
    """An exact last layer: noise from held-out residuals, scales by the evidence."""
    params, said = draws(posterior), " ".join(posterior.notes)
    of_inputs = isinstance(model.prior, tb.priors.ARD)  # the last layer has none
    assert "held-out rows" in said
    assert ("maximise the exact evidence" in said) == (bool(params.scales) and not of_inputs)


def _check_variational_layer(posterior, model, data):
    """A variational last layer: a distribution of noise from held-out residuals, scales at their medians."""
    params, said = draws(posterior), " ".join(posterior.notes)
    assert "held-out rows" in said
    assert ("held at the medians" in said) == bool(params.scales)
    assert np.std(np.asarray(params.noise[0]), axis=0).min() > 0.0


CHECKS = {
    "held": _check_held,
    "laplace": _check_laplace,
    "drawn": _check_drawn,
    "neurallinear": _check_exact_layer,
    "vbll": _check_variational_layer,
}
