"""Whether chains are believed, from draws of which the answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import labelled, model, table
from tunbridge import diagnostics
from tunbridge.bench.truth.exact import linear_unknown
from tunbridge.datasets import Scaling
from tunbridge.inference import mixing

CHAINS, DRAWS = 4, 250


def shaped(params):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(CHAINS, DRAWS, *leaf.shape[1:]), params)


def statistics(rng, **changed):
    size = (CHAINS, DRAWS)
    stats = {
        "log_density": rng.normal(size=size),
        "acceptance": np.full(size, 0.8),
        "divergent": np.zeros(size, bool),
        "energy": rng.normal(size=size),
        "gradients": np.full(size, 7),
    }
    return {name: jnp.asarray(values) for name, values in {**stats, **changed}.items()}


@pytest.fixture(scope="module")
def exact():
    """Exact draws of a linear regression with unknown noise and prior scale, as if of four chains."""
    problem = linear_unknown()
    params = shaped(problem.draw(jax.random.key(0), CHAINS * DRAWS))
    stats = statistics(np.random.default_rng(0))
    return tb.Chains(problem.model.bind(problem.data)[0], jax.random.key(1), params, stats, problem.data.x)


def shifted(chains, which, by):
    """Chains whose last bias is moved in some of them."""
    (layer,) = chains.params.weights["layers"]
    bias = layer["bias"].at[np.asarray(which)].add(by)
    params = chains.params._replace(weights={"layers": [{**layer, "bias": bias}]})
    return tb.Chains(chains.model, chains.key, params, chains.stats, chains.inputs)


def test_exact_draws_give_no_reason_for_doubt(exact):
    assert exact.doubts() == []


def test_the_summary_has_arviz_figures_of_functions_and_unknowns(exact):
    summary = exact.summary()
    rows = {row["unknown"]: row for row in summary.rows}
    assert list(rows) == [
        "function",
        "weights/layers/0/bias",
        "weights/layers/0/weight",
        "scales/0",
        "noise/0",
        "log density",
    ]
    values = exact.functions()
    assert values.shape == (4, 250, 20, 1)
    assert rows["function"]["R-hat worst"] == pytest.approx(diagnostics.rhat(values).max(), rel=1e-6)
    assert rows["function"]["R-hat median"] == pytest.approx(np.median(diagnostics.rhat(values)), rel=1e-6)
    assert rows["function"]["ESS bulk worst"] == pytest.approx(diagnostics.ess_bulk(values).min(), rel=1e-6)
    noise = np.exp(np.asarray(exact.params.noise[0], np.float64))
    assert rows["noise/0"]["mean"] == pytest.approx(noise.mean(), rel=1e-5)
    assert rows["noise/0"]["mcse"] == pytest.approx(float(diagnostics.mcse(noise)), rel=1e-4)
    assert rows["noise/0"]["as"] == "value"
    text = str(summary)
    for words in (
        "4 chains of 250 draws, mean acceptance 0.80, 7.0 evaluations per draw, 0 divergent, E-BFMI",
        "no reason",
    ):
        assert words in text
    assert "weights/layers/0/weight" in text
    assert "<p>4 chains of 250 draws" in summary._repr_html_()


def test_functions_are_judged_where_one_asks(exact):
    far = exact.summary([[30.0, 1.0], [0.0, 1.0]])
    assert far.rows[0]["shape"] == "(2, 1)"
    assert far.rows[0]["sd"] > exact.summary().rows[0]["sd"]
    with pytest.raises(tb.InputError):
        exact.summary(np.zeros((2, 5)))


def test_chains_that_predict_differently_are_named(exact):
    apart = shifted(exact, [1, 3], jnp.array([3.0, -3.0])[:, None, None])
    modes, mixing = apart.doubts()[:2]
    assert modes.startswith("Chains 0, 2 | 1 | 3 predict")
    assert mixing.startswith("R-hat is above 1.01 at 100% of")
    assert "Chains 0, 2 | 1 | 3 predict differently" in str(apart.summary())


def test_a_small_disagreement_is_bad_mixing_and_no_mode(exact):
    found = shifted(exact, [2], 0.06).doubts()
    assert [sentence[:5] for sentence in found] == ["R-hat"]


def test_each_reason_has_its_number_and_the_next_step(exact):
    rng = np.random.default_rng(3)
    divergent = np.zeros((CHAINS, DRAWS), bool)
    divergent[0, :12] = True
    energy = rng.normal(size=(CHAINS, DRAWS))
    energy[1] = np.cumsum(energy[1])
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, ::10], 10, axis=1), exact.params)
    stats = statistics(rng, divergent=divergent, energy=energy)
    found = tb.Chains(exact.model, exact.key, repeated, stats, exact.inputs).doubts()
    said = " ".join(found)
    assert "12 of 1,000 draws diverged" in said
    assert "below 0.3, in chains 1:" in said
    assert "of 1,000 draws, below 400. Draw about" in said


def test_samplers_without_statistics_are_judged_by_their_functions(exact):
    bare = tb.Chains(exact.model, exact.key, exact.params, {}, exact.inputs)
    assert bare.doubts() == []
    assert bare.summary().sentences[0] == "4 chains of 250 draws."


def test_one_chain_and_few_draws_are_doubtful(exact):
    one = jax.tree.map(lambda leaf: leaf[:1], exact.params)
    alone = tb.Chains(exact.model, exact.key, one, {}, exact.inputs)
    assert alone.doubts()[0].startswith("A single chain cannot be compared")
    assert np.isnan(alone.summary().rows[0]["R-hat worst"])
    few = tb.Chains(exact.model, exact.key, jax.tree.map(lambda leaf: leaf[:, :3], exact.params), {}, exact.inputs)
    assert few.doubts() == ["There are 3 draws per chain, too few to judge: draw at least 4."]
    assert "R-hat worst" not in few.summary().rows[0]


@pytest.fixture(scope="module")
def mirrored():
    """Draws around one network, where each chain has its units in another order and with other signs."""
    bound, rows = model((3,), likelihood=tb.likelihoods.Gaussian(dist.Gamma(2.0, 2.0))).bind(table())
    rng = np.random.default_rng(0)
    first, last = np.array([[1.0, -2.0, 0.5], [2.0, 1.0, -1.0], [0.5, 1.0, 2.0]]), np.array([[1.5], [-1.0], [0.8]])

    def around(values):
        return values + 0.05 * rng.normal(size=(CHAINS, DRAWS, *values.shape))

    weight, bias, leaving = around(first), around(np.array([0.3, -0.5, 1.0])), around(last)
    for chain in range(CHAINS):
        order, sign = rng.permutation(3), rng.choice([-1.0, 1.0], 3)
        weight[chain] = weight[chain][..., order] * sign
        bias[chain] = bias[chain][..., order] * sign
        leaving[chain] = leaving[chain][:, order] * sign[:, None]
    layers = [{"weight": weight, "bias": bias}, {"weight": leaving, "bias": around(np.zeros(1))}]
    params = tb.Params(jax.tree.map(jnp.asarray, {"layers": layers}), (), (jnp.asarray(around(np.zeros(()))),))
    return tb.Chains(bound, jax.random.key(0), params, statistics(rng), rows.x)


def test_chains_in_mirrored_modes_agree_once_symmetries_are_undone(mirrored):
    assert mirrored.doubts() == []
    (weights,) = (one for one in mirrored.summary().rows if one["unknown"] == "weights/layers/0/weight")
    assert weights["R-hat worst"] < 1.02
    assert weights["as"] == "aligned"
    assert diagnostics.rhat(mirrored.params.weights["layers"][0]["weight"]).max() > 1.5
    assert "units are matched" in str(mirrored.summary())


def test_weights_are_compared_as_they_are_where_symmetries_are_unknown_or_units_too_many(mirrored, monkeypatch):
    monkeypatch.setattr(mixing, "_MOST_WORK", 10.0)
    summary = mirrored.summary()
    assert "There are too many hidden units to match" in str(summary)
    assert summary.rows[1]["R-hat worst"] > 1.5
    bound, rows = tb.Model(
        tb.networks.from_functions(lambda k, x: {"w": jnp.zeros(3)}, lambda w, x: x @ w["w"][:, None]),
        tb.priors.Normal(1.0),
        tb.likelihoods.Gaussian(0.1),
    ).bind(table())
    draws = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, 3))
    summary = tb.Chains(bound, jax.random.key(0), tb.Params({"w": jnp.asarray(draws)}), {}, rows.x).summary()
    assert "are not known: its weights are compared as they are" in str(summary)


def test_classes_are_judged_by_their_probabilities():
    bound, rows = model((), likelihood=tb.likelihoods.Categorical()).bind(labelled())
    rng = np.random.default_rng(0)
    layer = {"weight": rng.normal(size=(CHAINS, DRAWS, 3, 3)), "bias": rng.normal(size=(CHAINS, DRAWS, 3))}
    layer["bias"] += 40.0 * np.arange(CHAINS)[:, None, None]  # the same probabilities
    params = tb.Params({"layers": [jax.tree.map(jnp.asarray, layer)]})
    chains = tb.Chains(bound, jax.random.key(0), params, {}, rows.x)
    assert chains.functions().shape == (CHAINS, DRAWS, 60, 3)
    assert chains.doubts() == []


def test_a_standardised_posterior_is_summed_up_like_its_own(exact):
    scaling = Scaling.of(np.asarray(exact.inputs))
    outer = tb.Standardised(exact.model, exact.key, exact, scaling)
    assert str(outer.summary()) == str(exact.summary())
