"""One table of names: what stubs declare, what is registered, what an installed package brings."""

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tunbridge as tb
from core import plugin
from tunbridge.core import names
from tunbridge.inference.base import Method
from tunbridge.inference.posteriors import Posterior
from tunbridge.model import spec

TABLES = (tb.METHODS, tb.PRIORS, tb.LIKELIHOODS, tb.NETWORKS, tb.POSTERIORS)
ROOMS = ("datasets", "model.priors", "model.likelihoods", "model.networks")


@pytest.fixture
def mine():
    for table in TABLES:
        table._registered.clear()
    yield
    for table in TABLES:
        table._registered.clear()


@pytest.mark.parametrize("module", ["tunbridge", *(f"tunbridge.{room}" for room in ROOMS)])
def test_a_stub_declares_what_can_be_imported(module):
    assert names.declared(module)
    for name, place in names.declared(module).items():
        assert names.resolve(place) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match=rf"module '{module}' has no attribute 'nothing'"):
        sys.modules[module].nothing  # noqa: B018


def test_every_name_of_a_table_is_of_its_kind():
    assert all(issubclass(cls, Method) and name == cls.__name__.lower() for name, cls in tb.METHODS.items())
    assert all(hasattr(cls, "log_prob") for cls in tb.PRIORS.values())
    assert all(hasattr(cls, "distribution") for cls in tb.LIKELIHOODS.values())
    assert all(hasattr(cls, "layout") for cls in tb.NETWORKS.values())
    public = {name: getattr(tb, name) for name in tb.__all__}
    classes = {name: cls for name, cls in public.items() if isinstance(cls, type)}
    assert dict(tb.POSTERIORS) == {name: cls for name, cls in classes.items() if issubclass(cls, Posterior)}


def test_a_registered_class_has_a_name_and_is_written_to_files(mine):
    tb.METHODS.register("stroll", plugin.Stroll)
    tb.PRIORS.register("Secant", "core.plugin:Secant")
    assert tb.METHODS["stroll"] is plugin.Stroll
    assert "stroll" in tb.METHODS
    assert list(tb.METHODS)[-1] == "stroll"
    encoder = spec.Encoder()
    text = encoder.encode(plugin.Secant(2.0))
    assert text["class"] == "Secant"
    assert spec.Decoder(encoder.arrays).decode(text) == plugin.Secant(2.0)


def test_a_registered_class_with_the_name_of_another_kind_is_qualified_in_files(mine):
    before = spec.classes({}, {"posteriors": tb.POSTERIORS})
    tb.PRIORS.register("Draws", plugin.Secant)
    tb.POSTERIORS.register("Normal", plugin.Walk)
    after = spec.classes({}, {"posteriors": tb.POSTERIORS})
    assert set(after.items()) - set(before.items()) == {
        ("priors.Draws", "core.plugin:Secant"),
        ("posteriors.Normal", "core.plugin:Walk"),
    }


def test_the_name_of_an_installed_part_that_is_taken_is_left_out_with_a_warning(monkeypatch):
    places = [("map", "one:Map"), ("stroll", "one:Stroll"), ("hop", "one:Hop"), ("stroll", "two:Stroll")]
    points = [importlib.metadata.EntryPoint(name, place, "tunbridge.methods") for name, place in places]
    monkeypatch.setattr(names, "_entry_points", lambda: importlib.metadata.EntryPoints(points))
    names._installed.cache_clear()
    with pytest.warns(UserWarning, match="is not used") as said:
        assert list(tb.METHODS.places.items())[-2:] == [("stroll", "one:Stroll"), ("hop", "one:Hop")]
    names._installed.cache_clear()
    assert tb.METHODS.place("map").endswith(":MAP")
    assert [str(warning.message) for warning in said] == [
        f"The method {name!r} of an installed package ({place}) is not used: the name is that of a method of {holder}."
        for name, place, holder in (("map", "one:Map", "Tunbridge"), ("stroll", "two:Stroll", "one:Stroll"))
    ]


def test_names_that_are_taken_or_lead_nowhere_are_refused(mine):
    with pytest.raises(
        tb.InputError, match=r"a new name for a method; got 'map', the name of tunbridge\.inference\.point"
    ):
        tb.METHODS.register("map", plugin.Stroll)
    for wrong in ("nowhere:Stroll", "core.plugin:Nothing", "core.plugin:math", "core.plugin"):
        with pytest.raises(tb.InputError, match="a class of a module"):
            tb.METHODS.register("stroll", wrong)
    with pytest.raises(tb.InputError, match=r"a method of auto, map, .*; got 'magic'"):
        tb.METHODS["magic"]


POINTS = """[tunbridge.methods]
stroll = stroll:Stroll
map = stroll:Stroll
[tunbridge.priors]
Secant = stroll:Secant
[tunbridge.likelihoods]
LogisticNoise = stroll:Logistic
[tunbridge.networks]
Waves = stroll:Waves
[tunbridge.posteriors]
Walk = stroll:Walk
"""
USED = """
import jax, numpy as np, tunbridge as tb
x = np.linspace(-1, 1, 40)[:, None]
y = np.sin(3 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
from stroll import Logistic as Noise, Secant, Walk, Waves
model = tb.Model(Waves(3), Secant(1.0), Noise(0.3))
posterior = tb.METHODS["stroll"]().fit(model, tb.Data(x, y), key=jax.random.key(0), progress=False)
posterior.save("saved")
again = tb.load("saved")
assert (again.predict(x).mean == posterior.predict(x).mean).all()
assert type(again.model.prior) is Secant and type(again.model.likelihood) is Noise
assert type(again) is Walk and type(again.model.network) is Waves
found = tb.compare(model, (x, y), (x, y), methods=["map", "stroll"], key=jax.random.key(1))
assert "stroll" in {row["method"] for row in found.rows} and not found.failures, found.failures
fitted = tb.BayesianRegressor("stroll", (3,), prior="secant", likelihood="logisticnoise").fit(x, y)
assert type(fitted.posterior_.model.prior) is Secant and type(fitted.posterior_.model.likelihood) is Noise
assert tb.METHODS["map"] is tb.MAP
assert np.isfinite(fitted.predict(x)).all()
np.savetxt("table.csv", np.column_stack([x, y]), delimiter=",", header="a,y", comments="")
"""


@pytest.mark.slow
def test_an_installed_package_brings_a_part_of_each_kind(tmp_path):
    """A wheel of one file, installed by pip into a folder of its own; every door knows its parts."""
    wheel, home = tmp_path / "stroll-1.0-py3-none-any.whl", tmp_path / "home"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(Path(plugin.__file__), "stroll.py")
        file.writestr("stroll-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: stroll\nVersion: 1.0\n")
        file.writestr("stroll-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nTag: py3-none-any\n")
        file.writestr("stroll-1.0.dist-info/entry_points.txt", POINTS)
        file.writestr("stroll-1.0.dist-info/RECORD", "")
    quiet = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(home), str(wheel)]
    subprocess.run([sys.executable, *quiet], check=True, timeout=120)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), *sys.path])}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, done.stderr

    def tunbridge(*words):
        return run("-m", "tunbridge", *words)

    run("-c", USED)
    said, warned = tunbridge("methods")
    assert "Metropolis with one step size" in said
    assert "'map' of an installed package (stroll:Stroll) is not used" in warned
    assert "The logarithm of a half-Cauchy variable" in tunbridge("priors")[0]
    table = ("table.csv", "-t", "y", "-m", "stroll", "-q")
    tunbridge("fit", *table, "--prior", "secant", "--likelihood", "LogisticNoise", "--out", "run")
    tunbridge("predict", "run", "table.csv")
    assert "Secant" in tunbridge("info", "run")[0]
    assert "stroll" in tunbridge("compare", *table, "--no-baselines")[0]
    toy = ("bench", "toy", "--tasks", "curve", "--splits", "0", "-m", "stroll", "--gradients", "2000")
    assert "1 rows, 0 failed" in tunbridge(*toy, "--no-tune", "-q")[0]
