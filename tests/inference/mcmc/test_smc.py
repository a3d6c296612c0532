"""Tempered particles: the evidence, modes in their right proportion, stages that end where they should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import tunbridge as tb
from densities import density
from toys import equal, model, table
from tunbridge.bench import PROBLEMS


@pytest.mark.parametrize(
    "name", ["tanh_unit", *(pytest.param(n, marks=pytest.mark.slow) for n in ("linear", "linear_unknown", "logistic"))]
)
def test_the_log_evidence_is_exact_to_a_tenth_of_a_nat(name):
    """Its standard error is 0.05 (12 keys on linear_unknown): two of them, so one key in twenty fails; it is fixed."""
    problem = PROBLEMS[name]()
    posterior = tb.TemperedSMC().fit(problem.model, problem.data, key=jax.random.key(2), progress=False)
    assert abs(float(posterior.log_evidence) - problem.log_evidence) < 0.1
    assert f"{float(posterior.log_evidence):.2f}" in posterior.notes[0]
    assert posterior.num == 2000
    if name == "tanh_unit":  # f(x; u, v) = f(x; -u, -v): both modes hold one half
        share = float(np.mean(np.asarray(posterior.params.weights["w"])[:, 0] > 0))
        assert abs(share - 0.5) < 0.05


def _two_peaks(w):
    """0.3 N(-8, 1) + 0.7 N(8, 1/4), times e^2: nothing goes from one to the other."""
    first = jnp.log(0.3) - 0.5 * (w[0] + 8.0) ** 2 - 0.5 * jnp.log(2 * jnp.pi)
    second = jnp.log(0.7) - 2.0 * (w[0] - 8.0) ** 2 - 0.5 * jnp.log(2 * jnp.pi / 4)
    return 2.0 + logsumexp(jnp.stack([first, second]))


@pytest.mark.slow
def test_separated_modes_keep_their_shares():
    posterior = tb.TemperedSMC(particles=4000).fit(*density(_two_peaks, 1, 10.0), key=jax.random.key(0), progress=False)
    draws = np.asarray(posterior.params.weights["w"])[:, 0]
    assert abs(np.mean(draws > 0) - 0.7) < 0.05  # some five times sqrt(0.21 / 4000), for the weights' sake
    np.testing.assert_allclose(draws[draws > 0].std(), 0.5, rtol=0.1)
    np.testing.assert_allclose(draws[draws < 0].std(), 1.0, rtol=0.1)
    assert abs(float(posterior.log_evidence) - 2.0) < 0.1


@pytest.mark.slow
def test_a_run_that_ends_early_is_refused_and_one_that_has_arrived_stays():
    short = tb.TemperedSMC(particles=20, mutations=1, stages=1)
    with pytest.raises(tb.InputError, match="more time or stages"):
        short.fit(model(), table(), key=jax.random.key(0))
    made = [tb.TemperedSMC(particles=20, mutations=1, stages=n) for n in (300, 400)]
    one, two = (method.fit(model(), table(), key=jax.random.key(0)) for method in made)
    assert equal(one.params, two.params)


def test_wrong_settings_and_doors_are_refused():
    with pytest.raises(tb.InputError, match="particles"):
        tb.TemperedSMC(particles=1)
    with pytest.raises(tb.InputError, match="ess between 0 and 1"):
        tb.TemperedSMC(ess=1.0)
    with pytest.raises(tb.InputError, match="start at the prior"):
        tb.TemperedSMC().fit(model(), table(), key=jax.random.key(0), init=tb.Params({}))
    stream = tb.Data.from_batches(lambda epoch: [(np.ones((2, 3)), np.ones(2))], num=2)
    with pytest.raises(tb.InputError, match="in memory"):
        tb.TemperedSMC().fit(model(), stream, key=jax.random.key(0))
