"""The same weights and data give the same numbers as laplace-torch 0.3 (benchmarks/peers_laplace.py made the file)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tunbridge as tb

PEER = json.loads((Path(__file__).parent / "laplace_torch.json").read_text())["problems"]
STRUCTURES = {
    "full": tb.structures.Full(),
    "kron": tb.structures.Kronecker(separate_bias=True),
    "diag": tb.structures.Diagonal(),
}
SUBSETS = {"all": tb.subsets.All(), "last_layer": tb.subsets.LastLayer()}
FAST = {("regression", "all", "kron"), ("classification", "last_layer", "full")}
CASES = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
    for case in [(p, s, k) for p in PEER for s in SUBSETS for k in STRUCTURES]
]


def fit(name, subset, structure):
    problem = PEER[name]
    numbers = name == "regression"
    likelihood = tb.likelihoods.Gaussian(problem["sigma"]) if numbers else tb.likelihoods.Categorical()
    width = len(problem["weights"][0][1])
    model = tb.Model(tb.networks.MLP((width,)), tb.priors.Normal(problem["precision"] ** -0.5), likelihood)
    layers = [{"weight": jnp.asarray(w), "bias": jnp.asarray(b)} for w, b in problem["weights"]]
    method = tb.Laplace(structure=STRUCTURES[structure], subset=SUBSETS[subset], point=None)
    data = tb.Data(np.array(problem["x"]), np.array(problem["y"]))
    return problem, method.fit(model, data, key=jax.random.key(0), init={"layers": layers})


@pytest.mark.parametrize(("name", "subset", "structure"), CASES)
def test_evidence_covariance_and_links_equal_the_peers(name, subset, structure, x64):
    problem, posterior = fit(name, subset, structure)
    theirs = problem["fits"][subset][structure]
    np.testing.assert_allclose(posterior.log_evidence, theirs["log_evidence"], rtol=1e-9)
    np.testing.assert_allclose(posterior.moments(problem["test"])[1], theirs["covariance"], rtol=1e-7, atol=1e-10)
    if name == "classification":
        for link, label in ((tb.links.Probit(), "probit"), (tb.links.Bridge(), "bridge")):
            probs = posterior.with_link(link).predict(np.array(problem["test"])).probs
            np.testing.assert_allclose(probs, theirs[label], rtol=1e-6, err_msg=label)
