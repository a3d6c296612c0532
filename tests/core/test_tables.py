import re

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import tunbridge as tb
from toys import labelled, model, table
from tunbridge.core import tables
from tunbridge.core.provenance import Provenance

ROWS = [{"name": "<script>alert(1)</script> & [red]", "value": 0.123456}, {"name": '"q"', "value": 123456.7}]


def test_html_is_escaped():
    page = tables.to_html(ROWS, "<caption>")
    assert set(re.findall(r"<(\w+)", page)) == {"table", "caption", "tr", "th", "td"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; [red]" in page
    assert "&quot;q&quot;" in page
    assert "<caption>&lt;caption&gt;</caption>" in page
    assert "0.1235" in page
    assert "123,457" in page


def test_text_shows_words_as_they_are():
    """Nothing is taken for rich's own markup."""
    page = tables.to_text(ROWS)
    assert "[red]" in page
    assert "0.1235" in page


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_narrow_terminal_folds_words_and_leaves_names_and_numbers_whole(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [{"a name": "bayesbybackprop", "words": "one of many " * 12, "share": 0.123456, "rows": 1234567}]
    lines = tables.to_text(rows).splitlines()
    assert max(map(len, lines)) <= width
    for whole in ("a name", "bayesbybackprop", "0.1235", "1,234,567"):
        assert any(whole in line for line in lines)
    assert " ".join(lines).split().count("many") == 12


def test_a_table_of_many_numbers_is_wider_than_the_terminal_rather_than_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = tables.to_text([{"method": "map"} | {f"figure {i}": 1.0 + i / 1000 for i in range(12)}])
    assert all(f" {1.0 + i / 1000:.4g} " in text for i in range(12))
    assert text.count("figure") == 12


def test_a_word_that_is_longer_than_a_line_is_folded(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = tables.to_text([{"name": "n" * 200, "path": "p" * 200}]).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("n") for line in lines[3:]) == sum(line.count("p") for line in lines[3:]) == 200


def prior_draws(made, data, num=3):
    bound, rows = made.bind(data)
    like, rng = jax.eval_shape(bound.sample_params, jax.random.key(0), rows.x), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=(num, *leaf.shape)).astype(leaf.dtype), like)
    return tb.Draws(bound, jax.random.key(1), params, notes=("Read <this>.",))


@pytest.fixture(scope="module")
def posterior():
    prior = tb.priors.Normal((1.0, dist.HalfNormal(1.0)))
    return prior_draws(model(prior=prior, likelihood=tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))), table())


def test_a_model_shows_its_parts():
    page = model()._repr_html_()
    for words in ("MLP(hidden=(5,), activation=&#x27;tanh&#x27;", "Normal(scale=1.0)", "Gaussian(scale=0.1)"):
        assert words in page


def test_a_posterior_shows_its_kind_size_and_notes(posterior):
    page = posterior._repr_html_()
    assert "<caption>Draws</caption>" in page
    assert "<td>28</td>" in page  # 3 * 5 + 5 + 5 + 1 weights, a scale, a noise
    assert "Read &lt;this&gt;." in page
    method = Provenance("Walk()", (), 1.0, (), "cpu")
    assert "Walk()" in tb.Draws(posterior.model, posterior.key, posterior.params, provenance=method)._repr_html_()


def test_a_predictive_shows_its_first_points(posterior):
    predictive = posterior.predict(table().x)
    page = predictive._repr_html_()
    assert "40 points" in page
    assert page.count("<tr>") == 6
    assert f"<td>{float(predictive.mean[4, 0]):.4g}</td>" in page
    classes = prior_draws(model(likelihood=tb.likelihoods.Categorical()), labelled()).predict(labelled().x[:2])
    page = classes._repr_html_()
    assert page.count("<tr>") == 3
    assert ", ".join(f"{float(p):.4g}" for p in classes.probs[1]) in page


def test_a_summary_has_a_row_for_each_array_in_its_own_units(posterior):
    summary = posterior.summary()
    rows = {row["unknown"]: row for row in summary.rows}
    assert len(rows) == 6
    noise = np.exp(np.asarray(posterior.params.noise[0], float))
    assert rows["noise/0"] == {
        "unknown": "noise/0",
        "shape": "()",
        "mean": pytest.approx(noise.mean(), rel=1e-5),
        "sd": pytest.approx(noise.std(), rel=1e-4),
        "as": "value",
    }
    assert rows["scales/0"]["mean"] == pytest.approx(np.exp(posterior.params.scales[0]).mean(), rel=1e-5)
    raw = np.asarray(posterior.params.weights["layers"][1]["bias"])
    own = raw * np.exp(np.asarray(posterior.params.scales[0]))[:, None]
    assert rows["weights/layers/1/bias"]["mean"] == pytest.approx(own.mean(), rel=1e-4)
    assert rows["weights/layers/0/weight"]["shape"] == "(3, 5)"
    assert "weights/layers/0/weight" in str(summary)
    assert "<table>" in summary._repr_html_()
