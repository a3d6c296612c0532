"""The package as a whole: its names, its weight, what it refuses."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tunbridge as tb


def _run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_public_names_are_exactly_all():
    assert set(tb.__all__) == set(dir(tb))
    for name in tb.__all__:
        assert getattr(tb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tb.nothing  # noqa: B018


def test_importing_tunbridge_imports_nothing_heavy():
    heavy = ("sklearn", "matplotlib", "numpyro", "optax", "equinox", "scipy.stats")
    done = _run(f"import sys, tunbridge; print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_fitting_and_predicting_need_neither_plots_nor_scikit_learn():
    done = _run(
        "import sys, jax, tunbridge as tb\n"
        "m = tb.Model(tb.networks.MLP((3,)), tb.priors.Normal(1.0), tb.likelihoods.Gaussian(0.1))\n"
        "d = tb.Data([[0.0], [1.0]], [0.0, 1.0])\n"
        "tb.MAP(train=tb.Train(3)).fit(m, d, key=jax.random.key(0)).predict([[0.5]]).mean\n"
        "print([name for name in ('sklearn', 'matplotlib') if name in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


PRIVATE: set[str] = {"os._exit"}  # public in spite of its name: the end of a process without clean-up
"""Private names of other packages that src may use, as `package._module.name`; each with its reason beside it."""


_CHAIN = re.compile(r"[\w.]+")


def _private(tree):
    """Private names of other packages that code imports, or reaches as an attribute of what it imports."""
    places, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
            places |= {alias.asname or alias.name.split(".")[0]: alias.asname and alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            used, places = used | set(found.values()), places | found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _CHAIN.fullmatch(chain := ast.unparse(node)):
            first, *rest = chain.split(".")
            if first in places:
                used.add(".".join((places[first] or first, *rest)))
    return {name for name in used if not name.startswith("tunbridge.") and _hidden(name)}


def _hidden(name):
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def test_no_private_name_of_another_package_is_used():
    root = Path(tb.__file__).parent
    found = {str(path.relative_to(root)): _private(ast.parse(path.read_text())) for path in root.rglob("*.py")}
    assert {file: names - PRIVATE for file, names in found.items() if names - PRIVATE} == {}


@pytest.mark.parametrize(
    "code",
    [
        *("import jax._src.core", "from jax._src import core", "from jax import _src", "from numpy.a._b import c as d"),
        *(
            "import jax\njax._src.core.f()",
            "import jax.core as c\nc._f",
            "from equinox import nn\nnn._linear.Linear(2)",
        ),
    ],
)
def test_the_search_finds_a_private_name(code):
    assert _private(ast.parse(code))
    assert not _private(ast.parse("import jax.numpy as jnp\nfrom tunbridge.core import _own\njnp.__name__\nx._y"))


FIRST = """
import sys
import jax

compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
import numpyro.distributions as dist
import tunbridge as tb

data = tb.datasets.diabetes()
models = [tb.Model(tb.networks.MLP((50,)), prior, likelihood) for prior, likelihood in (
    (tb.priors.Normal(1.0), tb.likelihoods.Gaussian(dist.Gamma(0.5, 1.0))),
    (tb.priors.Normal(tb.priors.fan_in(dist.HalfNormal(1.0))), tb.likelihoods.StudentT(4.0, dist.HalfCauchy(1.0))),
    (tb.priors.Laplace((1.0, 2.0)), tb.likelihoods.Poisson()),
    (tb.priors.Horseshoe(), tb.likelihoods.Categorical(3)),
    (tb.priors.LowRankNormal([[1.0], [2.0]], 0.5), tb.likelihoods.Bernoulli()),
    (tb.priors.FullNormal([[2.0, 1.0], [1.0, 2.0]]), tb.likelihoods.NegativeBinomial(dist.LogNormal(1.0, 1.0))),
)]
tb.MAP()
print([event for event in compiled if "compile" in event], "sklearn" in sys.modules)
"""


def test_a_model_and_its_data_are_made_without_compiling_anything_or_importing_scikit_learn():
    done = _run(FIRST)
    assert done.stdout.strip() == "[] False", done.stdout + done.stderr


def test_the_broken_jax_is_refused_with_the_way_out():
    done = _run("import jax\njax.__version__ = '0.10.2'\nfrom tunbridge import Data")
    assert done.returncode != 0
    assert "jax 0.10.2" in done.stderr
    assert "pip install 'jax!=0.10.2'" in done.stderr
    pins = [need for need in importlib.metadata.requires("tunbridge") if need.startswith("jax")]
    assert any("!=0.10.2" in need for need in pins)
