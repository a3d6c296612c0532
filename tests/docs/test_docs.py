"""What is written is also true: docstrings run, public names are documented, tutorials run, references exist."""

import doctest
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import tunbridge as tb
from toys import quick

ROOT = Path(__file__).parents[2]
MODULES = sorted(module.name for module in pkgutil.walk_packages(tb.__path__, "tunbridge."))
EXAMPLES = [name for name in MODULES if ">>> " in Path(importlib.util.find_spec(name).origin).read_text()]
FITTED = {
    f"tunbridge.{name}"
    for name in (
        "bench.baselines.processes.wide",
        "estimators.classifier",
        "estimators.convert",
        "estimators.regressor",
        "inference.linear.neurallinear",
        "inference.linear.vbll",
        "inference.sgmcmc.gig",
        "inference.sgmcmc.moves",
        "inference.vi.advi",
        "model.likelihoods.multitask",
        "model.networks.adapters.equinox",
        "model.networks.architectures.lenet",
        "model.networks.architectures.recurrent",
        "model.networks.architectures.resnet",
        "model.networks.architectures.vgg",
    )
}
"""Modules whose examples take more than a second."""
CELL = re.compile(r"```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)```", re.S)
FAMILIES = sorted((ROOT / "docs" / "families").glob("*.md"))


@pytest.mark.parametrize("name", quick(EXAMPLES, set(EXAMPLES) - FITTED))
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
    assert found.attempted > 0


def test_modules_with_slow_examples_are_modules_with_examples():
    assert set(EXAMPLES) >= FITTED


def _public():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, f"{name} has no docstring"
        for label, thing in vars(module).items():
            if label.startswith("_") or getattr(thing, "__module__", None) != name:
                continue
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{name}.{label}", thing


def test_every_public_thing_has_a_docstring():
    missing = []
    for name, thing in _public():
        if not thing.__doc__ or "Alias for field" in thing.__doc__:
            missing.append(name)
        if inspect.isclass(thing):
            own = [(label, part) for label, part in vars(thing).items() if not label.startswith("_")]
            methods = [(label, part) for label, part in own if inspect.isfunction(part) or isinstance(part, property)]
            missing += [f"{name}.{label}" for label, part in methods if not inspect.getdoc(part)]
    assert missing == []


def test_sphinx_reads_no_first_line_of_a_property_as_its_type():
    """It takes what stands before a colon in the first line, roles and literals apart, for the property's type."""
    typed = [
        f"{name}.{label}"
        for name, thing in _public()
        if inspect.isclass(thing)
        for label, part in vars(thing).items()
        if not label.startswith("_") and isinstance(part, property)
        if ":" in re.sub(r"``.*?``|:\w+:`.*?`", "", inspect.getdoc(part).splitlines()[0])
    ]
    assert typed == []


def test_every_public_name_is_in_the_reference():
    written = "".join(path.read_text() for path in (ROOT / "docs").glob("api/*.md"))
    for name in tb.__all__:
        assert re.search(rf"tunbridge\.{name}\b", written), f"{name} is missing in docs/api"
    for room in (
        "applications",
        "networks",
        "priors",
        "likelihoods",
        "metrics",
        "plots",
        "datasets",
        "bench",
        "diagnostics",
        "schedules",
    ):
        module = getattr(tb, room)
        for name in module.__all__:
            assert re.search(rf"\b{name}\b", written), f"tb.{room}.{name} is missing in docs/api"


def test_every_citation_is_in_the_bibliography():
    keys = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "src" / "tunbridge" / "references.bib").read_text(), re.M))
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md")]
    cited = {
        key
        for path in sources
        for group in re.findall(r"cite:[pt]:?\}?`([\w, ]+)`|\{cite:[pt]\}`([\w, ]+)`", path.read_text())
        for key in re.findall(r"\w+", "".join(group))
    }
    assert cited
    assert cited <= keys
    assert keys <= cited, f"never cited: {keys - cited}"


@pytest.mark.parametrize("name", ["choosing", "bench"])
def test_pages_that_read_figures_run(name, monkeypatch):
    """The others are run by `make docs`."""
    import matplotlib.pyplot as plt

    monkeypatch.syspath_prepend(ROOT / "docs")
    path = ROOT / "docs" / f"{name}.md"
    cells = CELL.findall(path.read_text())
    assert cells
    scope = {"__name__": "tutorial"}
    with warnings.catch_warnings():
        for _, cell in cells:
            exec(compile(cell, str(path), "exec"), scope)
    plt.close("all")


def test_figures_of_the_readme_are_those_of_the_committed_files(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    figures = importlib.import_module("figures")
    (block,) = figures.BLOCK.findall((ROOT / "README.md").read_text())
    assert block == figures.readme(), "write them anew: python docs/figures.py"


READ = [*FAMILIES, ROOT / "docs" / "choosing.md", ROOT / "docs" / "bench.md", ROOT / "README.md"]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_no_figure_is_typed(path):
    """A number with a point is a measurement unless it is code, a formula, a version or R-hat's limit."""
    spared = r"<!-- figures -->.*?<!-- end of figures -->|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)"
    prose = re.sub(spared, "", path.read_text(), flags=re.S)
    typed = set(re.findall(r"\d+\.\d+", prose)) - {"1.01", "3.11", "2.0"}
    assert typed == set(), "read them from a committed file in a cell"


def test_every_method_is_on_the_page_of_one_family():
    pages = {path.stem: set(re.findall(r"^\| `tb\.(\w+)`", path.read_text(), re.M)) for path in FAMILIES}
    named = sorted(name for names in pages.values() for name in names)
    assert named == sorted(method.__name__ for method in tb.METHODS.values())


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_networks_from_elsewhere_run(framework):
    pytest.importorskip(framework)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "networks.md").read_text(), re.S)
    (code,) = [block for block in blocks if f"import {framework}\n" in block]
    scope = {}
    exec(compile(code, "networks.md", "exec"), scope)
    model, rows = scope["model"].bind(tb.Data([[0.0], [1.0]], [0.0, 1.0]))
    assert model.check_inputs(model.network.weights, rows.x, 1) is None


def test_the_changelog_knows_the_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tb.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_the_readme_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert [row["method"] for row in scope["table"].rows][:2] == ["map", "ensemble"]
    assert scope["predictive"].mean.shape == (2, 1)
    assert float(scope["predictive"].epistemic.max()) > 0


def test_the_dependency_rule_holds():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"  # it silences loggers
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_ci_runs_make_test():
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert lines[-1] == "make test"
