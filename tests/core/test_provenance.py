import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import model, table
from tunbridge.core.citations import bibliography
from tunbridge.core.provenance import Provenance, describe, references


class Mine(eqx.Module):
    """A schedule of the user's own :cite:p:`nobody2030nothing, bishop2006pattern`."""

    inner: tb.schedules.Cosine = tb.schedules.Cosine()

    def __call__(self, fraction):
        return self.inner(fraction)


@pytest.fixture(scope="module")
def posterior():
    method = tb.Ensemble(tb.MAP(decay=Mine(), train=tb.Train(3)), 2)
    return method.fit(model(()), table(), key=jax.random.key(0))


def test_a_method_is_described_on_one_line():
    train = "Train(steps=9, batch_size=None, patience=None)"
    assert describe(tb.Ensemble(tb.MAP(train=tb.Train(9)), 2)) == (
        f"Ensemble(method=MAP(step_size=0.01, optimiser=adam, decay=Cosine(), train={train}), size=2)"
    )


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (jnp.zeros((2, 3)), "float32[2, 3]"),
        (jnp.float32(0.5), "0.5"),
        (functools.partial(max, 1), "max"),
        (jnp.tanh, "tanh"),
        ((1.0,), "(1.0,)"),
        (tb.priors.fan_in(dist.Gamma(0.5, 1.0)), "FanIn(scale=Gamma(concentration=0.5, rate=1.0))"),
        (dist.HalfNormal(1.0).expand([2]), "HalfNormal(scale=1.0) of shape (2,)"),
        (object(), "object"),
    ],
)
def test_arrays_functions_and_distributions_are_described_shortly(thing, words):
    assert describe(thing) == words


def test_a_fit_records_where_it_comes_from(posterior):
    found = posterior.provenance
    assert found.method.startswith("Ensemble(method=MAP(step_size=0.01, optimiser=adam, decay=Mine(inner=Cosine())")
    assert found.seconds > 0
    assert found.versions[0] == f"tunbridge {tb.__version__}"
    assert [version.split()[0] for version in found.versions] == ["tunbridge", "jax", "python"]
    assert found.device
    assert all(member.provenance is None for member in posterior.members)


def test_references_are_those_of_the_method_and_the_models_parts(posterior):
    """Ensemble, the user's own schedule and the cosine in it, the prior whose scale may be unknown."""
    assert posterior.provenance.references == (
        "lakshminarayanan2017simple",
        "nobody2030nothing",
        "bishop2006pattern",
        "loshchilov2017sgdr",
        "betancourt2015hierarchical",
    )
    assert references(tb.likelihoods.Heteroscedastic()) == ("nix1994estimating",)
    assert references(tb.networks.MLP(), None, 3) == ()


def test_cite_prints_and_returns_the_entries(posterior, capsys):
    text = tb.cite(posterior)
    assert capsys.readouterr().out == text + "\n"
    assert text.startswith("@misc{tunbridge,")
    assert "title = {Simple and scalable predictive uncertainty estimation using deep ensembles}" in text
    assert "% nobody2030nothing: not in Tunbridge's bibliography" in text
    assert text.count("\n@") == 4
    assert "crps" not in text


def test_the_bibliography_is_read_whole():
    entries = bibliography()
    assert len(entries) >= 12
    assert all(entry.startswith("@") and entry.endswith("}") and f"{{{key}," in entry for key, entry in entries.items())


def test_what_no_method_fitted_has_nothing_to_cite(posterior):
    for thing in (posterior.members[0], posterior.model):
        with pytest.raises(tb.InputError, match="a posterior that a method fitted"):
            tb.cite(thing)


def test_provenance_is_a_value(posterior):
    found = posterior.provenance
    again = Provenance(found.method, found.references, found.seconds, found.versions, found.device)
    assert again == found
    assert hash(again) == hash(found)
