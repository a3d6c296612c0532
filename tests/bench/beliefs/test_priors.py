"""What is said of priors holds on problems with a known answer."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

import tunbridge as tb
from toys import labelled, table
from tunbridge.bench.beliefs import gallery

LINE = tb.networks.MLP(())
NOISE = tb.likelihoods.Gaussian(0.5)


@pytest.mark.slow
def test_the_prior_predictive_is_that_of_a_line(key):
    """f = w x + b with unit scales at x = 2 has the variance 5; quantiles from 4,000 draws within 5 %."""
    data = tb.Data(np.full((30, 1), 2.0), np.zeros(30))
    model = tb.Model(LINE, tb.priors.Normal(1.0), NOISE)
    found = tb.bench.prior_predictive(model, data, key=key, num=4000)
    row = found.rows[0]
    assert row["quantity"] == "f(x) at an input"
    assert row["95 %"] == pytest.approx(1.645 * np.sqrt(5.0), rel=0.05)
    assert row["5 %"] == pytest.approx(-1.645 * np.sqrt(5.0), rel=0.05)
    assert "hardly expects" in str(found)  # all y are equal, which noise of 0.5 forbids


@pytest.mark.slow
def test_a_wide_prior_is_said_to_be_sure_before_any_data(key):
    data = labelled(30)
    tame, wild = (
        tb.bench.prior_predictive(
            tb.Model(tb.networks.MLP((5,)), tb.priors.Normal(scale), tb.likelihoods.Categorical(3)), data, key=key
        )
        for scale in (0.3, 30.0)
    )
    assert "sure before it has seen anything" in str(wild)
    assert "sure before" not in str(tame)


@pytest.mark.slow
def test_sensitivity_ends_at_the_prior_mean_and_at_least_squares(key):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = 3.0 * x[:, 0] + 0.1 * rng.normal(size=60)
    model = tb.Model(LINE, tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))
    found = tb.bench.sensitivity(model, (x, y), (x, y), scales=(1e-4, 10.0), method=tb.MAP(), key=key)
    assert [row["scale"] for row in found.rows] == [1e-4, 10.0]
    assert found.rows[0]["RMSE"] == pytest.approx(np.std(y), rel=0.02)
    assert found.rows[1]["RMSE"] < 0.12


@pytest.mark.slow
def test_the_ranking_is_by_the_evidence_of_a_line(key):
    """Log evidence of standardised rows against the multivariate normal density, within 0.15 (400 particles)."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 1))
    y = 2.0 * x[:, 0] + 0.5 * rng.normal(size=20)
    priors = {"tight": tb.priors.Normal(0.05), "right": tb.priors.Normal(1.0)}
    model = tb.Model(LINE, tb.priors.Normal(1.0), NOISE)
    smc = tb.TemperedSMC(particles=400, mutations=3)
    found = tb.bench.rank_priors(model, priors, (x, y), (x, y), method=smc, key=key)
    assert [row["prior"] for row in found.rows] == ["right", "tight"]
    phi = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(20)])
    sigma = 0.5 / y.std()
    for row, scale in zip(found.rows, (1.0, 0.05), strict=True):
        covariance = scale**2 * phi @ phi.T + sigma**2 * np.eye(20)
        wanted = stats.multivariate_normal(np.zeros(20), covariance).logpdf((y - y.mean()) / y.std())
        assert row["log evidence"] == pytest.approx(wanted, abs=0.15)
        assert row["its error"] > 0


def test_several_tasks_are_asked_one_at_a_time(key):
    rows = table(20)
    tasks = tb.likelihoods.MultiTask({"a": NOISE, "b": NOISE})
    data = tb.Data(rows.x, jnp.concatenate([rows.y, rows.y], axis=1))
    with pytest.raises(tb.InputError, match="one task at a time"):
        tb.bench.prior_predictive(tb.Model(LINE, tb.priors.Normal(1.0), tasks), data, key=key)


@pytest.mark.slow
def test_marginals_of_one_weight_are_the_laws_they_mix_to(key, x64):
    w = np.array([-3.0, 0.2, 1.0])
    for prior, law in (
        (tb.priors.Laplace(0.5), stats.laplace(scale=0.5)),
        (tb.priors.ScaleMixture(gallery.dist.InverseGamma(2.0, 3.0), squared=True), stats.t(4, scale=1.5**0.5)),
    ):
        error = 1e-9 if isinstance(prior, tb.priors.Laplace) else 0.05
        np.testing.assert_allclose(tb.priors.log_marginal(prior, w, key=key), law.logpdf(w), atol=error)
        derivative = (law.logpdf(w - 1e-5) - law.logpdf(w + 1e-5)) / 2e-5
        np.testing.assert_allclose(tb.priors.influence(prior, w, key=key), derivative, atol=max(10 * error, 1e-4))


def test_a_gallery_needs_a_kind_of_file_and_a_folder(tmp_path):
    for path, said in ((tmp_path / "a.txt", r"ends in \.png"), (tmp_path / "no" / "a.png", "a folder that exists")):
        with pytest.raises(tb.InputError, match=said):
            gallery.save(path)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_gallery_replaces_a_link_and_leaves_what_it_points_to(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "draw", lambda: Figure(figsize=(1, 1)))
    path, other = tmp_path / f"a.{kind}", tmp_path / "other"
    other.write_text("mine")
    path.symlink_to(other)
    gallery.save(path)
    assert other.read_text() == "mine"
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert not path.is_symlink()


@pytest.mark.slow
def test_the_gallery_is_drawn_whole(tmp_path):
    gallery.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 50_000
